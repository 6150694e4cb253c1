"""Recorded runs → what people said of an agent's answers: the rows that its prompt is improved by.

A row is an input that people asked and somebody rated.  A thumb down is evidence like a thumb up: the inputs of both
are run again under a better prompt, and both are what a reward is fitted to (`whet.judge.fitted`).  A correction is a
thumb down for what was answered and one up for what should have been.  A run that nobody rated is evidence where the
person gave a sign of a kind that agrees with people's thumbs (`whet.judge.signs`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import UNSET

from ...judge.fitted import Rated
from ...judge.numbers import Named, named_numbers
from ...judge.signs import SignBesideThumb, SignPrecision, sign_precisions
from ...record.columns import META_SAID
from ...record.influence import Influence
from ...record.rows import as_text
from ...record.tracing.labels import corrected
from ...record.tracing.signals import IMPLICIT
from ...record.tracing.tool_calls import tool_steps
from ...types import Feedback, Json, Split, Task, Trajectory, canonical, digest
from .recorded import instruction_arguments
from .signatures import Signature

_UNSEEN = 0.4
"""Share of the people whose inputs the gate takes, and whose thumbs the search does not see."""
_HALF = 100
"""Rated inputs up to which half of them, not two fifths, stand behind the gate."""


THUMB, RATING = "thumb", "rating"


@dataclass(frozen=True, slots=True)
class RatedRun:
    """One recorded run that somebody rated, corrected or commented on, or gave a sign of an opinion after."""

    run: str
    input: Json
    question: str
    answer: str
    person: str
    """The subject or the session; the run itself where neither is known."""
    up: bool | None = None
    comments: Sequence[str] = ()
    correction: Json = UNSET
    sign: str = ""
    """Kind of the sign that the person gave without being asked; "" for none."""
    sign_up: bool = False
    """The sign speaks for the answer."""
    sign_error: float | None = None
    """How often such signs are wrong; None where they do not count."""
    looked_up: Named = ()
    """The numbers that its tools gave."""

    @property
    def told(self) -> bool:
        """True if somebody said something of it."""
        return self.up is not None or bool(self.comments) or self.correction is not UNSET

    def thumbs(self) -> list[Rated]:
        """What a reward is fitted to."""
        if not self.told and self.sign_error is not None:
            return [self._rated(self.answer, self.sign_up, self.sign_error)]
        rated = [] if self.up is None else [self._rated(self.answer, self.up)]
        if self.correction is not UNSET:
            wanted = as_text(self.correction)
            if self.up is None and wanted != self.answer:
                rated.append(self._rated(self.answer, False))
            rated.append(self._rated(wanted, True))
        return rated

    def _rated(self, answer: str, up: bool, error: float | None = None) -> Rated:
        return Rated(self.question, answer, up, self.person, error, self.looked_up)


@dataclass(frozen=True, slots=True)
class ThumbEvidence:
    """All that people said of one agent."""

    runs: Sequence[RatedRun]
    recorded: int
    """Runs of the agent, rated or not."""
    unnamed: bool
    """No run names its person or session, so each counts as somebody else's."""
    signs: Sequence[SignPrecision] = ()
    """What was measured of each kind of sign."""
    influence: str = ""
    """What was left out, so that nobody steers more than others."""
    ratings: int = 0
    """Runs rated on a scale of which nobody said from where on an answer is liked: they count as no thumbs."""

    @property
    def thumbs(self) -> list[Rated]:
        return [thumb for run in self.runs for thumb in run.thumbs()]

    @property
    def sentence(self) -> str:
        """What there is, in words."""
        ups = sum(run.up is True for run in self.runs)
        downs = sum(run.up is False for run in self.runs)
        comments = sum(bool(run.comments) for run in self.runs)
        corrections = sum(run.correction is not UNSET for run in self.runs)
        people = (
            "people who are not told apart" if self.unnamed else _count(len(self.people), "person", "people")
        )
        more = [f"{comments} with a comment"] * bool(comments) + [f"{corrections} corrected"] * bool(
            corrections
        )
        signed = sum(not run.told for run in self.runs)
        if signed:
            more.append(f"{_count(signed, 'run')} that nobody rated, by a sign")
        if self.ratings:
            more.append(
                f"{_count(self.ratings, 'run')} rated on a scale, which count as no thumbs (--liked-from NUMBER says "
                "from where on an answer is liked)"
            )
        left_out = f"; {self.influence}" if self.influence else ""
        return (
            f"{_count(self.recorded, 'recorded run')}; {ups} thumbs up and {downs} down of {people} on "
            f"{_count(len(self.by_input), 'different input')}{', ' if more else ''}{', '.join(more)}{left_out}"
        )

    @property
    def people(self) -> set[str]:
        return {run.person for run in self.runs}

    @property
    def by_input(self) -> Mapping[str, list[RatedRun]]:
        """The same input of several people is one row."""
        inputs: dict[str, list[RatedRun]] = defaultdict(list)
        for run in self.runs:
            inputs[" ".join(run.question.casefold().split())].append(run)
        return inputs


