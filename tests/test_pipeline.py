"""Rollouts beside training: none is lost when workers raise, hang or die, and none is learned from too late."""

import asyncio
import itertools
import sys
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest
from methods_toys import FAST, SMALL, WORDS, Answer, AnswerPolicy, beginning, tasks
from policy_world import TOKEN, serving

from whet.errors import BudgetExceeded, InputError, TrainingRefused
from whet.learn.experiment import Experiment
from whet.learn.loop import Context, Update
from whet.learn.optimizers.grpo import GRPO, GRPOOptions
from whet.learn.pipeline import Pipeline, PipelineOptions
from whet.learn.training import model
from whet.learn.training.alarms import AlarmOptions
from whet.learn.training.remote import RemoteModels
from whet.learn.training.serving.text import WordText
from whet.models.budget import Meter
from whet.models.vllm import VLLM
from whet.record.env import StepResult
from whet.record.policy import FunctionPolicy
from whet.record.store import Store
from whet.types import Budget, Bundle, Fault, Outcome, Split, Task, Trajectory, Version

TODO = [Task(id=str(number)) for number in range(40)]
START = Bundle([Version(resource="policy", content=0)])


def version(number):
    return Bundle([Version(resource="policy", content=number)])


async def good(bundle, task, seed):
    await asyncio.sleep(0)
    return Trajectory(task=task, seed=seed, versions=bundle.ids, outcome=Outcome.SUCCESS)


def options(**given):
    return PipelineOptions(**{"workers": 8, "group_size": 4, "groups": 4, "seconds": 20.0, **given})


def test_every_rollout_is_accounted_for_when_workers_raise_hang_and_die():
    hanging = asyncio.Event()

    async def run(bundle, task, seed):
        trouble = seed % 10
        if trouble == 0:
            raise RuntimeError("no browser")
        if trouble == 1:
            raise SystemExit(3)
        if trouble == 2:
            raise asyncio.CancelledError
        if trouble == 3:
            while True:  # deaf to its cancellation, for a while
                try:
                    await hanging.wait()
                    return await good(bundle, task, seed)
                except asyncio.CancelledError:
                    continue
        return await good(bundle, task, seed)

    async def work():
        async with Pipeline(run, TODO, START, options(seconds=0.05, attempts=2)) as pipeline:
            rounds = []
            for number in range(4):
                rounds.append(await pipeline.round())
                assert pipeline.accounts.balanced
                await pipeline.moved(version(number + 1))
            accounts = pipeline.accounts
            hanging.set()
        return rounds, accounts

    rounds, accounts = asyncio.run(work())
    every = [one for groups in rounds for group in groups for one in group.trajectories]
    assert [len(groups) for groups in rounds] == [4] * 4
    assert len(every) == accounts.learned == 4 * 4 * 4
    assert accounts.balanced
    assert accounts.running == 0
    assert min(accounts.raised, accounts.hung, accounts.died, accounts.failed) > 0
    failed = [one for one in every if one.outcome is Outcome.INFRASTRUCTURE_ERROR]
    assert failed
    assert all(one.error.fault is Fault.ENVIRONMENT and one.error.message for one in failed)
    assert Counter(one.outcome for one in every)[Outcome.SUCCESS] == len(every) - len(failed)


def test_a_worker_process_that_is_killed_costs_one_attempt():
    async def run(bundle, task, seed):
        fatal = "import os; os.kill(os.getpid(), 9)" if seed % 3 == 0 else ""
        process = await asyncio.create_subprocess_exec(sys.executable, "-S", "-E", "-c", fatal)
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        if code != 0:
            raise RuntimeError(f"the worker ended with {code}")
        return await good(bundle, task, seed)

    async def work():
        async with Pipeline(run, TODO, START, options(groups=3, attempts=8)) as pipeline:
            return await pipeline.round(), pipeline.accounts

    groups, accounts = asyncio.run(work())
    assert all(one.outcome is Outcome.SUCCESS for group in groups for one in group.trajectories)
    assert accounts.raised > 0
    assert accounts.balanced


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_nothing_is_learned_from_more_updates_later_than_allowed(limit):
    ages = []

    async def run(bundle, task, seed):
        for _ in range(seed % 40):
            await asyncio.sleep(0)
        return await good(bundle, task, seed)

    async def work():
        now = 0
        begun = {version(0)["policy"].id: 0}
        async with Pipeline(run, TODO, version(0), options(max_staleness=limit, workers=32)) as pipeline:
            for _ in range(12):
                groups = await pipeline.round()
                ages.extend(
                    now - begun[one.versions["policy"]] for group in groups for one in group.trajectories
                )
                now += 1
                begun[version(now)["policy"].id] = now
                await pipeline.moved(version(now))
        assert pipeline.accounts.balanced

    asyncio.run(work())
    assert len(ages) == 12 * 16
    assert max(ages) <= limit
    assert limit == 0 or max(ages) > 0, "nothing ran beside training at all"


