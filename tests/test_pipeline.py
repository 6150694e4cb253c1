"""Rollouts beside training: none is lost when workers raise, hang or die, and none is learned from too late."""

import asyncio
import itertools
import sys
import threading
from collections import Counter

import pytest
from methods_toys import FAST, SMALL, WORDS, Answer, AnswerPolicy, beginning, context, success, tasks
from policy_world import TOKEN, serving

from whet.env import rollout
from whet.errors import InputError, TrainingRefused
from whet.loop import Context, Update
from whet.models.vllm import VLLM
from whet.optimizers.grpo import GRPO, GRPOOptions
from whet.pipeline import Pipeline, PipelineOptions, train
from whet.training import model
from whet.training.remote import RemoteModels
from whet.training.serving.text import WordText
from whet.types import Bundle, Fault, Outcome, Task, Trajectory, Version

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


def test_rollouts_go_on_while_the_optimizer_learns():
    finished_while_learning, learning, begun = [], threading.Event(), itertools.count(1)

    async def run(bundle, task, seed):
        if next(begun) > 4:  # the first group is whole; what comes ahead of the step would be no proof
            while not learning.is_set():
                await asyncio.sleep(0.001)
        return await good(bundle, task, seed)

    class Slow:
        name, group_size, on_policy, ordered = "slow", 4, True, False

        async def step(self, bundle, groups, context: Context) -> Update:
            before = pipeline.accounts.finished
            learning.set()
            for _ in range(2000):
                if pipeline.accounts.finished > before or finished_while_learning:
                    break
                await asyncio.sleep(0.005)
            finished_while_learning.append(pipeline.accounts.finished - before)
            return Update(bundle=bundle)

    async def work():
        nonlocal pipeline
        async with Pipeline(run, TODO, START, options(groups=1, workers=2)) as pipeline:
            return await train(Slow(), pipeline, lambda number, state: context_of(state), rounds=3)

    def context_of(state):
        return Context(rollout=None, state=state)

    pipeline = None
    done = asyncio.run(work())
    assert done.rounds == 3
    assert done.accounts.balanced
    assert finished_while_learning[0] > 0


def test_grpo_learns_from_a_policy_server_asynchronously(tmp_path):
    start = beginning(tmp_path)

    async def learn(server):
        async with VLLM(f"{server.url}/v1", "policy", api_key=TOKEN) as client:
            models = RemoteModels(client, tmp_path / "handed")
            await models.publish(start["policy"])

            async def run(bundle, task, seed):
                if seed % 20 == 0:
                    raise RuntimeError("one in twenty breaks")
                policy = AnswerPolicy(models.sampler(bundle["policy"]).session(seed))
                return await rollout(Answer(), policy, task, seed=seed, versions=bundle.ids)

            given = GRPOOptions(steps=12, checkpoint_every=12, kl_every=12, max_staleness=2, optim=FAST)
            wanted = options(workers=24, group_size=8, groups=6)
            async with Pipeline(run, tasks(60), start, wanted) as pipeline:
                ended = await train(
                    GRPO(given, models=models),
                    pipeline,
                    lambda number, state: context(tmp_path / "run", state=state),
                    rounds=12,
                    publish=lambda bundle: models.publish(bundle["policy"]),
                )
                groups = await pipeline.round()
            return ended, groups

    with serving(model.load(tmp_path / "start"), WordText(WORDS), allowed=[tmp_path / "handed"]) as server:
        assert SMALL.max_length
        ended, groups = asyncio.run(learn(server))
    assert ended.rounds == 12
    assert ended.accounts.balanced
    assert ended.accounts.raised > 0
    assert all(round["staleness"] <= 2 for round in ended.metrics)
    assert max(round["staleness"] for round in ended.metrics) > 0
    assert success(groups) > 0.5, "a policy that guesses is right once in eight"
