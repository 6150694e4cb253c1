"""The learners of the main job, one after the other on one record and one budget of rollouts.

    weak agent → users' thumbs → a judge
      rule    evolve tunes the agent's rule and parser, scored by the checker; and by the judge
      head    a classifier decides what to accept, from the thumbs alone
      cloned  a small policy copies the better agents' successful work
      trained multi-turn GRPO improves the copy, scored by the checker; and by the judge
      route   a table sends each question to one of them
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..envs.email.slots import TOKENS
from ..errors import TrainingRefused
from ..heads import Decided, judge
from ..loop import Experiment, means
from ..optimizers.evolve import Evolve, EvolveOptions
from ..optimizers.grpo import GRPO, GRPOOptions
from ..optimizers.head import Head, HeadOptions
from ..optimizers.route import Route
from ..optimizers.sft import SFT, SFTOptions
from ..training.local import fresh
from ..training.optim import OptimOptions
from ..types import Budget, Bundle, Group, Json, Split, Task, Trajectory, Version
from . import scoring
from .agents import parsed
from .teachers import calls_of, lessons

if TYPE_CHECKING:
    from .job import Job

TEMPERATURES = (0.0, 0.4, 0.7, 1.0)
"""Decodings that are compared on validation; 0 is greedy."""


@dataclass(frozen=True, kw_only=True)
class Learner:
    """One line of the table."""

    name: str
    learns_from: str
    bundle: Bundle
    rollouts: int = 0
    """New attempts that it made."""
    seconds: float = 0.0
    metrics: Sequence[Mapping[str, float]] = ()
    note: str = ""


class Learning:
    """Runs the learners and keeps what each came to."""

    def __init__(self, job: Job) -> None:
        self.job, self.sizes = job, job.options.sizes
        self.checked: Experiment = job.checked
        self.learners: dict[str, Learner] = {}
        self.notes: list[str] = []

    async def run(self) -> Learning:
        """Every stage; what has been done before comes from the store."""
        base = self.job.base
        self._add("weak", "nothing: as it came", base)
        self._add("naive", "nothing: BM25, first result", base.put(Version(resource="arm", content="naive")))
        first = await self._asked("users", base, self.job.material.users[: self.sizes.users])
        self.judge = (await self.job.stage("judge", lambda: self._head(base, first, "judge")))["bundle"]
        judged = self.job._experiment("-judged", [*scoring.REWARDS, self._judge_reward()])
        await self._evolved("rule (judge)", judged, "judge", "the judge made of thumbs")
        rule = await self._evolved("rule", self.checked, "success", "the checker")
        later = self.job.material.users[-self.sizes.later_users :]
        second = await self._asked("later users", rule, later)
        result = await self.job.stage("head", lambda: self._head(rule, second, "head", first))
        head = result["bundle"]
        self._add("head", f"{result['labels']} thumbs", head, result)
        cloned = await self._cloned(rule, head)
        await self._trained("trained (judge)", judged, "judge_reward", cloned, "the judge made of thumbs")
        trained = await self._trained("trained", self.checked, "reward", cloned, "the checker")
        await self._routed(head, trained)
        return self

    def _add(
        self, name: str, learns_from: str, bundle: Bundle, result: Mapping[str, Any] | None = None
    ) -> Bundle:
        found = result or {}
        self.learners[name] = Learner(
            name=name,
            learns_from=learns_from,
            bundle=bundle,
            rollouts=found.get("rollouts", 0),
            seconds=self.job.timings[-1]["seconds"] if result else 0.0,
            metrics=found.get("metrics", ()),
            note=found.get("reason", ""),
        )
        return bundle

    async def _asked(self, name: str, bundle: Bundle, tasks: Sequence[Task]) -> list[Group]:
        """Users ask, the agent answers, some of them rate; read back from the store if it has happened."""

        async def ask() -> dict[str, Json]:
            groups = await self.checked.collect(bundle, tasks, seed=len(tasks))
            runs = [run for group in groups for run in group.trajectories]
            thumbs = [thumb for run in runs if (thumb := self.job.users.thumb(run))]
            self.job.store.add_feedback(*thumbs)
            self.job.progress(name, len(runs), len(runs), thumbs=len(thumbs))
            return {"runs": [run.id for run in runs], "thumbs": len(thumbs)}

        asked = await self.job.stage(name, ask)
        by_id = {run.id: run for run in self.job.store.trajectories(ids=asked["runs"])}
        return [Group(by_id[id].task, (by_id[id],)) for id in asked["runs"]]

    async def _head(
        self, bundle: Bundle, groups: Sequence[Group], label: str, earlier: Sequence[Group] = ()
    ) -> dict[str, Any]:
        from .job import stored

        options = HeadOptions(at_least={"values": 1}, key="seen", unknowns="up")
        recorded = [*earlier, *groups]
        improvement = await self.checked.improve(
            Head("decide", options), bundle=bundle, groups=recorded, label=label
        )
        labels = sum(bool(run.feedback) for group in recorded for run in group.trajectories)
        return stored(improvement, labels=labels)

    def _judge_reward(self) -> Any:
        version = self.judge["decide"] if "decide" in self.judge else None
        if version is None:
            raise TrainingRefused("the first thumbs teach no judge; ask more users (Sizes.users)")
        return judge(version, read=self._decided)

    def _decided(self, trajectory: Trajectory) -> Decided | None:
        """What any of the agents had read when it decided, as the outside agent weighs it."""
        agent, inbox = self.job.agents.agent, self.job.material.world.inbox(trajectory.task)
        clues = parsed(agent, trajectory.task.instruction, self.learners["rule"].bundle if "rule" in self.learners else self.job.base)
        results: list[Any] = []
        seen: list[dict[str, float]] = []
        ids: list[str] = []
        for call in calls_of(trajectory):
            if call["tool"] == "search":
                given = {name: call[name] for name in ("sender", "month") if call.get(name)}
                results = inbox.search(call["words"], match=call.get("match", "all"), **given)
            elif call["tool"] == "read" and call["id"] not in ids:
                place = next((k for k, hit in enumerate(results) if hit.id == call["id"]), None)
                if place is not None:
                    seen.append(agent.weigh(clues, inbox.read(call["id"]), inbox, place, results))
                    ids.append(call["id"])
            elif call["tool"] == "answer":
                return Decided(seen, ids.index(call["id"]) if call["id"] in ids else None)
        return Decided(seen, None)
