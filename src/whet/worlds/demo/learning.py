"""The learners of the main job, each as a stage, on one record and one budget of rollouts.

      rule    evolve tunes the agent's rule and parser, scored by the checker; and by the judge
      head    a classifier decides what to accept, from users' thumbs alone; it is the judge too
      cloned  a small policy copies the better agents' successful work
      trained multi-turn GRPO improves the copy, scored by the checker; and by the judge
      route   a table sends each question to one of them

A learner that refuses, because its record teaches nothing, ends the job no more than one that
learns nothing: its line is the agent that it started from, and the report says why.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

from ...errors import TrainingRefused
from ...judge import Reward
from ...learn.experiment import Experiment
from ...learn.loop import means
from ...learn.optimizers.evolve import Evolve, EvolveOptions
from ...learn.optimizers.grpo import GRPO, GRPOOptions
from ...learn.optimizers.head import Head, HeadOptions
from ...learn.optimizers.route import Route
from ...learn.optimizers.sft import SFT, SFTOptions
from ...learn.training.local import fresh
from ...learn.training.optim import OptimOptions
from ...models.heads import Decided, judge
from ...record.tracing import using
from ...types import Budget, Bundle, Group, Json, Task, Trajectory, Version
from ..email import Inbox
from ..email.slots import TOKENS
from . import scoring
from .job import MailJob, stored
from .stages import DemoStage
from .teachers import calls_of, lessons, searched

NEEDS = {"rule": "rule", "head": "decide", "policy": "policy"}
"""Arm → the resource without which a Bundle is not that agent."""
TEMPERATURES = (0.0, 0.4, 0.7, 1.0)
"""Decodings that are compared on validation; 0 is greedy."""

# With `lacks_own`, which leaves out quoted text, .903 success and .047 hallucination became .911 and .041.
MONOTONE = {"lacks": -1, "lacks_own": -1, "missing": -1, "title": 1, "sender": 1, "month": 1, "in_subject": 1}
"""Feature of a mail → 1 or -1: what can only speak for it, or only against it."""


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One line of the table."""

    name: str
    learns_from: str
    bundle: Bundle
    rollouts: int = 0
    """New attempts that it made."""
    seconds: float = 0.0
    metrics: Sequence[Mapping[str, float]] = ()
    note: str = ""


def opened(bundle: Bundle, *, hasty: bool = False) -> Bundle:
    """The agent with its accept rule opened, so that thumbs also cover mails that it would have refused.

    Args:
        hasty: it takes the first mail that gives any answer, not the one that fits best.
    """
    rule = {**bundle["rule"].content, "lacks": 0.9, "title": 0.0, "one_value": False, "same_sender": False}
    return bundle.put(Version(resource="rule", content={**rule, "sure": 0.9} if hasty else rule))


# Success and hallucination of the head: 880 thumbs gave .911/.041, every question asked of the tuned and of
# the opened rule .916/.033, of the hasty one as well .920/.030.
LATER = ("later users", "later users, rule opened", "later users, hasty rule")
"""Whom the head learns from: the tuned agent's users, and as many who meet its rule opened, in two ways.

Not the old agent's: it read the questions differently, which cost the head four points."""


