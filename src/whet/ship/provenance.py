"""Where a Version came from and what became of it: data, reward, proof, experiment, seed, cost, verdicts, releases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ..judge.card import ReliabilityCard
from ..record.store import Release, Stage, Store
from ..record.store.bundles import EMPTY
from ..record.store.releases import TRIALS
from ..types import UNCALIBRATED, Json, Verdict, Version

_CARDS = "judge/card/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """All that the record knows of one Version."""

    version: Version
    ancestors: Sequence[str]
    """Ids of what it was made from, the nearest first."""
    made: Mapping[str, Json]
    """Learner, experiment, seed, rewards, what was spent, and `data`: tasks, groups, runs and their hash. Empty of a
    Version that a person wrote, or of one from before this was kept."""
    bundles: Sequence[str]
    """Ids of the Bundles that it is in."""
    verdicts: Sequence[Verdict]
    """On these, in the order in which they were recorded."""
    experiments: Mapping[str, str]
    """Id of a Verdict → the experiment that judged."""
    evaluators: Mapping[str, str]
    """Version of what judged → its proof, in a sentence."""
    releases: Sequence[Release]
    stage: Stage
    """Where it stands now."""

    def lines(self) -> Iterator[str]:
        """For people, a line for each fact."""
        version = self.version
        yield f"{version.resource} {version.id}: {version.kind}, {self.stage.value}"
        if self.ancestors:
            yield f"  from      {' <- '.join(self.ancestors)}"
        yield from self._making()
        for evaluator, proof in self.evaluators.items():
            yield f"  evaluator {evaluator}: {proof}"
        for verdict in self.verdicts:
            low, high = verdict.interval
            experiment = self.experiments.get(verdict.id)
            yield (
                f"  verdict   {verdict.id} {'promotes' if verdict.promote else 'does not promote'} "
                f"{verdict.metric or 'success'} {verdict.effect:+.3f} [{low:+.3f}, {high:+.3f}], e-value "
                f"{verdict.e_value:.3g}, {verdict.n} pairs over {verdict.baseline or verdict.against}"
                + (f", experiment {experiment}" if experiment else "")
            )
        for release in self.releases:
            proof = "unproven" if release.unproven else f"on {release.verdict}"
            yield f"  release   {release.id} {release.stage.value} {proof}: {release.reason}"

    def _making(self) -> Iterator[str]:
        made, meta = self.made, self.version.meta
        rows = meta.get("rows")
        data = made.get("data")
        if isinstance(data, Mapping):
            counted = ", ".join(
                f"{data[name]} {name}" for name in ("tasks", "groups", "runs") if name in data
            )
            yield f"  data      {counted}, hash {data.get('hash')}"
        if rows:
            yield f"  rows      {len(rows) if isinstance(rows, list | tuple) else rows}"
        if made:
            seed = made.get("seed")
            yield f"  learner   {made.get('learner')}, experiment {made.get('experiment') or '(unnamed)'}, seed {seed}"
            rewards = made.get("rewards")
            if isinstance(rewards, Mapping):
                named = ", ".join(f"{name} {version}" for name, version in rewards.items())
                yield f"  reward    {named or 'the outcome of a run'}"
            spent = made.get("spent")
            if isinstance(spent, Mapping):
                yield f"  cost      {', '.join(f'{amount:g} {kind}' for kind, amount in spent.items()) or 'nothing'}"
        elif not rows:
            yield "  made      by hand, or before this was recorded"


def provenance_of(store: Store, id: str) -> Provenance:
    """What the record knows of a Version.

    Raises:
        NotFoundError: it holds no such Version.
    """
    version = store.version(id)
    bundles = _having(store, "bundles", id)
    rows = store.database.rows(
        f"SELECT id, experiment FROM verdicts WHERE candidate IN ({', '.join('?' * len(bundles))})", bundles
    )
    verdicts = [each for each in store.verdicts() if each.candidate in set(bundles)] if rows else []
    held_by = set(_having(store, "releases", id))
    releases = [release for release in store.release_log() if release.id in held_by]
    made = version.meta.get("made")
    return Provenance(
        version=version,
        ancestors=_ancestors(store, version),
        made=made if isinstance(made, Mapping) else {},
        bundles=bundles,
        verdicts=verdicts,
        experiments={verdict: experiment for verdict, experiment in rows if experiment},
        evaluators=dict(_evaluators(store, verdicts)),
        releases=releases,
        stage=_stage(store, version, verdicts, releases),
    )


def _having(store: Store, table: str, version: str) -> list[str]:
    """Ids of the Bundles or releases with a Version."""
    rows = store.database.rows(
        f"SELECT entry.id FROM {table} AS entry, json_each(CAST(entry.body AS TEXT)) AS held "
        "WHERE held.value = ? ORDER BY entry.seq",
        [version],
    )
    return [id for (id,) in rows]


def _ancestors(store: Store, version: Version) -> list[str]:
    ancestors: list[str] = []
    above = version.parent
    # An imported record may name a Version as its own ancestor.
    while above is not None and above not in (version.id, *ancestors):
        ancestors.append(above)
        above = next((each.parent for each in store.versions(ids=[above])), None)
    return ancestors


def _evaluators(store: Store, verdicts: Sequence[Verdict]) -> Iterator[tuple[str, str]]:
    """Each evaluator of the Verdicts with what shows that it may be believed."""
    keys = store.database.rows(
        "SELECT key FROM states WHERE key >= ? AND key < ?", [_CARDS, _CARDS[:-1] + "0"]
    )
    cards = [msgspec.convert(store.state(key), ReliabilityCard) for (key,) in keys]
    for name in sorted({name for verdict in verdicts for name in verdict.evaluator.split(", ")} - {""}):
        card = next((card for card in cards if card.evaluator == name.removeprefix(UNCALIBRATED)), None)
        if card is not None:
            low, high = card.accuracy_interval
            admitted = "its card admits it" if card.admitted else f"not admitted: {card.refusal}"
            yield (
                name,
                f"{admitted}; accuracy {card.accuracy:.3f} [{low:.3f}, {high:.3f}] on {card.items} labelled items",
            )
        elif name.startswith(UNCALIBRATED):
            yield name, "a judge without a card, which promotes nothing (whet audit)"
        else:
            yield name, "code of that version, no judge"


def _stage(store: Store, version: Version, verdicts: Sequence[Verdict], releases: Sequence[Release]) -> Stage:
    if (store.live() or EMPTY).ids.get(version.resource) == version.id:
        return Stage.LIVE
    standing = [
        trial.stage for trial in store.on_trial() if trial.bundle.ids.get(version.resource) == version.id
    ]
    for stage in reversed(TRIALS):
        if stage in standing:
            return stage
    if releases:
        return Stage.RETIRED
    return Stage.GATED if verdicts and verdicts[-1].promote else Stage.DRAFT
