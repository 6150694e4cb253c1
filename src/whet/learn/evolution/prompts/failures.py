"""What a person would want to see of the rows that went wrong: each with what was wanted, grouped by cause.

A `Case` is made of any scored Trajectory: one that a metric, a judge or people's thumbs gave a value in [0, 1].
What was said of it is the Score's reason, the comments of its feedback, and the text that its row brought along
(`Task.meta["said"]`).
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import UNSET

from ....record.columns import META_SAID
from ....record.rows import as_text
from ....record.tools import bare
from ....record.tracing.tool_calls import arguments, tool_steps
from ....types import Json, Trajectory
from ...loop import value_of

_LONGEST = 600
"""Characters of one input or answer that are shown: the beginning and the end."""
_TOOLS = 8
"""Tool calls of one run that are shown."""
_DETAIL = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\d+(?:\.\d+)?")
_SHORT = 24
"""Characters up to which a wanted and a given answer make a cause of their own: two labels taken for each other."""


@dataclass(frozen=True, slots=True)
class Case:
    """One row as it went."""

    id: str
    input: str
    answered: str
    wanted: str | None
    """The right answer; None where nobody knows it."""
    value: float
    said: str = ""
    tools: Sequence[str] = ()
    error: str = ""

    @property
    def cause(self) -> str:
        """Rows with the same one went wrong alike, as far as that can be told without reading them."""
        if self.error:
            return f"it failed: {self.error.partition(':')[0]}"
        if not self.answered.strip():
            return "nothing was answered"
        if self.wanted is not None and len(self.wanted) <= _SHORT and len(self.answered) <= _SHORT:
            kinds = {
                name: "a number" if _DETAIL.fullmatch(name.strip()) else repr(name) for name in self._pair
            }
            return f"wanted {kinds[self.wanted]}, answered {kinds[self.answered]}"
        names = sorted({tool.partition("(")[0] for tool in self.tools})
        said = _DETAIL.sub("…", self.said.partition(": ")[0])[:100].strip()
        return (said or "the answer is not what was wanted") + (f" after {', '.join(names)}" if names else "")

    @property
    def _pair(self) -> tuple[str, str]:
        return (self.wanted or "", self.answered)

    def shown(self) -> str:
        """The case as the model that improves a prompt reads it."""
        lines = [
            f"- input: {_cut(self.input)}",
            *(f"  tool call: {_cut(tool)}" for tool in self.tools[:_TOOLS]),
        ]
        lines.append(
            f"  answered: {_cut(self.answered)}" if not self.error else f"  failed: {_cut(self.error)}"
        )
        if self.wanted is not None:
            lines.append(f"  wanted: {_cut(self.wanted)}")
        if self.said:
            lines.append(f"  said about it: {_cut(self.said)}")
        return "\n".join(lines)


def case_of(run: Trajectory, score: str) -> Case | None:
    """The Case of a run; None if it has no value, because a machine failed for instance."""
    value = value_of(run, score)
    if value is None:
        return None
    task, given = run.task, run.scores.get(score)
    wanted: Json = task.answer if task.answer_known else UNSET
    answered = "" if run.output is None else as_text(run.output)
    notes = [given.reason if given is not None else "", str(task.meta.get(META_SAID, ""))]
    notes += [note.comment for note in run.feedback if note.comment]
    return Case(
        id=task.id,
        input=as_text(task.initial_state.get("input", task.instruction)),
        answered=answered,
        wanted=None if wanted is UNSET else as_text(wanted) if wanted is not None else "nothing (None)",
        value=value,
        # Where the metric only repeats both answers, its words are left out.
        said="; ".join(note for note in notes if note and not note.startswith("answered ")),
        tools=tool_lines(run),
        error=f"{run.error.type}: {run.error.message}" if run.error is not None else "",
    )


def tool_lines(run: Trajectory) -> list[str]:
    """Each tool call of a run, however it was recorded, as `name(arguments) → answer`."""
    return [
        f"{bare(step.name)}({as_text(arguments(step))}) → {as_text(step.action)}" for step in tool_steps(run)
    ]


@dataclass(frozen=True, slots=True)
class Failures:
    """The cases of one candidate, the wrong ones by cause, the most frequent first."""

    by_cause: Mapping[str, Sequence[Case]] = field(default_factory=dict)
    right: Sequence[Case] = ()
    total: int = 0

    @classmethod
    def of(cls, cases: Sequence[Case], right: float) -> Failures:
        """Args:
        right: from this value on a row counts as right.
        """
        causes: dict[str, list[Case]] = defaultdict(list)
        good = [case for case in cases if case.value >= right]
        for case in cases:
            if case.value < right:
                causes[case.cause].append(case)
        ordered = sorted(causes.items(), key=lambda item: -len(item[1]))
        return cls(dict(ordered), good, len(cases))

    @property
    def wrong(self) -> int:
        return sum(map(len, self.by_cause.values()))

    def drawn(self, most: int, rng: random.Random) -> dict[str, list[Case]]:
        """Up to so many cases, from each cause in turn, the worst of a cause not before the others."""
        shuffled = {cause: rng.sample(list(cases), len(cases)) for cause, cases in self.by_cause.items()}
        chosen: dict[str, list[Case]] = defaultdict(list)
        while sum(map(len, chosen.values())) < most and any(shuffled.values()):
            for cause, cases in shuffled.items():
                if cases and sum(map(len, chosen.values())) < most:
                    chosen[cause].append(cases.pop())
        return dict(chosen)

    def text(self, most: int, rng: random.Random, *, rights: int = 2) -> str:
        """The cases as the model reads them: by cause with its count, then some that went right."""
        parts = []
        for cause, cases in self.drawn(most, rng).items():
            count = len(self.by_cause[cause])
            parts.append(
                f"## {count} of {self.total} rows: {cause}\n" + "\n".join(case.shown() for case in cases)
            )
        if self.right and rights:
            good = rng.sample(list(self.right), min(rights, len(self.right)))
            parts.append(
                f"## {len(self.right)} of {self.total} rows are right and must stay right, for example"
            )
            parts[-1] += "\n" + "\n".join(case.shown() for case in good)
        return "\n\n".join(parts)


def _cut(text: str) -> str:
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]} […] {text[-_LONGEST // 2 :]}"
    return text.replace("\n", "\n    ")
