"""`Head`: learns one small decision inside an otherwise frozen agent from what users said of its runs.

The decision looks at the candidates seen so far, each a flat dict of numbers, and returns the index
of one to accept, `more`, or `unknown`.  Every recorded run with a thumb labels the candidate that it
accepted; a small boosted classifier learns how likely accepting is right, and two thresholds turn
that into a decision.  An agent may not know these words: the head says `unknown` only where a recorded
decision did, `more` also where the decision is told how much is left (`remaining`).  The result is a
Version that one can read, in LightGBM's text format, and that `whet.models.heads` runs without LightGBM.

What the labels can carry: thumbs say nothing of candidates that were passed over, so the head is as
good as the variety of what was accepted.  Thumbs that are wrong at random shrink every probability
towards one half and leave the crossing at one half where it is; thresholds away from it move, unless
the error rate is given as `noise`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ...errors import BudgetExceeded, MissingExtra, TrainingRefused
from ...models.heads import Candidate, Decided, decided, judge, load_head, seen, vector
from ...stats import auc
from ...types import Bundle, Group, Json, Trajectory, Version
from ..boosting import BoostingOptions, CrossFit, folds_of, log_loss
from ..loop import Context, Update, mean_value, value_of

try:
    import numpy as np
except ImportError as error:  # pragma: no cover - depends on what is installed
    raise MissingExtra(error.name or "numpy", "head") from error

__all__ = ["Head", "HeadOptions", "judge", "load_head"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadOptions:
    """Settings of the head; the defaults suit 300 to 1,500 rated runs."""

    label: str = "thumb"
    """Kind of Feedback whose value above or below zero is the label, or else the name of a Score (right
    from one half)."""
    features: tuple[str, ...] | None = None
    """Entries of a candidate to use; every number in the record if None."""
    key: str | None = None
    """Argument of the decision that holds the candidates; the first list of mappings if None."""
    remaining: str = "remaining"
    """Argument, or entry of the last candidate, that is 0 when nothing is left to look at."""
    at_least: Mapping[str, float] = field(default_factory=dict)
    """Entries that a candidate must reach to be accepted at all, such as values to answer with. Needed
    where the recorded agent never accepted below: no label can teach it."""
    monotone: Mapping[str, int] = field(default_factory=dict)
    """Feature → 1 or -1: the probability may only rise or fall with it."""
    unknowns: str = "both"
    """Meaning of thumbs on `unknown` for the best candidate seen: nothing (`ignore`); that it was wrong, if
    they were up (`up`); also that it was right, if they were down (`both`). They are the only labels of
    what was passed over; `up` alone biases towards refusing. Against `ignore`, `both` was worth -.01 to
    +.04 success in four trials on real mail, more where the recorded agent was picky."""
    trees: tuple[int, ...] = (10, 20, 30, 45, 60)
    """Numbers of trees to choose from by cross-validation."""
    leaves: tuple[int, ...] = (3, 6, 12)
    """Numbers of leaves to choose from."""
    learning_rate: float = 0.1
    min_leaf: int = 15
    """Rows that a leaf must hold."""
    l2: float = 3.0
    folds: int = 5
    minimum: int = 60
    """Labelled accepted candidates below which there is nothing to learn."""
    correct: float = 1.0
    wrong: float = -1.0
    unknown_right: float = 0.5
    unknown_wrong: float = -0.2
    turn: float = -0.02
    """Value of each look at a candidate."""
    noise: float = 0.0
    """Share of the labels known to be wrong, below one half."""
    unanswerable: float = 0.35
    """Share of tasks with nothing to find, as far as one knows: what the judge gives a refusal without
    looking, and any refusal where fewer than 10 rated runs ended so."""
    tune_score: str | None = None
    """Score by which the thresholds are tuned on `context.validation`, if rollouts are left."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One rated run."""

    decided: Decided
    right: bool
    group: str
    task: str


