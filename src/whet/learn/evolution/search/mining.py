"""Rules for a prompt, mined from failures: what failing rows share and passing ones do not, as a line of text.

Statistics come first, offline.  A condition on the input (a word, the value of a field, a number above or
below a limit) is kept if failures are more frequent under it than chance explains (Fisher's exact test,
Benjamini-Hochberg at 0.1 over all conditions); a rule is proposed where nearly all rows under it want
the same answer, the same field, or the same form of answer.  So a rule is true of the rows, and aimed at
what goes wrong.  Where the right answers are those that people liked some are wrong, and a clear majority
will do, if it is one under the condition and not elsewhere.  Where a model is configured it is shown the
same table, and writes the line itself.

It will not guess: with nothing that failures share it proposes nothing.  Whether a rule helps is the
evaluator's to say.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

from ....errors import InputError
from ....models.base import Model
from ....record.rows import as_text
from ....types import Json, Task, canonical
from ..editing.blocks import ITEM, blocks, joined
from ..editing.program import Program, regions
from .demonstrations import a_text, failing, favoured, is_demonstration
from .population import Draw
from .proposers import ask

_WORD = re.compile(r"[^\W_]{2,}")
_SUPPORT = 3
"""Failing rows under a condition, at least."""
_FALSE = 0.1
"""Share of the conditions kept that may be chance."""
_SURE = 0.9
"""Share of the rows under a condition that must want the same."""
_LIKED = 0.65
"""The same where the answers are liked ones: with 15 % of thumbs wrong, 70 to 85 % of them are right."""
_LIKED_ROWS = 8
"""Rows under a condition, at least, for such a majority."""
_CHANCE = 0.01
"""Probability under which a majority of liked answers is no chance."""
_FAVOUR = 0.4
"""Probability with which the strongest rule is taken, then the next, and so on."""
_LIMITS = 16
"""Limits tried of one number."""

_FORMS: Mapping[str, Callable[[str], bool]] = {
    "with a date as YYYY-MM-DD": lambda text: bool(re.fullmatch(r"\d{4}-\d\d-\d\d", text)),
    "with a number only": lambda text: bool(re.fullmatch(r"[-+]?\d+(\.\d+)?", text)),
    "with yes or no only": lambda text: text.lower() in ("yes", "no"),
    "with one word only": lambda text: bool(re.fullmatch(r"[^\W\d]+", text)),
    "in capital letters": lambda text: text.isupper() and len(text) > 1,
    "in small letters": lambda text: text.islower(),
    "with a JSON object": lambda text: text.startswith("{") and text.endswith("}"),
    "in one sentence": lambda text: len(re.findall(r"[.!?](?:\s|$)", text)) == 1 and " " in text,
}
"""Forms of an answer that are told apart, as a rule names them."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A condition that failing rows share."""

    text: str
    """As a rule says it, `When the input mentions "refund"`; "" for all rows."""
    rows: frozenset[str]
    """Ids of those it holds for."""
    failing: int
    """Number of them that fail."""
    chance: float
    """Probability of as many failures among them if it had nothing to do with failing."""


def contrasts(rows: Sequence[Task], wrong: Collection[str]) -> list[Shared]:
    """Conditions that failing rows share and passing ones do not, the least likely by chance first.

    Args:
        wrong: ids of the rows that fail.  If nine tenths do, what they have in common is all rows.
    """
    bad = frozenset(wrong) & {row.id for row in rows}
    if len(bad) < _SUPPORT:
        return []
    if len(bad) >= _SURE * len(rows):
        return [Shared("", frozenset(row.id for row in rows), len(bad), 0.0)]
    tested: dict[frozenset[str], Shared] = {}
    for text, held in _conditions(rows):
        # What is tested is decided without looking at who fails: else it would not be chance any more.
        if len(held) >= _SUPPORT and held not in tested:
            hit = len(held & bad)
            tested[held] = Shared(text, held, hit, _tail(len(rows), len(bad), len(held), hit))
    ranked = sorted(tested.values(), key=lambda shared: (shared.chance, -shared.failing, shared.text))
    significant = [
        rank
        for rank, shared in enumerate(ranked, 1)
        if shared.chance <= _FALSE * rank / len(ranked)
        and shared.failing / len(shared.rows) > len(bad) / len(rows)
    ]
    # All up to the last rank that passes, whether those before it pass or not (Benjamini-Hochberg).
    return ranked[: max(significant, default=0)]


def rules(rows: Sequence[Task], wrong: Collection[str]) -> list[str]:
    """Lines that are true of the rows and aimed at the failing ones, the most telling first."""
    lines: dict[str, None] = {}
    by_id = {row.id: row for row in rows}
    for shared in contrasts(rows, wrong):
        # Sorted: of equally frequent answers Counter takes the first, and a set's order differs by process.
        under = [by_id[id] for id in sorted(shared.rows)]
        for then in _wanted(under, rows):
            line = f"{shared.text}, {then}." if shared.text else f"{then[0].upper()}{then[1:]}."
            lines.setdefault(line, None)
    return list(lines)


