"""The Experiment: one environment, tasks and rewards, on which learners improve an agent and the gate judges it.

It alone owns the splits: what it hands to an optimizer never contains a gate task.  Every rollout of every
learner goes through it, so that it is scored, budgeted, counted and recorded in one place.
"""

from __future__ import annotations

import random
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..errors import GateError, InputError
from ..judge import Reward, admit, name_of
from ..judge.agent_env import Calls
from ..judge.base import version_of
from ..judge.hacking import REWARD, Traits, detect, gold_before, traits
from ..judge.replay import abridged
from ..models.budget import Meter
from ..prove.gate import as_far_as_judges_reach
from ..prove.guardrails import Guardrail, directed
from ..prove.outcome_rows import outcomes_of
from ..prove.results import only_errors, refuse_broken
from ..prove.selection import best_of
from ..record import lineage
from ..record.env import EnvFactory
from ..record.gym import factory_of
from ..record.policy import PolicyFactory
from ..record.store import Log, Stage, Store
from ..record.store.batch import redactor_of
from ..record.store.bundles import refuse_secrets
from ..ship.releasing import keep_findings, record, release, with_findings
from ..types import (
    Budget,
    Bundle,
    Group,
    Json,
    Preference,
    Sampling,
    Split,
    Task,
    Trajectory,
    Verdict,
    digest,
)
from .checkpoint import Course, evidence_of
from .composition import Composition, Contender, beside_fidelity, between_different, judge
from .datasets.splits import split
from .episodes import Episodes
from .evidence import COLLECTED, Evidence, learned_from, takes_records
from .improvement import Improvement
from .improving import FirstAndLast, Watch, once, rounds_of, told
from .loop import Context, Optimizer, Progress, means, quiet
from .pipeline import PipelineOptions
from .racing import race
from .sources import source_of
from .taught import kept_with, reward_curve, untaught

REMEMBERED = 16
"""Evaluations on train or validation that are remembered; of the gate all are, for it is run once."""