@dataclass(frozen=True, slots=True)
class ThumbRows:
    """The evidence, divided into what may be searched on and what proves."""

    tasks: Sequence[Task]
    search: Sequence[Rated]
    """Thumbs of the people whom the search sees."""
    unseen: Sequence[Rated]
    """Thumbs of the others."""
    all: Sequence[Rated]

    @property
    def gate(self) -> list[Task]:
        """What proves: a row for each time that somebody asked."""
        return [task for task in self.tasks if task.split is Split.GATE]

    @property
    def gate_inputs(self) -> int:
        """Different inputs of the gate: an agent is asked each once, before and after."""
        return len({canonical(task.initial_state["input"]) for task in self.gate})


def rated_runs(
    signature: Signature,
    qualname: str,
    influence: Influence,
    *,
    liked_from: float | None = None,
) -> ThumbEvidence:
    """What people said of a function's recorded runs.

    A run of the traced function; or, where the function takes one text, a run that says of no function that it is one:
    what a gateway recorded.

    Args:
        influence: the runs that may be learned from, with the feedback that counts (`record.influence.weighed`).
        liked_from: the least rating that speaks for an answer; if None, ratings on a scale say nothing.
    """
    runs = influence.runs
    scale = Scale.of(runs, liked_from)
    recorded, ratings, rated = 0, 0, []
    unnamed = True
    for run in sorted(runs, key=lambda run: (run.started, run.id)):
        # A rollout of an experiment is no work that a person asked for.
        if run.error is not None or "function" in run.task.initial_state or run.output is None:
            continue
        function = run.meta.get("function")
        if function != qualname and not (function is None and len(signature.required) == 1):
            continue
        input = instruction_arguments(signature, run.task.instruction)
        if signature.named(input) is None:
            continue
        recorded += 1
        unnamed = unnamed and not (run.subject or run.session)
        if not run.feedback:
            continue
        rated.append(rated_run(run, input, scale))
        ratings += liked_from is None and any(map(scale.holds, _valued(run)))
    signs = _precisions(rated)
    believed = [_believed(run, signs) for run in rated]
    evidence = [run for run in believed if run.told or run.sign_error is not None]
    return ThumbEvidence(
        evidence, recorded, unnamed, list(signs.values()), ratings=ratings, influence=influence.sentence
    )


def _precisions(runs: Sequence[RatedRun]) -> dict[tuple[str, bool], SignPrecision]:
    """How far each kind of sign agrees with the thumbs on the same runs."""
    thumbs = [run.up for run in runs if run.up is not None]
    ups = sum(thumbs) / len(thumbs) if thumbs else 0.5
    beside = [
        SignBesideThumb(run.sign, run.sign_up, run.up, run.person)
        for run in runs
        if run.sign and run.up is not None
    ]
    return sign_precisions(beside, {True: ups, False: 1 - ups})


def _believed(run: RatedRun, signs: Mapping[tuple[str, bool], SignPrecision]) -> RatedRun:
    precision = signs.get((run.sign, run.sign_up))
    error = 1 - precision.share if precision is not None and precision.counts else None
    return run if run.sign_error == error else replace(run, sign_error=error)


@dataclass(frozen=True, slots=True)
class Scale:
    """Which of a record's values are ratings on a scale, and from where on they speak for an answer."""

    ones: bool
    """A 1 is the lowest rating, and no thumb: others rated higher, and nobody gave a thumb down."""
    liked_from: float | None = None

    @classmethod
    def of(cls, runs: Iterable[Trajectory], liked_from: float | None = None) -> Scale:
        """By all values that people gave."""
        notes = [note for run in runs for note in _valued(run)]
        higher = any(note.kind == RATING and (note.value or 0) > 1 for note in notes)
        return cls(higher and not any(note.kind == THUMB and note.value == -1 for note in notes), liked_from)

    def holds(self, note: Feedback) -> bool:
        """True for a rating."""
        return note.kind == RATING or (self.ones and note.value == 1)

    def up(self, note: Feedback) -> bool | None:
        """Whether it speaks for the answer; None where it says nothing, as a thumb that was taken back."""
        if self.holds(note):
            return None if self.liked_from is None else (note.value or 0) >= self.liked_from
        return None if not note.value else note.value > 0


def _valued(run: Trajectory) -> list[Feedback]:
    """What people gave the whole run in numbers."""
    return [
        note
        for note in run.feedback
        if note.step is None and note.value is not None and not note.kind.startswith(IMPLICIT)
    ]