def test_a_group_that_comes_too_late_is_run_again():
    late = asyncio.Event()
    runs = Counter()

    async def run(bundle, task, seed):
        runs[task.id] += 1
        if task.id == "0" and runs["0"] <= 4:
            await late.wait()
        return await good(bundle, task, seed)

    async def work():
        async with Pipeline(run, TODO, START, options(max_staleness=1, groups=2, workers=8)) as pipeline:
            seen = []
            for number in range(6):
                seen += [group.task.id for group in await pipeline.round()]
                await pipeline.moved(version(number + 1))
                if number == 1:
                    late.set()
            return seen, pipeline.accounts

    seen, accounts = asyncio.run(work())
    assert accounts.stale == 4
    assert seen.count("0") == 1
    assert runs["0"] == 8


def test_a_round_of_nothing_but_failures_refuses_with_the_first():
    async def run(bundle, task, seed):
        raise OSError("no such browser")

    async def work():
        async with Pipeline(run, TODO, START, options(attempts=1)) as pipeline:
            await pipeline.round()

    with pytest.raises(TrainingRefused, match="no such browser"):
        asyncio.run(work())
    with pytest.raises(InputError):
        PipelineOptions(workers=0)


def test_a_budget_ends_a_pipeline_and_none_is_begun_beyond_it():
    meter = Meter(Budget(rollouts=38))

    async def run(bundle, task, seed):
        meter.reserve(rollouts=1)
        return await good(bundle, task, seed)

    async def work():
        rounds = []
        async with Pipeline(run, TODO, START, options(groups=2)) as pipeline:
            with suppress(BudgetExceeded):
                for number in range(38):
                    rounds.append(await pipeline.round())
                    await pipeline.moved(version(number + 1))
        return rounds, pipeline.accounts

    rounds, accounts = asyncio.run(work())
    learned = sum(len(group.trajectories) for groups in rounds for group in groups)
    assert meter.spent["rollouts"] == 38
    assert 38 - 8 <= learned <= 36  # whole groups of four
    assert accounts.balanced


class Letters:
    """One step; the task's answer is right."""

    def reset(self, task, seed):
        self._answer = task.answer
        return task.instruction

    async def step(self, action):
        await BESIDE()
        return StepResult(None, None, True, info={"success": action == self._answer})


async def nothing_beside():
    await asyncio.sleep(0)


BESIDE = nothing_beside


def experiment(**given):
    todo = [replace(task, split=Split.TRAIN, answer="a") for task in TODO]
    fields = {"env": Letters, "policy": lambda bundle, seed: FunctionPolicy(lambda seen: "a"), "tasks": todo}
    return Experiment(**{**fields, "rewards": [], "seed": 1, **given})


class Slow:
    """Waits in its step for rollouts that end meanwhile."""

    name, group_size, on_policy, ordered = "slow", 4, True, False

    def __init__(self, experiment, learning=None, wait=True):
        self.experiment, self.learning, self.wait = experiment, learning or threading.Event(), wait
        self.meanwhile, self.seen = [], []

    async def step(self, bundle, groups, context: Context) -> Update:
        before = self.experiment.rollouts
        self.seen.append([t.id for group in groups for t in group.trajectories])
        self.learning.set()
        for _ in range(2000 if self.wait else 0):
            if self.experiment.rollouts > before or self.meanwhile:
                break
            await asyncio.sleep(0.005)
        self.meanwhile.append(self.experiment.rollouts - before)
        number = len(self.meanwhile)
        return Update(bundle=bundle.put(Version(resource="policy", content=number)), state={"number": number})


