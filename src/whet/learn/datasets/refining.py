"""Rows of examples, looked at again: repeated, contradicted, wrongly labelled, giving their answer away.

Each finding has its kind, how likely it is, and why; what is left out or repaired keeps its provenance, so that a
person can look at it and put it back.  Labels are doubted by a classifier where there are few of them
(`labels.py`), by what several agents answered where those answers were recorded (`consensus.py`), and by what became
of the rows while something learned from them (`dynamics.py`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ...record.rows import as_text
from ...types import Json, Task
from .consensus import Answers, agreement
from .dynamics import EXAMPLE, LEAST_ROUNDS, Histories, History, doubtful, example_of
from .near import Near, normalised

Kind = Literal["duplicate", "contradiction", "mislabelled", "leak", "doubtful", "trivial", "unsolvable"]
LEFT_OUT: frozenset[Kind] = frozenset({"duplicate", "contradiction", "mislabelled", "leak"})
"""Kinds whose rows are left out; of the others is told, unless leaving them out is asked for."""
TOLD: tuple[Kind, ...] = ("doubtful", "trivial", "unsolvable")
SAME = 0.9
"""Similarity from which on two inputs with the same answer are one."""
SURE = 0.9
"""Chance from which on another answer takes the place of the given one."""
LEAST_ROWS, MOST_LABELS, ROWS_A_LABEL = 50, 50, 8
"""Where labels are doubted by a classifier: so many rows, no more labels, so many rows for each of them."""
_SEVERAL = 3
"""Sources whose agreement or disagreement says something of a task."""
_SELDOM = 0.05
"""Share of right tries up to which an answer that most of the last ones give casts doubt on the row's."""
_REPEATED = 3
"""Rows from which on one answer that is right for none of the table is a way of giving up, and casts no doubt."""
_GIVEAWAY = r"\b(?:answer|label|expected|solution|target|class|category|output)\W{1,4}"


@dataclass(frozen=True, slots=True)
class Doubt:
    """A finding about one row."""

    row: int
    """Its place."""
    kind: Kind
    chance: float
    """How likely it is so."""
    because: str
    instead: Json = None
    """The answer in the place of the given one, where one is sure."""
    of: int | None = None
    """The row that a duplicate repeats."""
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Refinement:
    """Rows as they were, what was found, and what is left."""

    rows: Sequence[Task]
    """What is left, repaired where that was asked for."""
    doubts: Sequence[Doubt]
    wrong_rate: float | None = None
    """Estimated share of wrong labels; None where they were not doubted by a classifier."""
    notes: Sequence[str] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Kind → findings."""
        return dict(Counter(doubt.kind for doubt in self.doubts))


@dataclass(slots=True)
class _Search:
    """The rows, and what was found so far; a row has one finding that leaves it out."""

    texts: Sequence[str]
    answers: Sequence[str | None]
    """Comparable; None where none is known."""
    left_out: Collection[Kind] = LEFT_OUT
    doubts: dict[int, Doubt] = field(default_factory=dict)
    told: dict[tuple[int, Kind], Doubt] = field(default_factory=dict)

    def add(
        self, row: int, kind: Kind, chance: float, because: str, instead: Json = None, of: int | None = None
    ) -> None:
        doubt = Doubt(row, kind, chance, because, instead, of)
        if kind in self.left_out:
            self.doubts.setdefault(row, doubt)
        else:
            self.told.setdefault((row, kind), doubt)

    def standing(self) -> list[int]:
        """Rows that nothing leaves out so far, and whose answer is known."""
        return [
            row for row, answer in enumerate(self.answers) if answer is not None and row not in self.doubts
        ]


def refine(
    rows: Sequence[Task],
    *,
    answers: Answers | None = None,
    histories: Histories | None = None,
    leave_out: Collection[Kind] = (),
    repair: bool = False,
    seed: int = 0,
) -> Refinement:
    """Look at rows again.

    Args:
        rows: with `initial_state["input"]`, as tables are read.
        answers: id of a row → (source, answer) of agents that were asked the same.
        histories: what became of the rows while something learned from them.
        leave_out: further kinds whose rows are left out.
        repair: put a sure answer in the place of a wrong one, instead of leaving the row out.

    Raises:
        MissingExtra: labels are few enough to be doubted by a classifier, and numpy is not installed.
    """
    inputs = [as_text(task.initial_state.get("input", task.instruction)) for task in rows]
    search = _Search(
        [normalised(text) for text in inputs],
        [normalised(as_text(task.answer)) if task.answer_known else None for task in rows],
        {*LEFT_OUT, *leave_out},
    )
    _leaks(search, inputs, rows)
    _repeated(search)
    by_text = {
        answer: task.answer for task, answer in zip(rows, search.answers, strict=True) if answer is not None
    }
    _by_agents(search, rows, answers or {}, by_text)
    notes = [_by_dynamics(search, rows, histories)] if histories is not None else []
    rate, note = _by_labels(search, inputs, by_text, seed)
    kept, doubts = [], []
    for place, task in enumerate(rows):
        doubt = search.doubts.get(place)
        if doubt is not None and doubt.kind == "mislabelled" and repair and doubt.instead is not None:
            doubt = replace(doubt, repaired=True)
            task = _repaired(task, doubt)
        elif doubt is not None:
            doubts.append(doubt)
            continue
        kept.append(task)
        doubts += [doubt] if doubt is not None else []
    doubts = sorted([*doubts, *search.told.values()], key=lambda doubt: (doubt.row, doubt.kind))
    return Refinement(kept, doubts, rate, [*notes, *([note] if note else [])])


def _repaired(task: Task, doubt: Doubt) -> Task:
    provenance = task.meta.get("provenance")
    was: dict[str, Json] = {"was": task.answer, "because": doubt.because, "chance": round(doubt.chance, 3)}
    meta = {
        **task.meta,
        "provenance": {**(provenance if isinstance(provenance, dict) else {}), "refined": was},
    }
    return replace(task, answer=doubt.instead, meta=meta, id="")


def gives_away(text: str, task: Task) -> bool:
    """True if an input says the task's answer after a word such as "answer:"."""
    answer = as_text(task.answer).strip() if task.answer_known and task.answer is not None else ""
    return bool(answer and re.search(_GIVEAWAY + re.escape(answer) + r"(?!\w)", text, re.IGNORECASE))


