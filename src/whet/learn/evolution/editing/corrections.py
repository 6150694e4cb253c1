"""Constants read off wrong answers: what stands beside each in the right one.

A wrong letter in a text, a number that is off by the same amount in every row, a missing prefix: where an answer shows
the constant that made it, the right answer shows what that should have been.  The method is that of semantic repair
(Nguyen et al. 2013) for the few functions that can be inverted by looking: copying, concatenation, sums, products.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from typing import NamedTuple, TypeGuard

import msgspec

from ....types import Json

_ALIGNED, _LONGEST = 12, 400
"""Pairs of texts that are aligned, and their longest, in characters."""
_MOST = 6
"""Constants that are read off for one place."""
_LIMITS = 16
"""Numbers of inputs that are tried as limits: the least and the largest."""
_SPELLED = 16
"""Characters of a text in which letters are tried at each place."""


_LARGEST = 1e12
"""Numbers above it are not computed with."""


class WrongAnswer(NamedTuple):
    """A row that was answered wrongly."""

    input: Json
    answer: Json | msgspec.UnsetType
    """UNSET where there was none."""
    wanted: Json


class _Edit(NamedTuple):
    """A stretch of a wrong text, and what the right one has in its place."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Corrections:
    """What failing rows suggest.

    Args:
        words: of the rows, tried in the place of any text.
        rows: failing ones, with their answers.
    """

    words: Sequence[str] = ()
    rows: Sequence[WrongAnswer] = ()

    @cached_property
    def _texts(self) -> list[tuple[str, list[_Edit]]]:
        """Wrong texts, wherever they stand in an answer, with their edits."""
        pairs = dict.fromkeys(
            (wrong, right)
            for row in self.rows
            for wrong, right in _leaves(row.answer, row.wanted)
            if isinstance(wrong, str) and isinstance(right, str) and len(wrong) + len(right) <= _LONGEST
        )
        aligned: list[tuple[str, list[_Edit]]] = []
        for wrong, right in list(pairs)[:_ALIGNED]:
            codes = SequenceMatcher(None, wrong, right, autojunk=False).get_opcodes()
            edits = [_Edit(*code[1:3], right[slice(*code[3:])]) for code in codes if code[0] != "equal"]
            aligned.append((wrong, edits))
        return aligned

    @cached_property
    def offsets(self) -> list[float]:
        """Amounts that several numbers are off by."""
        return _common([right - wrong for wrong, right in self._numbers])

    @cached_property
    def factors(self) -> list[float]:
        """Factors that several numbers are off by."""
        return _common([right / wrong for wrong, right in self._numbers if wrong])

    @cached_property
    def _numbers(self) -> list[tuple[float, float]]:
        return [
            (wrong, right)
            for row in self.rows
            for wrong, right in _leaves(row.answer, row.wanted)
            if _is_number(wrong) and _is_number(right)
        ]

    @cached_property
    def given(self) -> list[float]:
        """Numbers in the inputs of failing rows, where a limit that is wrong begins to be."""
        numbers = {number for row in self.rows for number in _numbers_in(row.input)}
        ordered = sorted(numbers)
        return ordered if len(ordered) <= _LIMITS else [*ordered[: _LIMITS // 2], *ordered[-_LIMITS // 2 :]]

    def texts(self, constant: str) -> list[str]:
        """What a text that wrong answers show should have been, the most frequent first."""
        votes: Counter[str] = Counter()
        for wrong, edits in self._texts if constant else ():
            start = wrong.find(constant)
            while start >= 0:
                end = start + len(constant)
                for edit in edits:
                    if edit.start <= end and edit.end >= start:
                        before = constant[: max(0, edit.start - start)]
                        after = constant[max(0, min(edit.end, end) - start) :]
                        votes[before + edit.text + after] += 1
                start = wrong.find(constant, start + 1)
        return [text for text, _ in votes.most_common(_MOST) if text != constant]

    def spellings(self, constant: str) -> list[str]:
        """A text with a letter more or less: those that right answers have and wrong ones lack."""
        if not 0 < len(constant) <= _SPELLED:
            return []
        missing = Counter(edit.text for _, edits in self._texts for edit in edits if 0 < len(edit.text) <= 4)
        letters = [text for text, _ in missing.most_common(4)]
        shorter = [constant[:place] + constant[place + 1 :] for place in range(len(constant))]
        longer = [
            constant[:place] + text + constant[place:]
            for place in range(len(constant) + 1)
            for text in dict.fromkeys((*letters, constant[place - 1 : place] or constant[0]))
        ]
        return list(dict.fromkeys((*shorter, *longer)))

    @cached_property
    def frames(self) -> list[str]:
        """Expressions around a wrong answer, `{}`, that make the right one of it, in several rows alike."""
        answered = [(row.answer, row.wanted) for row in self.rows if row.answer is not msgspec.UNSET]
        return _frames(answered)

    def of_parameter(self, name: str, alone: bool) -> list[str]:
        """Expressions around a parameter, `{}`, that make the right answer of it.

        Args:
            alone: it is the only one, which rows may give without its name.
        """
        pairs: list[tuple[Json, Json]] = []
        for row in self.rows:
            if isinstance(row.input, Mapping) and name in row.input:
                pairs.append((row.input[name], row.wanted))
            elif alone:
                pairs.append((row.input, row.wanted))
        return _frames(pairs)


NO_CORRECTIONS = Corrections()


def _leaves(wrong: object, right: object) -> Iterator[tuple[object, object]]:
    """Different values at the same place of two answers."""
    if isinstance(wrong, list) and isinstance(right, list) and len(wrong) == len(right):
        for pair in zip(wrong, right, strict=True):
            yield from _leaves(*pair)
    elif isinstance(wrong, dict) and isinstance(right, dict):
        for key in wrong.keys() & right.keys():
            yield from _leaves(wrong[key], right[key])
    elif wrong != right:
        yield wrong, right


def _numbers_in(value: object) -> Iterator[float]:
    if _is_number(value):
        yield value
    elif isinstance(value, (list, tuple)):
        for member in value:
            yield from _numbers_in(member)
    elif isinstance(value, Mapping):
        yield from _numbers_in(list(value.values()))


def _is_number(value: object) -> TypeGuard[float]:
    """True of a number that floats hold, a quotient of which is one, too."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LARGEST


def _common(amounts: Sequence[float]) -> list[float]:
    """Those that occur more than once, or the only one; whole ones as such."""
    rounded = [float(f"{amount:.10g}") for amount in amounts if abs(amount) < _LARGEST]
    counts = Counter(rounded)
    least = 1 if len(rounded) == 1 else 2
    often = [amount for amount, count in counts.most_common(4) if count >= least and amount]
    return [int(amount) if amount.is_integer() else amount for amount in often]


def _frames(pairs: Sequence[tuple[object, object]]) -> list[str]:
    texts = [(a, b) for a, b in pairs if isinstance(a, str) and isinstance(b, str) and a and a != b]
    numbers = [(a, b) for a, b in pairs if _is_number(a) and _is_number(b) and a != b]
    frames: Counter[str] = Counter()
    for part, whole in texts:
        before, found, after = whole.partition(part)
        if found:
            frames[
                " + ".join(filter(None, (before and _quoted(before), "{}", after and _quoted(after))))
            ] += 1
        elif part.startswith(whole) or part.endswith(whole):
            cut = len(part) - len(whole)
            frames[f"{{}}[:-{cut}]" if part.startswith(whole) else f"{{}}[{cut}:]"] += 1
        for code in SequenceMatcher(None, part[:200], whole[:200], autojunk=False).get_opcodes()[:3]:
            old, new = part[code[1] : code[2]], whole[code[3] : code[4]]
            if code[0] in ("replace", "delete") and part.replace(old, new) == whole:
                frames[f"{{}}.replace({_quoted(old)}, {_quoted(new)})"] += 1
    for wrong, right in numbers:
        for sign, amount in (
            ("+", right - wrong),
            ("*", right / wrong if wrong else 0.0),
            ("-", right + wrong),
        ):
            if abs(amount) < _LARGEST and (amount := float(f"{amount:.10g}")):
                written = repr(int(amount) if amount.is_integer() else amount)
                frames[f"{written} - {{}}" if sign == "-" else f"{{}} {sign} {written}"] += 1
    least = 1 if len(pairs) == 1 else 2
    return [frame for frame, count in frames.most_common(_MOST) if count >= least]


def _quoted(text: str) -> str:
    # Braces are doubled: a frame goes through `format`.
    return repr(text).replace("{", "{{").replace("}", "}}")
