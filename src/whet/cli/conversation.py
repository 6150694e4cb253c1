"""One recorded run as a person reads it, and the filters that find the runs to read."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import InputError
from ..types import Outcome
from .terminal import bold

if TYPE_CHECKING:
    from ..types import Feedback, Trajectory

_LONGEST = 2000
"""Characters of one text that are shown; --json has all of it."""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Runs by what people said of them, by how they ended, and by their words."""

    up: bool = False
    down: bool = False
    unrated: bool = False
    failing: bool = False
    contains: str = ""

    def __post_init__(self) -> None:
        if self.up + self.down + self.unrated > 1:
            raise InputError("--up, --down and --unrated exclude each other: give one")

    def __bool__(self) -> bool:
        return any((self.up, self.down, self.unrated, self.failing, self.contains))

    def __call__(self, run: Trajectory) -> bool:
        """True if the run is one of these."""
        value = rating(run)
        if (
            (self.up and not (value or 0) > 0)
            or (self.down and not (value or 0) < 0)
            or (self.unrated and value is not None)
        ):
            return False
        # Blocked, cut short, out of time: failures of the agent, too.
        failed = run.error is not None or (run.outcome.counts and run.outcome is not Outcome.SUCCESS)
        if self.failing and not failed:
            return False
        text = f"{run.task.instruction}\n{run.output_text}\n" + "\n".join(
            note.comment for note in run.feedback
        )
        return self.contains.casefold() in text.casefold()


def rating(run: Trajectory) -> float | None:
    """The last value that people gave the whole run, or let show; None without one, or if it was taken back."""
    from ..judge.rules import rated

    value = rated(run)
    return None if value == 0 and _taken_back(run) else value


def _taken_back(run: Trajectory) -> bool:
    valued = [note for note in run.feedback if note.value is not None and note.step is None]
    return bool(valued) and max(valued, key=lambda note: note.at).kind == "thumb"


def judgement(run: Trajectory) -> str:
    """The run's outcome; where nothing has judged it, what people said of it."""
    value = rating(run)
    if value is None or run.outcome != "unknown":
        return str(run.outcome)
    return {1.0: "thumb up", -1.0: "thumb down"}.get(value, f"rated {value:g}")


def thumb_counts(notes: Iterable[Feedback]) -> dict[str, int]:
    """`feedback.up`, `feedback.down` and so on → how many; what nobody said stands apart."""
    counts: dict[str, int] = {}
    for note in notes:
        kind = note.kind if note.kind != "thumb" else {1.0: "up", -1.0: "down"}.get(note.value or 0.0, "undo")
        counts[f"feedback.{kind}"] = counts.get(f"feedback.{kind}", 0) + 1
    return dict(sorted(counts.items()))


def spoken(note: Feedback) -> str:
    """One piece of feedback in words."""
    from ..record.rows import as_text
    from ..types import canonical

    parts = []
    if note.kind.startswith("implicit."):
        parts.append(f"{note.kind.removeprefix('implicit.')}, which nobody said")
    elif note.kind == "thumb":
        parts.append(
            {1.0: "thumb up", -1.0: "thumb down", 0.0: "thumb taken back"}.get(note.value or 0.0, "")
        )
    elif note.value is not None:
        parts.append(f"{note.kind} {note.value:g}")
    if note.correction is not None or note.kind == "correction":
        correction = note.correction
        text = as_text(correction) if isinstance(correction, str) else canonical(correction).decode()
        parts.append(f"{'correction' if note.kind == 'thumb' else note.kind}: {text}")
    if note.comment:
        parts.append(f"{note.comment!r}" if parts else f"comment {note.comment!r}")
    return ", ".join(part for part in parts if part) or note.kind


def transcript(run: Trajectory) -> Iterator[str]:
    """The run as lines: the question, its tools, the answer, people's words, and what it ran under and cost."""
    from ..record.transcript import TranscriptTurn, how_to_separate, lines_of, turns

    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started))
    who = [f"{name} {value}" for name, value in (("user", run.subject), ("session", run.session)) if value]
    yield bold(f"{run.id}  {began}  {', '.join(who)}".rstrip())
    for turn in turns(run):
        yield from lines_of(turn, _LONGEST)
    for note in run.feedback:
        step = f" on step {note.step}" if note.step else ""
        yield from lines_of(TranscriptTurn("person", spoken(note) + step), _LONGEST)
    yield f"{judgement(run)}; {', '.join(_figures(run))}"
    if run.versions:
        yield f"ran under {', '.join(f'{name} {id}' for name, id in run.versions.items())}"
    if advice := how_to_separate(run):
        yield advice


def _figures(run: Trajectory) -> Iterable[str]:
    from ..models.prices import known_prices
    from ..record.costs import dollars_of

    calls = sum(step.kind == "llm" for step in run.steps)
    models = sorted({str(step.info["model"]) for step in run.steps if step.info.get("model")})
    yield f"{calls} model call{'' if calls == 1 else 's'}" + (f" of {', '.join(models)}" if models else "")
    usage = run.usage
    if usage.prompt_tokens or usage.output_tokens:
        yield f"{usage.prompt_tokens:,} + {usage.output_tokens:,} tokens"
    dollars, unpriced = dollars_of(run, known_prices())
    if unpriced:
        yield f"cost unknown (no price for {', '.join(sorted(unpriced))})"
    elif dollars:
        yield f"${dollars:.6f}".rstrip("0")
    if run.seconds is not None:
        yield f"{run.seconds:.2f} s"
    yield from (f"{score.name} {score.value:g}" for score in run.scores.values() if score.value is not None)
