"""A study in the bucket: started, moved on from round to round, closed, its report published.

Everything is created if it is absent and never replaced, so that every step may be repeated by anybody, at any time:

1. `start` creates the plan. The same plan again is the same study; another one is refused.
2. `advance` lists the study. Where all trials of the last round have results, the next round is worked out from the
   plan and these results, created, and its trials are sent. Whoever finds the round there takes it as it is.
3. When nothing is left to run, at the deadline, or when somebody stopped it, `closed.json` is created: it says which
   results count. That is the register of the whole study; what comes later changes nothing.
4. The report is a function of the plan, the rounds, the end and the results that count. It is checked, then created;
   `synthesis.json` comes last and says that it is all there.

Which trials to run is `planner`'s, what results say is `synthesis`', running trials is `worker`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar

import msgspec

from bucketmq.api.bucket import BucketApi
from bucketmq.apps.provide import provide_queue
from bucketmq.apps.research import planner, report
from bucketmq.apps.research.plan import NAME, Plan, Trial, canonical, check_plan, job_of
from bucketmq.apps.research.record import (
    CLOSED,
    FIRST_SETTINGS,
    INDEX,
    PLAN,
    QUEUES,
    REMARKS,
    RESULTS,
    STOP,
    SYNTHESIS,
    Closed,
    Failure,
    Result,
    Round,
    Why,
    index_key,
    result_at,
    result_key,
    round_key,
    sent_key,
    study_key,
)
from bucketmq.errors import Corrupt, Invalid, NotFound
from bucketmq.procedures.objects.batches import Failed, Stored
from bucketmq.procedures.objects.keys import full_key
from bucketmq.procedures.objects.put import Put
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.verbs import list_all

SEND_AT_A_TIME = 500
READ_AT_A_TIME = 500
RESEND_SECONDS = 30.0
"""A round that is there for so long and was not sent has lost its planner: another one sends it."""

State = Literal["running", "finished"]
Document = TypeVar("Document")


class StudyListing(msgspec.Struct, frozen=True, kw_only=True):
    """What a listing of a study shows."""

    names: dict[str, float]
    """Its objects but for the results, and when each was stored."""
    results: frozenset[str]

    def __contains__(self, name: str) -> bool:
        return name in self.names


class Memory:
    """What one process has read of studies. Nothing of it ever changes, so it is read once."""

    def __init__(self) -> None:
        self.plans: dict[str, Plan] = {}
        self.rounds: dict[str, list[Round]] = {}
        self.results: dict[str, dict[str, Result]] = {}
        self.finished: set[str] = set()

    def forget(self, study: str) -> None:
        """A study that is over needs no memory."""
        self.finished.add(study)
        for kept in (self.plans, self.rounds, self.results):
            kept.pop(study, None)


def start(bus: BucketApi, plan: Plan, memory: Memory | None = None) -> Procedure[bool]:
    """Make the study and send its first round; whether it is new.

    The same plan again is not an error: trials without a result are sent once more. Another plan under the same name
    is.
    """
    yield from create(bus, index_key(plan.study), {"study": plan.study})
    is_new = yield from create(bus, study_key(plan.study, PLAN), plan)
    if not is_new:
        have = yield from read_plan_of(bus, plan.study)
        if canonical(msgspec.to_builtins(have)) != canonical(msgspec.to_builtins(plan)):
            raise Invalid(
                f"there is a study {plan.study!r} with another plan, and plans never change; give this one another name"
            )
    yield from advance(bus, plan.study, memory or Memory(), resend=not is_new)
    return is_new


def create(bus: BucketApi, key: str, value: object) -> Procedure[bool]:
    """Create an object; whether it is ours. What is there stays. Three PUTs and a DELETE."""
    body = value if isinstance(value, bytes) else msgspec.json.encode(value)
    return (yield from create_many(bus, {key: body})) == 1


def create_many(bus: BucketApi, objects: Mapping[str, bytes]) -> Procedure[int]:
    """Create objects; how many were not there before."""
    puts = [Put(key, body, only_new=True) for key, body in objects.items()]
    made = 0
    for end in (yield from bus.put_many(puts)):
        if isinstance(end, Stored):
            made += 1
        elif end.kind != "contended":
            raise end.error
    return made


def _read(bus: BucketApi, kind: type[Document], key: str) -> Procedure[Document]:
    found = yield from bus.get(key)
    try:
        return msgspec.json.decode(found.body, type=kind)
    except msgspec.DecodeError as error:
        raise Corrupt(f"{key} cannot be read: {error}; it was not written by this application") from None


def read_plan_of(bus: BucketApi, study: str) -> Procedure[Plan]:
    if not NAME.match(study):
        raise NotFound(f"there is no study {study[:80]!r}; see: bucketmq research status")
    try:
        found = yield from _read(bus, Plan, study_key(study, PLAN))
    except NotFound:
        raise NotFound(f"there is no study {study!r}; see: bucketmq research status") from None
    try:
        check_plan(found)
    except Invalid as error:
        raise Corrupt(f"the plan of study {study!r} cannot be carried out: {error}") from None
    if found.study != study:
        raise Corrupt(f"the plan of study {study!r} is that of {found.study!r}: somebody copied it there")
    return found


def look(bus: BucketApi, study: str) -> Procedure[StudyListing]:
    """List a study. One LIST for each thousand results."""
    bucket = yield from bus.open()
    root = full_key(bucket, study_key(study, ""))
    entries, _ = yield from list_all(root)
    names: dict[str, float] = {}
    results: set[str] = set()
    for entry in entries:
        name = entry.key[len(root) :]
        if name.startswith(RESULTS):
            found = result_at(study_key(study, name))
            results |= {found[1]} if found else set()
        else:
            names[name] = entry.stored_at
    return StudyListing(names=names, results=frozenset(results))


def studies(bus: BucketApi) -> Procedure[list[str]]:
    """The names of all studies. One LIST for each thousand."""
    bucket = yield from bus.open()
    root = full_key(bucket, INDEX)
    entries, _ = yield from list_all(root)
    return sorted(entry.key[len(root) :].removesuffix(".json") for entry in entries)


def stop(bus: BucketApi, study: str) -> Procedure[None]:
    """Close a study with what is there: no further trial is begun, and the report is written."""
    yield from read_plan_of(bus, study)
    yield from create(bus, study_key(study, STOP), {})


def advance(bus: BucketApi, study: str, memory: Memory, *, resend: bool = False) -> Procedure[State]:
    """Do whatever is next for a study, as far as it can be done now."""
    if study in memory.finished:
        return "finished"
    seen = yield from look(bus, study)
    if SYNTHESIS in seen:
        memory.forget(study)
        return "finished"
    if PLAN not in seen:
        return "running"  # somebody starts it just now
    if study not in memory.plans:
        memory.plans[study] = yield from read_plan_of(bus, study)
    plan = memory.plans[study]
    if CLOSED not in seen:
        rounds = yield from _rounds(bus, study, seen, memory)
        why = yield from _move_on(bus, plan, rounds, seen, memory, resend=resend)
        if why is None:
            return "running"
        ids = {trial.id for each in rounds for trial in each.trials}
        counted, missing = tuple(sorted(ids & seen.results)), tuple(sorted(ids - seen.results))
        yield from create(
            bus,
            study_key(study, CLOSED),
            Closed(why=why, rounds=len(rounds), counted=counted, missing=missing),
        )
    yield from publish(bus, study, memory)
    memory.forget(study)
    return "finished"


def _rounds(bus: BucketApi, study: str, seen: StudyListing, memory: Memory) -> Procedure[list[Round]]:
    """The rounds that are there, those that were not read before being read now."""
    rounds = memory.rounds.setdefault(study, [])
    while round_key(study, number := len(rounds)).removeprefix(study_key(study, "")) in seen:
        found = yield from _read(bus, Round, round_key(study, number))
        if len(rounds) == number:  # others who share the memory may have read it meanwhile
            rounds.append(found)
    return rounds


def _move_on(
    bus: BucketApi, plan: Plan, rounds: list[Round], seen: StudyListing, memory: Memory, *, resend: bool
) -> Procedure[Why | None]:
    """Send what is to be run next, or say why nothing is."""
    study = plan.study
    if STOP in seen:
        return "stopped"
    now = yield from Now()
    if plan.deadline_seconds is not None and now - seen.names[PLAN] >= plan.deadline_seconds:
        return "deadline"
    while True:
        if rounds:
            missing = [trial for trial in rounds[-1].trials if trial.id not in seen.results]
            if missing:
                number = rounds[-1].number
                if resend or _was_left(study, number, seen, now):
                    yield from _send(bus, plan, number, missing, again=True)
                return None
        results = yield from read_results(bus, plan, rounds, seen.results, memory)
        found = planner.next_round(plan, rounds, results)
        if not isinstance(found, Round):
            return found
        ours = yield from create(bus, round_key(study, found.number), found)
        if not ours:
            found = yield from _read(bus, Round, round_key(study, found.number))
        rounds.append(found)
        if ours:
            yield from _send(bus, plan, found.number, found.trials, again=False)
        if found.trials:
            return None  # its creator sends it


def _was_left(study: str, number: int, seen: StudyListing, now: float) -> bool:
    """Whether a round was created by somebody who died before all its trials were sent."""
    name, sent = (key(study, number).removeprefix(study_key(study, "")) for key in (round_key, sent_key))
    return sent not in seen and now - seen.names.get(name, now) >= RESEND_SECONDS


def _send(bus: BucketApi, plan: Plan, number: int, trials: Iterable[Trial], *, again: bool) -> Procedure[None]:
    """Send trials to the workers, then note that all were sent. One PUT for each 500, and four requests."""
    jobs = [msgspec.to_builtins(job_of(plan, trial, again=again)) for trial in trials]
    name = QUEUES[plan.runs_on]
    yield from provide_queue((yield from bus.open()), name, FIRST_SETTINGS.get(name, {}))
    queue = bus.queue(name)
    for first in range(0, len(jobs), SEND_AT_A_TIME):
        yield from queue.send_many(jobs[first : first + SEND_AT_A_TIME])
    yield from create(bus, sent_key(plan.study, number), {})


def read_results(
    bus: BucketApi, plan: Plan, rounds: Iterable[Round], there: Iterable[str], memory: Memory
) -> Procedure[dict[str, Result]]:
    """The results of these rounds that are there, by trial. One GET for each that was not read before."""
    kept = memory.results.setdefault(plan.study, {})
    listed = set(there)
    trials = {trial.id: trial for each in rounds for trial in each.trials}
    wanted = [id for id in trials if id in listed and id not in kept]
    for first in range(0, len(wanted), READ_AT_A_TIME):
        ids = wanted[first : first + READ_AT_A_TIME]
        found = yield from bus.get_many([result_key(plan.study, id) for id in ids])
        for id, each in zip(ids, found, strict=True):
            if isinstance(each, Failed):
                raise each.error
            kept[id] = decode_result(plan, trials[id], each.body)
    return {id: kept[id] for id in trials if id in kept}


def decode_result(plan: Plan, trial: Trial, body: bytes) -> Result:
    """The result that an object holds. What is not a result of this trial is a failed one: nobody can run it again."""
    try:
        found = msgspec.json.decode(body, type=Result)
    except (msgspec.DecodeError, RecursionError):
        return _not_ours(plan, trial, "the object is not a result")
    same = (found.id, found.seed, canonical(found.parameters)) == (trial.id, trial.seed, canonical(trial.parameters))
    if not same:
        return _not_ours(plan, trial, "the object is the result of another trial")
    if found.failure is None and any(each.name not in found.metrics for each in plan.metrics):
        return _not_ours(plan, trial, "the object lacks a metric of the plan")
    return found


def _not_ours(plan: Plan, trial: Trial, reason: str) -> Result:
    return Result(
        id=trial.id,
        parameters=trial.parameters,
        seed=trial.seed,
        simulator=plan.simulator,
        version=plan.version,
        failure=Failure("garbage", reason),
    )


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A closed study, with everything that its report is made of."""

    plan: Plan
    rounds: tuple[Round, ...]
    closed: Closed
    results: dict[str, Result]
    remarks: str = ""


