"""What is proven goes live and where people review changes; what relapses is taken back from both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..learn.evolution.delivering import OutcomeReading, deliver_bundle
from ..record.store import Store
from ..record.store.issues import AgentIssue
from ..ship.delivery import DeliveryOptions
from ..types import Bundle, Json, Verdict
from .evidence import JUDGES
from .trial import patch_of
from .work import Stepped, Workshop, bundle_of

RepairDelivery = Callable[[AgentIssue, dict[str, Any], Verdict | None, Path], dict[str, Json]]
"""Delivers an issue's repair, or with no Verdict takes it back; gives facts for the journal.

It is called with the issue, where its work stands, the Verdict, and the folder of the evidence.
"""


def ship(bench: Workshop, issue: AgentIssue, work: dict[str, Any], deliver: RepairDelivery | None) -> Stepped:
    """Make a proven repair live, and deliver it; done again, it changes nothing."""
    bundle = bundle_of(bench.store, work)
    verdicts = list(bench.store.verdicts(candidate=work["bundle"]))
    verdict = verdicts[-1]
    # Of the whole Bundle that was judged, the Versions that differ from the start alone go live.
    alone = replace(verdict, candidate=bundle.id)
    # Others may have been merged since it was proposed.
    root = bench.settings.agent.resolve().parent
    patch = work["patch"] if work.get("release") else patch_of(bench.store, root, work)
    if not patch:
        why = "the source has changed where it would, so it is proposed anew"
        return Stepped(why, {**work, "stage": "found"})
    work = {**work, "patch": patch}
    bench.store.put_bundle(bundle)
    release = bench.store.release(bundle, alone, new_names=True, reason=f"autopilot: {issue.name}"[:200])
    facts: dict[str, Json] = {"release": release.id, "bundle": bundle.id}
    if deliver is not None:
        facts |= deliver(issue, work, alone, bench.settings.output / issue.id[:12])
    where = f", as {facts['branch']}" if "branch" in facts else ""
    return Stepped(
        f"live{where}: {issue.name}", {**work, "stage": "shipped", "release": release.id, **facts}, facts
    )


def take_back(
    bench: Workshop, issue: AgentIssue, work: dict[str, Any], deliver: RepairDelivery | None
) -> Stepped:
    """Take back a repair that did not last."""
    store = bench.store
    live = store.history(last=1)
    if live and live[0].id == work["release"]:
        store.rollback(reason=f"autopilot: {issue.name} came back"[:200])
    else:
        # Others went live after it: its own Versions alone go back to what they were made from.
        parents = [version.parent for version in bundle_of(store, work).values() if version.parent]
        before = Bundle(list(store.versions(ids=parents)))
        if before:
            store.release(
                before, unproven=True, new_names=True, reason=f"autopilot: {issue.name} came back"[:200]
            )
    facts: dict[str, Json] = {}
    if deliver is not None:
        facts |= deliver(issue, work, None, bench.settings.output / issue.id[:12])
    return Stepped(
        f"taken back, for it came back: {issue.reason or issue.name}",
        {**work, "stage": "found", "attempt": work["attempt"] + 1},
        facts,
    )


def delivery_of(store: Store, root: Path, *, offline: bool) -> RepairDelivery:
    """Delivers repairs as branches of the agent's repository, with the thumbs that prove them.

    Args:
        root: the agent's folder, in a git repository.
        offline: make the branch, and push and open nothing.
    """

    def deliver_repair(
        issue: AgentIssue, work: dict[str, Any], verdict: Verdict | None, folder: Path
    ) -> dict[str, Json]:
        if verdict is None:
            return {}  # what was merged is its owners' to revert; the journal and the release log say so
        bundle = bundle_of(store, work)
        delivered = deliver_bundle(
            store,
            bundle,
            DeliveryOptions(repository=root, offline=offline, branch=f"whet/{issue.id[:12]}-{bundle.id[:8]}"),
            patch=work["patch"],
            verdict=verdict,
            baseline=store.bundle(work["start"]),
            outcomes=(folder / "live.jsonl", folder / "candidate.jsonl"),
            reading=OutcomeReading(regime="exchangeable", watched=True, metric="liked", judges=JUDGES),
        )
        request = delivered.pull_request
        return {
            "branch": delivered.branch.name,
            "command": delivered.evidence.command,
            "url": None if request is None else request.url,
        }

    return deliver_repair
