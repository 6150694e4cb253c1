"""Many versions of a program compared on a few rows before any of them is judged whole.

`Spectrum` says which lines of a program ran with the rows that it fails and with those that it passes; the blame of a
line is Ochiai's coefficient of the two counts (Abreu et al. 2007).  A screen runs versions side by side in one
evaluation (`sandbox/inside/screen.py`), first on rows that the program fails, then on some that it passes; a version
that gains nothing there is not judged.  Answers are compared outside, and what a screen says promotes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec

from ....sandbox import CallResult, Pool
from ....types import Json, Task
from ..editing.corrections import NO_CORRECTIONS, Corrections
from ..editing.program import Program

Row = TypeVar("Row")

ENTRY = "inside.screen:handle"
FAILING, PASSING = 16, 10
"""Rows of either kind that a screen is made on."""
TRACED = 16
"""Rows of either kind that are traced."""
TRACE_SECONDS = 0.2
"""Processor time of one traced call, which takes some ten times as long as a plain one."""
_LEAST_SECONDS = 0.02
"""Processor time that one call always has: a loop that does not end is taken for one after so long."""
_WIDEST = 64
"""Versions in one screen."""
_LOAD, _STEP = 1e-3, 1e-7
"""Seconds that loading a version and a line of Python take, about: the width follows counts of steps, not a clock."""
_SCREEN_SECONDS = 0.2
HANGS = 10_000_000
"""Steps of a call that was ended."""
_WORDS, _LONGEST = 24, 16
"""Words of rows that are tried, and their longest, in characters."""
_FLOOR = 0.1
"""Blame of a line that no failing row reaches: what is missing may be missing there."""


class CodeLine(NamedTuple):
    """A line of a part of a program, from 1."""

    part: str
    number: int


@dataclass(frozen=True, slots=True)
class Told:
    """What one version, or one traced call, had to say."""

    told: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Traced:
    """One traced call."""

    lines: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Path → lines of it that ran."""
    steps: int = HANGS
    cpu: float = TRACE_SECONDS
    answer: str = ""
    """A letter and JSON; "" where it was ended."""

    @property
    def hung(self) -> bool:
        """It did not end by itself."""
        return self.steps >= HANGS

    @staticmethod
    def read(report: Told) -> Traced:
        """What was told; nothing of a call that ended its process, or said something else."""
        try:
            return msgspec.json.decode(report.told[0], type=Traced)
        except (msgspec.MsgspecError, IndexError):
            return Traced()


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a part of a program stands in the staged files."""

    path: str
    body: str
    skipped: int
    """Lines at the beginning of the part that do not stand there: headers of classes."""
    shift: int
    """Line of the file less line of the part."""


def placed(program: Program, files: Mapping[str, str | bytes]) -> dict[str, Placed] | None:
    """Where each Python part of a program stands; None where one does not stand there once, as it is."""
    places: dict[str, Placed] = {}
    for part, text in program.parts.items():
        if not part.endswith(".py"):
            continue
        skipped, body = 0, text
        while body.lstrip().startswith("class ") and body.partition("\n")[0].rstrip().endswith(":"):
            skipped, body = skipped + 1, body.partition("\n")[2]
        for candidate, dropped in ((text, 0), (body, skipped)):
            stands = [
                path
                for path, content in files.items()
                if path.endswith(".py") and isinstance(content, str) and content.count(candidate) == 1
            ]
            if candidate.strip() and len(stands) == 1:
                content = files[stands[0]]
                assert isinstance(content, str)
                above = content[: content.index(candidate)].count("\n")
                places[part] = Placed(stands[0], candidate, dropped, above - dropped)
                break
        else:
            return None
    return places


def version(
    program: Program, places: Mapping[str, Placed], files: Mapping[str, str | bytes]
) -> dict[str, str]:
    """Path → text of the staged files with a program of the same parts in place."""
    changed: dict[str, str] = {}
    for part, place in places.items():
        staged = files[place.path]
        before = changed.get(place.path, staged if isinstance(staged, str) else "")
        body = program.parts[part]
        for _ in range(place.skipped):
            body = body.partition("\n")[2]
        changed[place.path] = before.replace(place.body, body, 1)
    return changed


@dataclass(frozen=True, slots=True)
class Spectrum:
    """How a program fared on rows, as far as that says where to change it."""

    program: Program
    blame: Mapping[CodeLine, float]
    """Of lines that ran, from 0 to 1."""
    width: int
    """Versions that one screen takes; 1: a screen would cost more than it saves."""
    seconds: float
    """Processor time of one call."""
    rows: Sequence[Task] = ()
    """That a screen is made on, the failing ones first."""
    answers: Sequence[str] = ()
    scores: Sequence[float] = ()
    """Of the program on these rows."""
    weights: Sequence[float] = ()
    """Rows that each of them stands for."""
    corrections: Corrections = NO_CORRECTIONS
    """Of failing rows: what a wrong constant in the program may have been meant to be."""
    finalists: int = 1
    """Versions of one screen that are judged whole; one where a screen sees all that a judge does."""

    def of(self, line: CodeLine) -> float:
        """Blame of a line, and a little of one that never ran."""
        return max(_FLOOR, self.blame.get(line, 0.0))


@dataclass(frozen=True, slots=True)
class Screened:
    """What a screen says of one version."""

    gain: float
    """In rows, or in the score, over the program that it is a version of; 0 where it cannot win."""
    differs: bool = False
    """It loses nothing, and answers a failing row in another way: perhaps half of a repair."""
    nearer: float = 0.0
    """How much more its answers to failing rows are like the right ones, in rows."""


def ochiai(
    failing: Sequence[frozenset[CodeLine]], passing: Sequence[frozenset[CodeLine]]
) -> dict[CodeLine, float]:
    """The blame of each line that ran with a failing row; all lines alike where none fails."""
    if not failing:
        return {line: 1.0 for ran in passing for line in ran}
    with_failing: dict[CodeLine, int] = {}
    with_any: dict[CodeLine, int] = {}
    for rows, fails in ((failing, True), (passing, False)):
        for ran in rows:
            for line in ran:
                with_any[line] = with_any.get(line, 0) + 1
                if fails:
                    with_failing[line] = with_failing.get(line, 0) + 1
    return {line: count / math.sqrt(len(failing) * with_any[line]) for line, count in with_failing.items()}


def width_of(steps: float) -> int:
    """How many versions fit into one screen, by the steps that one of them takes."""
    return max(1, min(_WIDEST, int(_SCREEN_SECONDS / (_LOAD + _STEP * steps))))


@dataclass
class Screen:
    """Versions of the programs of one judge, run side by side.

    Args:
        pool: of the judge's candidates.
        seconds: the time limit of one evaluation there.
    """

    pool: Pool
    seconds: float
    cpu_seconds: float = field(default=0.0, init=False)

    async def asked(self, files: Mapping[str, str | bytes], ask: str, *args: Json) -> list[Told]:
        """The reports of one of the functions inside; none where the evaluation was lost."""
        async with self.pool.open(files, ENTRY) as session:
            reply: CallResult = await session.call([ask, *args], last=True)
        self.cpu_seconds += reply.cpu_seconds
        try:
            return msgspec.convert(reply.value if reply.failure is None else [], list[Told])
        except msgspec.ValidationError:
            return []

    async def each(
        self,
        files: Mapping[str, str | bytes],
        ask: str,
        head: Sequence[Json],
        versions: Sequence[Mapping[str, str]],
        tail: Sequence[Json],
    ) -> list[tuple[str, ...]]:
        """What was told about each version; nothing of one that could not be run at all."""
        told: list[tuple[str, ...]] = []
        while len(told) < len(versions):
            rest = [dict(texts) for texts in versions[len(told) :]]
            reports = await self.asked(files, ask, *head, rest, *tail, self.enough)
            # One that took the whole evaluation with it must not be begun with for ever.
            told += [report.told for report in reports] or [()]
        return told

    @property
    def enough(self) -> float:
        """Seconds after which a screen begins no further version."""
        return 0.4 * self.seconds


def value_of_answer(told: str) -> tuple[bool, Json]:
    """True and the value, where a call returned one."""
    if told[:1] != "v":
        return False, None
    try:
        return True, msgspec.json.decode(told[1:])
    except msgspec.MsgspecError:
        return False, None


def spread(rows: Sequence[Row], most: int) -> list[Row]:
    """At most so many rows, evenly from all of them."""
    if len(rows) <= most:
        return list(rows)
    return [rows[index * len(rows) // most] for index in range(most)]


def words_of(rows: Sequence[Task]) -> list[str]:
    """Keys, short texts, words and signs in rows and their answers, the commonest first."""
    counts: dict[str, int] = {}

    def visit(part: Json) -> None:
        if isinstance(part, str):
            for word in {part, *part.split(), *part} if len(part) <= _LONGEST else set(part.split()):
                if 0 < len(word) <= _LONGEST:
                    counts[word] = counts.get(word, 0) + 1
        elif isinstance(part, Mapping):
            for key, inner in part.items():
                visit(key)
                visit(inner)
        elif isinstance(part, list):
            for inner in part:
                visit(inner)

    for row in rows:
        visit(row.initial_state.get("input"))
        visit(row.answer)
    # By the text, too: a set has no order.
    return sorted(counts, key=lambda word: (-counts[word], word))[:_WORDS]


def limit_of(traced: Sequence[float]) -> float:
    """Processor time that a call of a version may take, by that of the traced calls that ended by themselves."""
    return max(_LEAST_SECONDS, 5.0 * max(traced, default=0.0))
