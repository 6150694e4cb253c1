"""What a reader must not miss: rows without a known answer whose answers a candidate changes.

No score sees them, and no gate: a change there may be the best of the patch or break what was right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..types import Json, canonical

_SHOWN = 3
_LONGEST = 80


def unknown_changes(answers: Iterable[tuple[Json, Json, Json]], where: str) -> dict[str, Json] | None:
    """A finding on the rows without a known answer, None where no answer of theirs changed.

    Args:
        answers: input, answer before and answer after, of every row without a known answer.
        where: the name of what answers.

    Returns:
        `kind`, `function`, `count` of changed answers `of` so many, three `examples` and a `sentence`.
    """
    rows = list(answers)
    changed = [row for row in rows if canonical(row[1]) != canonical(row[2])]
    if not changed:
        return None
    shown = [{"input": given, "before": old, "after": new} for given, old, new in changed[:_SHOWN]]
    return {
        "kind": "unknown answers changed",
        "function": where,
        "count": len(changed),
        "of": len(rows),
        "examples": shown,
        "sentence": (
            f"{len(changed)} of {len(rows)} answers of {where} whose right answer is unknown are different now, and "
            f"nothing here judged them: {'; '.join(map(_line, shown))}. Look at them before you take the patch; "
            "rows with expected (null where None is right) let the gate judge."
        ),
    }


def _line(example: Mapping[str, Json]) -> str:
    return f"{_short(example['input'])}: {_short(example['before'])} → {_short(example['after'])}"


def _short(value: Json) -> str:
    text = canonical(value).decode()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
