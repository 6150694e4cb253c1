"""A Verdict in one word, keep, hold, drop or more, for people and for a check of GitHub.

- keep: shown to be better (or, with a margin, not worse by more), every guardrail holding.
- hold: the same, and its score may be hacked: a person has to clear what was found.
- more: the effect points the right way, and would be shown by so many further pairs if it stays as it is.
- drop: all else. Nothing points to it being better, a guardrail fails, or it would take more than `MOST_MORE` times the
  pairs there are: an effect that small is not told from none.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from ..types import Verdict
from .guardrails import pairs_in_words
from .verdict import figures, held_back

MOST_MORE = 20
"""How many times the pairs at hand a verdict may ask for."""
EXIT_CODES = {"keep": 0, "drop": 1, "more": 10, "hold": 11}
"""Exit codes of `whet verdict --github`; 2 to 9 are those of errors."""
_LEVELS = {"keep": "notice", "drop": "error", "more": "warning", "hold": "error"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What to do with the candidate."""

    word: Literal["keep", "drop", "more", "hold"]
    sentence: str
    more: int | None = None
    """Further pairs that it would take, for `more`; None where too few are there to say."""


def answer(verdict: Verdict, *, candidate: str) -> Answer:
    """The answer of a verdict.

    Args:
        candidate: what the candidate is called.
    """
    bar = (
        f"not worse than {verdict.against} by more than {verdict.margin:g}"
        if verdict.margin
        else f"better than {verdict.against}"
    )
    measured = f"{verdict.effect:+.3f} over {pairs_in_words(verdict.n)}"
    if held := held_back(verdict):
        return Answer("hold", f"HOLD: {candidate} is shown to be {bar} ({measured}), and {held}.")
    if verdict.promote:
        return Answer("keep", f"KEEP: {candidate} is shown to be {bar} ({measured}).")
    failed = [name for name, holds in verdict.guardrails.items() if not holds]
    if failed:
        return Answer("drop", f"DROP: {candidate} fails {', '.join(failed)} ({measured}).")
    if not verdict.sound:
        return Answer("drop", f"DROP: {candidate} is not taken, for the reasons below ({measured}).")
    if verdict.effect <= -verdict.margin:
        return Answer("drop", f"DROP: nothing shows that {candidate} is {bar} ({measured}).")
    if verdict.needed is None and verdict.interval[1] - verdict.interval[0] >= 1:
        return Answer(
            "more", f"MORE PAIRS: too few to say how many would show that {candidate} is {bar} ({measured})."
        )
    more = 0 if verdict.needed is None else verdict.needed - verdict.n
    if verdict.needed is not None and more <= 0:
        return Answer("drop", f"DROP: {candidate} is not taken, for the reasons below ({measured}).")
    if verdict.needed is None or verdict.needed > MOST_MORE * verdict.n:
        pairs = f"about {verdict.needed:,}" if verdict.needed is not None else "more than a million"
        return Answer(
            "drop",
            f"DROP: what {_groups(verdict, 'units', 'these pairs')} show is not told from no effect: it would take "
            f"{pairs} pairs{_groups(verdict, 'needed')} to show that {candidate} is {bar} ({measured}).",
        )
    return Answer(
        "more",
        f"{more:,} MORE PAIRS, about,{_groups(verdict, 'more')} would show that {candidate} is {bar}, if it is "
        f"({measured}).",
        more,
    )


def _groups(verdict: Verdict, of: Literal["units", "needed", "more"], otherwise: str = "") -> str:
    """The groups that there are, are needed, or are needed beside those, where the verdict is on a group drawn anew."""
    regime = verdict.regimes.get(verdict.regime)
    if regime is None or verdict.regime != "new-group" or regime.units == verdict.n:
        return otherwise
    if of == "units":
        return f"pairs in {regime.units:,} groups"
    if regime.needed is None:
        return otherwise
    if of == "needed":
        return f" in {regime.needed:,} groups"
    return f" in {max(regime.needed - regime.units, 0):,} more groups,"


def told(verdict: Verdict, answered: Answer) -> str:
    """The answer in the first line, and what it rests on."""
    return "\n".join([answered.sentence, *figures(verdict)])


def as_json(verdict: Verdict, answered: Answer) -> str:
    """What `whet verdict --json` prints, without the line's end."""
    content = {"answer": answered.word, "more": answered.more, **msgspec.to_builtins(verdict)}
    return msgspec.json.encode(content).decode()


def github(
    verdict: Verdict, answered: Answer, environ: Mapping[str, str], *, title: str = "whet verdict"
) -> str:
    """The answer as an annotation of a GitHub workflow; writes the job's summary and its outputs where it has such.

    Args:
        environ: its variables: `GITHUB_STEP_SUMMARY` and `GITHUB_OUTPUT` are files of the runner.
    """
    if path := environ.get("GITHUB_STEP_SUMMARY"):
        _append(path, _summary(verdict, answered))
    if path := environ.get("GITHUB_OUTPUT"):
        _append(path, f"answer={answered.word}\nmore={'' if answered.more is None else answered.more}\n")
    text = told(verdict, answered)
    for sign, escape in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(sign, escape)
    return f"::{_LEVELS[answered.word]} title={title}::{text}"


def _append(path: str, text: str) -> None:
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(text)


def _summary(verdict: Verdict, answered: Answer) -> str:
    """Markdown in which no text of a file is markup."""
    low, high = verdict.interval
    rows = {
        "effect": f"{verdict.effect:+.3f}",
        "95 % interval": f"{low:+.3f} to {high:+.3f}",
        "e-value": f"{verdict.e_value:.3g}",
        "pairs": f"{verdict.n:,}",
    }
    rows |= {f"guardrail {name}": "holds" if held else "fails" for name, held in verdict.guardrails.items()}
    cells = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(text)}</td></tr>" for name, text in rows.items()
    )
    reasons = "".join(f"<li>{html.escape(_line(reason))}</li>" for reason in verdict.reasons)
    return f"<h3>{html.escape(_line(answered.sentence))}</h3>\n<table>{cells}</table>\n<ul>{reasons}</ul>\n\n"


def _line(text: str) -> str:
    # A blank line would end the block of HTML, and what follows would be read as Markdown.
    return " ".join(text.split())
