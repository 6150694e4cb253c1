"""Holdings parts → the record: trajectories, scores, feedback and tasks, written once however often they are read.

A person's thumb becomes Feedback, a number of a judge or of a scale becomes a Score, a label stays in `meta`, and what
should have been answered becomes a correction.  Nobody's opinion is made up: where it is not said who gave it, only a
name that people's opinions go by, with values that a thumb has, makes it a thumb.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import UNSET

from ....errors import InputError
from ....types import Feedback, Json, Score, Split, Step, Task, Trajectory, digest
from ...rows import as_text
from ...store import Store
from ...tracing.dialects import survey
from .holdings import Holdings, Opinion, TraceNote, lone, span_bytes, trace_bytes

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
    scales: Counter[str] = field(default_factory=Counter)
    """Names of numbers that are no thumbs, and that no judge is said to have given → how many."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Reason → how many opinions."""
    redacted: Counter[str] = field(default_factory=Counter)


def land(holdings: Holdings, store: Store, rules: ThumbRules) -> Landed:
    """Record everything that was holdings."""
    landed = Landed()
    runs = {run.id: run for run in _runs(holdings)}
    opinions = _Opinions(holdings, runs, rules, landed)
    runs = {id: opinions.on(run) for id, run in runs.items()}
    landed.runs, landed.feedback, landed.tasks = len(runs), len(opinions.feedback), len(holdings.tasks)
    landed.answered_tasks = sum(task.answer_known for task in holdings.tasks)
    before = {table: store.count(table) for table in ("trajectories", "feedback", "tasks")}
    ids = list(runs)
    for start in range(0, len(ids), _AT_ONCE):
        portion = ids[start : start + _AT_ONCE]
        stored = {run.id: run for run in store.trajectories(ids=portion)}
        with store.batch() as batch:
            for id in portion:
                run = runs[id]
                if id not in stored:
                    batch.put(run)
                elif (merged := _merged(stored[id], run)) is not None:
                    batch.put(merged, replace=True)
                    landed.updated_runs += 1
        landed.redacted += batch.redacted
    with store.batch() as batch:
        batch.add_feedback(*opinions.feedback)
        batch.put_tasks(*_fresh(holdings.tasks, store))
    landed.redacted += batch.redacted
    landed.new_runs = store.count("trajectories") - before["trajectories"]
    landed.new_feedback = store.count("feedback") - before["feedback"]
    landed.new_tasks = store.count("tasks") - before["tasks"]
    return landed


def _runs(holdings: Holdings) -> Iterator[Trajectory]:
    """The trajectories of the spans, with what is said of each; and of traces without spans."""
    spoken = set()
    for run in survey(holdings.spans).trajectories:
        spoken.add(run.id)
        yield _told(run, holdings.notes.get(run.id, TraceNote()), holdings.product)
    for id, note in holdings.notes.items():
        if id not in spoken and (note.input is not None or note.output is not None):
            run = Trajectory(id=id, task=Task(), trace_ids=(id,), started=0.0)
            yield _told(run, note, holdings.product)


def _told(run: Trajectory, note: TraceNote, product: str) -> Trajectory:
    meta = {**run.meta, "source": product}
    meta["metadata"] = {**run.meta.get("metadata", {}), **note.metadata}
    meta |= {"tags": note.tags}
    task = run.task
    if not task.instruction and note.input is not None:
        task = Task(instruction=as_text(lone(note.input)))
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
    """Each task once, with the split that the record may have given it already."""
    latest = {task.id: task for task in tasks}
    splits: dict[str, Split | None] = {}
    ids = list(latest)
    for start in range(0, len(ids), _AT_ONCE):
        splits |= {task.id: task.split for task in store.tasks(ids=ids[start : start + _AT_ONCE])}
    return [replace(task, split=splits.get(id, task.split)) for id, task in latest.items()]


class _Opinions:
    """Opinions by the run that they are on, as scores, labels and feedback."""

    def __init__(
        self, holdings: Holdings, runs: Mapping[str, Trajectory], rules: ThumbRules, landed: Landed
    ) -> None:
        self._product, self._rules, self._landed = holdings.product, rules, landed
        self._steps = {
            run.id: {span: step for step in run.steps for span in step.info.get("span_ids", ())}
            for run in runs.values()
        }
        self.feedback: list[Feedback] = []
        self._scores: dict[str, dict[str, Score]] = defaultdict(dict)
        self._labels: dict[str, dict[str, Json]] = defaultdict(dict)
        values: dict[str, set[Json]] = defaultdict(set)
        for opinion in holdings.opinions:
            if isinstance(opinion.value, int | float) and not isinstance(opinion.value, bool):
                values[opinion.name].add(float(opinion.value))
        self._values = values
        # The last one of a name counts.
        for opinion in sorted(holdings.opinions, key=lambda opinion: (opinion.at, opinion.id)):
            self._take(opinion, holdings.traces)

    def on(self, run: Trajectory) -> Trajectory:
        """The run with its scores and labels."""
        scored = run.scored(*self._scores.get(run.id, {}).values())
        if labels := self._labels.get(run.id):
            scored = replace(scored, meta={**run.meta, "labels": labels})
        return scored

    def _take(self, opinion: Opinion, traces: Mapping[str, str]) -> None:
        trace = opinion.trace or traces.get(opinion.span, "")
        if not trace and opinion.span and "-" in opinion.span:
            trace = opinion.span  # LangSmith's runs: the root has the id of its trace
        if not trace and not opinion.session:
            self._landed.left_out["on a span that is in none of these files: give its trace, too"] += 1
            return
        run = trace_bytes(trace).hex() if trace else ""
        step = self._steps.get(run, {}).get(span_bytes(opinion.span).hex()) if opinion.span else None
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
            self.feedback.append(
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
                self._labels[run][name] = value
                return
        if value is not None and not isinstance(value, bool | int | float):
            self._labels[run][name] = value
            return
        number = None if value is None or not math.isfinite(value) else float(value)
        reason = opinion.error or opinion.comment
        self._scores[run][name] = Score(name, number, reason, f"{self._product}:{who}")
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
        if isinstance(value, str) and not _number(value):
            return _WORDS.get(re.sub(r"[\s_-]", "", value).lower())
        if not isinstance(value, int | float | str):
            return None
        values = self._values[opinion.name] | {float(value)}
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