class Learning:
    """The learners' stages and what each came to."""

    def __init__(self, job: MailJob) -> None:
        self.job, self.sizes = job, job.options.sizes
        self.learners: dict[str, TableRow] = {}
        self.asked_of: dict[str, Mapping[str, Any]] = {}
        """Stage → the runs that users asked for in it, and how many of them got a thumb."""
        self._notes: dict[str, str] = {}
        base = job.base
        self._add("weak", "nothing: as it came", base)
        self._add("naive", "nothing: BM25, first result", base.put(Version(resource="arm", content="naive")))

    @property
    def checked(self) -> Experiment:
        """The job's questions, scored by the checker."""
        return self.job.checked

    def stages(self) -> dict[str, DemoStage]:
        """Every stage by name, what has to be done first before what can wait."""

        def on(*needs: str, then: Callable[..., Awaitable[object]]) -> DemoStage:
            return DemoStage(lambda: then(*(self.learners[name].bundle for name in needs)), needs)

        users = self.job.material.users[: self.sizes.users]
        return {
            "users": DemoStage(lambda: self.asked("users", self.job.base, users)),
            "rule": DemoStage(
                lambda: self.evolved("rule", self.checked, "success", "the checker"), needs=("users",)
            ),
            **{name: on("rule", then=partial(self.asked_later, name)) for name in LATER},
            "head": DemoStage(self.head, needs=LATER),
            "cloned": on("rule", "head", then=self.cloned),
            "rule (judge)": DemoStage(self.evolved_by_judge, needs=("head",)),
            "trained": on("cloned", then=self.trained),
            "trained (judge)": DemoStage(self.trained_by_judge, needs=("cloned",)),
            "route": on("rule", "head", "trained", then=self.routed),
        }

    def say(self, stage: str, note: str) -> None:
        """Have the report say this of a stage."""
        self._notes[stage] = note

    def notes(self) -> list[str]:
        """The notes for the report, in the order of the stages, whichever ended first."""
        order = {name: index for index, name in enumerate(self.stages())}
        return [
            self._notes[name] for name in sorted(self._notes, key=lambda name: order.get(name, len(order)))
        ]

    async def _learned(
        self, name: str, start: Bundle, work: Callable[[], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        """The stage's result; `start` unchanged, with the reason, if the learner refuses."""

        async def tried() -> dict[str, Any]:
            try:
                return await work()
            except TrainingRefused as refused:
                return {"bundle": list(start.values()), "metrics": [], "rollouts": 0, "refused": str(refused)}

        result = await self.job.stage(name, tried)
        if "refused" in result:
            self.say(name, f"{name} learned nothing: {result['refused']}")
        return result

    def _add(
        self, name: str, learns_from: str, bundle: Bundle, result: Mapping[str, Any] | None = None
    ) -> Bundle:
        figures = result or {}
        self.learners[name] = TableRow(
            name=name,
            learns_from=learns_from,
            bundle=bundle,
            rollouts=figures.get("rollouts", 0),
            seconds=self.job.timings[name]["seconds"] if result else 0.0,
            metrics=figures.get("metrics", ()),
            note=figures.get("reason", ""),
        )
        return bundle

    async def asked(self, name: str, bundle: Bundle, tasks: Sequence[Task]) -> None:
        """Users ask, the agent answers, some of them rate."""

        async def ask() -> dict[str, Json]:
            groups = await self.checked.collect(bundle, tasks, seed=len(tasks))
            runs = [run for group in groups for run in group.trajectories]
            thumbs = [thumb for run in runs if (thumb := self.job.users.thumb(run))]
            self.job.store.add_feedback(*thumbs)
            self.job.progress(name, len(runs), len(runs), thumbs=len(thumbs))
            return {"runs": [run.id for run in runs], "thumbs": len(thumbs)}

        self.asked_of[name] = await self.job.stage(name, ask)

    async def asked_later(self, name: str, rule: Bundle) -> None:
        """One of LATER."""
        agents = dict(zip(LATER, (rule, opened(rule), opened(rule, hasty=True)), strict=True))
        await self.asked(name, agents[name], self.job.material.users[-self.sizes.later_users :])

    async def later(self, rule: Bundle) -> list[Group]:
        """The record that the head learns from, read back from the store."""
        for name in LATER:
            await self.asked_later(name, rule)
        return [group for name in LATER for group in self.job.recall(self.asked_of[name]["runs"])]

    async def head(self) -> Bundle:
        """The tuned rule's agent with the head that the thumbs teach."""
        rule = self.learners["rule"].bundle

        async def learn() -> dict[str, Any]:
            return await self.headed(rule, await self.later(rule))

        result = await self._learned("head", rule, learn)
        thumbs = sum(self.asked_of[name]["thumbs"] for name in LATER)
        if "decide" not in result["bundle"]:
            self.say("rule (judge)", "there is no judge: the thumbs taught the head nothing")
        return self._add("head", f"{thumbs} thumbs", result["bundle"], result)

    @staticmethod
    def head_learner(rule: Bundle) -> tuple[Head, Bundle]:
        """The head's learner, and its start: the tuned rule's agent, reading one mail further."""
        options = HeadOptions(
            key="seen",
            unknowns="ignore",
            # What the tuned rule refuses outright, no thumb has said anything about.
            at_least={"values": 1, "title": rule["rule"].content["title"]},
            monotone=MONOTONE,
        )
        # One mail further: a third one brought no success and more hallucination (.911/.044 for .911/.041).
        reading = rule.put(Version(resource="rule", content={**rule["rule"].content, "read": 2}))
        return Head("decide", options), reading

    async def headed(self, rule: Bundle, record: Sequence[Group]) -> dict[str, Any]:
        """The stage's result: a learned head in the tuned rule's agent.

        Raises:
            TrainingRefused: the record teaches it nothing.
        """
        learner, reading = self.head_learner(rule)
        improvement = await self.checked.improve(learner, bundle=reading, groups=record, label="head")
        if "decide" not in improvement.bundle:
            raise TrainingRefused(improvement.reason)  # reading further is for the head alone
        return stored(improvement)

    def judged(self) -> Experiment | None:
        """The job's questions, scored by the head as judge too; None where the thumbs taught it nothing."""
        head = self.learners["head"].bundle
        if "decide" not in head:
            return None
        return self.job.experiment("-judged", [*scoring.REWARDS, *self._judge_rewards(head["decide"])])

    def _judge_rewards(self, version: Version) -> list[Reward]:
        judged = judge(version, read=self._decided)

        def judge_reward(trajectory: Trajectory) -> float | None:
            """The judge's probability on the scale of the training reward: sure 1, never -1, a turn .02."""
            value, turns = judged(trajectory).value, scoring.turns(trajectory)
            return None if value is None or turns is None else 2 * value - 1 - 0.02 * turns

        return [judged, judge_reward]

    def _decided(self, trajectory: Trajectory) -> Decided | None:
        """The mails that any of the agents had read when it decided, as the outside agent weighs them."""
        agent, inbox = self.job.agents.agent, self.job.material.world.inbox(trajectory.task)
        with using(self.learners["head"].bundle):  # as the judge reads, whoever is judged
            return self._weighed(trajectory, agent, inbox)

    @staticmethod
    def _weighed(trajectory: Trajectory, agent: ModuleType, inbox: Inbox) -> Decided:
        clues = agent.parse(trajectory.task.instruction, agent.PARSER)
        results: list[Any] = []
        weights: list[dict[str, float]] = []
        ids: list[str] = []
        for call in calls_of(trajectory):
            if call["tool"] == "search":
                results = searched(inbox, call)
            elif call["tool"] == "read" and call["id"] not in ids:
                rank = next((k for k, hit in enumerate(results) if hit.id == call["id"]), None)
                if rank is not None:
                    weights.append(agent.weigh(clues, inbox.read(call["id"]), inbox, rank, results))
                    ids.append(call["id"])
            elif call["tool"] == "answer":
                return Decided(weights, ids.index(call["id"]) if call["id"] in ids else None)
        return Decided(weights, None)

    def search(self, resources: Sequence[str], score: str) -> Evolve:
        """The knob search of these resources, in this job's sizes."""
        domains = {name: target.domains for name, target in self.job.targets().items() if name in resources}
        options = EvolveOptions(
            generations=self.sizes.generations,
            tasks=self.sizes.searched,
            # So many that the budget is good for about sixteen generations.
            children=max(8, self.sizes.rollouts // 600),
        )
        return Evolve(tuple(resources), score, domains=domains, options=options)

    async def evolved(self, name: str, experiment: Experiment, score: str, source: str) -> Bundle:
        """The tuned rule and parser, by that score of the experiment."""

        async def search() -> dict[str, Any]:
            optimizer = self.search(("rule", "parser"), score)
            improvement = await experiment.improve(
                optimizer,
                bundle=self.job.base,
                rounds=self.sizes.generations,
                budget=Budget(rollouts=self.sizes.rollouts),
                label=name,
            )
            return stored(improvement)

        result = await self._learned(name, self.job.base, search)
        return self._add(name, source, result["bundle"], result)

    async def evolved_by_judge(self) -> None:
        """The rule and parser as tuned without a checker."""
        if judged := self.judged():
            await self.evolved("rule (judge)", judged, "judge", "the head as judge")

    async def cloned(self, rule: Bundle, head: Bundle) -> Bundle:
        """The policy that copies both, with its best decoding."""

        async def clone() -> dict[str, Any]:
            tasks = self.job.material.users[: self.sizes.cloned]
            groups = await self.checked.collect(head, tasks, seed=1)
            # The careful agent and the plain one, half of each: variety is what the rewards will need.
            groups += await self.checked.collect(rule, tasks[: len(tasks) // 2], seed=2)
            taught = lessons(groups, self.job.material.world, self.job.agents.agent, rule)
            folder = self.checked.folder / "fresh"
            shutil.rmtree(
                folder, ignore_errors=True
            )  # of a job that was stopped here; the seed makes it again
            seed = self.job.options.seed
            start = rule.put(
                fresh("policy", folder, vocab_size=len(TOKENS), seed=seed),
                Version(resource="arm", content="policy"),
            )
            options = SFTOptions(score="success", epochs=4, seed=seed, optim=OptimOptions(learning_rate=3e-3))
            improvement = await self.checked.improve(
                SFT(options, models=self.job.models), bundle=start, groups=taught, label="cloned"
            )
            bundle, decoding = await self._decoded(improvement.bundle)
            return stored(replace(improvement, bundle=bundle, rollouts=len(groups)), decoding=decoding)

        result = await self._learned("cloned", rule, clone)
        return self._add("cloned", "the head's and the rule's successful work", result["bundle"], result)

    async def _decoded(self, bundle: Bundle) -> tuple[Bundle, dict[str, float]]:
        """The bundle with the decoding that does best on validation, and what each came to."""
        tried: dict[str, float] = {}
        best: tuple[float, Bundle] | None = None
        for temperature in TEMPERATURES:
            candidate = bundle.put(Version(resource="decoding", content={"temperature": temperature}))
            success = means(await self.checked.evaluate(candidate))["success"]
            tried[str(temperature)] = success
            if best is None or success > best[0]:
                best = success, candidate
        assert best is not None
        return best[1], tried

    async def trained(self, cloned: Bundle) -> None:
        """The policy after GRPO on the checker's rewards."""
        await self._trained("trained", self.checked, "reward", cloned, "the checker")

    async def trained_by_judge(self) -> None:
        """The policy after GRPO on the judge's rewards."""
        if judged := self.judged():
            cloned = self.learners["cloned"].bundle
            await self._trained("trained (judge)", judged, "judge_reward", cloned, "the head as judge")

    async def _trained(
        self, name: str, experiment: Experiment, score: str, cloned: Bundle, source: str
    ) -> Bundle:
        async def train() -> dict[str, Any]:
            if "policy" not in cloned:
                raise TrainingRefused("nothing was cloned, so there is no policy to reinforce")
            await experiment.record_baseline(cloned)

            async def validated(bundle: Bundle) -> float:
                greedy = bundle.put(Version(resource="decoding", content={"temperature": 0.0}))
                return means(await self.checked.evaluate(greedy))["success"]

            options = GRPOOptions(
                score=score, steps=self.sizes.grpo, unknown="unknown", seed=self.job.options.seed
            )
            sampled = cloned.put(Version(resource="decoding", content={"temperature": 1.0}))
            improvement = await experiment.improve(
                GRPO(options, models=self.job.models, validate=validated),
                bundle=sampled,
                rounds=options.steps,
                tasks=self.sizes.grpo_tasks,
                budget=Budget(rollouts=self.sizes.rollouts),
                label=name,
            )
            bundle, decoding = await self._decoded(improvement.bundle)
            return stored(replace(improvement, bundle=bundle), decoding=decoding)

        result = await self._learned(name, cloned, train)
        return self._add(name, source, result["bundle"], result)

    async def routed(self, rule: Bundle, head: Bundle, trained: Bundle) -> None:
        """The table that sends each question to one of these."""

        async def route() -> dict[str, Any]:
            arms = {"rule": rule, "head": head, "policy": trained}
            arms = {arm: bundle for arm, bundle in arms.items() if NEEDS[arm] in bundle}
            tasks = self.job.material.users[-self.sizes.routed :]
            runs: dict[str, list[Trajectory]] = {task.id: [] for task in tasks}
            for arm, bundle in arms.items():
                for group in await self.checked.collect(bundle, tasks, seed=3):
                    runs[group.task.id] += [replace(run, meta={"arm": arm}) for run in group.trajectories]
            groups = [Group(task, tuple(runs[task.id])) for task in tasks]
            combined = head.put(
                *(version for version in trained.values() if version.resource in ("policy", "decoding"))
            )
            features = lambda task: self.job.agents.features(task, combined)  # noqa: E731
            improvement = await self.checked.improve(
                Route(tuple(arms), features), bundle=combined, groups=groups, label="route"
            )
            return stored(replace(improvement, rollouts=len(arms) * len(tasks)))

        result = await self._learned("route", head, route)
        self._add("route", "outcomes of the three on the same questions", result["bundle"], result)
        if "reason" in result:
            self.say("route", result["reason"])
