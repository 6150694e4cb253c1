"""What an autopilot asks before it touches the live traffic, and what people answered; all of it in the record."""

from __future__ import annotations

from ..errors import InputError
from ..record.store import Store
from ..types import Json

_ASKED, _ANSWER = "autopilot/asked", "autopilot/approve"


def asked(store: Store, subject: str) -> dict[str, Json]:
    """States by which a thing waits for an answer, to be written with the row that says so; none if it does already."""
    waiting = list(store.state(_ASKED) or [])
    return {} if subject in waiting else {_ASKED: [*waiting, subject]}


def waiting(store: Store) -> list[str]:
    """What waits for an answer, the oldest first."""
    return [subject for subject in store.state(_ASKED) or [] if answer_of(store, subject) is None]


def answer_of(store: Store, subject: str) -> bool | None:
    """What people answered; None as long as nobody did."""
    answer = store.state(f"{_ANSWER}/{subject}")
    return None if answer is None else bool(answer)


def decide(store: Store, subject: str, *, allow: bool) -> None:
    """Answer.

    Raises:
        InputError: nothing of that name waits for an answer.
    """
    waits = waiting(store)
    if subject not in waits:
        names = ", ".join(waits) or "nothing"
        raise InputError(f"nothing waits for an answer under {subject!r:.60}; what waits now: {names}")
    store.put_state(f"{_ANSWER}/{subject}", allow)


def settled(store: Store, subject: str) -> None:
    """What was asked is done or left: the same name may be asked again."""
    with store.batch() as batch:
        batch.put_state(_ASKED, [name for name in store.state(_ASKED) or [] if name != subject])
        batch.put_state(f"{_ANSWER}/{subject}", None)
