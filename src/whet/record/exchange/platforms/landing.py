"""Parts of an import → the record: trajectories, scores, feedback and tasks, written once however often they are read.

A person's thumb becomes Feedback, a number of a judge or of a scale becomes a Score, a label stays in `meta`, and what
should have been answered becomes a correction.  Nobody's opinion is made up: where it is not said who gave it, only a
name that people's opinions go by, with values that a thumb has, makes it a thumb.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

from msgspec import UNSET

from ....errors import InputError
from ....types import Feedback, Json, Score, Step, Task, Trajectory, digest
from ...rows import as_text
from ...store import Store
from ...tracing.dialects import survey
from .holdings import Holdings, Opinion, TraceNote, lone, span_bytes
from .spool import ImportSpool

_PEOPLE = re.compile(r"thumb|feedback|user|human|vote|like", re.IGNORECASE)
"""Names that people's opinions go by, where the product does not say whose they are."""
_THUMB = re.compile(r"thumb|like|vote", re.IGNORECASE)
"""Names that only a yes or no goes by."""
_WORDS = {
    **dict.fromkeys(
        ("up", "thumbsup", "like", "liked", "good", "positive", "yes", "true", "correct", "👍"), 1.0
    ),
    **dict.fromkeys(
        ("down", "thumbsdown", "dislike", "disliked", "bad", "negative", "no", "false", "incorrect", "👎"),
        -1.0,
    ),
}
_RULE = re.compile(r"(?P<name>.+?)(?:\s*>=\s*(?P<least>-?\d+(?:\.\d+)?))?")
_AT_ONCE = 500
Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class ThumbRules:
    """The names whose values are thumbs, as a person says: NAME, or NAME>=NUMBER for those of a scale."""

    least: Mapping[str, float | None] = field(default_factory=dict)

    @classmethod
    def of(cls, rules: Iterable[str]) -> ThumbRules:
        """From the words of a command.

        Raises:
            InputError: one is neither NAME nor NAME>=NUMBER.
        """
        least: dict[str, float | None] = {}
        for rule in rules:
            match = _RULE.fullmatch(rule.strip())
            if match is None:
                raise InputError(f"{rule!r} is not NAME or NAME>=NUMBER, such as 'stars>=4'")
            least[match["name"]] = None if match["least"] is None else float(match["least"])
        return cls(least)


@dataclass(slots=True, kw_only=True)
class Landed:
    """What an import brought, in numbers."""

    runs: int = 0
    new_runs: int = 0
    updated_runs: int = 0
    """Stored before, with other scores or more steps now."""
    feedback: int = 0
    new_feedback: int = 0
    tasks: int = 0
    answered_tasks: int = 0
    new_tasks: int = 0
    thumbs: Counter[str] = field(default_factory=Counter)
    """`up` and `down`."""
    thumbs_by: Counter[str] = field(default_factory=Counter)
    """Name of a score → how many thumbs it gave."""
    scores: Counter[str] = field(default_factory=Counter)
    """Name → runs that it was recorded as a score of."""
    rescaled: dict[str, str] = field(default_factory=dict)
    """Name of a score that is a share of its declared scale → the scale."""
    scales: Counter[str] = field(default_factory=Counter)
    """Names of numbers that are no thumbs, and that no judge is said to have given → how many."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Reason → how many opinions."""
    redacted: Counter[str] = field(default_factory=Counter)


def land(holdings: Holdings, store: Store, rules: ThumbRules) -> Landed:
    """Record everything that was read, some traces at a time."""
    landed = Landed()
    spool = holdings.complete()
    opinions = _Opinions(holdings, rules, landed)
    before = {table: store.count(table) for table in ("trajectories", "feedback", "tasks")}
    for runs in _runs(holdings, spool):
        scored = [opinions.on(run, spool.opinions(bytes.fromhex(run.id), Opinion)) for run in runs]
        _record(scored, opinions.taken(), store, landed)
    for others in batched(spool.others(Opinion)):
        for trace, opinion in others:
            opinions.elsewhere(opinion, trace)
        _record([], opinions.taken(), store, landed)
    for tasks in batched(spool.tasks(Task)):
        landed.tasks += len(tasks)
        landed.answered_tasks += sum(task.answer_known for task in tasks)
        with store.batch() as batch:
            batch.put_tasks(*_fresh(tasks, store))
        landed.redacted += batch.redacted
    landed.new_runs = store.count("trajectories") - before["trajectories"]
    landed.new_feedback = store.count("feedback") - before["feedback"]
    landed.new_tasks = store.count("tasks") - before["tasks"]
    return landed


