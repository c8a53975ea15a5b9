"""The verbs of artifacts. Thin: what they do is done by the modules beside this one.

A private key is named by its file and is never an option, a variable's value, or printed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from bucketmq.apps.artifacts.settings import KEY_VARIABLE, TRUST_VARIABLE, ArtifactsSettings, plan_of, read_pin
from bucketmq.cli.group import Group
from bucketmq.cli.options import Json, Url, open_bucket, the_url
from bucketmq.cli.output import answer, emit, emit_all, emit_text, plural, say, table
from bucketmq.client import Bucket
from bucketmq.errors import Invalid

if TYPE_CHECKING:
    from bucketmq.apps.artifacts.envelope import SigningKey
    from bucketmq.apps.artifacts.keys import Trust
    from bucketmq.apps.artifacts.promotion import Promoted

Name = Annotated[str, typer.Argument(metavar="NAME", help="The artifact's name.")]
VersionOf = Annotated[str, typer.Argument(metavar="VERSION", help="Its version.")]
TrustOption = Annotated[
    str, typer.Option("--trust", metavar="FILE", help=f"The trust document you were given (env: {TRUST_VARIABLE}).")
]
KeyOption = Annotated[
    list[Path] | None,
    typer.Option("--key", metavar="FILE", help=f"The file of a private key; may be repeated (env: {KEY_VARIABLE})."),
]
EnvOption = Annotated[str, typer.Option("--env", metavar="ENVIRONMENT", help="The environment.")]
Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, for the history.")]


def keygen(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Where the private key goes; must not exist.")],
    *,
    owner: Annotated[str, typer.Option(metavar="NAME", help="The name of its holder in histories.")] = "",
    as_json: Json = False,
) -> None:
    """Make an Ed25519 key: the private half into a file for you alone, the public half for the trust file."""
    from bucketmq.apps.artifacts.keyfiles import make_key, public_text

    made = make_key(path)
    name = owner or path.stem
    row = {"owner": name, "public": public_text(made), "id": made.id, "file": str(path)}
    if as_json:
        emit(row)
        return
    emit_text("[[keys]]")
    emit_text(f'owner = "{name}"')
    emit_text(f'public = "{row["public"]}"')
    emit_text('roles = ["builds"]  # builds, environments, approves, reports, trust')
    say(f"the private key is in {path}: keep it to yourself; the lines above go into the trust file")


def trust(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Keys and environments, as TOML.")],
    *,
    key: KeyOption = None,
    pin: Annotated[
        Path, typer.Option("--pin", metavar="FILE", help="The document for verifiers: read if it is there, written.")
    ] = Path("trust.json"),
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Publish whom to trust: the first time, and again when keys or environments change.

    It is signed with your keys of the role trust. Give the pin to those who verify: they follow every later
    change from it by themselves.
    """
    from bucketmq.apps.artifacts.machine import write
    from bucketmq.apps.artifacts.trusting import publish_trust, read_file

    the_url(url)
    wanted, signing = read_file(path), _keys(key)
    before = pin.read_bytes() if pin.exists() else None
    with open_bucket(url) as bucket:
        made, body = bucket.run(publish_trust(bucket.api, wanted, signing, before))
    write(pin, body)
    if as_json:
        emit(msgspec.to_builtins(made))
        return
    table(
        ("owner", "roles", "key", "until"), [(k.owner, " ".join(k.roles), k.id[:12], k.expires_at) for k in made.keys]
    )
    say(f"trust {made.number} holds until {made.expires_at}; {pin} is its pin")