def read_closed(bus: BucketApi, study: str, memory: Memory | None = None) -> Procedure[Known]:
    """Everything about a closed study. One GET for each result that was not read before."""
    memory = memory or Memory()
    plan = memory.plans.get(study) or (yield from read_plan_of(bus, study))
    try:
        closed = yield from _read(bus, Closed, study_key(study, CLOSED))
    except NotFound:
        raise NotFound(f"study {study!r} still runs, and has no report yet; see: bucketmq research status") from None
    rounds = []
    for number in range(closed.rounds):
        rounds.append((yield from _read(bus, Round, round_key(study, number))))
    memory.plans[study] = plan
    results = yield from read_results(bus, plan, rounds, closed.counted, memory)
    gone = next((id for id in closed.counted if id not in results), None)
    if gone is not None:
        raise Corrupt(f"the result {gone} of study {study!r} counts, and no round has its trial")
    return Known(
        plan=plan,
        rounds=tuple(rounds),
        closed=closed,
        results=results,
        remarks=(yield from _remarks(bus, study)),
    )


def _remarks(bus: BucketApi, study: str) -> Procedure[str]:
    """What a model said about the numbers, if it was asked."""
    try:
        return (yield from _read(bus, Remarks, study_key(study, REMARKS))).text
    except NotFound:
        return ""