class Head:
    """Optimizer that replaces a decision function by a learned one.

    Args:
        resource: name of the function resource; its calls are the Steps of kind `function` and that name. None:
            the one whose decisions were recorded.

    An offline learner: one step, from recorded groups alone unless `tune_score` is set.
    """

    name = "head"
    group_size = 0
    on_policy = False
    ordered = False

    def __init__(self, resource: str | None = None, options: HeadOptions | None = None) -> None:
        self.resource = resource
        self.options = options or HeadOptions()

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """Learn the head, choose its thresholds, and put it into the Bundle.

        Where the features say nothing about the labels the Bundle comes back as it was, and `reason`
        says so.

        Raises:
            TrainingRefused: too few labels, or all of one kind; says how many there are.
        """
        resource = self._resource(groups)
        runs = rated(groups, resource, self.options)
        features = self._features(resource, runs)
        seed = context.rng.getrandbits(30)
        words = self._words(resource, groups)
        learned = _Learned(runs, features, self.options, seed)
        metrics = learned.metrics()
        if learned.gain <= learned.gain_error:
            return Update(
                bundle=bundle,
                metrics=metrics,
                done=True,
                reason=f"the features tell nothing about the {len(learned.fit.y)} labels: log loss "
                f"{metrics['log_loss']:.3f}, {metrics['base_log_loss']:.3f} without them",
            )
        accept, settle, expected, before = learned.thresholds(words)
        version = self._version(resource, bundle, learned, accept, settle, waits="more" in words)
        metrics |= {"expected": expected, "expected_before": before}
        if self.options.tune_score is not None and context.validation:
            version, tuned = await self._tuned(bundle, version, context, words)
            metrics |= tuned
        metrics |= {"accept": version.content["accept"], "settle": version.content["settle"]}
        return Update(bundle=bundle.put(version), metrics=metrics, done=True, reason="learned offline")

    def _resource(self, groups: Sequence[Group]) -> str:
        """The function resource to learn.

        Raises:
            TrainingRefused: none was named, and not just one made decisions.
        """
        if self.resource is not None:
            return self.resource
        runs = [run for group in groups for run in group.trajectories]
        names = {step.name for run in runs for step in run.steps if step.kind == "function"}
        read = (self.options.key, self.options.remaining)
        deciding = sorted(name for name in names if any(decided(run, name, *read) for run in runs))
        if len(deciding) != 1:
            raise TrainingRefused(
                f"head: {len(deciding)} recorded functions decide about a list of candidates "
                f"({', '.join(deciding) or 'none'}); name the resource to learn with Head(resource)"
            )
        return deciding[0]

    def _features(self, resource: str, runs: Sequence[_Run]) -> list[str]:
        accepted = [
            run.decided.candidates[run.decided.choice] for run in runs if run.decided.choice is not None
        ]
        right = sum(run.right for run in runs if run.decided.choice is not None)
        if len(accepted) < self.options.minimum or right in (0, len(accepted)):
            raise TrainingRefused(
                f"head: {len(accepted)} rated runs accepted a candidate through {resource!r}, {right} "
                f"of them right; at least {self.options.minimum} of both kinds are needed. Collect more "
                f"feedback; check that the function is a resource and {self.options.label!r} is recorded."
            )
        if self.options.features is not None:
            return list(self.options.features)
        numbers = {
            name
            for run in runs
            for candidate in run.decided.candidates
            for name, value in candidate.items()
            if isinstance(value, (int, float)) and name != self.options.remaining
        }
        if not numbers:
            raise TrainingRefused(f"head: no candidate of {resource!r} has a number to look at")
        return sorted(numbers)

    def _words(self, resource: str, groups: Sequence[Group]) -> set[str]:
        """The words among `more` and `unknown` that the agent understands, as far as the record shows.

        Raises:
            TrainingRefused: its decisions refuse with another word.
        """
        steps = [
            step
            for group in groups
            for run in group.trajectories
            for step in run.steps
            if step.kind == "function" and step.name == resource and step.error is None
        ]
        actions = [step.action for step in steps]
        words = {action for action in actions if action in ("more", "unknown")}
        looked = (seen(step.observation, self.options.key, self.options.remaining) for step in steps)
        if any(looks is not None and looks.told for looks in looked):
            words.add("more")
        unreadable = [action for action in actions if action not in words and not _index(action)]
        if unreadable and "unknown" not in words:
            raise TrainingRefused(
                f"head: {resource!r} was recorded to answer {unreadable[0]!r:.40}; a head stands in for a function "
                "that answers with the index of a candidate, 'more' or 'unknown'"
            )
        return words

    def _version(
        self, resource: str, bundle: Bundle, learned: _Learned, accept: float, settle: float, *, waits: bool
    ) -> Version:
        options = self.options
        content: dict[str, Json] = {
            "features": learned.features,
            "accept": accept,
            "settle": settle,
            "key": options.key,
            "remaining": options.remaining,
            "waits": waits,
            "at_least": dict(options.at_least),
            "unknown": learned.unknown(),
            "model": learned.fit.booster.model_to_string(),
        }
        old = bundle.get(resource)
        return Version(
            resource=resource,
            content=content,
            kind="head",
            parent=old.id if old else None,
            meta={
                "optimizer": "head",
                "importance": learned.fit.importance(),
                "rows": len(learned.fit.y),
                "seed": learned.seed,
                "options": {name: value for name, value in asdict(options).items() if value is not None},
            },
        )

    async def _tuned(
        self, bundle: Bundle, version: Version, context: Context, words: set[str]
    ) -> tuple[Version, dict[str, float]]:
        """The Version with the thresholds that do best on validation; ties keep those of the record."""
        assert self.options.tune_score is not None
        seed = context.rng.getrandbits(30)
        accept, settle = version.content["accept"], version.content["settle"]
        tried: list[tuple[float, Version]] = []
        # The record's own thresholds first: `max` keeps them in a tie, and a budget that ends early has them.
        for up, down in ((0, 0), (0.1, 0), (-0.1, 0), (0, 0.1), (0, -0.1), (0.1, 0.1), (-0.1, -0.1)):
            if (up and "more" not in words) or (down and "unknown" not in words):
                continue
            content = {**version.content, "accept": accept + up, "settle": settle + down}
            # With the old id the new content would be taken for the old Version.
            trial = replace(version, content=content, id="")
            try:
                groups = await context.rollout(bundle.put(trial), context.validation, 1, seed=seed)
            except BudgetExceeded:
                break
            trajectories = [trajectory for group in groups for trajectory in group.trajectories]
            mean = mean_value(trajectories, self.options.tune_score)[0]
            if mean is not None:
                tried.append((mean, trial))
            context.progress("head", len(tried), 7, validation=mean or 0.0)
        if not tried:
            return version, {}
        best = max(tried, key=lambda row: row[0])
        return best[1], {"validation": best[0], "settings_tried": float(len(tried))}