def _leaks(search: _Search, inputs: Sequence[str], rows: Sequence[Task]) -> None:
    for row, (text, task) in enumerate(zip(inputs, rows, strict=True)):
        if gives_away(text, task):
            search.add(row, "leak", 1.0, "the input says the answer itself")


def _repeated(search: _Search) -> None:
    """One of several equal inputs with the same answer stays; of equal ones that contradict each other the majority."""
    sets: dict[str, list[int]] = defaultdict(list)
    for row in search.standing():
        sets[search.texts[row]].append(row)
    for same in sets.values():
        counts = Counter(search.answers[row] for row in same)
        (top, most), *others = counts.most_common()
        if others and most == others[0][1]:
            for row in same:
                search.add(row, "contradiction", 1.0, f"equal inputs have {len(counts)} different answers")
            continue
        for row in same:
            if search.answers[row] != top:
                search.add(row, "contradiction", 1.0, f"{most} equal inputs have another answer")
    standing = search.standing()
    index = Near([search.texts[row] for row in standing], SAME)
    for place, row in enumerate(standing):
        if not search.texts[row]:
            continue
        for other, similarity in index.after(place):
            later = standing[other]
            if search.answers[later] == search.answers[row] and row not in search.doubts:
                alike = (
                    "the same input" if similarity == 1.0 else f"{similarity:.0%} of the input is the same"
                )
                search.add(later, "duplicate", 1.0, f"repeats an earlier row: {alike}", of=row)


def _by_agents(search: _Search, rows: Sequence[Task], answers: Answers, by_text: Mapping[str, Json]) -> None:
    """Doubt what several agents answer otherwise, and alike."""
    standing = search.standing()
    given = {rows[row].id: answer for row in standing if (answer := search.answers[row]) is not None}
    told = {
        task: [(source, normalised(answer)) for source, answer in answers[task]]
        for task in given
        if len(answers.get(task, ())) >= 2
    }
    found = agreement(given, told)
    for row in standing:
        seen = found.get(rows[row].id)
        if seen is None:
            continue
        others = f"{seen.sources} agents"
        if seen.best != given[rows[row].id] and seen.sure >= SURE and seen.backing >= 2:
            instead = by_text.get(seen.best, _spelled(answers[rows[row].id], seen.best))
            search.add(
                row,
                "mislabelled",
                seen.sure,
                f"{seen.backing} of {others} agree on another answer, {seen.agreeing} have this one",
                instead,
            )
        elif seen.sources >= _SEVERAL and seen.agreeing == seen.sources:
            search.add(row, "trivial", seen.right, f"all {others} have the answer")
        elif seen.sources >= _SEVERAL and not seen.agreeing:
            search.add(
                row,
                "unsolvable",
                1 - seen.right,
                f"none of {others} has the answer, nor do they agree on another",
            )


