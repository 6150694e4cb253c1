"""One reflection: the request that shows a model what went wrong, and the prompts read from its answer.

The model is asked for root causes before any change, since a change that names no cause is a guess.  Its answer may
hold whole prompts in fences, SEARCH/REPLACE blocks, or single rules; anything else is no proposal.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ....errors import InputError
from ....record.rows import as_text
from ....types import Json, Task
from ..editing.blocks import blocks
from ..editing.program import Program, apply_diff
from ..editing.slots import slots
from .failures import Failures

SYSTEM = (
    "You improve the prompt of a language model from how its answers went. You look for the causes of what went "
    "wrong before you change anything, and you write rules that hold for inputs that nobody has seen yet."
)
_FENCE = re.compile(r"^(`{3,}|~{3,})[^\n]*\n(.*?)^\1[ \t]*$", re.DOTALL | re.MULTILINE)
_CAUSE = re.compile(r"^\W*(?:root )?cause\W*\d*\W*:\s*(.+)$", re.IGNORECASE | re.MULTILINE)
_RULE = re.compile(r"^\s*(?:[-*+]|\d+[.)]|RULE\s*:)\s*(\S.*)$", re.IGNORECASE)
_WORDS = re.compile(r"\w+\W+\w+")
"""A rule has two words at least: `{}` is an answer that says nothing."""
_FEW_LINES = 4
"""Lines up to which an answer without any mark is read as rules."""
_RUN = 5
"""Words in a row that a rule has from a row's input: it quotes the row."""
_QUOTED = re.compile(r"[\"“”`]([^\"“”`\n]{2,80})[\"“”`]|(?<!\w)'([^'\n]{2,80})'(?!\w)")


@dataclass(frozen=True, slots=True)
class PromptTrial:
    """A prompt that was tried, for those that come after it."""

    added: str
    """The lines that it has and its parent has not."""
    gain: float
    """Rows that it gained over its parent, less those that it lost."""
    rows: int


@dataclass(frozen=True, slots=True)
class Reflection:
    """A model's answer as it was read."""

    prompts: Sequence[str]
    causes: Sequence[str] = ()
    answer: str = ""


def request(
    text: str,
    failures: Failures,
    attempts: Sequence[PromptTrial],
    *,
    count: int,
    shown: int,
    rng: random.Random,
    longest: int,
) -> list[dict[str, Json]]:
    """The chat that asks for better prompts.

    Args:
        count: prompts that are asked for.
        shown: cases of what went wrong.
        longest: characters that a prompt should have at most.
    """
    parts = [f"# The prompt\n{_fenced(text)}", f"# How its answers went\n{failures.text(shown, rng)}"]
    if attempts:
        lines = [
            f"- {attempt.gain:+g} of {attempt.rows} rows: {_line(attempt.added)}" for attempt in attempts[-6:]
        ]
        parts.append(
            "# What was tried\nRows that each change gained or lost. Do not propose again what did not help.\n"
            + "\n".join(lines)
        )
    versions = "one new version" if count == 1 else f"{count} new versions that differ in their idea"
    kept = sorted(slots(text).values())
    keep = f" Keep {', '.join(kept)} as they are." if kept else ""
    parts.append(
        "# Task\nFirst name the root causes, one line each, as `CAUSE: ...`: what does the prompt leave unsaid, or say "
        "wrongly, that explains these rows?\n"
        f"Then write {versions} of the whole prompt, each in a ``` fence of its own. General rules only: quote no row, "
        f"and no answer of one. Keep what works. Be brief: at most {longest} characters.{keep}"
    )
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "\n\n".join(parts)},
    ]


def read(answer: str, text: str) -> Reflection:
    """The prompts that an answer proposes for a prompt, without those that equal it or lost a slot of it."""
    causes = [cause.strip() for cause in _CAUSE.findall(answer)]
    kept = slots(text).keys()
    prompts = dict.fromkeys(
        prompt
        for prompt in _proposed(answer, text)
        if prompt.strip() and prompt.strip() != text.strip() and kept <= slots(prompt).keys()
    )
    return Reflection(list(prompts), causes, answer)


