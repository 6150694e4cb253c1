"""What makes feedback something that can be used later: the same over HTTP and from Python.

It looks at one thing that was said; whether the run that it names exists is not asked, for it may come late.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from msgspec import UNSET

from ..errors import InputError
from ..types import Feedback, Json

Kind: TypeAlias = Literal["thumb", "rating", "correction", "demonstration", "preference", "comment"]


def feedback_kind(kind: Kind | None, value: float | None, correction: Json) -> str:
    """The kind that is given; else thumb or rating by the value, or a correction, or a comment.

    Args:
        correction: UNSET where none is given: None is one, the right answer being None, of the kind that says so.

    Raises:
        InputError: the kind takes a correction and none is given.
    """
    if kind in ("correction", "demonstration", "preference") and correction is UNSET:
        raise InputError(
            f"feedback: a {kind} says in `correction` what should have been; null is an answer, too"
        )
    if kind is not None:
        return kind
    if value is not None:
        return "thumb" if value in (1, -1) else "rating"
    return "comment" if correction is UNSET or correction is None else "correction"


def corrected(said: Feedback) -> Json:
    """What should have been, None among it; of a preference the chosen one; UNSET where that is not said."""
    if said.kind == "preference" and isinstance(said.correction, dict):
        return said.correction.get("chosen", UNSET)
    return UNSET if said.correction is None and said.kind != "correction" else said.correction


def check_feedback(said: Feedback) -> None:
    """Refuse what could not be used, while whoever says it can still mend it.

    Raises:
        InputError: nothing or two things are meant, or the kind lacks what makes it one.
    """
    wrong = ""
    if bool(said.run) == (said.session is not None):
        wrong = "name either a run or a session"
    elif said.step is not None and not said.run:
        wrong = "a step belongs to a run: name the run too"
    elif said.kind == "thumb" and said.value not in (1, -1):
        wrong = f"a thumb has the value 1 or -1, not {said.value!r}"
    elif said.kind == "rating" and (said.value is None or not math.isfinite(said.value)):
        wrong = "a rating needs a value"
    elif said.kind == "comment" and not said.comment:
        wrong = "there is no value, no correction and no comment"
    elif said.kind == "demonstration" and said.correction is None:
        wrong = f"a {said.kind} says in `correction` what should have been"
    elif said.kind == "preference" and not (
        isinstance(said.correction, dict) and {"chosen", "rejected"} <= set(said.correction)
    ):
        wrong = 'a preference says in `correction` {"chosen": ..., "rejected": ...}'
    if wrong:
        raise InputError(f"feedback: {wrong}")
