"""Recording findings on a Bundle (`store/findings.py`), and what a person or a stricter reward decides about them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from ..errors import InputError, NotFoundError
from ..types import Feedback, Trajectory
from .store import Store
from .store.findings import PREFIX, UNTAUGHT, RewardFinding, all_findings, findings_on

EXPLOIT = "exploit"
"""Kind of the Feedback on the runs of a finding that a person confirmed."""
MOST_RUNS = 20


def put_findings(
    store: Store,
    bundle: str,
    findings: Sequence[RewardFinding],
    *,
    rewards: Mapping[str, str],
    looked: Collection[str] | None = None,
) -> list[RewardFinding]:
    """Record what was found on a Bundle; returns all findings on it.

    An earlier finding that is not found any more, by rewards of which a version is another one now, is cleared by them,
    unless it is about the training.

    Args:
        looked: kinds that were looked for; all if None.
    """
    earlier = {finding.id: finding for finding in findings_on(store.database, bundle)}
    kinds = {finding.kind for finding in findings}
    now = time.time()
    for id, old in earlier.items():
        stricter = [
            f"{name} {version}" for name, version in rewards.items() if old.rewards.get(name) != version
        ]
        # Of what trained it, other rewards of the gate say nothing.
        settled = old.kind != UNTAUGHT and old.kind not in kinds and (looked is None or old.kind in looked)
        if old.open and settled and stricter:
            earlier[id] = replace(
                old,
                cleared_by=f"reward {stricter[0]}",
                cleared_why="judged again by another version of the reward, without this finding",
            )
    for finding in findings:
        fresh = replace(
            finding, bundle=bundle, rewards=dict(rewards), at=now, runs=tuple(finding.runs)[:MOST_RUNS]
        )
        # One that a person has cleared stays so: it is the same gain, seen again.
        earlier.setdefault(fresh.id, fresh)
    if earlier:
        _write(store, bundle, earlier.values())
    return list(earlier.values())


def clear(store: Store, id: str, *, by: str, why: str) -> RewardFinding:
    """Clear a finding: a person has looked at its runs and takes it for no hack.

    Raises:
        NotFoundError: there is no such finding.
        InputError: it is not said who clears it and why.
    """
    if not by.strip() or not why.strip():
        raise InputError("a finding is cleared by a person, for a reason: give --by NAME and --why TEXT")
    finding = _found(store, id)
    return _changed(store, finding, replace(finding, cleared_by=by, cleared_why=why))


def confirm(store: Store, id: str, *, by: str, why: str = "") -> RewardFinding:
    """Confirm a finding: its runs are exploits, which evaluators are held to from now on.

    Raises:
        NotFoundError: there is no such finding.
        InputError: it is not said who confirms it, or it has no runs.
    """
    if not by.strip():
        raise InputError("a finding is confirmed by a person: give --by NAME")
    finding = _found(store, id)
    if not finding.runs:
        raise InputError(f"finding {id} names no runs, so there is no exploit to keep")
    known = {opinion.run for opinion in store.feedback() if opinion.kind == EXPLOIT}
    comment = f"{finding.kind}, confirmed by {by}{': ' if why else ''}{why}"
    store.add_feedback(
        *(
            Feedback(run=run, value=-1.0, comment=comment, kind=EXPLOIT)
            for run in finding.runs
            if run not in known
        )
    )
    return _changed(store, finding, replace(finding, confirmed_by=by, cleared_by="", cleared_why=""))


def exploits(store: Store) -> Iterator[Trajectory]:
    """The runs that people confirmed as exploits: what an evaluator must not reward."""
    ids = sorted({opinion.run for opinion in store.feedback() if opinion.kind == EXPLOIT})
    if ids:
        yield from store.trajectories(ids=ids)


def _found(store: Store, id: str) -> RewardFinding:
    for finding in all_findings(store.database):
        if finding.id == id:
            return finding
    raise NotFoundError(f"the record holds no finding {id!r}; whet findings lists them")


def _changed(store: Store, finding: RewardFinding, changed: RewardFinding) -> RewardFinding:
    _write(
        store,
        finding.bundle,
        [changed if each.id == finding.id else each for each in findings_on(store.database, finding.bundle)],
    )
    return changed


def _write(store: Store, bundle: str, findings: Collection[RewardFinding]) -> None:
    store.put_state(f"{PREFIX}{bundle}", msgspec.to_builtins(list(findings)))