def _proposed(answer: str, text: str) -> list[str]:
    if "<<<<<<< SEARCH" in answer:
        try:
            return [apply_diff(Program({"prompt.txt": text}, "prompt.txt"), answer).text]
        except InputError:
            return []
    fenced = [body for _, body in _FENCE.findall(answer)]
    if fenced:
        return [_ended(body, text) for body in fenced]
    # No whole prompt: rules to add to it.
    lines = [line for line in answer.splitlines() if line.strip() and not _CAUSE.match(line)]
    rules = [match[1].strip() for line in lines if (match := _RULE.match(line))]
    if not rules and 0 < len(lines) <= _FEW_LINES and all(len(line) < 400 for line in lines):
        rules = [line.strip() for line in lines]
    rules = [rule for rule in rules if _WORDS.search(rule)]
    return [with_rules(text, rules)] if rules else []


def with_rules(text: str, rules: Sequence[str]) -> str:
    """A prompt with these rules at its end, as items of a list."""
    listed = "\n".join(f"- {rule}" for rule in rules)
    last = blocks(text)[-1].lstrip() if text.strip() else ""
    apart = "\n" if last.startswith(("- ", "* ")) else "\n\n"
    return _ended(f"{text.rstrip()}{apart}{listed}" if text.strip() else listed, text)


def added(text: str, parent: str) -> list[str]:
    """The blocks of a prompt that its parent has not, in order."""
    known = {block.strip() for block in blocks(parent)}
    return [block for block in blocks(text) if block.strip() and block.strip() not in known]


def without(text: str, dropped: Sequence[str]) -> str:
    """A prompt without some of its blocks."""
    gone = {block.strip() for block in dropped}
    left = [block for block in blocks(text) if block.strip() not in gone]
    return _ended("".join(left), text)


@dataclass(frozen=True, slots=True)
class RowMemory:
    """What the rows say, to tell a rule that is about one row from one about many."""

    runs: dict[tuple[str, ...], int] = field(default_factory=dict)
    """Words in a row → rows that hold them."""
    inputs: Sequence[str] = ()
    answers: Sequence[str] = ()

    @classmethod
    def of(cls, tasks: Sequence[Task]) -> RowMemory:
        """Of rows that may be looked at."""
        runs: dict[tuple[str, ...], int] = {}
        inputs = [_plain(as_text(task.initial_state.get("input", task.instruction))) for task in tasks]
        for text in inputs:
            words = text.split()
            for run in {tuple(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1)}:
                runs[run] = runs.get(run, 0) + 1
        return cls(
            runs, inputs, [_plain(as_text(task.answer)) if task.answer_known else "" for task in tasks]
        )

    def memorised(self, block: str) -> bool:
        """True if a block of a prompt is about one row: it quotes five words of it that no other has, or names
        what only that row holds beside that row's answer."""
        words = _plain(block).split()
        if any(self.runs.get(tuple(words[at : at + _RUN])) == 1 for at in range(len(words) - _RUN + 1)):
            return True
        plain = f" {' '.join(words)} "
        for quoted in {_plain(one or other) for one, other in _QUOTED.findall(block)}:
            holders = [
                index for index, text in enumerate(self.inputs) if quoted and f" {quoted} " in f" {text} "
            ]
            if len(holders) == 1:
                answer = self.answers[holders[0]]
                if answer and answer != quoted and f" {answer} " in plain:
                    return True
        return False


def pruned(text: str, parent: str, memory: RowMemory) -> tuple[str, list[str]]:
    """A prompt without the new blocks that memorise rows, and those blocks."""
    dropped = [block for block in added(text, parent) if memory.memorised(block)]
    return (without(text, dropped), dropped) if dropped else (text, [])


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _ended(new: str, old: str) -> str:
    """A prompt that ends as the old one does: with a line break, or without."""
    return new.strip("\n") + ("\n" if old.endswith("\n") else "")


def _fenced(text: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`{3,}", text)), default=0))
    return f"{fence}\n{text.rstrip()}\n{fence}"


def _line(text: str) -> str:
    line = " / ".join(part.strip() for part in text.splitlines() if part.strip())
    return line if len(line) <= 300 else line[:299] + "…"
