"""Recording a Verdict with the Bundles that it compares, and releasing the Bundle that it promotes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..errors import GateError, InputError
from ..judge.base import Reward, name_of, version_of
from ..record.reviewing import put_findings
from ..record.store import Stage, Store
from ..record.store.findings import RewardFinding
from ..types import Bundle, Json, Verdict

OUTCOMES = "outcomes/"
"""Prefix of the states with what the newest Verdict on a Bundle rests on, the Bundle's id after it."""


def with_findings(
    store: Store | None, verdict: Verdict, findings: Sequence[RewardFinding], rewards: Iterable[Reward]
) -> Verdict:
    """Keep what looks like a hacked score, and give the Verdict every open finding on its candidate.

    Its evidence stays as it is, so that it promotes once somebody has cleared them.  Before `record`: a crash in
    between leaves findings without a Verdict, and no Verdict without its findings.
    """
    reasons = tuple(finding.reason for finding in keep_findings(store, verdict.candidate, findings, rewards))
    # The same may stand there twice, by two versions of the reward.
    told = [f"finding, which a release needs cleared: {reason}" for reason in dict.fromkeys(reasons)]
    return replace(verdict, findings=reasons, reasons=(*verdict.reasons, *told)) if told else verdict


def keep_findings(
    store: Store | None, bundle: Bundle | str, findings: Sequence[RewardFinding], rewards: Iterable[Reward]
) -> list[RewardFinding]:
    """Keep what was found on a Bundle, by these rewards; returns all findings on it that nobody has cleared.

    Args:
        rewards: what judged; of another version they clear earlier findings that are not among these.
    """
    if store is None:  # nothing can be released either
        return list(findings)
    versions = {name_of(reward): version_of(reward) for reward in rewards}
    id = bundle if isinstance(bundle, str) else bundle.id
    return [finding for finding in put_findings(store, id, findings, rewards=versions) if finding.open]


def record(
    store: Store | None,
    verdict: Verdict,
    bundles: Iterable[Bundle],
    *,
    experiment: str,
    outcomes: Mapping[str, Json] | None = None,
) -> Verdict:
    """Keep in one transaction a Verdict and the Bundles that were compared.

    Args:
        outcomes: what the Verdict rests on (`prove.outcome_rows`), which a delivery takes with it.
    """
    if store is None:
        return verdict
    with store.batch() as batch:
        for bundle in bundles:
            batch.put_bundle(bundle)
        batch.put_verdict(verdict, experiment=experiment)
        if outcomes is not None:
            batch.put_state(f"{OUTCOMES}{verdict.candidate}", dict(outcomes))
    return verdict


def release(
    store: Store | None,
    bundle: Bundle | None,
    verdict: Verdict,
    *,
    to: Stage = Stage.LIVE,
    share: float | None = None,
    unit: str = "session",
    reason: str = "",
) -> Bundle:
    """Release the Bundle that the gate promoted.

    Args:
        bundle: of the Verdict; read from the store if None.
        to, share, unit: as `stage`, `share` and `unit` of `Store.release`.

    Raises:
        GateError: the Verdict promotes nothing.
        NotFoundError: the store does not know the Bundle.
        InputError: there is no store.
    """
    if store is None:
        raise InputError("this experiment has no store to release in: give Experiment(store=...)")
    if not verdict.promote:
        raise GateError("the gate did not promote this, so it is not released: " + " ".join(verdict.reasons))
    if bundle is None:
        bundle = store.bundle(verdict.candidate)
    low, high = verdict.interval
    effect = f"{verdict.effect:+.3f} [{low:+.3f}, {high:+.3f}] over {verdict.against}"
    reason = reason or f"{effect}, e-value {verdict.e_value:.3g}"
    store.release(bundle, verdict, stage=to, share=share, unit=unit, reason=reason)
    return bundle
