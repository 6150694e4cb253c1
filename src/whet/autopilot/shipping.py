"""What is proven goes live and where people review changes; what relapses is taken back from both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import InputError, NotFoundError
from ..learn.evolution.delivering import OutcomeReading, deliver_bundle
from ..record.store import Store
from ..record.store.bundles import EMPTY
from ..record.store.issues import AgentIssue
from ..ship.delivery import DeliveryOptions, deliver_reversal
from ..types import Bundle, Json, Verdict
from .evidence import JUDGES
from .night import trial_of
from .shown import by_people
from .trial import AgentSource, mark_of, patch_of
from .work import Stepped, Workshop, bundle_of

RepairDelivery = Callable[[AgentIssue, dict[str, Any], Verdict | None, Path], dict[str, Json]]
"""Delivers an issue's repair, or with no Verdict takes it back; gives facts for the journal.

It is called with the issue, where its work stands, the Verdict, and the folder of the evidence.
"""


def ship(bench: Workshop, issue: AgentIssue, work: dict[str, Any], deliver: RepairDelivery | None) -> Stepped:
    """Make a proven repair live, and deliver it; done again, it changes nothing."""
    store, root = bench.store, bench.settings.agent.resolve().parent
    # Another issue may have asked the gate about the same change, which told nothing there.
    verdict = [verdict for verdict in store.verdicts(candidate=work["bundle"]) if verdict.promote][-1]
    # Others may have been merged, or gone live, since it was proposed.
    patch, bundle = patch_of(store, root, work), _beside_live(bench, issue, work)
    if not patch or not bundle:
        why = "the source has changed where it would, so it is proposed anew"
        return Stepped(why, {**work, "stage": "found"})
    work = {**work, "patch": patch}
    # Of the whole Bundle that was judged, the Versions that differ from the start alone go live.
    alone = replace(verdict, candidate=bundle.id)
    store.put_bundle(bundle)
    release = store.release(
        bundle, alone, new_names=True, reason=f"autopilot: {issue.name}"[:200], part_of=trial_of(store, work)
    )
    delivered = {} if deliver is None else deliver(issue, work, alone, bench.settings.output / issue.id[:12])
    store.issues.put(by_people(issue, work))
    where = f", as {delivered['branch']}" if "branch" in delivered else ""
    return Stepped(
        f"live{where}: {issue.name}",
        {**work, "stage": "shipped", "release": release.id, "serves": None, **delivered},
        {"release": release.id, "bundle": bundle.id, **delivered},
    )


def _beside_live(bench: Workshop, issue: AgentIssue, work: dict[str, Any]) -> Bundle:
    """The Versions of a repair as they stand beside what is live; none where it does not fit there."""
    store, root = bench.store, bench.settings.agent.resolve().parent
    source = AgentSource.live(store, root, bench.shipped(but=issue.id))
    if not source.take(store, work):
        return Bundle()
    return _versions_of(store, source, work)


def _versions_of(store: Store, source: AgentSource, work: dict[str, Any]) -> Bundle:
    """The pieces that a repair changes, as a source has them now."""
    live, versions = store.live() or EMPTY, []
    for resource, version in bundle_of(store, work).items():
        text = source.piece(mark_of(work, resource))
        before = live.get(resource)
        parent = version.parent if before is None else before.id
        if before is not None and before.content == text:
            versions.append(before)  # a process that was killed behind its release makes no second one
        elif text == version.content:
            versions.append(version)
        else:
            versions.append(replace(version, content=text, id="", parent=parent))
    return Bundle(versions)


def take_back(
    bench: Workshop, issue: AgentIssue, work: dict[str, Any], deliver: RepairDelivery | None
) -> Stepped:
    """Take back a repair that did not last."""
    store, root = bench.store, bench.settings.agent.resolve().parent
    live, reason = store.history(last=1), f"autopilot: {issue.name} came back"[:200]
    sentence = f"taken back, for it came back: {issue.reason or issue.name}"
    if live and live[0].id == work["release"]:
        store.rollback(reason=reason)
    else:
        # Others went live after it, of the same pieces perhaps: those stay.
        source = AgentSource.live(store, root, bench.shipped(but=issue.id))
        if source.drop(store, work) or source.lacks(store, work):
            before = _versions_of(store, source, work)
            store.put_bundle(before)
            store.release(before, unproven=True, new_names=True, reason=reason)
        else:
            sentence = (
                f"it came back ({issue.reason or issue.name}), and its lines were changed by others since: what is "
                "live stays as it is, and another repair is looked for"
            )
    facts: dict[str, Json] = {}
    if deliver is not None:
        try:
            facts |= deliver(issue, work, None, bench.settings.output / issue.id[:12])
        except (InputError, NotFoundError) as error:
            # It runs no more, which comes first; the source is its owners'.
            sentence += f"; no pull request takes it out of the source: {error}"
    if "back" in facts:
        sentence += f"; {facts['back']} takes it out of the source"
    return Stepped(sentence, {**work, "stage": "found", "attempt": work["attempt"] + 1}, facts)


def delivery_of(store: Store, root: Path, *, offline: bool) -> RepairDelivery:
    """Delivers repairs as branches of the agent's repository, with the thumbs that prove them.

    Args:
        root: the agent's folder, in a git repository.
        offline: make the branch, and push and open nothing.
    """

    def taken_out(issue: AgentIssue, work: dict[str, Any]) -> dict[str, Json]:
        patch = patch_of(store, root, work, back=True)
        if not patch:
            # Nobody has merged it, or somebody has undone it, or others have changed its lines.
            return {}
        name = f"whet/back-{issue.id[:12]}-{work['bundle'][:8]}"
        options = DeliveryOptions(repository=root, offline=offline, branch=name)
        delivered = f"\n\nIt was delivered as {work.get('url') or work.get('branch') or 'a branch'}."
        reversal = deliver_reversal(
            patch, options, title=issue.name, reason=f"{issue.reason or issue.name}{delivered}"
        )
        request = reversal.pull_request
        return {"back": reversal.branch.name if request is None else request.url}

    def deliver_repair(
        issue: AgentIssue, work: dict[str, Any], verdict: Verdict | None, folder: Path
    ) -> dict[str, Json]:
        if verdict is None:
            return taken_out(issue, work)
        bundle = store.bundle(verdict.candidate)
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