def rated_run(run: Trajectory, input: Json, scale: Scale) -> RatedRun:
    """What people said of one run, and what they let show.

    Args:
        input: of its function.
    """
    whole = [note for note in run.feedback if note.step is None]
    notes = [note for note in whole if not note.kind.startswith(IMPLICIT)]
    sign = _sign(whole)
    last = max(_valued(run), key=lambda note: note.at, default=None)
    corrections = [note for note in notes if corrected(note) is not UNSET]
    correction = corrected(max(corrections, key=lambda note: note.at)) if corrections else UNSET
    return RatedRun(
        run=run.id,
        input=input,
        question=as_text(input),
        answer=run.output_text,
        person=run.subject or run.session or run.id,
        up=None if last is None else scale.up(last),
        comments=[note.comment for note in notes if note.comment],
        correction=correction,
        sign=sign.kind.removeprefix(IMPLICIT) if sign else "",
        sign_up=bool(sign and sign.value and sign.value > 0),
        looked_up=[each for step in tool_steps(run) for each in named_numbers(step.name, step.action)],
    )


def _sign(notes: Sequence[Feedback]) -> Feedback | None:
    """The last sign among them."""
    signs = [note for note in notes if note.kind.startswith(IMPLICIT) and note.value]
    return max(signs, key=lambda note: note.at) if signs else None


def thumb_rows(
    evidence: ThumbEvidence, function: str, *, most: int, seed: int = 0, unseen: Collection[str] | None = None
) -> ThumbRows:
    """Divide people and inputs: the gate has what people asked whom the search does not see.

    An input of the gate is on no other side, whoever asked it; the search's comments are of its own people.  A row of
    the gate is what one person asked, so that it counts as often as it is asked; the search has each input once.

    Args:
        function: name of the entry, for the tasks.
        most: inputs of the gate.
        unseen: the gate's people; if None, they are drawn from all by `seed`.
    """
    if unseen is None:
        people = sorted(evidence.people, key=lambda name: digest(["people", seed, name]))
        unseen = set(people[: max(1, round(_UNSEEN * len(people)))])
    inputs = evidence.by_input
    share = 0.5 if len(inputs) < _HALF else 0.4
    asked = [key for key, runs in inputs.items() if any(run.person in unseen for run in runs)]
    asked.sort(key=lambda key: digest(["gate", seed, key]))
    held = set(asked[: min(most, int(share * len(inputs)))])
    # The search believes signs as far as the thumbs of its own people confirm them: the others' are the gate's.
    known = [run for run in evidence.runs if run.person not in unseen]
    confirmed = _precisions(known)
    believed = [_believed(run, confirmed) for run in known]
    searched = {run.run: run for run in believed if run.told or run.sign_error is not None}
    tasks = []
    for key, runs in inputs.items():
        told = [searched[run.run] for run in runs if run.run in searched]
        if key in held:
            tasks += [_task(run, function, Split.GATE) for run in runs if run.person in unseen]
        elif told:  # otherwise the search knows nobody who asked it
            tasks.append(_searched(told, function))
    seen = [thumb for run in searched.values() for thumb in run.thumbs()]
    others = [thumb for run in evidence.runs if run.person in unseen for thumb in run.thumbs()]
    return ThumbRows(tasks, seen, others, evidence.thumbs)


def _task(run: RatedRun, function: str, split: Split, meta: Mapping[str, Json] | None = None) -> Task:
    return Task(
        id=digest(["thumbs", run.run, canonical(run.input).decode()], 16),
        instruction=run.question,
        initial_state={"function": function, "input": run.input},
        split=split,
        group=run.person,
        meta=meta or {"runs": [run.run]},
    )


def _searched(runs: Sequence[RatedRun], function: str) -> Task:
    """An input that may be searched on, with what was said of its answers."""
    meta: dict[str, Json] = {"runs": [run.run for run in runs], META_SAID: said(runs)}
    corrections = [run.correction for run in runs if run.correction is not UNSET]
    if corrections:
        meta["answer_known"] = True
    task = _task(runs[0], function, Split.TRAIN, meta)
    return replace(task, answer=corrections[-1] if corrections else None)


def said(runs: Sequence[RatedRun]) -> str:
    """What people said of the answers that one input had, for the model that improves the prompt."""
    by_answer: dict[str, list[RatedRun]] = defaultdict(list)
    for run in runs:
        by_answer[run.answer].append(run)
    sentences = []
    for answer, own in by_answer.items():
        rated = [run for run in own if run.up is not None]
        downs = sum(run.up is False for run in rated)
        if downs:
            sentences.append(f"{downs} of {_count(len(rated), 'person', 'people')} disliked {answer!r:.200}")
        elif rated:
            sentences.append(f"{_count(len(rated), 'person', 'people')} liked {answer!r:.200}")
        signs = Counter(run.sign for run in own if run.up is None and run.sign_error is not None)
        sentences += [
            f"{_count(n, 'person', 'people')} {sign} after {answer!r:.200}" for sign, n in signs.items()
        ]
        sentences += [f"somebody wrote of it: {comment:.200}" for run in own for comment in run.comments[:2]]
    return "; ".join(sentences[:6])


def _count(number: int, noun: str, many: str = "") -> str:
    return f"{number} {noun if number == 1 else many or noun + 's'}"