def _conditions(rows: Sequence[Task]) -> Iterable[tuple[str, frozenset[str]]]:
    """Every condition on inputs that is looked at, with the rows it holds for."""
    words: dict[str, set[str]] = {}
    fields: dict[tuple[str, str], set[str]] = {}
    numbers: dict[str, dict[str, float]] = {}
    for row in rows:
        input = row.initial_state["input"]
        for word in {word.lower() for word in _WORD.findall(as_text(input))}:
            words.setdefault(word, set()).add(row.id)
        for name, value in input.items() if isinstance(input, dict) else ():
            if isinstance(value, bool) or (isinstance(value, str) and len(value) <= 40):
                fields.setdefault((name, canonical(value).decode()), set()).add(row.id)
            elif isinstance(value, (int, float)):
                numbers.setdefault(name, {})[row.id] = float(value)
    # Fields first: where a field and a word hold for the same rows, the field says more.
    for (name, value), held in sorted(fields.items()):
        yield f'When "{name}" is {value}', frozenset(held)
    for name, values in sorted(numbers.items()):
        for limit in _cuts(list(values.values())):
            yield f'When "{name}" is above {limit:g}', frozenset(id for id in values if values[id] > limit)
            yield f'When "{name}" is at most {limit:g}', frozenset(id for id in values if values[id] <= limit)
    for word, held in sorted(words.items()):
        yield f'When the input mentions "{word}"', frozenset(held)