def test_rollouts_go_on_while_the_optimizer_learns(monkeypatch):
    learning, begun = threading.Event(), itertools.count(1)

    async def beside():
        if next(begun) > 4:  # the first group is whole; what comes ahead of the step would be no proof
            while not learning.is_set():
                await asyncio.sleep(0.001)

    monkeypatch.setattr(sys.modules[__name__], "BESIDE", beside)
    run = experiment()
    slow = Slow(run, learning)
    done = asyncio.run(run.improve(slow, rounds=3, asynchronous=options(groups=1, workers=2)))
    assert done.rounds == 3
    assert done.accounts.balanced
    assert done.accounts.learned == 3 * 4
    assert slow.meanwhile[0] > 0
    assert done.metrics[-1]["rollouts"] == done.rollouts >= 12


def test_what_runs_beside_training_is_budgeted_recorded_and_gone_on_from(tmp_path):
    with Store(tmp_path / "runs.db") as store:
        run = experiment(store=store)
        slow = Slow(run, wait=False)
        spent = asyncio.run(
            run.improve(slow, asynchronous=options(groups=2), budget=Budget(rollouts=21), label="small")
        )
        assert "the budget ends it" in spent.reason
        assert spent.rollouts == 21
        assert sum(map(len, slow.seen)) <= 21
        recorded = {one.id for one in store.trajectories()}
        assert {id for ids in slow.seen for id in ids} <= recorded
        first = asyncio.run(run.improve(Slow(run, wait=False), rounds=2, asynchronous=options(groups=2)))
        again = Slow(run, wait=False)
        second = asyncio.run(run.improve(again, rounds=3, asynchronous=options(groups=2)))
    assert (first.rounds, second.rounds) == (2, 3)
    assert len(again.seen) == 1, "only the round that was missing was run"
    assert second.metrics[:2] == first.metrics


def test_what_learns_from_records_asks_for_nothing_beside_it():
    class Offline(Slow):
        group_size, on_policy = 0, False

    run = experiment()
    with pytest.raises(InputError, match="learns from records"):
        asyncio.run(run.improve(Offline(run), asynchronous=options()))


def test_grpo_learns_from_a_policy_server_asynchronously(tmp_path):
    start = beginning(tmp_path)
    broken = itertools.count()

    class Breaks(Answer):
        def step(self, action):
            if next(broken) % 20 == 0:
                raise RuntimeError("one in twenty breaks")
            return super().step(action)

    async def learn(server):
        async with VLLM(f"{server.url}/v1", "policy", api_key=TOKEN) as client:
            models = RemoteModels(client, tmp_path / "handed")
            # How soon all is learned hangs on which rollouts end first; the alarm would stop the run then.
            alarms = AlarmOptions(max_no_signal=None)
            given = GRPOOptions(
                steps=30, checkpoint_every=30, kl_every=30, max_staleness=2, optim=FAST, alarms=alarms
            )
            wanted = options(workers=24, groups=6, publish=lambda bundle: models.publish(bundle["policy"]))
            run = Experiment(
                env=Breaks,
                policy=lambda bundle, seed: AnswerPolicy(models.sampler(bundle["policy"]).session(seed)),
                tasks=[
                    *(replace(task, split=Split.TRAIN) for task in tasks(60)),
                    *(replace(task, split=Split.VALIDATION) for task in tasks(20, seed=7)),
                ],
                rewards=[won],
                folder=tmp_path / "run",
            )
            ended = await run.improve(GRPO(given, models=models), bundle=start, asynchronous=wanted)
            return ended, await run.evaluate(ended.bundle, n=4), run.baseline

    with serving(model.load(tmp_path / "start"), WordText(WORDS), allowed=[tmp_path / "handed"]) as server:
        assert SMALL.max_length
        ended, groups, baseline = asyncio.run(learn(server))
    assert ended.rounds == 30
    assert ended.reason == "all 30 rounds done"
    assert 0 < baseline["success"] < 0.5, "measured by the experiment itself, before the first round"
    assert ended.accounts.balanced
    assert ended.accounts.raised > 0
    assert all(round["staleness"] <= 2 for round in ended.metrics)
    assert max(round["staleness"] for round in ended.metrics) > 0
    every = [t.outcome for group in groups for t in group.trajectories if t.outcome.counts]
    assert every.count(Outcome.SUCCESS) / len(every) > 0.5, "a policy that guesses is right once in four"


