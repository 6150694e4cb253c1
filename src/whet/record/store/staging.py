"""Entries of the release log: what a release, a rollback and the end of a trial write, made from what stands there.

Each is added to a batch that the owner refuses where another entry came meanwhile; `Store` then makes it anew.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...errors import ConflictError, InputError, NotFoundError
from ...types import Bundle, Verdict, new_id
from .batch import Batch
from .bundles import EMPTY
from .database import DatabaseReader
from .findings import refuse_open
from .proof import blocks_of, proof_of, refuse_blocked
from .releases import (
    LIVE,
    TRIALS,
    UNITS,
    Release,
    Stage,
    entry_of,
    history,
    newest_id,
    refuse_unknown,
    trials,
)

SHARES = {Stage.SHADOW: 1.0, Stage.CANARY: 0.1, Stage.LIVE: 0.0}
"""Shares where none is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a caller of `Store.release` asks for."""

    bundle: Bundle
    verdict: Verdict | None = None
    stage: Stage = Stage.LIVE
    share: float = 0.0
    unit: str = "session"
    unproven: bool = False
    new_names: bool = False
    reason: str = ""
    name: str = LIVE
    following: str | None = None
    """Id of the entry of a trial that this was decided on."""
    part_of: str | None = None
    """Id of a trial that carries what goes live, and more."""

    def check(self) -> None:
        """Refuse what makes no sense whatever the log says.

        Raises:
            InputError: with what to give instead.
        """
        if not self.bundle:
            raise InputError(
                "an empty Bundle releases nothing. To go back to the agent as it came, roll back."
            )
        if self.stage not in (*TRIALS, Stage.LIVE):
            raise InputError(
                f"nothing is released to {self.stage.value!r}: a Verdict makes it gated, and a rollback or another "
                "release retires it. Give shadow, canary or live."
            )
        if self.unit not in UNITS:
            raise InputError(f"a canary is drawn by {', '.join(UNITS)}, not by {self.unit!r}")
        if self.stage is Stage.LIVE and self.share:
            raise InputError(
                f"what is live serves all that no canary does: --share {self.share:g} is a canary's"
            )
        if self.stage is Stage.CANARY and not 0 < self.share < 1:
            raise InputError(
                f"a canary serves a share between 0 and 1, and {self.share:g} was given. To serve all: --to live"
            )
        if self.stage is Stage.SHADOW and not 0 < self.share <= 1:
            raise InputError(f"a shadow runs for a share over 0 and up to 1, and {self.share:g} was given")


def release(reader: DatabaseReader, batch: Batch, wish: Wish) -> Release:
    """Add the entry of a release to `batch`; the one that stands where there is nothing to change.

    Raises:
        ConflictError, GateError, InputError: as of `Store.release`.
    """
    newest = newest_id(reader, wish.name)
    log = history(reader, wish.name, 1)
    live = log[0].bundle if log else EMPTY
    standing = trials(reader, wish.name)
    refuse_moved(reader, standing, wish.following)
    bundle = wish.bundle
    merged = live.put(*bundle.values())
    refuse_open(reader, {bundle.id, merged.id})
    proof = proof_of(reader, bundle, merged, wish.verdict)
    blocks = blocks_of(bundle, proof)
    needs_proof = not wish.unproven and wish.stage is not Stage.SHADOW
    # What a Verdict refuses is refused under any name; where nothing was judged, it may be for a name misspelt.
    if needs_proof and proof is not None:
        refuse_blocked(blocks)
    if not wish.new_names:
        refuse_unknown(reader, bundle, live)
    if needs_proof:
        refuse_blocked(blocks)
    proven = None if proof is None or blocks else batch.put_verdict(proof)
    same = [trial for trial in standing if trial.candidate == bundle.id or trial.bundle == merged]
    batch.put_bundle(bundle)
    entry = Release(
        new_id(),
        wish.name,
        merged,
        log[0].id if log else None,
        time.time(),
        wish.reason if wish.stage is Stage.SHADOW else _with_lifted(wish.reason, blocks),
        proven,
        proven is None,
        wish.stage,
        wish.share,
        wish.unit,
        bundle.id,
        same[0].trial if same else "",
        live.id,
    )
    if wish.stage is Stage.LIVE:
        if log and merged == live:
            if proven in (None, log[0].verdict):
                return log[0]  # already live: with another entry, a rollback would change nothing
            entry = replace(entry, previous=log[0].previous)
        return batch.add_release(entry, after=newest, part_of=wish.part_of)
    if merged == live:
        raise InputError(f"Bundle {bundle.id} is live already: there is nothing to try.")
    if same and same[0].stage is wish.stage and (same[0].share, same[0].unit) == (wish.share, wish.unit):
        return same[0]
    _refuse_shares(wish, [trial for trial in standing if trial not in same])
    return batch.add_release(entry, after=newest)


def refuse_moved(reader: DatabaseReader, standing: Sequence[Release], following: str | None) -> None:
    """Refuse what was decided on an entry that is no longer the last one of its trial.

    Raises:
        ConflictError: names the entry that came between.
    """
    if following is None or following in {trial.id for trial in standing}:
        return
    decided_on = entry_of(reader, following)
    rows = reader.rows(
        "SELECT id FROM releases WHERE trial = ? ORDER BY seq DESC LIMIT 1", [decided_on.trial]
    )
    last = entry_of(reader, rows[0][0])
    share = f" at {last.share:.0%}" if last.stage is Stage.CANARY else ""
    raise ConflictError(
        f"trial {decided_on.trial} was moved meanwhile: it is {last.stage}{share} since {last.id}, "
        f'"{last.reason}", and this was decided on {following}. Look at it again: whet show trials'
    )


def _with_lifted(reason: str, blocks: Mapping[str, str]) -> str:
    """The reason with what would have kept it from being released: who reads the log must not have to guess."""
    lifted = f"released in spite of: {', '.join(blocks)}" if blocks else ""
    return "; ".join(filter(None, (reason, lifted)))


def _refuse_shares(wish: Wish, others: Sequence[Release]) -> None:
    """Refuse canaries that would leave nobody with what is live: there would be nothing to compare them with."""
    if wish.stage is not Stage.CANARY:
        return
    taken = sum(other.share for other in others if other.stage is Stage.CANARY)
    if taken + wish.share >= 1:
        raise InputError(
            f"the canaries that stand serve {taken:g}, and {wish.share:g} more would leave nobody with what is live. "
            f"Give a share under {max(1 - taken, 0):g}, or retire one (whet rollback CANARY)."
        )


def rollback(reader: DatabaseReader, batch: Batch, name: str, reason: str) -> Release:
    """Add the entry that goes back from what is live.

    Raises:
        NotFoundError: there is nothing before it.
    """
    newest = newest_id(reader, name)
    releases = history(reader, name, None)
    if not releases:
        raise NotFoundError(f"nothing was ever released as {name!r}: this is the agent as it came.")
    current = releases[-1]
    before = {release.id: release for release in releases}.get(current.previous or "")
    if before is None and not current.bundle:
        raise NotFoundError(f"the agent as it came is {name}; there is nothing before it.")
    if before is None:
        entry = Release(new_id(), name, EMPTY, None, time.time(), reason, None, False, base=current.bundle.id)
    else:
        # Its `previous` is not the release that was just left: a second rollback goes further back, not to and fro.
        entry = replace(before, id=new_id(), at=time.time(), reason=reason, trial="", base=current.bundle.id)
    return batch.add_release(entry, after=newest)


def retire(
    reader: DatabaseReader, batch: Batch, name: str, id: str, reason: str, following: str | None = None
) -> Release:
    """Add the entry that ends a trial; the one that stands where it ended before.

    Args:
        id: of any entry of the trial, or of its Bundle.
        following: id of the entry that this was decided on.

    Raises:
        ConflictError: that is not the last one of its trial any more.
        NotFoundError: nothing of this id was ever on trial.
        InputError: it is live.
    """
    newest = newest_id(reader, name)
    standing = trials(reader, name)
    refuse_moved(reader, standing, following)
    for trial in standing:
        if id in (trial.id, trial.trial, trial.candidate, trial.bundle.id):
            ended = replace(trial, id=new_id(), at=time.time(), stage=Stage.RETIRED, share=0.0, reason=reason)
            return batch.add_release(ended, after=newest)
    rows = reader.rows(
        "SELECT last.id, last.stage FROM releases AS one JOIN releases AS last ON last.trial = one.trial "
        "WHERE one.name = ? AND ? IN (one.id, one.trial, one.candidate, one.bundle) ORDER BY last.seq DESC LIMIT 1",
        [name, id],
    )
    if not rows:
        raise NotFoundError(f"nothing of the id {id!r} is on trial. See what is: whet log")
    if rows[0][1] == Stage.LIVE:
        raise InputError(f"{id!r} is or was live, not on trial. To go back from what is live: whet rollback")
    return entry_of(reader, rows[0][0])