def _record(runs: Sequence[Trajectory], feedback: Sequence[Feedback], store: Store, landed: Landed) -> None:
    landed.runs += len(runs)
    landed.feedback += len(feedback)
    stored = {run.id: run for run in store.trajectories(ids=[run.id for run in runs])} if runs else {}
    with store.batch() as batch:
        for run in runs:
            if run.id not in stored:
                batch.put(run)
            elif (merged := _merged(stored[run.id], run)) is not None:
                batch.put(merged, replace=True)
                landed.updated_runs += 1
        batch.add_feedback(*feedback)
    landed.redacted += batch.redacted


def batched(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Lists of some of them at a time."""
    rest = iter(parts)
    while portion := list(islice(rest, _AT_ONCE)):
        yield portion


def _runs(holdings: Holdings, spool: ImportSpool) -> Iterator[list[Trajectory]]:
    """The trajectories of the spans, with what is said of each; and of traces without spans."""
    for spans in spool.portions():
        runs = {run.id: run for run in survey(spans).trajectories}
        traces = dict.fromkeys(span.trace for span in spans)
        told = [_told(run, holdings.noted(bytes.fromhex(run.id)), holdings.product) for run in runs.values()]
        yield told + [
            run for trace in traces if trace.hex() not in runs and (run := _bare(trace, holdings)) is not None
        ]
    for portion in batched(spool.bare()):
        yield [run for trace in portion if (run := _bare(trace, holdings)) is not None]


def _bare(trace: bytes, holdings: Holdings) -> Trajectory | None:
    """A trace without a step, if it is said what went in or came out."""
    note, id = holdings.noted(trace), trace.hex()
    if note.input is None and note.output is None:
        return None
    return _told(Trajectory(id=id, task=Task(), trace_ids=(id,), started=0.0), note, holdings.product)


def _told(run: Trajectory, note: TraceNote, product: str) -> Trajectory:
    meta = {**run.meta, "source": product}
    meta["metadata"] = {**run.meta.get("metadata", {}), **note.metadata}
    meta |= {"tags": note.tags}
    task = run.task
    if not task.instruction and note.input is not None:
        task = Task(instruction=as_text(lone(note.input)))
    if note.transcript:
        run = replace(run, steps=[replace(step, latency=None) for step in run.steps], seconds=None)
    return replace(
        run,
        task=replace(task, meta={"source": product}),
        output=lone(note.output) if run.output is None and run.error is None else run.output,
        session=run.session or note.session,
        subject=run.subject or note.subject,
        versions={**run.versions, **{name: version for name, version in note.versions.items() if version}},
        meta={name: value for name, value in meta.items() if value},
    )


def _merged(stored: Trajectory, run: Trajectory) -> Trajectory | None:
    """A stored run with what is new of it; None if nothing is. Scores that were given here since stay."""
    scores = {**stored.scores, **run.scores}
    labels = {**stored.meta.get("labels", {}), **run.meta.get("labels", {})}
    longer = len(run.steps) > len(stored.steps)
    if not longer and scores == dict(stored.scores) and labels == stored.meta.get("labels", {}):
        return None
    base = run if longer else stored
    meta = {**stored.meta, **base.meta, **({"labels": labels} if labels else {})}
    return replace(
        base, scores=scores, feedback=(), meta=meta, outcome=stored.outcome if not longer else base.outcome
    )


def _fresh(tasks: Sequence[Task], store: Store) -> list[Task]:
    """Tasks with the split that the record may have given them already."""
    splits = {task.id: task.split for task in store.tasks(ids=[task.id for task in tasks])}
    return [replace(task, split=splits.get(task.id, task.split)) for task in tasks]


class _Opinions:
    """Opinions by the run that they are on, as scores, labels and feedback."""

    def __init__(self, holdings: Holdings, rules: ThumbRules, landed: Landed) -> None:
        self._product, self._rules, self._landed = holdings.product, rules, landed
        self._values, self._ranges = holdings.values, holdings.ranges
        self._feedback: list[Feedback] = []
        self._scores: dict[str, Score] = {}
        self._labels: dict[str, Json] = {}

    def on(self, run: Trajectory, opinions: Sequence[Opinion]) -> Trajectory:
        """The run with its scores and labels; the last one of a name counts."""
        if not opinions:
            return run
        self._scores, self._labels = {}, {}
        steps = {span: step for step in run.steps for span in step.info.get("span_ids", ())}
        for opinion in opinions:
            self._take(opinion, run.id, steps)
        scored = run.scored(*self._scores.values())
        return replace(scored, meta={**run.meta, "labels": self._labels}) if self._labels else scored

    def elsewhere(self, opinion: Opinion, trace: bytes | None) -> None:
        """Take one that is on no run of this import: on a session, or on a run that is stored."""
        if trace is None and not opinion.session:
            self._landed.left_out["on a span that is in none of these files: give its trace, too"] += 1
            return
        self._take(opinion, "" if trace is None else trace.hex(), {})

    def taken(self) -> list[Feedback]:
        """The feedback since it was taken last."""
        feedback, self._feedback = self._feedback, []
        return feedback

    def _take(self, opinion: Opinion, run: str, steps: Mapping[str, Step]) -> None:
        step = steps.get(span_bytes(opinion.span).hex()) if opinion.span else None
        thumb = self._thumb(opinion)
        told: list[tuple[str, float | None, Json]] = []
        if thumb is not None:
            told.append(("thumb", thumb, UNSET))
            self._landed.thumbs["up" if thumb > 0 else "down"] += bool(thumb)
            self._landed.thumbs_by[opinion.name] += 1
        if opinion.correction is not UNSET:
            told.append(("correction", None, opinion.correction))
        if thumb is None:
            self._score(opinion, run, step)
        if not told and opinion.comment and _a_persons(opinion):
            told.append(("comment", None, UNSET))
        for number, (kind, value, correction) in enumerate(told):
            self._feedback.append(
                Feedback(
                    run=run,
                    session=None if run else opinion.session,
                    # What is said of the whole run's step is said of the run.
                    step=None if step is None or step.parent is None else step.id,
                    kind=kind,
                    value=value,
                    comment=opinion.comment if number == 0 else "",
                    correction=None if correction is UNSET else correction,
                    # With what it says: one that was changed there is another one here, and later.
                    id=digest(
                        [
                            self._product,
                            opinion.id,
                            kind,
                            value,
                            opinion.comment,
                            as_text(correction) if correction is not UNSET else None,
                        ],
                        24,
                    ),
                    at=opinion.at,
                )
            )

    def _score(self, opinion: Opinion, run: str, step: Step | None) -> None:
        value = opinion.value
        if value is None and not opinion.error:
            return
        if not run:
            self._landed.left_out["a score of a whole session, which is no thumb"] += 1
            return
        name = opinion.name if step is None or step.parent is None else f"{opinion.name} of {step.name}"
        who = opinion.author or opinion.by
        if isinstance(value, str) and not opinion.error:
            try:
                value = float(value)
            except ValueError:
                self._labels[name] = value
                return
        if value is not None and not isinstance(value, bool | int | float):
            self._labels[name] = value
            return
        number = None if value is None or not math.isfinite(value) else float(value)
        reason = opinion.error or opinion.comment
        declared = self._ranges.get(opinion.scale)
        if number is not None and declared is not None and not isinstance(value, bool):
            if not declared.holds(number):
                self._landed.left_out[f"{opinion.name} that is not {declared.words}, as it is declared"] += 1
                return
            if declared.bounded and declared.words != "from 0 to 1":
                self._landed.rescaled[name] = declared.words
                reason = "; ".join(filter(None, [f"{number:g} on a scale {declared.words}", reason]))
                number = declared.share(number)
        self._scores[name] = Score(name, number, reason, f"{self._product}:{who}")
        self._landed.scores[name] += 1
        if opinion.by != "judge":
            self._landed.scales[opinion.name] += 1

    def _thumb(self, opinion: Opinion) -> float | None:
        """1, -1, 0 for one that was taken back, None if it is none."""
        value = opinion.value
        if value is None:
            return None
        if opinion.name in self._rules.least:
            least = self._rules.least[opinion.name]
            if least is not None:
                return (
                    None
                    if isinstance(value, str) and not _number(value)
                    else (1.0 if float(value) >= least else -1.0)
                )
        elif not _a_persons(opinion):
            return None
        if isinstance(value, bool):
            return 1.0 if value else -1.0
        declared = self._ranges.get(opinion.scale)
        if declared is not None and opinion.name not in self._rules.least and not declared.is_thumb:
            return None  # a 1 is the lowest of five stars
        if isinstance(value, str) and not _number(value):
            return _WORDS.get(re.sub(r"[\s_-]", "", value).lower())
        if not isinstance(value, int | float | str):
            return None
        values = self._values.get(opinion.name, set()) | {float(value)}
        if values == {1.0} and _THUMB.search(opinion.name) is None:
            return None  # as well the lowest of five stars
        if values <= {0.0, 1.0}:
            return 1.0 if float(value) else -1.0
        return float(value) if values <= {-1.0, 0.0, 1.0} else None


def _a_persons(opinion: Opinion) -> bool:
    return opinion.by == "person" or (opinion.by == "unsaid" and _PEOPLE.search(opinion.name) is not None)


def _number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
