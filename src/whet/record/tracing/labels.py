"""Checks that make feedback usable later: the same over HTTP and from Python.

Each looks at one Feedback alone; the run that it names need not exist, for it may come late.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from msgspec import UNSET

from ...errors import InputError
from ...types import Feedback, Json

Kind: TypeAlias = Literal["thumb", "rating", "correction", "demonstration", "preference", "comment"]


def feedback_kind(kind: Kind | None, value: float | None, correction: Json) -> str:
    """The kind that is given; else thumb or rating by the value, or a correction, or a comment.

    Args:
        correction: UNSET if omitted. With `kind="correction"` None is a correction: the right answer is None.

    Raises:
        InputError: the kind takes a correction and none is given, or a value of 0 without a kind.
    """
    if kind in ("correction", "demonstration", "preference") and correction is UNSET:
        raise InputError(
            f"feedback: a {kind} says in `correction` what should have been; null is an answer, too"
        )
    if kind is not None:
        return kind
    if value == 0:
        # Whoever counts thumbs as 1 and 0 means a thumb down, and a rating of 0 would not be one.
        raise InputError(
            'feedback: a value of 0 is not clear: a thumb down is -1; a rating of 0 has kind="rating"; with '
            'kind="thumb" 0 takes the thumbs before it back'
        )
    if value is not None:
        return "thumb" if value in (1, -1) else "rating"
    return "comment" if correction is UNSET or correction is None else "correction"


def corrected(feedback: Feedback) -> Json:
    """The right answer, which may be None; of a preference the chosen one; UNSET where it is not stated."""
    if feedback.kind == "preference" and isinstance(feedback.correction, dict):
        return feedback.correction.get("chosen", UNSET)
    return UNSET if feedback.correction is None and feedback.kind != "correction" else feedback.correction


def check_feedback(feedback: Feedback) -> None:
    """Refuse feedback that could not be used, while its author can still mend it.

    Raises:
        InputError: nothing or two things are meant, or the kind lacks what makes it one.
    """
    wrong = ""
    if bool(feedback.run) == (feedback.session is not None):
        wrong = "name either a run or a session"
    elif feedback.step is not None and not feedback.run:
        wrong = "a step belongs to a run: name the run too"
    elif feedback.kind == "thumb" and feedback.value not in (1, 0, -1):
        wrong = f"a thumb has the value 1 or -1, or 0 to take it back, not {feedback.value!r}"
    elif feedback.kind == "rating" and (feedback.value is None or not math.isfinite(feedback.value)):
        wrong = "a rating needs a value"
    elif feedback.kind == "comment" and not feedback.comment:
        wrong = "there is no value, no correction and no comment"
    elif feedback.kind == "demonstration" and feedback.correction is None:
        wrong = f"a {feedback.kind} says in `correction` what should have been"
    elif feedback.kind == "preference" and not (
        isinstance(feedback.correction, dict) and {"chosen", "rejected"} <= set(feedback.correction)
    ):
        wrong = 'a preference says in `correction` {"chosen": ..., "rejected": ...}'
    if wrong:
        raise InputError(f"feedback: {wrong}")
