"""`OutcomeModel`: learns from recorded outcomes how likely a single answer is right, over features that one can read.

An outcome reward model (Cobbe et al. 2021, "Training Verifiers to Solve Math Word Problems") with boosted trees in
the place of a language model: a few thousand outcomes are enough, it learns in seconds on a CPU, the result is text,
and it transfers to databases, mailboxes or repositories that it never saw as far as its features do.  Where tokens
are what there is to go by, `reward_model` learns from those.

It refuses features that alone tell right from wrong almost always: in recorded episodes those are, as a rule, facts
that exist because the episode was judged already (`whet.judge.leaks`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from ...errors import InputError, TrainingRefused
from ...judge.leaks import TELLING, telling
from ...judge.outcome import Features
from ...types import Bundle, Group, Outcome, Trajectory, Version
from ..boosting import Boosted, BoostingOptions, boosted
from ..loop import Context, Update


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeModelOptions:
    """Settings of learning a reward from outcomes."""

    reward: str = "outcome_model"
    """Name of the learned reward in the Bundle."""
    score: str | None = None
    """Score that says success; the outcome if None."""
    threshold: float = 0.5
    """Lowest score that is a success."""
    minimum: int = 60
    """Judged runs below which there is nothing to learn."""
    telling: float = TELLING
    """AUC from which a single feature is taken for a leak."""
    vouched: tuple[str, ...] = ()
    """Features that may tell as much as they do: someone knows why, and that they exist when deployed."""
    boosting: BoostingOptions = field(default_factory=BoostingOptions)
    """Settings of the trees."""
    seed: int = 0
    """Of the folds and the trees."""


class OutcomeModel:
    """An outcome reward model as an Optimizer; what it improves is the Bundle's reward.

    Args:
        features: what the model may know of a run, as it is known when it is deployed: one flat mapping of numbers.
            None leaves a run out.

    An offline learner: one step, from recorded groups alone.
    """

    name = "outcome_model"
    group_size = 0
    on_policy = False
    ordered = False

    def __init__(self, features: Features, options: OutcomeModelOptions | None = None) -> None:
        self.features = features
        self.options = options or OutcomeModelOptions()

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """Learn the reward and put it into the Bundle, as a Version of kind `reward`.

        Where the features say nothing on groups that were not learned from, the Bundle comes back as it was, and
        `reason` says so.

        Raises:
            TrainingRefused: too few outcomes or all of one kind, one group only, or a feature that gives the outcome
                away; says which and what to do.
        """
        rows, right, owners = self._rows(groups)
        names = self._checked(rows, right, owners)
        fitted = boosted(
            [[row[name] for name in names] for row in rows],
            right,
            owners,
            names,
            options=self.options.boosting,
            seed=self.options.seed,
        )
        metrics = {
            "rows": float(len(rows)),
            "groups": float(len(set(owners))),
            "right": sum(right) / len(right),
            "auc": fitted.auc,
            "log_loss": fitted.log_loss,
            "base_log_loss": fitted.base_log_loss,
            "leaves": float(fitted.leaves),
            "trees": float(fitted.trees),
        }
        if fitted.base_log_loss - fitted.log_loss <= fitted.gain_error:
            reason = (
                f"the features tell nothing about {len(rows)} outcomes in groups that were not learned from: log "
                f"loss {fitted.log_loss:.3f}, {fitted.base_log_loss:.3f} without them"
            )
            return Update(bundle=bundle, metrics=metrics, done=True, reason=reason)
        version = self._version(bundle, names, fitted)
        return Update(bundle=bundle.put(version), metrics=metrics, done=True, reason="learned offline")

    def _rows(
        self, groups: Sequence[Group]
    ) -> tuple[list[Mapping[str, float | None]], list[bool], list[str]]:
        rows, right, owners = [], [], []
        for trajectory in (run for group in groups for run in group.trajectories):
            good = self._good(trajectory)
            features = self.features(trajectory) if good is not None else None
            if good is not None and features is not None:
                rows.append(features)
                right.append(good)
                # Folds are by group: runs of one group in two folds would be recognised instead of judged.
                owners.append(trajectory.task.group or trajectory.task.id)
        return rows, right, owners

    def _good(self, trajectory: Trajectory) -> bool | None:
        if trajectory.outcome is Outcome.INFRASTRUCTURE_ERROR:
            return None
        if self.options.score is None:
            return trajectory.outcome is Outcome.SUCCESS if trajectory.outcome.counts else None
        value = trajectory.score(self.options.score)
        return None if value is None else value >= self.options.threshold

    def _checked(
        self, rows: Sequence[Mapping[str, float | None]], right: Sequence[bool], owners: Sequence[str]
    ) -> list[str]:
        options = self.options
        if len(rows) < options.minimum or sum(right) in (0, len(rows)) or len(set(owners)) < 2:
            raise TrainingRefused(
                f"{self.name}: {len(rows)} judged runs of {len(set(owners))} groups, {sum(right)} of them right; "
                f"wanted are at least {options.minimum}, of two groups or more, right ones and wrong ones"
            )
        names = sorted(rows[0])
        for row in rows:
            if row.keys() != rows[0].keys():
                odd = sorted(row.keys() ^ rows[0].keys())
                raise InputError(
                    f"{self.name}: not every run has the same features; {odd[0]!r} comes and goes"
                )
        if tells := [
            tell for tell in telling(rows, right, least=options.telling) if not self._vouched(tell.name)
        ]:
            raise TrainingRefused(
                f"{self.name}: {', '.join(map(str, tells))} nearly gives the outcome away. If it is known only "
                "because the run was judged, leave it out; if it is known when deployed, name it in `vouched`"
            )
        return names

    def _vouched(self, name: str) -> bool:
        # `judge.leaks` also looks at whether a feature is there, under this name.
        return name.removesuffix(" is known") in self.options.vouched

    def _version(self, bundle: Bundle, names: list[str], fitted: Boosted) -> Version:
        options = self.options
        old = bundle.get(options.reward)
        return Version(
            resource=options.reward,
            kind="reward",
            content={"features": names, "model": fitted.model},
            parent=old.id if old else None,
            meta={
                "method": self.name,
                "importance": dict(fitted.importance),
                "auc": fitted.auc,
                "rows": len(fitted.held_out),
                "options": asdict(options),
            },
        )
