"""Carrying out what was decided on a canary: a larger share, live, or taken back; each through the release log."""

from __future__ import annotations

from ..record.store import Release, Stage, Store
from ..types import Verdict

BY_EVIDENCE = "canary: "
"""With which the reason of an entry begins that evidence decided, and no person."""


def carry_out(
    store: Store, canary: Release, share: float, *, reason: str, verdict: Verdict | None = None
) -> Release:
    """Move a canary to its next share; returns the entry that stands then.

    Args:
        canary: its entry as it stood when it was decided on.
        share: 0 takes it back, 1 makes it live.
        verdict: that it goes live on.

    Raises:
        ConflictError: it was moved meanwhile, by another process or a person: what they did stands.
        GateError: something forbids to make it live.
        InputError: the canaries beside it leave no room for the share.
    """
    if share <= 0:
        return store.retire(canary.trial, reason=reason, name=canary.name, following=canary.id)
    live = share >= 1
    return store.release(
        store.bundle(canary.candidate),
        verdict,
        stage=Stage.LIVE if live else Stage.CANARY,
        share=0.0 if live else share,
        unit=canary.unit,
        # What was tried without a proof goes live on the canary's own; on the way there it has none.
        unproven=canary.unproven and not live,
        new_names=True,
        reason=reason,
        name=canary.name,
        following=canary.id,
    )
