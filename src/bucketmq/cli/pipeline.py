"""The verbs of pipelines: list, show, run, package, tidy up. What a pipeline does belongs to `bucketmq.spark`.

How a name leads to one, and which options it has of its own, is `bucketmq.cli.pipeline_names`.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, urlsplit

import msgspec
import typer
from platformdirs import user_state_path

from bucketmq.apps.settings import bucket_of
from bucketmq.bucket.urls import location_of, without_secrets
from bucketmq.cli.agent import signals
from bucketmq.cli.exits import Code
from bucketmq.cli.figures import MetricsHostOption, MetricsPortOption, OtlpOption, ReportOption, served
from bucketmq.cli.options import Json, Url, a_url, open_bucket, pairs_of, the_url
from bucketmq.cli.output import age, answer, emit, emit_text, flush, plural, say, table
from bucketmq.cli.pipeline_metrics import PipelineFigures
from bucketmq.cli.pipeline_names import app_of, is_chore, known, load, made, option_words, options_of
from bucketmq.cli.progress import Progress
from bucketmq.cli.worker import log_to_stderr
from bucketmq.client import connect
from bucketmq.errors import BucketMQError
from bucketmq.metrics.report import Reporter
from bucketmq.pipeline import Pipeline, Stage
from bucketmq.pipeline.ends import FromTable
from bucketmq.pipeline.lineage import tidy_lineage
from bucketmq.procedures.queues import EVENTS
from bucketmq.queue.settings import DEAD_SUFFIX
from bucketmq.spark.options import STORE_OPTIONS, place_of, whole
from bucketmq.spark.running.failure import SlowPython, explained
from bucketmq.spark.running.progress import POLL_SECONDS, Figures, Stop, Totals, attend
from bucketmq.spark.setup import APP, private
from bucketmq.spark.setup.package import package as make_package
from bucketmq.spark.setup.session import LEVELS, is_there, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STARTS_MAX = 5
"""Of a query, in a session that others share."""

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
"""For verbs that hand options on to the pipeline."""

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A built-in pipeline (bucketmq pipeline ls), or module:attribute.")
]
Checkpoint = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="Where Spark keeps how far it is. Default: in your state folder, by bucket."),
]


def ls(as_json: Json = False) -> None:
    """List the built-in pipelines and chores."""
    rows = sorted(known().values(), key=lambda each: each.name)
    if as_json:
        for each in rows:
            emit({"name": each.name, "about": each.about, "where": each.where, "options": options_of(each.name)})
        return
    table(("name", "what it does", "options"), [(each.name, each.about, option_words(each.name)) for each in rows])


def show(
    context: typer.Context, name: Name, checkpoint: Checkpoint = None, url: Url = None, as_json: Json = False
) -> None:
    """Show a pipeline: where rows come from, its stages, where they go, and where its state lies.

    Options of the pipeline itself follow as for run.
    """
    if is_chore(load(name)):
        _show_chore(name, as_json=as_json)
        return
    found = made(load(name), name, context.args)
    assert isinstance(found, Pipeline)
    bucket = _bucket(name, url)
    known = None if bucket is None else str(_checkpoint(whole(bucket), found.name))
    row = {
        "name": found.name,
        "about": found.about,
        "source": {"kind": type(found.source).__name__, **_fields(found.source), "columns": found.source.columns},
        "stages": [{"name": each.name, "takes": each.takes, **_makes(each)} for each in found.stages],
        "targets": [{"kind": type(each).__name__, **_fields(each)} for each in found.outputs],
        "checkpoint": checkpoint or known,
        "dead_letters": found.dead_letters + DEAD_SUFFIX,
    }
    if as_json:
        emit(row)
        return
    emit_text(f"{found.name}{': ' + found.about if found.about else ''}")
    emit_text(f"  from   {_end_words(found.source)}")
    emit_text(f"           {found.source.columns}")
    for each in found.stages:
        emit_text(f"  stage  {each.name}")
        emit_text(f"           takes {each.takes}")
        for verb, columns in _makes(each).items():
            emit_text(f"           {verb} {columns}")
    for target in found.outputs:
        emit_text(f"  to     {_end_words(target)}")
    emit_text(f"  checkpoint    {row['checkpoint'] or 'one for each bucket; add --url to see it'}")
    emit_text(f"  dead letters  {row['dead_letters']} (bucketmq dead {found.dead_letters})")


def _makes(stage: Stage) -> dict[str, str]:
    """What a stage makes of rows: columns that it gives, or adds."""
    return {"gives": stage.gives} if stage.gives else {"adds": stage.adds}


def run(
    context: typer.Context,
    name: Name,
    *,
    once: Annotated[bool, typer.Option("--once", help="Read what there is now, and end.")] = False,
    master: Annotated[
        str | None,
        typer.Option(metavar="MASTER", help="Where Spark runs, like spark://host:7077. Default: local[*,4]."),
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-o", metavar="KEY=VALUE", help="Of the source or store, like maxRowsPerTrigger=1000."
        ),
    ] = None,
    trigger: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="Start a batch this often, if anything is new.")
    ] = 1.0,
    checkpoint: Checkpoint = None,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = "127.0.0.1",
    otlp: OtlpOption = None,
    report: ReportOption = True,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help=f"Show Spark's own log: {', '.join(LEVELS)}.")
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Run a pipeline on Spark until it is stopped.

    Reports each batch: rows a second, how many messages are left to read, how long it took, and how many rows became
    dead letters. SIGTERM and Ctrl-C finish the batch in flight; a second one stops at once. Options of the pipeline
    itself follow, like --queue jobs for archive.
    """
    log_to_stderr()
    found = made(load(name), name, context.args)
    bucket = whole(_bucket(name, url) or the_url(url))
    settings = pairs_of(conf, "--conf takes KEY=VALUE, not {}")
    options = pairs_of(option, "--option takes KEY=VALUE, not {}")
    label = found.name if isinstance(found, Pipeline) else name.replace(":", "-")
    with _session(master, settings, label, log_level) as spark:
        if not isinstance(found, Pipeline):
            _run_chore(found, spark, bucket, options, as_json=as_json)
            return
        place = checkpoint or str(_checkpoint(bucket, found.name))
        _run_pipeline(
            found,
            spark,
            bucket,
            place,
            options,
            once=once,
            trigger=trigger,
            page=_page(found.name, metrics_host, metrics_port, otlp),
            report=report,
            as_json=as_json,
        )