def _cuts(values: list[float]) -> list[float]:
    different = sorted(set(values))
    step = max(1, len(different) // _LIMITS)
    return [float(f"{(a + b) / 2:.4g}") for a, b in pairwise(different)][::step]


def _wanted(under: Sequence[Task], rows: Sequence[Task]) -> Iterable[str]:
    """Properties of nearly all of some right answers, as ends of a sentence.

    Args:
        under: rows whose right answers they are.
        rows: all rows, these among them.
    """
    answers = [row.answer for row in under]
    same = _common(under, rows, lambda answer: canonical(answer).decode())
    if same is not None and len(same) <= 80:
        yield f"the answer is {same}"
        return
    if sum(isinstance(answer, str) for answer in answers) >= _SURE * len(answers):
        for form, holds in _FORMS.items():
            if _common(under, rows, lambda answer, holds=holds: isinstance(answer, str) and holds(answer)):  # type: ignore[misc]
                yield f"answer {form}"
    tables = [answer for answer in answers if isinstance(answer, dict)]
    if tables and len(tables) == len(answers):
        for name in sorted(set.intersection(*(set(answer) for answer in tables))):
            same = _common(under, rows, lambda answer, name=name: _field(answer, name))  # type: ignore[misc]
            if same is not None and len(same) <= 80:
                yield f'"{name}" is {same}'


def _field(answer: Json, name: str) -> str:
    return canonical(answer.get(name)).decode() if isinstance(answer, dict) else ""


Property = TypeVar("Property", str, bool)


def _common(under: Sequence[Task], rows: Sequence[Task], of: Callable[[Json], Property]) -> Property | None:
    """The property that nearly all right answers of some rows have; of liked ones, that a clear majority has.

    A majority of liked answers has to be one that chance does not make: of answers that are drawn from all rows as
    many would have it with a probability of at most _CHANCE.
    """
    held = [of(row.answer) for row in under]
    common, count = Counter(held).most_common(1)[0]
    if count >= _SURE * len(held):
        return common
    liked = sum(bool(row.meta.get("liked")) for row in under)
    if 2 * liked < len(under) or len(under) < _LIKED_ROWS or count < _LIKED * len(held):
        return None
    if len(under) == len(rows):  # of all rows there is no elsewhere: against a coin
        chance = sum(math.comb(len(held), k) for k in range(count, len(held) + 1)) / 2 ** len(held)
    else:
        chance = _tail(len(rows), sum(of(row.answer) == common for row in rows), len(held), count)
    return common if chance <= _CHANCE else None


@lru_cache(maxsize=100_000)
def _tail(total: int, bad: int, drawn: int, hit: int) -> float:
    """P(at least `hit` of `bad` among `drawn` of `total`): Fisher's exact test, one-sided."""
    ways = sum(math.comb(bad, k) * math.comb(total - bad, drawn - k) for k in range(hit, min(bad, drawn) + 1))
    return ways / math.comb(total, drawn)


@dataclass(frozen=True, slots=True)
class Mined:
    """The move that adds a mined rule to a text."""

    rows: Mapping[str, Task]
    """Those that the search is scored on, by the name of their instance."""
    parts: Collection[str] = ()
    """Texts that may hold rules; all of a program if empty."""

    @property
    def identity(self) -> Json:
        """Everything that its proposals depend on."""
        return ["mined", sorted(self.rows), sorted(self.parts)]

    def __call__(self, draw: Draw, rng: random.Random) -> Program | None:
        """A child with one more rule; None if failures share nothing, or it is all said."""
        name = a_text(draw.parent.program, self.parts, rng)
        if name is None:
            return None
        held = draw.parent.program.parts[name]
        instances = draw.parent.instances
        scored = [self.rows[id] for id in instances if id in self.rows]
        lines = [line for line in rules(scored, failing(instances)) if line not in held]
        if not lines:
            return None
        return with_line(draw.parent.program, name, favoured(lines, _FAVOUR, rng), rng)


@dataclass(frozen=True, slots=True)
class WrittenLine:
    """The same with a model: it is shown what failures share, and writes the line."""

    model: Model
    rows: Mapping[str, Task]
    parts: Collection[str] = ()
    price: float = 1.0
    feedback: bool = True
    settings: Mapping[str, Json] | None = None

    @property
    def name(self) -> str:
        """Its name in the bandit."""
        return f"rule {self.model.name}"

    @property
    def identity(self) -> Json:
        """Model, settings and rows."""
        return [self.name, self.feedback, dict(self.settings or {}), sorted(self.rows), sorted(self.parts)]

    async def propose(self, draw: Draw, number: int) -> Program:
        """One child.

        Raises:
            InputError: nothing fails, or the answer holds no line.
            ModelError: no answer.
        """
        rng = random.Random(f"rule:{number}")
        program = draw.parent.program
        name = a_text(program, self.parts, rng)
        if name is None:
            raise InputError("no text of the program may hold a rule")
        answer = await ask(self.model, self.asked(draw, name, rng), number, self.settings)
        line = _line_of(answer)
        if line in program.parts[name]:
            raise InputError("the rule stands there already")
        return with_line(program, name, line, rng)

    def asked(self, draw: Draw, name: str, rng: random.Random) -> str:
        """The request: the text, what failures share, and rows of both kinds."""
        wrong = [self.rows[id] for id in failing(draw.parent.instances) if id in self.rows]
        if not wrong:
            raise InputError("no row fails, so there is nothing to mine")
        shown = f"# The text\n```\n{draw.parent.program.parts[name].rstrip()}\n```"
        if self.feedback:
            ids = {row.id for row in wrong}
            right = [self.rows[id] for id in draw.parent.instances if id in self.rows and id not in ids]
            table = [
                f"- {condition.text or 'all rows'}: {condition.failing} of {len(condition.rows)} fail"
                for condition in contrasts([*wrong, *right], ids)[:8]
            ]
            shared = "\n".join(table) or "nothing that chance would not explain"
            shown += (
                f"\n\n# What failing rows share ({len(wrong)} of {len(wrong) + len(right)} fail)\n{shared}"
                f"\n\n# Rows that fail with it\n{_shown(wrong, rng)}\n\n# Rows that pass\n{_shown(right, rng)}"
            )
        return (
            f"{shown}\n\n# Task\nWrite one rule, in one line, that added to the text would mend the failures "
            "without breaking what passes. Answer with that line alone."
        )


def with_line(program: Program, name: str, line: str, rng: random.Random) -> Program:
    """The program with a rule after the last item of a text's list, in its style, or as a paragraph of its own.

    Demonstrations stay behind the rules.
    """
    region = rng.choice(regions(program.parts[name]))
    held = blocks(program.parts[name][region.start : region.stop])
    shown = [index for index, block in enumerate(held) if is_demonstration(block)]
    end = shown[0] if shown else len(held)
    items = [index for index in range(end) if ITEM.match(held[index])]
    if items:
        mark = ITEM.match(held[items[-1]])
        assert mark is not None
        begin = re.sub(r"\d+", lambda number: str(int(number[0]) + 1), mark[0])
        before = held[items[-1]]
        apart = before[len(before.rstrip("\n")) :] or "\n"
        new = [f"{before.rstrip()}\n", f"{begin}{line}{apart}"]
        return joined(program, name, region, [*held[: items[-1]], *new, *held[items[-1] + 1 :]])
    return joined(program, name, region, [*held[:end], f"{line}\n", *held[end:]])


def _shown(rows: Sequence[Task], rng: random.Random) -> str:
    drawn = rows if len(rows) <= 5 else rng.sample(rows, 5)
    lines = [
        f"- input {canonical(row.initial_state['input']).decode():.300}: "
        f"wanted {canonical(row.answer).decode():.200}"
        for row in drawn
    ]
    return "\n".join(lines) or "none"


def _line_of(answer: str) -> str:
    """The last line of an answer that says something, without the mark of an item.

    Raises:
        InputError: there is none.
    """
    lines = [
        line.strip() for line in answer.splitlines() if line.strip() and not line.strip().startswith("```")
    ]
    line = ITEM.sub("", lines[-1]).strip() if lines else ""
    if not line or len(line) > 400:
        raise InputError("the answer holds no line that could be a rule")
    return line
