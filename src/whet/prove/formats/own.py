"""whet's own rows, which a script of any kind can write.

    {"task": "q17", "group": "mailbox-3", "success": true, "cost": 0.002}

One JSON object per line. The task's id stands under `task`, `task_id` or `id`; `group` is what tasks share (optional);
the result is `success` (true, false or 0 to 1) or `score`, or an `outcome` such as "failure" or
"infrastructure_error"; `cost` is reported, and decides nothing. Other keys are the file's own business.
"""

from __future__ import annotations

from typing import Any

from ...errors import InputError
from ...types import Outcome
from .file import ResultFile
from .rows import IDS, Reading, Row, as_cost, as_score, as_text

_RESULTS = ("success", "score", "outcome")


def claims(file: ResultFile) -> bool:
    """Whether the rows have an id and a result under these names."""
    first = file.first
    return any(name in first for name in IDS) and any(name in first for name in _RESULTS)


def read(file: ResultFile) -> Reading:
    """The rows, each with `success`."""
    return Reading("whet", primary="success").take(file.objects(), row)


def row(where: str, fields: dict[str, Any]) -> Row:
    """One of them.

    Raises:
        InputError: it has no id or no result, or two.
    """
    outcome = _outcome(fields)
    named = [name for name in ("success", "score") if name in fields]
    if len(named) == 2:
        raise InputError("both success and score are given: keep the one that decides")
    if not named and outcome is Outcome.UNKNOWN:
        raise InputError("neither success, nor score, nor an outcome that says how it ended")
    scores = {"success": as_score(fields[named[0]], named[0])} if named else {}
    # Not by truth: 0 is an id.
    ids = [name for name in IDS if fields.get(name) not in (None, "")]
    if not ids:
        raise InputError(f"no task id: give one under {', '.join(IDS)}")
    as_text(fields.get("group"), "group")
    return Row(
        where=where,
        task=as_text(fields[ids[0]], ids[0]),
        scores=scores,
        outcome=outcome,
        cost=as_cost(fields.get("cost")),
        fields=fields,
    )


def _outcome(fields: dict[str, Any]) -> Outcome:
    value = fields.get("outcome")
    try:
        return Outcome.UNKNOWN if value is None else Outcome(str(value).lower())
    except ValueError:
        allowed = ", ".join(outcome.value for outcome in Outcome)
        raise InputError(f"outcome {str(value)[:60]!r} is none of {allowed}") from None