def package(
    out: Annotated[Path, typer.Argument(metavar="OUT.zip", help="The file to write.")],
    as_json: Json = False,
) -> None:
    """Pack bucketmq itself into a file for spark-submit --py-files."""
    packed = make_package(out)
    text = f"{packed.path}: {plural(packed.files, 'file')}, {packed.size_bytes / 1e6:.1f} MB"
    answer(packed, text, as_json=as_json)


def tidy(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Of this pipeline alone.")] = "",
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many would go.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Remove what is kept of source objects that were deleted more than two weeks ago.

    Pipelines whose results follow their source keep a register for each, and of a deleted one as a mark against late
    runs. Costs a LIST per 1,000 registers and a GET for each that is two weeks old.
    """
    with open_bucket(url) as bucket:
        opened = bucket.run(bucket.api.open())
        done = bucket.run(tidy_lineage(opened, name, dry_run=dry_run))
    would = "would be " if dry_run else ""
    text = f"{plural(done.removed, 'register')} of deleted objects {would}removed, of {done.looked_at}"
    answer(done, text, as_json=as_json)


@contextlib.contextmanager
def _session(master: str | None, conf: dict[str, str], name: str, log_level: str | None) -> Iterator[SparkSession]:
    """The session, for a while. One that was there before stays."""
    ours = not is_there()
    if ours:
        say(f"starting Spark on {master or 'this machine'} ...")
    try:
        spark = session(master, conf, name=name, log_level=log_level)
    except Exception as error:
        raise explained(error) from error
    try:
        yield spark
    finally:
        if ours:
            # What was interrupted or failed may have taken the JVM along; there is nothing left to stop then.
            with contextlib.suppress(Exception):
                spark.stop()


def _run_chore(
    chore: Callable[..., Any], spark: SparkSession, url: str, options: dict[str, str], *, as_json: bool
) -> None:
    more = {"options": options} if options else {}
    try:
        done = chore(spark, url, **more)
    except Exception as error:
        raise explained(error) from error
    if as_json:
        emit(done)
    else:
        _tell_summary(done)
    if getattr(done, "complete", True) is False:  # what an audit calls it when something is missing
        raise typer.Exit(Code.INCOMPLETE)


def _tell_summary(done: Any) -> None:
    """In its own words, if it has any: those of an audit are a table. Otherwise a line for each figure."""
    summary = msgspec.to_builtins(done)
    has_words = "__str__" in vars(type(done))
    if has_words or not isinstance(summary, dict):
        for line in str(done).splitlines() if done is not None else ():
            emit_text(line)
        return
    for key, value in summary.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            table(list(value[0]), [list(row.values()) for row in value])
        else:
            emit_text(f"{key:<16} {value}")


def _run_pipeline(
    pipeline: Pipeline,
    spark: SparkSession,
    url: str,
    checkpoint: str,
    options: dict[str, str],
    *,
    once: bool,
    trigger: float,
    page: contextlib.AbstractContextManager[PipelineFigures],
    report: bool,
    as_json: bool,
) -> None:
    from bucketmq.spark.running.run import start

    totals = Totals()
    stop = Stop()
    with (
        page as metrics,
        _reporting(pipeline, url, options, wanted=report) as tell_report,
        signals(partial(_tell, stop)) as interrupted,
        Progress(f"{pipeline.name}: waiting for messages") as line,
    ):

        def told(figures: Figures) -> None:
            totals.add(figures)
            metrics.show(totals)
            tell_report(figures)
            if as_json:
                emit({"pipeline": pipeline.name, **msgspec.structs.asdict(figures)})
                flush()
            else:
                line.show(_words(pipeline.name, figures, totals))

        try:
            query = start(
                pipeline, url, spark, checkpoint=checkpoint, once=once, trigger_seconds=trigger, options=options
            )
        except Exception as error:
            raise explained(error) from error
        say(f"pipeline {pipeline.name} runs; stop it with Ctrl-C. Checkpoint: {checkpoint}")
        attend(query, stop, told)
    say(
        f"pipeline {pipeline.name} stopped: {plural(totals.rows, 'row')} in {plural(totals.batches, 'batch')}, "
        f"{plural(totals.dead_letters, 'dead letter')}".replace("batchs", "batches")
    )
    if interrupted():
        raise typer.Exit(Code.INTERRUPTED)


def run_together(
    pipelines: Sequence[Pipeline], url: str, *, master: str | None, started: Callable[[], None], once: bool
) -> None:
    """Run pipelines in one session of Spark until one fails or a signal comes, and finish their batches in flight.

    Each has its own checkpoint, where `pipeline run` keeps it. One that ended because the machine was busy, with all of
    their Pythons starting at once, is started again a few times: the session would take far longer.
    """
    from bucketmq.spark.running.run import start

    place, stop = whole(url), Stop()
    names = "+".join(each.name for each in pipelines)
    with _session(master, {}, names, None) as spark, signals(partial(_tell, stop)) as interrupted:

        def begin(pipeline: Pipeline) -> StreamingQuery:
            try:
                return start(pipeline, place, spark, checkpoint=str(_checkpoint(place, pipeline.name)), once=once)
            except Exception as error:
                raise explained(error) from error

        queries = [begin(each) for each in pipelines]
        started()
        _attend_all(pipelines, queries, begin, stop, place)
    if interrupted():
        raise typer.Exit(Code.INTERRUPTED)


def _attend_all(
    pipelines: Sequence[Pipeline],
    queries: Sequence[StreamingQuery],
    begin: Callable[[Pipeline], StreamingQuery],
    stop: Stop,
    url: str,
) -> None:
    """Until all have ended. Queries are started in this thread: Spark knows its sources in no other."""
    starts = Counter(each.name for each in pipelines)
    failures: list[BaseException] = []
    with ThreadPoolExecutor(len(queries)) as threads:
        running = {
            threads.submit(_attend_and_report, query, stop, each, url): each
            for query, each in zip(queries, pipelines, strict=True)
        }
        while running:
            for ended in wait(running, return_when=FIRST_COMPLETED).done:
                pipeline, error = running.pop(ended), ended.exception()
                if isinstance(error, SlowPython) and starts[pipeline.name] < STARTS_MAX and not stop.wanted:
                    say(f"{pipeline.name}: {error}. It is started again")
                    starts[pipeline.name] += 1
                    try:
                        query = begin(pipeline)
                        running[threads.submit(_attend_and_report, query, stop, pipeline, url)] = pipeline
                        _wait_for_source(query, stop)
                        continue
                    except BucketMQError as another:
                        error = another
                if error is not None:
                    failures.append(error)
                    if not stop.wanted:  # told twice, it is urgent
                        stop.tell()
    if failures:
        raise failures[0]


def _wait_for_source(query: StreamingQuery, stop: Stop) -> None:
    """Until its Python has answered or not, so that the next one does not start beside it."""
    with contextlib.suppress(Exception):  # who attends to the query tells what failed
        while query.isActive and query.status["message"].startswith("Initializing") and not stop.wanted:
            time.sleep(POLL_SECONDS)


def _attend_and_report(query: StreamingQuery, stop: Stop, pipeline: Pipeline, url: str) -> None:
    with _reporting(pipeline, url, {}, wanted=True) as tell_report:

        def told(figures: Figures) -> None:
            _tell_batch(pipeline.name, figures)
            tell_report(figures)

        attend(query, stop, told)


@contextlib.contextmanager
def _reporting(
    pipeline: Pipeline, url: str, options: dict[str, str], *, wanted: bool
) -> Iterator[Callable[[Figures], None]]:
    """Leave the figures of each batch in the bucket. Its requests are made on executors, and not counted here."""
    if not wanted:
        yield lambda _: None
        return
    log = EVENTS if isinstance(pipeline.source, FromTable) else pipeline.source.log
    of_store: Any = {name: text for name, text in options.items() if name.lower() in STORE_OPTIONS}
    store = dict(place_of(url, log, of_store).options)
    with (
        connect(url, probe=False, **store) as bucket,
        Reporter(
            bucket,
            "pipeline",
            pipeline.name,
            queue="" if isinstance(pipeline.source, FromTable) else log,
            counts_requests=False,
        ) as reporter,
    ):
        yield lambda each: reporter.batch(each.rows, dead=each.dead_letters, seconds=each.seconds, lag=each.lag)


def _tell_batch(name: str, figures: Figures) -> None:
    dead = f", {plural(figures.dead_letters, 'dead letter')}" if figures.dead_letters else ""
    if figures.rows:
        say(f"{name}: batch {figures.batch}, {plural(figures.rows, 'row')} in {age(figures.seconds)}{dead}")


def _tell(stop: Stop) -> None:
    """A signal only sets a flag; the loop reads it between batches."""
    stop.tell()
    if stop.urgent and not stop.attended:
        # The loop does not run yet: Spark is starting the query, and retries a server that is gone for minutes.
        raise KeyboardInterrupt


def _words(name: str, figures: Figures, totals: Totals) -> str:
    lag = "" if figures.lag is None else f", {plural(figures.lag, 'message')} to go"
    dead = f", {plural(totals.dead_letters, 'dead letter')}" if totals.dead_letters else ""
    return (
        f"{name}: batch {figures.batch}, {plural(figures.rows, 'row')} in {age(figures.seconds)} "
        f"({figures.rows_per_second:,.0f}/s){lag}; {plural(totals.rows, 'row')} in all{dead}"
    )


@contextlib.contextmanager
def _page(name: str, host: str, port: int | None, otlp: str | None) -> Iterator[PipelineFigures]:
    """The figures of a pipeline, served and sent as far as that is wanted."""
    figures = PipelineFigures(name)
    with served(figures.families, port=port, host=host, otlp=otlp):
        yield figures


def _show_chore(name: str, *, as_json: bool) -> None:
    named = known().get(name)
    about = named.about if named is not None else (inspect.getdoc(load(name)) or "").partition("\n")[0]
    if as_json:
        emit({"name": name, "about": about, "options": options_of(name)})
        return
    emit_text(f"{name}: {about}")
    for each in options_of(name):
        emit_text(f"  {each['option']:<20} {each['kind']}{', needed' if each['needed'] else ''}")


def _bucket(name: str, given: str | None) -> str | None:
    """The bucket, if there is one. The pipeline of an application finds it where the application's agents do."""
    app = None if given else app_of(name)
    return a_url(given) if app is None else bucket_of(app.settings, app=app.name)


def _checkpoint(url: str, name: str) -> Path:
    """In the state folder of the user, by what the bucket is called and, so that no two share one, where it is."""
    shown = without_secrets(url)
    path = unquote(urlsplit(shown).path if "://" in shown else shown)
    last = re.sub(r"[^A-Za-z0-9._-]", "_", Path(path).name or urlsplit(shown).netloc) or "bucket"
    mark = hashlib.sha256(location_of(url).encode()).hexdigest()[:12]
    return private(user_state_path(APP) / "checkpoints" / f"{last}-{mark}") / name


def _fields(end: Any) -> dict[str, Any]:
    return {key: value for key, value in msgspec.structs.asdict(end).items() if value not in (None, "", ())}


def _end_words(end: Any) -> str:
    said = ", ".join(f"{key}={value!r}" for key, value in _fields(end).items())
    return f"{type(end).__name__}({said})"