class Remarks(msgspec.Struct, frozen=True):
    """Prose about a study, with numbers only as `[[n12]]`."""

    text: str
    model: str = ""


def publish(bus: BucketApi, study: str, memory: Memory) -> Procedure[None]:
    """Write the report of a closed study, unless it is there. It is checked first, like anybody's."""
    known = yield from read_closed(bus, study, memory)
    made = report.make(known.plan, known.rounds, known.closed, known.results, known.remarks)
    problems = made.problems()
    if problems:
        cure = f"; correct {study_key(study, REMARKS)}, or delete it" if known.remarks else ""
        raise Corrupt(f"the report of study {study!r} does not agree with its results: {problems[0]}{cure}")
    *files, last = made.files.items()
    assert last[0] == SYNTHESIS
    yield from create_many(bus, {study_key(study, name): body for name, body in files})
    yield from create(bus, study_key(study, SYNTHESIS), last[1])


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How far a study is."""

    study: str
    about: str
    simulator: str
    state: Literal["running", "closing", "finished"]
    why: Why | None
    """Why it was closed, if it was."""
    rounds: int
    planned: int
    results: int
    budget: int
    runs_on: str
    best: str | None = None


class _Summary(msgspec.Struct, frozen=True):
    best: str | None = None


def status(bus: BucketApi, study: str, memory: Memory | None = None) -> Procedure[Status]:
    """How far a study is. One LIST for each thousand results, and a GET for what was not read before."""
    memory = memory or Memory()
    if study not in memory.plans:
        memory.plans[study] = yield from read_plan_of(bus, study)
    plan = memory.plans[study]
    seen = yield from look(bus, study)
    rounds = yield from _rounds(bus, study, seen, memory)
    closed = (yield from _read(bus, Closed, study_key(study, CLOSED))) if CLOSED in seen else None
    best = (yield from _read(bus, _Summary, study_key(study, SYNTHESIS))).best if SYNTHESIS in seen else None
    ids = {trial.id for each in rounds for trial in each.trials}
    return Status(
        study=study,
        about=plan.about,
        simulator=" ".join(plan.command) or plan.simulator,
        state="finished" if SYNTHESIS in seen else "running" if closed is None else "closing",
        why=None if closed is None else closed.why,
        rounds=len(rounds),
        planned=len(ids),
        results=len(ids & seen.results),
        budget=plan.budget,
        runs_on=plan.runs_on,
        best=best,
    )


def check(bus: BucketApi, study: str) -> Procedure[list[str]]:
    """Recompute everything and compare the report in the bucket with it; what is wrong. One GET for each result."""
    known = yield from read_closed(bus, study)
    made = report.make(known.plan, known.rounds, known.closed, known.results, known.remarks)
    found = yield from bus.get_many([study_key(study, name) for name in made.files])
    files: dict[str, bytes] = {}
    for name, each in zip(made.files, found, strict=True):
        if isinstance(each, Failed):
            raise NotFound(f"study {study!r} has no {name} yet; a planner writes it")
        files[name] = each.body
    return report.problems_of(files, made.expected) + report.summary_problems(files[SYNTHESIS], made)