def _by_dynamics(search: _Search, rows: Sequence[Task], histories: Histories) -> str:
    """Tell of rows that were always right, never right, or learned as wrong labels are; says how many were learned."""
    inputs = [task.initial_state.get("input", task.instruction) for task in rows]
    own: dict[int, History] = {}
    for row in range(len(rows)):
        if row in search.doubts:
            continue
        # Of a task that a checker judges no answer is known by which it was learned.
        keys = [example_of(inputs[row])]
        keys += [example_of(inputs[row], rows[row].answer)] if search.answers[row] is not None else []
        keys += [rows[row].meta[EXAMPLE]] if EXAMPLE in rows[row].meta else []
        history = next((histories[key] for key in reversed(keys) if key in histories), None)
        if history is not None and len(history.values) >= LEAST_ROUNDS:
            own[row] = history
    answers = {answer for answer in search.answers if answer is not None}
    instead = Counter(normalised(history.instead) for history in own.values() if history.instead)
    for row, history in own.items():
        if history.fitted:
            if all(history.right):
                because = f"right at first sight and in each of {len(history.values)} epochs"
                search.add(row, "trivial", history.confidence, because)
            continue
        _of_tries(search, row, history, answers, instead)
    places = list(own)
    for place, chance in doubtful([own[row] for row in places]).items():
        history = own[places[place]]
        told = f"confidence {history.confidence:.2f} ± {history.variability:.2f} over {len(history.values)} epochs"
        search.add(places[place], "doubtful", chance, f"learned late or never: {told}")
    if not own:
        return "none of these rows has training dynamics: what was learned from had other inputs or answers"
    return f"{len(own)} of {len(rows)} rows have training dynamics"


def _of_tries(
    search: _Search, row: int, history: History, answers: Collection[str], instead: Mapping[str, int]
) -> None:
    """Tell of a row that was tried again and again."""
    tries = f"{history.tries} tries over {len(history.values)} rounds"
    # Laplace's rule: three tries prove less than a hundred.
    surely = (history.tries + 1) / (history.tries + 2)
    other = history.instead and normalised(history.instead)
    if min(history.values) == 1.0:
        search.add(row, "trivial", surely, f"right in all {tries}")
    elif (
        other
        and other != search.answers[row]
        and history.confidence < _SELDOM
        and (other in answers or instead[other] < _REPEATED)
    ):
        because = (
            f"right in {history.confidence:.0%} of {tries}, and most of the last agree on another answer"
        )
        search.add(row, "doubtful", surely, because, history.instead)
    elif not any(history.right):
        search.add(row, "unsolvable", surely, f"never right in {tries}")


def _spelled(answers: Sequence[tuple[str, str]], comparable: str) -> str:
    return next(answer for _, answer in answers if normalised(answer) == comparable)


def _by_labels(
    search: _Search, inputs: Sequence[str], by_text: Mapping[str, Json], seed: int
) -> tuple[float | None, str]:
    """Doubt labels by a classifier, where they are few and each has many rows."""
    standing = search.standing()
    counts = Counter(search.answers[row] for row in standing)
    labels = sorted(label for label in counts if label is not None)
    few = 2 <= len(labels) <= min(MOST_LABELS, len(standing) // ROWS_A_LABEL)
    if len(standing) < LEAST_ROWS or not few:
        return None, (
            f"labels were not doubted by a classifier: {len(standing)} rows have {len(labels)} different answers, and "
            f"it takes {LEAST_ROWS} rows, and {ROWS_A_LABEL} of each label"
        )
    from .labels import MOST_CALLED, doubted

    numbers = {label: number for number, label in enumerate(labels)}
    texts = [inputs[row] for row in standing]
    found = doubted(texts, [numbers[search.answers[row] or ""] for row in standing], seed=seed)
    for place in found.called:
        row, instead = standing[place], labels[found.instead[place]]
        sure = found.sure[place] >= SURE and instead != search.answers[row]
        search.add(
            row,
            "mislabelled",
            found.wrong[place],
            f"rows like it are {as_text(by_text[instead])}",
            by_text[instead] if sure else None,
        )
    if found.rate >= MOST_CALLED:
        return None, "labels were not doubted: these inputs say too little of their labels"
    return found.rate, ""