def publish(
    name: Name,
    version: VersionOf,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, and folders with what is below them.")],
    *,
    key: KeyOption = None,
    commit: Annotated[str, typer.Option(metavar="ID", help="The commit it was built from.")] = "",
    source: Annotated[str, typer.Option(metavar="URI", help="The repository of the commit.")] = "",
    builder: Annotated[str, typer.Option(metavar="URI", help="Who built it.")] = "",
    run: Annotated[str, typer.Option(metavar="URI", help="The run that built it.")] = "",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Write files below builds/NAME/VERSION/ and then the signed manifest, from which moment on they are there.

    A version never changes. Publishing the same files again is not an error: it completes what was interrupted.
    """
    from bucketmq.apps.artifacts import publish as publishing

    the_url(url)
    signing, sources = _keys(key), publishing.sources_of(paths)
    with open_bucket(url) as bucket:
        made = bucket.run(
            publishing.publish(
                bucket.api, name, version, sources, signing, builder=builder, commit=commit, source=source, run=run
            )
        )
    if as_json:
        emit({"name": name, "version": version, "digest": made.digest, "new": made.new, "files": len(sources)})
        return
    emit_text(f"{name} {version} {made.digest}")
    again = "" if made.new else "; it was there already, with the same files"
    say(f"{plural(len(sources), 'file')}, {made.manifest.size_bytes:,} bytes{again}")


def sign(name: Name, version: VersionOf, *, key: KeyOption = None, url: Url = None, as_json: Json = False) -> None:
    """Add your signature to a version, where more than one key must sign."""
    from bucketmq.apps.artifacts import publish as publishing

    the_url(url)
    (signing, *_) = _keys(key)
    with open_bucket(url) as bucket:
        new = bucket.run(publishing.sign(bucket.api, name, version, signing))
    row = {"name": name, "version": version, "key": signing.id, "new": new}
    answer(row, f"{name} {version} is signed by this key{'' if new else ' already'}", as_json=as_json)


def verify(
    name: Name,
    version: VersionOf,
    *,
    env: Annotated[str, typer.Option(metavar="ENVIRONMENT", help="As it lies there, not as it was published.")] = "",
    trust: TrustOption = "",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Check every byte of a version against what trusted keys have signed."""
    from bucketmq.apps.artifacts import verify as verifying

    with _believing(url, trust) as (bucket, trusted):
        found = bucket.run(verifying.verify(bucket.api, trusted, name, version, environment=env))
    if as_json:
        emit(msgspec.to_builtins(found))
        return
    emit_text(f"{name} {version} {found.digest}")
    say(f"{plural(len(found.manifest.files), 'file')} as signed by {', '.join(found.signed_by)} (trust {found.trust})")


def promote(
    name: Name,
    version: VersionOf,
    *,
    env: EnvOption,
    key: KeyOption = None,
    why: Why = "",
    trust: TrustOption = "",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Copy a version to an environment, check the copies, and make it current there, if its gate is open."""
    from bucketmq.apps.artifacts import promotion

    with _believing(url, trust) as (bucket, trusted):
        promoter = promotion.Promoter(_keys(key), why=why)
        done = bucket.run(promotion.promote(bucket.api, trusted, name, version, env, promoter=promoter))
    _tell_pointer(done, as_json=as_json)


def approve(
    name: Name,
    version: VersionOf,
    *,
    env: EnvOption,
    key: KeyOption = None,
    trust: TrustOption = "",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Say that a version may go to an environment. It holds for exactly these bytes."""
    from bucketmq.apps.artifacts import promotion

    with _believing(url, trust) as (bucket, trusted):
        (signing, *_) = _keys(key)
        said = bucket.run(promotion.approve(bucket.api, trusted, name, version, env, signing=signing))
    if as_json:
        emit(msgspec.to_builtins(said))
        return
    emit_text(f"{name} {version} {said.digest} approved for {env}")


def rollback(
    name: Name,
    *,
    env: EnvOption,
    to: Annotated[str, typer.Option(metavar="VERSION", help="An earlier one; without it the one before.")] = "",
    key: KeyOption = None,
    why: Why = "",
    trust: TrustOption = "",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Go back to what was current before. It is verified again, and the counter goes on."""
    from bucketmq.apps.artifacts import promotion

    with _believing(url, trust) as (bucket, trusted):
        promoter = promotion.Promoter(_keys(key), why=why)
        done = bucket.run(promotion.rollback(bucket.api, trusted, name, env, promoter=promoter, to=to))
    _tell_pointer(done, as_json=as_json)


def refresh(
    name: Name,
    *,
    env: EnvOption,
    key: KeyOption = None,
    trust: TrustOption = "",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Renew the pointer to what is current before it expires: agents refuse an expired one."""
    from bucketmq.apps.artifacts import promotion

    with _believing(url, trust) as (bucket, trusted):
        promoter = promotion.Promoter(_keys(key))
        done = bucket.run(promotion.refresh(bucket.api, trusted, name, env, promoter=promoter))
    _tell_pointer(done, as_json=as_json)


def status(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="One artifact alone.")] = "",
    *,
    trust: TrustOption = "",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """What is current where, since when and by whom, and what the agents say of it."""
    from bucketmq.apps.artifacts.overview import cell_row, overview

    with _believing(url, trust, probe=False) as (bucket, trusted):
        cells = bucket.run(overview(bucket.api, trusted, name=name))
    if as_json:
        emit_all(map(cell_row, cells))
        return
    rows: list[tuple[object, ...]] = []
    for cell in cells:
        now = cell.current
        if now is None:
            rows.append((cell.name, cell.environment, "?", "", "", "", cell.problem))
        else:
            over = "OVER: agents refuse it; refresh" if cell.over else cell.health
            rows.append((cell.name, cell.environment, now.version, now.counter, now.by, now.at[:19], over))
    table(("artifact", "environment", "version", "#counter", "by", "at", "agents"), rows)
    if not cells:
        say("nothing was promoted yet")


def history(
    name: Name,
    *,
    env: Annotated[str, typer.Option("--env", metavar="ENVIRONMENT", help="One environment alone.")] = "",
    trust: TrustOption = "",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Who promoted what when, and went back why. The newest first."""
    from bucketmq.apps.artifacts.overview import overview

    with _believing(url, trust, probe=False) as (bucket, trusted):
        cells = bucket.run(overview(bucket.api, trusted, name=name))
    for cell in cells:
        if cell.problem:
            say(f"{cell.environment}: {cell.problem}")
    lines = [
        {"environment": cell.environment, **msgspec.to_builtins(state)}
        for cell in cells
        if cell.current is not None and (not env or cell.environment == env)
        for state in (cell.current, *cell.past)
    ]
    lines.sort(key=lambda line: line["at"], reverse=True)
    if as_json:
        emit_all(lines)
        return
    columns = ("at", "environment", "did", "version", "#counter", "by", "why")
    rows = [
        (x["at"][:19], x["environment"], x["did"], x["version"], x["counter"], x["by"], x.get("why")) for x in lines
    ]
    table(columns, rows)


def diff(
    name: Name,
    before: Annotated[str, typer.Argument(metavar="VERSION", help="The older version.")],
    after: Annotated[str, typer.Argument(metavar="VERSION", help="The newer one.")],
    *,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """How two versions differ, by their manifests: files and where they come from."""
    from bucketmq.apps.artifacts.overview import difference

    with open_bucket(url, probe=False) as bucket:
        _, _, found = bucket.run(difference(bucket.api, name, before, after))
    if as_json:
        emit(msgspec.to_builtins(found))
        return
    for what, (old, new) in found.fields.items():
        emit_text(f"  {what}: {old or '-'} -> {new or '-'}")
    for each in found.removed:
        emit_text(f"- {each.path}  {each.size_bytes:,} bytes")
    for each in found.added:
        emit_text(f"+ {each.path}  {each.size_bytes:,} bytes")
    for one, other in found.changed:
        emit_text(f"~ {one.path}  {one.size_bytes:,} -> {other.size_bytes:,} bytes")
    say(f"{plural(found.same, 'file')} are the same")


def deploy(
    *,
    env: EnvOption,
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="Where releases go.")] = Path("deployed"),
    agent: Annotated[str, typer.Option(metavar="NAME", help="This agent's name; else this machine's.")] = "",
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="These artifacts alone.")] = None,
    hook: Annotated[str, typer.Option(metavar="COMMAND", help="Run after a release was activated.")] = "",
    webhook: Annotated[str, typer.Option(metavar="URL", help="Notify this address instead, by POST.")] = "",
    health: Annotated[str, typer.Option(metavar="COMMAND", help="Ends with 0 once the release works.")] = "",
    health_url: Annotated[str, typer.Option(metavar="URL", help="Answers 2xx once the release works.")] = "",
    private: Annotated[bool, typer.Option("--private", help="These URLs may be on this machine.")] = False,
    hook_seconds: Annotated[float, typer.Option(min=0.1, help="How long the hook may take.")] = 120.0,
    health_seconds: Annotated[float, typer.Option(min=0.1, help="It must be healthy within this time.")] = 60.0,
    key: KeyOption = None,
    trust: TrustOption = "",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Deploy once what the pointers of an environment say on this machine: verify, fetch, activate, hook, health check.

    To go on by itself: bucketmq apps run artifacts --only deploy. Exits with 1 if something was refused or failed.
    """
    from bucketmq.apps.artifacts.deploy import Deployer

    settings = ArtifactsSettings(
        url=the_url(url),
        environment=env,
        folder=str(folder),
        agent=agent,
        only=tuple(only or ()),
        hook=hook,
        webhook=webhook,
        health=health,
        health_url=health_url,
        private=private,
        hook_seconds=hook_seconds,
        health_seconds=health_seconds,
    )
    (signing, *_) = _keys(key)
    with open_bucket(url) as bucket:
        deployer = Deployer(
            bucket.api, bucket.run, plan_of(settings), pin=read_pin(_trust_path(trust)), signing=signing
        )
        deployer.check()
        reports = deployer.look_at_all()
    for each in reports:
        if as_json:
            emit(msgspec.to_builtins(each))
        else:
            emit_text(f"{each.name} {each.version} in {each.environment}: {each.state} {each.why}".rstrip())
    if not reports:
        say("nothing new")
    if any(each.state != "healthy" for each in reports):
        raise typer.Exit(1)


@contextlib.contextmanager
def _believing(url: str | None, trust: str, *, probe: bool = True) -> Iterator[tuple[Bucket, Trust]]:
    """The bucket, and whom to believe there."""
    from bucketmq.apps.artifacts.verify import newest_trust

    the_url(url)
    pin = read_pin(_trust_path(trust))
    with open_bucket(url, probe=probe) as bucket:
        trusted, _ = bucket.run(newest_trust(bucket.api, pin))
        yield bucket, trusted


def _trust_path(given: str) -> str:
    return given or os.environ.get(TRUST_VARIABLE, "")


def _keys(given: list[Path] | None) -> tuple[SigningKey, ...]:
    from bucketmq.apps.artifacts.keyfiles import load_key

    named = os.environ.get(KEY_VARIABLE)
    paths = given or ([Path(named)] if named else [])
    if not paths:
        raise Invalid(f"this is signed: name your key file: --key FILE (env: {KEY_VARIABLE}), or make one with keygen")
    return tuple(load_key(each) for each in paths)


def _tell_pointer(done: Promoted, *, as_json: bool) -> None:
    pointer = done.pointer
    now = pointer.current
    if as_json:
        row: dict[str, Any] = msgspec.to_builtins(pointer)
        row.pop("past", None)
        emit({**row, "new": done.new})
        return
    emit_text(f"{pointer.name} in {pointer.environment}: {now.version} {now.digest}")
    say(f"counter {now.counter}, {now.did} by {now.by}" + ("" if done.new else "; it was current already"))


GROUP = Group("artifacts", "Build artifacts: signed, verified, promoted through environments, deployed, rolled back.")

verb = GROUP.panel("Keys")
verb(keygen, "bucketmq artifacts keygen ada.key", "bucketmq artifacts keygen ben.key --owner ben --json")
verb(
    trust,
    "bucketmq artifacts trust trust.toml --key ada.key",
    "bucketmq artifacts trust trust.toml --key ada.key --pin trust.json --json",
)

verb = GROUP.panel("Builds")
verb(
    publish,
    "bucketmq artifacts publish shop 1.0 dist/ --key ada.key --commit c0ffee",
    "bucketmq artifacts publish shop 1.1 dist/ notes.txt --key ada.key --json",
)
verb(sign, "bucketmq artifacts sign shop 1.0 --key ben.key")
verb(
    verify,
    "bucketmq artifacts verify shop 1.0 --trust trust.json",
    "bucketmq artifacts verify shop 1.0 --trust trust.json --json",
)

verb = GROUP.panel("Environments")
verb(
    promote,
    "bucketmq artifacts promote shop 1.0 --env staging --key ada.key --trust trust.json",
    "bucketmq artifacts promote shop 1.1 --env staging --key ada.key --trust trust.json --why 'the fix' --json",
)
verb(approve, "bucketmq artifacts approve shop 1.1 --env production --key ben.key --trust trust.json")
verb(
    rollback,
    "bucketmq artifacts rollback shop --env staging --key ada.key --trust trust.json",
    "bucketmq artifacts rollback shop --env staging --to 1.1 --why 'it was fine' --key ada.key --trust trust.json",
)
verb(refresh, "bucketmq artifacts refresh shop --env staging --key ada.key --trust trust.json")
verb(
    deploy,
    "bucketmq artifacts deploy --env staging --folder releases --key ada.key --trust trust.json",
    "bucketmq artifacts deploy --env staging --hook 'echo restart' --health 'true' --key ada.key --trust trust.json",
)

verb = GROUP.panel("Look")
verb(status, "bucketmq artifacts status --trust trust.json", "bucketmq artifacts status shop --trust trust.json --json")
verb(history, "bucketmq artifacts history shop --env staging --trust trust.json")
verb(diff, "bucketmq artifacts diff shop 1.0 1.1", "bucketmq artifacts diff shop 1.0 1.1 --json")
