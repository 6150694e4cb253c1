"""Recording a Verdict with the Bundles that it compares, and releasing the Bundle that it promotes."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import GateError, InputError
from ..record.store import Store
from ..types import Bundle, Verdict


def record(store: Store | None, verdict: Verdict, bundles: Iterable[Bundle], *, experiment: str) -> Verdict:
    """Keep a Verdict and the Bundles that were compared, in one transaction."""
    if store is None:
        return verdict
    with store.batch() as batch:
        for bundle in bundles:
            batch.put_bundle(bundle)
        batch.put_verdict(verdict, experiment=experiment)
    return verdict


def release(store: Store | None, bundle: Bundle | None, verdict: Verdict, *, reason: str = "") -> Bundle:
    """Release the Bundle that the gate promoted.

    Args:
        bundle: of the Verdict; read from the store if None.

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
    store.release(bundle, verdict, reason=reason)
    return bundle