class Experiment:
    """One environment, one way of making policies, tasks, rewards and a seed.

    The same seed and the same recorded model answers give the same run; with a store, an interrupted
    `improve` goes on where it stopped.

    Args:
        env: makes a fresh Env per rollout; `whet.calls(agent)` is one, and brings its policy. An environment with
            Gymnasium's methods will do, or what makes one; the environment itself is copied for each rollout.
        tasks: all tasks; those without a split are split by the hash of their group.
        rewards: named functions Trajectory → Score, float, bool or None, plain or async.
        policy: makes the Policy of one rollout; may be omitted where `env` brings one.
        seed: of everything random in the experiment.
        store: where trajectories, Versions, checkpoints and Verdicts go; None keeps nothing.
        name: key of the experiment in the store.
        limits: of one rollout (`steps`, `seconds`).
        concurrency: rollouts under way at once.
        folder: for artifacts such as weights.
        record: share of the rollouts made for learning, an optimizer's own and those on validation, that
            is stored, chosen by seed; the rest is counted. What `collect` and `gate` run is always stored.
        preferences: what optimizers find in `Context.preferences`; those of the store if None.
    """

    def __init__(
        self,
        *,
        env: EnvFactory,
        tasks: Sequence[Task],
        rewards: Sequence[Reward],
        policy: PolicyFactory | None = None,
        seed: int = 0,
        store: Store | None = None,
        name: str = "experiment",
        limits: Budget | None = None,
        concurrency: int = 64,
        folder: Path | str | None = None,
        record: float = 1.0,
        progress: Progress = quiet,
        preferences: Sequence[Preference] | None = None,
    ) -> None:
        env = factory_of(env)
        maker = policy or getattr(env, "policy", None)
        if maker is None:
            raise InputError(
                "this env brings no policy: give Experiment(policy=...), a function of (bundle, seed)"
            )
        self.seed, self.store, self.name = seed, store, name
        self.record, self.progress = record, progress
        self.env, self.policy, self.rewards = env, maker, tuple(rewards)
        admit(rewards, tasks)
        self._episodes = Episodes(
            env=env,
            policy=maker,
            rewards=rewards,
            store=store,
            name=name,
            seed=seed,
            limits=limits,
            concurrency=concurrency,
        )
        self._evidence = Evidence(self._episodes)
        self._preferences = preferences
        self._folder = Path(folder) if folder else None
        self.baseline: dict[str, float] | None = None
        divided = list(tasks) if all(task.split for task in tasks) else split(tasks, seed=seed)
        parts = {part: [task for task in divided if task.split is part] for part in Split}
        self.train: Sequence[Task] = parts[Split.TRAIN]
        self.validation: Sequence[Task] = parts[Split.VALIDATION]
        self._gate: Sequence[Task] = parts[Split.GATE]
        self._hidden = {task.id for task in self._gate}
        # Without "": tasks that stand alone share no group.
        self._hidden_groups = {task.group for task in self._gate if task.group}
        shared = self._hidden_groups & {task.group for task in (*self.train, *self.validation)}
        if shared:
            raise GateError(
                f"groups on both sides of the gate: {sorted(shared)[:5]}. Split by group, not by row."
            )
        self._evaluated: OrderedDict[tuple[str, Split, int], list[Group]] = OrderedDict()
        self._known: dict[str, Bundle] = {}
        self._traits: dict[str, dict[str, list[Traits]]] = {}
        """Bundle id → gate task → what its runs show; the runs themselves are abridged."""

    @property
    def rollouts(self) -> int:
        """Rollouts that were run, whatever for."""
        return self._episodes.run_so_far

    @property
    def unrecorded(self) -> int:
        """Rollouts that were run and, by `record`, not stored."""
        return self._episodes.unrecorded

    @property
    def folder(self) -> Path:
        """Where artifacts go; a temporary folder if none was given."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="whet-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    def _seed(self, *parts: Json) -> int:
        return int(digest((self.seed, *parts), 12), 16)

    def watch_runs(self, watch: Callable[[Bundle, Sequence[Group]], None]) -> None:
        """Have this called with every Bundle that is run from now on, and with its groups."""
        self._episodes.watch = watch

    async def collect(
        self,
        bundle: Bundle | None = None,
        tasks: Sequence[Task] | None = None,
        *,
        n: int = 1,
        seed: int = 0,
        label: str = "",
    ) -> list[Group]:
        """Run the policy of `bundle` on the train tasks (or `tasks`) and record what it did.

        Args:
            label: of runs that are no evidence to learn from (`recorded`), a comparison of candidates for instance.

        Raises:
            GateError: a gate task is among `tasks`; only `gate` runs those.
        """
        chosen = self.train if tasks is None else tasks
        self._refuse_gate(chosen)
        phase = f"{COLLECTED}/{label}" if label else COLLECTED
        return await self._episodes.run(bundle or Bundle(), chosen, n, seed=seed, phase=phase)

    async def evaluate(self, bundle: Bundle, split: Split = Split.VALIDATION, *, n: int = 1) -> list[Group]:
        """Trajectories of `bundle` on one split, the same seeds for every bundle.

        They are run once. Later calls get them from memory, without steps and output: only outcome and scores
        are judged by, and the record has the rest.
        """
        key = (bundle.id, split, n)
        if key in self._evaluated:
            self._evaluated.move_to_end(key)
            return self._evaluated[key]
        tasks = {Split.TRAIN: self.train, Split.VALIDATION: self.validation, Split.GATE: self._gate}[split]
        share = 1.0 if split is Split.GATE else self.record
        groups = await self._episodes.run(bundle, tasks, n, seed=0, phase=split.value, share=share)
        if split is Split.GATE:
            self._traits[bundle.id] = {
                group.task.id: [traits(run) for run in group.trajectories] for group in groups
            }
        self._evaluated[key] = [
            Group(group.task, tuple(abridged(run) for run in group.trajectories)) for group in groups
        ]
        others = [earlier for earlier in self._evaluated if earlier[1] is not Split.GATE]
        for earlier in others[:-REMEMBERED]:
            del self._evaluated[earlier]
        return groups

    async def record_baseline(self, bundle: Bundle | None = None) -> dict[str, float]:
        """Measure `bundle` on validation and remember the mean of each score; RL refuses to start without."""
        groups = await self.evaluate(bundle or Bundle())
        self.baseline = means(groups)
        return self.baseline

    def _refuse_gate(self, tasks: Sequence[Task]) -> None:
        leaked = [task.id for task in tasks if task.id in self._hidden or task.group in self._hidden_groups]
        if leaked:
            raise GateError(f"{len(leaked)} of the tasks asked for belong to the gate, first {leaked[0]!r}")

    async def improve(
        self,
        optimizer: Optimizer,
        *,
        bundle: Bundle | None = None,
        rounds: int | None = None,
        tasks: int | None = None,
        groups: Sequence[Group] | None = None,
        budget: Budget | None = None,
        label: str = "",
        within: Meter | None = None,
        asynchronous: PipelineOptions | None = None,
        watch: Watch | None = None,
    ) -> Improvement:
        """Let one optimizer learn; resumes from the store's checkpoint if there is one.

        A checkpoint of another start, other settings (`Optimizer.identity`), other groups or another seed is not
        resumed: the optimizer begins anew, and `progress` gives the reason.

        Args:
            bundle: where to start; the empty Bundle (every resource at its default) if None.
            rounds: at most so many; None: until the optimizer is done or the budget used up.
            tasks: train tasks drawn per round for an optimizer that wants fresh groups; all if None.
            groups: recorded groups to learn from, instead of fresh ones. An `on_policy` optimizer learns from
                each trajectory once, `tasks` groups a round, and its metrics of them are named `recorded_...`.
                None: of a learner that asks for no rollouts (group_size 0) what `recorded` gives.
            budget: of the optimizer's rollouts.
            label: distinguishes two runs of one optimizer in the same experiment.
            within: a meter on which the spending counts too, so that several calls share one budget.
            asynchronous: run the rollouts beside training, in a pipeline; the Improvement has their accounts.
            watch: called with the number and all metrics of each round, in the place of `progress`.

        Raises:
            TrainingRefused: from the optimizer.
            GateError: a gate task is among the groups.
            InputError: there is a secret in `bundle`, which would be recorded.
            BudgetExceeded: the budget does not allow `rounds`, or not even the first one.
        """
        parent = bundle or Bundle()
        if self.store is not None:
            refuse_secrets(parent, redactor_of(self.store.database))
        key = f"{self.name}/improve/{optimizer.name}{'/' + label if label else ''}"
        if groups is not None:
            self._refuse_gate([group.task for group in groups])
        elif asynchronous is None:
            groups = await self.evidence(optimizer)
        # An on-policy learner uses a group once, and new ones may have been recorded since: they are no new start.
        course = self._course(key, optimizer, parent, None if optimizer.on_policy else groups)
        meter = Meter(budget, parent=within)
        # Before the first reservation: a resumed run has what earlier processes left of the budget.
        meter.settle(**course.spent)
        folder = self.folder / key.removeprefix(f"{self.name}/").replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        log = Log(self.store, course.log)
        needs = getattr(optimizer, "needs_baseline", False) and groups is None and bool(self.validation)
        if needs and self.baseline is None:
            self.baseline = await once(log, "baseline", partial(self.record_baseline, parent))

        async def episode(bundle: Bundle, task: Task, seed: int, /) -> Trajectory:
            groups = await self._episodes.run(bundle, [task], 1, seed=seed, phase=key, share=self.record)
            return groups[0].trajectories[0]

        source = source_of(
            optimizer,
            course,
            self.train,
            count=tasks,
            groups=groups,
            asynchronous=asynchronous,
            log=log,
            meter=meter,
            chance=lambda number: random.Random(self._seed("tasks", number)),
            episode=episode,
            ranked=self._episodes.ranked,
        )

        options = getattr(optimizer, "options", None)
        shown = FirstAndLast(getattr(options, "score", None) or REWARD)
        await rounds_of(
            course,
            source,
            optimizer,
            rounds=rounds,
            meter=meter,
            context=lambda number: self._context(number, key, meter, folder, course),
            checkpoint=partial(self._checkpoint, key),
            watch=watch or partial(told, self.progress, label or optimizer.name, rounds),
            # Recorded runs are not the learner's own: there the gate is the first to see what it does.
            seen=shown.take if groups is None else lambda _: None,
        )
        learned = groups or [Group(task, ()) for task in (*self.train, *self.validation)]
        # Of recorded runs the rounds' means are those of other tasks, and of no later weights.
        reinforced = optimizer.on_policy and groups is None
        curve = reward_curve(course.metrics, shown.metric) if reinforced else None
        improvement = self._improvement(optimizer.name, course, parent, learned, meter, kept_with(curve))
        findings = shown.findings()
        if findings is not None and improvement.bundle != parent:
            keep_findings(self.store, improvement.bundle, findings, self.rewards)
        return replace(improvement, accounts=source.accounts, findings=findings or ())

    def _improvement(
        self,
        name: str,
        course: Course,
        parent: Bundle,
        learned: Sequence[Group],
        meter: Meter,
        seen: Mapping[str, Json],
    ) -> Improvement:
        made: dict[str, Json] = {
            "experiment": self.name,
            "learner": name,
            "seed": self.seed,
            "rewards": {name_of(reward): version_of(reward) for reward in self.rewards},
            # Counts alone: seconds would give one run two records.
            "spent": {kind: amount for kind, amount in meter.spent.items() if amount},
            **seen,
        }
        improved = lineage.learned_from(learned, course.live, parent, made)
        self._known[improved.id] = improved
        return Improvement(
            bundle=improved,
            parent=parent,
            optimizer=name,
            metrics=course.metrics,
            rounds=len(course.metrics),
            rollouts=int(meter.spent["rollouts"]),
            seconds=course.before["seconds"],
            cpu_seconds=course.before["cpu_seconds"],
            reason=course.reason,
        )

    def _course(
        self, key: str, optimizer: Optimizer, parent: Bundle, groups: Sequence[Group] | None
    ) -> Course:
        """The course of this `improve`: of its checkpoint, or a new one."""
        start = {
            "the bundle that it starts from": parent.id,
            "the optimizer's settings": getattr(optimizer, "identity", ""),
            "the recorded groups": evidence_of(groups),
            "the experiment's seed": self.seed,
        }
        course = Course(live=parent, start=start, log=key)
        saved = self.store.state(key) if self.store is not None else None
        if saved is not None:
            before = saved.get("start", start)
            changed = [setting for setting in start if before.get(setting) != start[setting]]
            if not changed:
                return Course.of(saved, start, key)
            # The log of the work before would give its answers to other questions.
            course.log = f"{key}#{int(saved.get('log', key).partition('#')[2] or 0) + 1}"
            self.progress(optimizer.name, 0, None, begins_anew=f"changed: {', '.join(changed)}")
        # At once: begun anew a second time with other settings, it would else be given the first one's log.
        self._checkpoint(key, course)
        return course

    def _checkpoint(self, key: str, course: Course) -> None:
        if self.store is not None:
            self.store.put_state(key, course.saved())

    def _context(self, number: int, key: str, meter: Meter, folder: Path, course: Course) -> Context:
        # Without the experiment's name: a second job in a store draws the same numbers as the first.
        label = key.removeprefix(f"{self.name}/")

        async def allowed(
            bundle: Bundle,
            tasks: Sequence[Task],
            n: int = 1,
            *,
            seed: int = 0,
            prefix: Sequence[Json] | None = None,
        ) -> list[Group]:
            self._refuse_gate(tasks)
            meter.reserve(rollouts=len(tasks) * n)
            return await self._episodes.run(
                bundle, tasks, n, seed=self._seed(label, seed), phase=key, prefix=prefix, share=self.record
            )

        if self._preferences is None:
            self._preferences = list(self.store.preferences()) if self.store is not None else ()
        return Context(
            rollout=allowed,
            train=self.train,
            validation=self.validation,
            preferences=self._preferences,
            meter=meter,
            rng=random.Random(self._seed(label, number)),
            folder=folder,
            progress=self.progress,
            baseline=self.baseline,
            state=course.state,
            log=Log(self.store, course.log),
        )

    async def gate(
        self,
        candidate: Bundle | Improvement,
        *,
        against: Bundle | None = None,
        metric: str = "success",
        margin: float = 0.0,
        guardrails: Sequence[Guardrail] = (),
        alpha: float = 0.05,
        label: str = "baseline",
        tolerance: float = 0.01,
        regime: Sampling = "new-group",
    ) -> Verdict:
        """Compare a candidate with `against` on the gate's tasks, pair by pair.

        All sides run once on the same tasks and seeds; asking again looks at the same trajectories. An Improvement
        with fallbacks, as `compose` gives it, has several chances, so each is judged at its share of `alpha`:
        the proposal first, which must also be better than each fallback or not worse by more than
        `tolerance`; then the simplest fallback in its place. Of replays it says how far they agree with the record.
        Tasks that a contender learned from are left out with their groups: its weights may come from elsewhere.

        Args:
            against: the baseline; of an Improvement what it was learned from, else the empty Bundle.
            metric: name of the Score that decides, in [0, 1].
            margin: 0 asks for superiority; d > 0 for not being worse by more than d.
            guardrails: metrics that must not get worse.
            alpha: chance of promoting anything where nothing has an effect.
            label: the Verdict's name for the baseline.
            regime: how the gate's tasks came, which decides what they prove; the Verdict has both regimes.

        Raises:
            GateError: there is nothing to compare, not even a task that no contender learned from; or a value
                lies outside [0, 1].
        """
        # A guardrail without a direction is refused here, before the gate's rollouts are spent.
        names, contenders, rails = dict[str, str](), list[Contender](), directed(guardrails, self.rewards)
        bundles = [candidate] if isinstance(candidate, Bundle) else [candidate.bundle, *candidate.fallbacks]
        if isinstance(candidate, Improvement):
            against = candidate.parent if against is None else against
            names = {learner.bundle.id: learner.name for learner in candidate.candidates if learner.entered}
        against = against or Bundle()
        judged, excluded = await self._gate_runs(against, bundles, metric)
        contenders = [
            Contender(names.get(bundle.id, "the candidate"), bundle.id, judged[bundle.id])
            for bundle in (against, *bundles)
        ]
        contenders[0] = replace(contenders[0], name=label)
        failed = [sentence for side in contenders if (sentence := only_errors(side.side, side.name))]
        try:
            verdict = judge(
                contenders[1:],
                contenders[0],
                metric=metric,
                margin=margin,
                alpha=alpha,
                guardrails=rails,
                tolerance=tolerance,
                trained_groups={task.group for task in (*self.train, *self.validation) if task.group},
                regime=regime,
            )
        except GateError as error:
            raise GateError(" ".join((str(error), *failed))) from error
        verdict = replace(verdict, reasons=(*verdict.reasons, *failed))
        if isinstance(candidate, Improvement) and verdict.candidate == candidate.bundle.id:
            verdict = candidate.beside_dev(verdict)
        return await self._concluded(verdict, against, bundles, judged, excluded, metric, rails)

    async def gate_best(
        self,
        candidates: Mapping[str, Bundle],
        *,
        against: Bundle | None = None,
        metric: str = "success",
        margin: float = 0.0,
        guardrails: Sequence[Guardrail] = (),
        alpha: float = 0.05,
        label: str = "baseline",
        regime: Sampling = "new-group",
    ) -> Verdict:
        """Choose the best of several Bundles on some of the gate's tasks, and judge it on the others.

        For candidates that there are no other tasks to choose on, as `choose` needs them; every one runs on all of the
        gate's tasks (`prove/selection.py`).

        Args:
            candidates: by name, two different ones at the least.
            (others): as of `gate`.

        Raises:
            InputError: fewer than two different Bundles.
            GateError: as `gate`; or the tasks are too few to choose on some and judge on the others.
        """
        bundles = list(candidates.values())
        if len({bundle.id for bundle in bundles}) < max(2, len(bundles)):
            raise InputError(
                f"the best is chosen of different candidates, two at the least: {', '.join(candidates)}"
            )
        rails, against = directed(guardrails, self.rewards), against or Bundle()
        judged, excluded = await self._gate_runs(against, bundles, metric)
        sides = {name: judged[bundle.id] for name, bundle in candidates.items()}
        named = {label: judged[against.id], **sides}
        failed = [sentence for name, side in named.items() if (sentence := only_errors(side, name))]
        try:
            selection = best_of(
                judged[against.id],
                sides,
                metric=metric,
                margin=margin,
                alpha=alpha,
                guardrails=rails,
                against=label,
                regime=regime,
            )
        except GateError as error:
            raise GateError(" ".join((str(error), *failed))) from error
        verdict = replace(
            selection.verdict,
            candidate=candidates[selection.chosen].id,
            baseline=against.id,
            reasons=(*selection.verdict.reasons, *failed),
        )
        return await self._concluded(
            verdict, against, bundles, judged, excluded, metric, rails, chose=selection.dev_tasks
        )

    async def _gate_runs(
        self, against: Bundle, bundles: Sequence[Bundle], metric: str
    ) -> tuple[dict[str, list[Group]], set[str]]:
        """Bundle id → its groups on the gate's tasks, without those that one of them learned from; and these tasks.

        Raises:
            GateError: the evaluator breaks on every answer of the baseline, or no task is left.
        """
        judged, excluded = dict[str, list[Group]](), self._seen_of_gate((against, *bundles))
        for bundle in (against, *bundles):
            self._known[bundle.id] = bundle
            groups = await self.evaluate(bundle, Split.GATE)
            judged[bundle.id] = [group for group in groups if group.task.id not in excluded]
            if bundle is against:
                refuse_broken(judged[bundle.id], metric)
        return judged, excluded

    async def _concluded(
        self,
        verdict: Verdict,
        against: Bundle,
        bundles: Sequence[Bundle],
        judged: Mapping[str, Sequence[Group]],
        excluded: Collection[str],
        metric: str,
        rails: Sequence[Guardrail],
        *,
        chose: Collection[str] = (),
    ) -> Verdict:
        """The Verdict with what else was seen of the two sides, recorded.

        Args:
            chose: tasks that the candidate was chosen on, which judge nothing.
        """
        ran = await self.evaluate(against, Split.GATE)  # remembered
        verdict = await beside_fidelity(verdict, self.env, ran, self.rewards, metric=metric)
        # The reads of a policy of the user's own are not tracked, so there None stands for them.
        read: set[str] | None = None
        if isinstance(self.env, Calls) and self.policy == self.env.policy:
            pair = (verdict.candidate, against.id)
            read = set().union(*(self._episodes.read.get((id, Split.GATE.value), ()) for id in pair))
        verdict = between_different(verdict, self._known[verdict.candidate], against, read)
        if excluded:
            note = f"{len(excluded)} of {len(self._gate)} gate tasks are left out, for a contender learned from them"
            verdict = replace(verdict, reasons=(*verdict.reasons, note))
        unseen = {*excluded, *chose}
        before, after = (self._traits_of(id, unseen) for id in (against.id, verdict.candidate))
        of_text = next(
            (getattr(each, "of_text", None) for each in self.rewards if name_of(each) == metric), None
        )
        gold = gold_before(metric, self.rewards)
        findings = detect(before, after, metric=metric, gold=gold, of_text=of_text)
        findings += untaught(verdict, self._known[verdict.candidate], against, before, after)
        verdict = with_findings(self.store, verdict, findings, self.rewards)
        old, new = (
            [group for group in judged[id] if group.task.id not in chose]
            for id in (against.id, verdict.candidate)
        )
        runs = [run for group in (*old, *new) for run in group.trajectories]
        verdict = as_far_as_judges_reach(verdict, self.rewards, runs)
        return record(
            self.store,
            verdict,
            (against, *bundles),
            experiment=self.name,
            outcomes=outcomes_of(verdict, old, new, metric, rails) if self.store is not None else None,
        )

    def _traits_of(self, bundle: str, excluded: Collection[str]) -> list[Traits]:
        return [
            run for task, runs in self._traits.get(bundle, {}).items() if task not in excluded for run in runs
        ]

    def _seen_of_gate(self, bundles: Sequence[Bundle]) -> set[str]:
        excluded = set[str]().union(*(learned_from(bundle, self._gate, self.store) for bundle in bundles))
        if excluded and len(excluded) == len(self._gate):
            raise GateError(
                f"all {len(excluded)} gate tasks are of runs that a contender learned from, so they prove nothing. "
                "Give tasks that nothing learned from (whet gate --data), or record new runs, or train on a part of "
                "the record"
            )
        return excluded

    async def compose(
        self,
        optimizers: Sequence[Optimizer] | Mapping[str, Optimizer],
        *,
        bundle: Bundle | None = None,
        metric: str = "success",
        worth: float = 0.005,
        fresh: Sequence[Task] = (),
        groups: Sequence[Group] | None = None,
        rounds: int | None = None,
        tasks: int | None = None,
        budget: Budget | None = None,
    ) -> Improvement:
        """Let several learners improve the agent one after the other, each from the best so far.

        Give them from simple to complicated: each must earn its place. Its result enters if it adds more than
        `worth` to the mean of `metric`, paired with the best so far on the validation tasks; as long as that is
        within two standard errors of `worth`, also on `fresh`, and where the learner learned from recorded runs
        alone, cross-fitted on the train tasks, as far as the budget goes. A learner that refuses or learns nothing
        is left out, with its reason.

        Args:
            optimizers: under their own names, or by name.
            bundle: where to start; the empty Bundle (every resource at its default) if None.
            fresh: further tasks for deciding, on which nothing was learned or chosen; not the gate's.
            groups: recorded groups for learners that take what there is; None: the recorded runs that the
                train tasks were read from (`whet.tasks`).
            rounds, tasks: of each learner, as in `improve`.
            budget: of all learners and of what is run to decide, together; none may spend what the others need
                to be compared on validation.

        Returns:
            The composed Bundle; its `candidates` say what became of each learner, its `fallbacks` what the gate
            judges if it refuses the whole.

        Raises:
            InputError: no validation task, or no learner.
            GateError: a gate task is in `fresh`.
        """
        self._refuse_gate(fresh)
        composition = Composition(
            self,
            bundle or Bundle(),
            metric=metric,
            worth=worth,
            fresh=fresh,
            groups=groups,
            rounds=rounds,
            tasks=tasks,
            budget=budget,
        )
        improvement = await composition.run(optimizers)
        self._known.update({learner.bundle.id: learner.bundle for learner in improvement.candidates})
        return improvement

    async def choose(
        self,
        bundles: Mapping[str, Bundle],
        *,
        against: Bundle | None = None,
        metric: str = "success",
        rollouts: int = 400,
    ) -> Improvement:
        """The best of several Bundles, by a race on the train and validation tasks; `gate` then judges it on others.

        Sequential halving: all run on a few tasks, the worse half drops out, and those that are left run on more.

        Args:
            bundles: by name.
            against: what they are compared with; the empty Bundle if None.
            metric: name of the Score that decides, in [0, 1].
            rollouts: most runs.

        Raises:
            InputError: fewer than two different Bundles, or too few rollouts.
        """
        self._known.update({bundle.id: bundle for bundle in bundles.values()})
        tasks = [*self.train, *self.validation]
        return await race(self, bundles, tasks, against=against or Bundle(), metric=metric, rollouts=rollouts)

    async def recorded(self, tasks: Sequence[Task] | None = None) -> list[Group]:
        """The recorded runs of the train tasks (or `tasks`), scored by this experiment's rewards.

        They are those that a task was read from (`whet.tasks`), and of a task that names none those that `collect`
        recorded under this experiment's name.

        Raises:
            GateError: a gate task is among `tasks`.
        """
        chosen = self.train if tasks is None else tasks
        self._refuse_gate(chosen)
        return await self._evidence.of(chosen)

    async def evidence(self, optimizer: Optimizer) -> list[Group] | None:
        """`recorded` for a learner that takes what there is; None for others, or where there is nothing."""
        return (await self.recorded() or None) if takes_records(optimizer) else None

    def release(
        self,
        verdict: Verdict,
        *,
        to: Stage = Stage.LIVE,
        share: float | None = None,
        unit: str = "session",
        reason: str = "",
    ) -> Bundle:
        """Make live what the gate promoted; `store.rollback()` goes back, also to the agent as it came.

        Args:
            to: `shadow` or `canary` to try it first (`Store.release`, as `share` and `unit`).

        Raises:
            GateError: the Verdict promotes nothing.
            NotFoundError: neither this experiment nor its store knows the Bundle that it is about.
            InputError: the experiment has no store.
        """
        known = self._known.get(verdict.candidate)
        return release(self.store, known, verdict, to=Stage(to), share=share, unit=unit, reason=reason)