def _index(action: Json) -> bool:
    # True is an int to Python, and no index.
    return isinstance(action, int) and not isinstance(action, bool) and action >= 0


def rated(groups: Sequence[Group], resource: str, options: HeadOptions) -> list[_Run]:
    """The runs with a label and a decision, in the order of the record."""
    runs = []
    for group in groups:
        for trajectory in group.trajectories:
            right = _label(trajectory, options.label)
            decision = decided(trajectory, resource, options.key, options.remaining)
            if right is not None and decision is not None:
                task = trajectory.task
                runs.append(_Run(decision, right, task.group or task.id, task.id))
    return runs


def _label(trajectory: Trajectory, label: str) -> bool | None:
    thumbs = [thumb.value for thumb in trajectory.feedback if thumb.kind == label and thumb.value is not None]
    if thumbs:
        total = sum(thumbs)
        return total > 0 if total else None  # people who disagree say nothing
    value = value_of(trajectory, label)
    return None if value is None else value >= 0.5


class _Learned:
    """A fitted classifier, and the value of decisions by it on the record."""

    def __init__(self, runs: Sequence[_Run], features: list[str], options: HeadOptions, seed: int) -> None:
        self.runs, self.features, self.options, self.seed = runs, features, options, seed
        groups = [run.group for run in runs]
        if len(set(groups)) == 1:  # folds of one group: between its tasks
            groups = [run.task for run in runs]
        self.folds = folds_of(groups, options.folds, seed)
        rows = [
            (index, run.decided.candidates[run.decided.choice], run.right)
            for index, run in enumerate(runs)
            if run.decided.choice is not None
        ]
        self.fit = self._fit(rows)
        if options.unknowns != "ignore" and (unknowns := self._from_unknowns()):
            # Fitted twice: a first model, of accepted candidates, says which one an `unknown` is about.
            self.fit = self._fit([*rows, *unknowns])
        self.fit.choose_size()
        gains = self.fit.gains()
        self.gain, self.gain_error = float(gains.mean()), float(gains.std() / math.sqrt(len(gains)))
        self.held_out = self._held_out()

    def _fit(self, rows: Sequence[tuple[int, Candidate, bool]]) -> CrossFit:
        """The fit of labelled candidates, each with the index of its run."""
        options = self.options
        return CrossFit(
            [vector(candidate, self.features) for _, candidate, _ in rows],
            [right for _, _, right in rows],
            [self.folds[index] for index, _, _ in rows],
            self.features,
            BoostingOptions(
                trees=options.trees,
                leaves=options.leaves,
                learning_rate=options.learning_rate,
                min_leaf=options.min_leaf,
                l2=options.l2,
                columns=1.0,
                monotone=options.monotone,
            ),
            self.seed,
        )

    def _from_unknowns(self) -> list[tuple[int, Candidate, bool]]:
        """Labels for the best candidate seen by runs that ended in `unknown`, best by a first model."""
        first = self.fit.train(self.options.leaves[0], self.options.trees[0])
        unknown = [
            (index, run)
            for index, run in enumerate(self.runs)
            if run.decided.choice is None
            and run.decided.candidates
            and (run.right or self.options.unknowns == "both")
        ]
        if not unknown:
            return []
        probabilities = self._predicted(first, [run for _, run in unknown])
        return [
            # `max` asks for one key a candidate, in the order in which `_predicted` gives them.
            (index, max(run.decided.candidates, key=lambda _: next(probabilities)), not run.right)
            for index, run in unknown
        ]

    def _predicted(self, booster: Any, runs: Sequence[_Run]) -> Iterator[float]:
        """The probability of every candidate of these runs, in one call: each costs milliseconds."""
        rows = [vector(candidate, self.features) for run in runs for candidate in run.decided.candidates]
        probabilities: list[float] = booster.predict(self.fit.matrix(rows), num_threads=1).tolist()
        return iter(probabilities)

    def _held_out(self) -> list[list[float]]:
        """Per run, the probability of every candidate seen, by a model that did not see its fold."""
        held_out: list[list[float]] = [[] for _ in self.runs]
        for fold in range(self.options.folds):
            members = [index for index, own in enumerate(self.folds) if own == fold]
            runs = [self.runs[index] for index in members]
            # A fold that holds every row leaves none to train on.
            if not any(run.decided.candidates for run in runs) or all(self.fit.fold == fold):
                continue
            booster = self.fit.train(self.fit.leaves, self.fit.trees, without=fold)
            probabilities = self._predicted(booster, runs)
            for index, run in zip(members, runs, strict=True):
                # `candidates` comes first: zip asks it first, and so draws no probability too many.
                held_out[index] = [
                    self._true(probability) if self._allowed(candidate) else 0.0
                    for candidate, probability in zip(run.decided.candidates, probabilities, strict=False)
                ]
        return held_out

    def _allowed(self, candidate: Candidate) -> bool:
        return all(
            isinstance(candidate.get(name), (int, float)) and candidate[name] >= least
            for name, least in self.options.at_least.items()
        )

    def _true(self, probability: float) -> float:
        """The probability without the label noise."""
        return min(1.0, max(0.0, (probability - self.options.noise) / (1.0 - 2.0 * self.options.noise)))

    def unknown(self) -> dict[str, float]:
        """Frequency with which `unknown` is right: `rate` per unit of `1 - p`, `prior` where nothing was looked at.

        The prior is the share of tasks with nothing to find: `options.unanswerable`, as far as the
        record allows it. At least the liked refusals had no answer, at most the wrong answers too.
        """
        doubts, rights, wrong = [], [], 0
        for run, probabilities in zip(self.runs, self.held_out, strict=True):
            if run.decided.choice is None:
                doubts.append(1.0 - max(probabilities, default=0.0))
                rights.append(run.right)
            else:
                wrong += not run.right
        share = self.options.unanswerable
        if len(rights) < 10:
            return {"rate": share, "prior": share}
        right = self._true((sum(rights) + 1.0) / (len(rights) + 2.0))
        least = right * len(rights) / len(self.runs)
        prior = min(max(share, least), least + wrong / len(self.runs))
        # Not below .05: in a record with hardly a doubt the rate would grow without bound.
        return {"rate": right / max(0.05, sum(doubts) / len(doubts)), "prior": prior}

    def thresholds(self, words: set[str]) -> tuple[float, float, float, float]:
        """`accept` and `settle`, what they are expected to earn per run, and what the record earned.

        Without the word `more` nothing is accepted before the end, without `unknown` anything then.

        Every pair on a grid is replayed over the candidates that each run saw, with the label where
        the replay accepts what the run accepted and the held-out probability elsewhere. Of the pairs
        within one standard error of the best the one nearest to (0.7, 0.5) is taken: the record
        cannot tell them apart, and at one half being right and wrong weigh the same.
        """
        unknown = self.unknown()["rate"]
        earned: dict[tuple[float, float], Any] = {}
        for accept in (0.5, 0.6, 0.7, 0.8, 0.9) if "more" in words else (1.0,):
            for settle in (0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7) if "unknown" in words else (0.0,):
                # Beyond `accept` every `settle` is the same: what reaches it was accepted on the way.
                if settle <= accept:
                    earnings = [
                        self._replayed(index, accept, settle, unknown) for index in range(len(self.runs))
                    ]
                    earned[accept, settle] = np.array(earnings)
        best = max(sorted(earned), key=lambda pair: float(earned[pair].mean()))
        close = []
        for pair, values in earned.items():
            lost = earned[best] - values
            # Paired: the standard error is that of the differences on the same runs.
            if lost.mean() <= lost.std() / math.sqrt(len(lost)):
                close.append(pair)
        chosen = min(close, key=lambda pair: (abs(pair[0] - 0.7) + abs(pair[1] - 0.5), pair))
        before = np.array([self._recorded(index, unknown) for index in range(len(self.runs))])
        return (*chosen, float(earned[chosen].mean()), float(before.mean()))

    def _replayed(self, position: int, accept: float, settle: float, unknown: float) -> float:
        probabilities = self.held_out[position]
        best = 0
        for index, probability in enumerate(probabilities):
            if probability > probabilities[best]:
                best = index
            if probabilities[best] >= accept:
                return self._accepted(position, best) + self.options.turn * (index + 1)
        turns = self.options.turn * len(probabilities)
        if probabilities and probabilities[best] >= settle:
            return self._accepted(position, best) + turns
        return self._refused(position, unknown) + turns

    def _recorded(self, position: int, unknown: float) -> float:
        choice = self.runs[position].decided.choice
        worth = self._refused(position, unknown) if choice is None else self._accepted(position, choice)
        return worth + self.options.turn * len(self.held_out[position])

    def _accepted(self, position: int, index: int) -> float:
        options, run = self.options, self.runs[position]
        right = float(run.right) if index == run.decided.choice else self.held_out[position][index]
        if index == run.decided.choice and options.noise:
            # Unbiased for the true label, and so not held inside 0 and 1.
            right = (right - options.noise) / (1.0 - 2.0 * options.noise)
        return right * options.correct + (1.0 - right) * options.wrong

    def _refused(self, position: int, unknown: float) -> float:
        options, run = self.options, self.runs[position]
        if run.decided.choice is None:
            right = float(run.right)
        else:
            right = min(1.0, unknown * (1.0 - max(self.held_out[position], default=0.0)))
        return right * options.unknown_right + (1.0 - right) * options.unknown_wrong

    def metrics(self) -> dict[str, float]:
        """The figures of cross-validation."""
        fit = self.fit
        base_log_loss = float(log_loss(fit.y, fit.base).mean())
        return {
            "rows": float(len(fit.y)),
            "runs": float(len(self.runs)),
            "right": float(fit.y.mean()),
            "auc": auc(fit.held_out.tolist(), fit.y.tolist()),
            "log_loss": base_log_loss - self.gain,
            "base_log_loss": base_log_loss,
            "leaves": float(fit.leaves),
            "trees": float(fit.trees),
        }