def won(trajectory):
    return trajectory.outcome is Outcome.SUCCESS


won.__name__ = "success"


@pytest.mark.parametrize("tempo", [1, 2])
def test_without_staleness_a_round_is_the_same_however_long_its_rollouts_take(tempo):
    """The seeds and the order of what is learned from hang on nothing but the seed of the run."""

    async def run(bundle, task, seed):
        await asyncio.sleep(0.001 * (seed * tempo % 7))
        return Trajectory(task=task, seed=seed, versions=bundle.ids, outcome=Outcome.SUCCESS)

    async def work():
        learned = []
        async with Pipeline(run, TODO, version(0), options(max_staleness=0, workers=5)) as pipeline:
            for number in range(3):
                groups = await pipeline.round()
                learned.append([(group.task.id, [t.seed for t in group.trajectories]) for group in groups])
                assert {t.versions["policy"] for group in groups for t in group.trajectories} == {
                    pipeline.bundle["policy"].id
                }
                await pipeline.moved(version(number + 1))
        return learned, pipeline.accounts.stale

    learned, stale = asyncio.run(work())
    assert stale == 0
    assert [[task for task, _ in groups] for groups in learned] == [
        [str(number) for number in range(first, first + 4)] for first in (0, 4, 8)
    ]
    again, _ = asyncio.run(work())
    assert learned == again


def learned_beside(tmp_path, way, seed):
    """Success on new tasks after some rounds against a policy server, and the mean staleness of the rounds."""
    folder = tmp_path / f"{way}-{seed}"
    start = beginning(folder)

    async def learn(server):
        async with VLLM(f"{server.url}/v1", "policy", api_key=TOKEN) as client:
            models = RemoteModels(client, folder / "handed")
            chance = way == "shuffled"
            given = GRPOOptions(
                steps=12,
                checkpoint_every=12,
                kl_every=12,
                optim=FAST,
                score="chance" if chance else None,
                alarms=AlarmOptions(max_no_signal=None),
            )
            todo = [
                *(replace(task, split=Split.TRAIN) for task in tasks(40, seed=seed)),
                *(replace(task, split=Split.VALIDATION) for task in tasks(30, seed=50 + seed)),
            ]
            run = Experiment(
                env=Answer,
                policy=lambda bundle, seed: AnswerPolicy(models.sampler(bundle["policy"]).session(seed)),
                tasks=todo,
                rewards=[won, by_chance],
                folder=folder / "run",
                seed=seed,
            )
            run.baseline = {"success": 0.25}
            beside = options(
                workers=24,
                groups=6,
                max_staleness=1,
                seed=seed,
                publish=lambda bundle: models.publish(bundle["policy"]),
            )
            ended = await run.improve(
                GRPO(given, models=models),
                bundle=start,
                tasks=6,
                asynchronous=None if way == "barrier" else beside,
            )
            return ended, await run.evaluate(ended.bundle, n=3)

    with serving(model.load(folder / "start"), WordText(WORDS), allowed=[folder / "handed"]) as server:
        ended, groups = asyncio.run(learn(server))
    every = [t.outcome for group in groups for t in group.trajectories]
    stale = sum(row.get("staleness", 0.0) for row in ended.metrics) / len(ended.metrics)
    return every.count(Outcome.SUCCESS) / len(every), stale


def by_chance(trajectory):
    return int(trajectory.id, 16) % 1000 / 1000


by_chance.__name__ = "chance"


def test_rollouts_beside_training_reach_what_a_barrier_reaches_and_a_shuffled_reward_does_not(tmp_path):
    barrier, beside = (
        [learned_beside(tmp_path, way, seed) for seed in range(3)] for way in ("barrier", "beside")
    )
    assert all(stale > 0 for _, stale in beside), "they were sampled ahead"
    means = [sum(success for success, _ in runs) / 3 for runs in (barrier, beside)]
    assert min(means) > 0.55, "a policy that guesses is right once in four"
    assert abs(means[0] - means[1]) < 0.25
    assert learned_beside(tmp_path, "shuffled", 0)[0] < 0.5
