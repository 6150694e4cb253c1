"""GRPO's variants, RLOO, REINFORCE, PPO and A2C: they learn, and nothing where there is nothing to learn.

Every method on three seeds, with its control, is `scripts/claims training`.
"""

import asyncio
import math
from dataclasses import replace

import msgspec
import pytest
import torch
from methods_toys import (
    FAST,
    WORDS,
    beginning,
    collect,
    context,
    measured,
    rounds,
    shuffled,
    tasks,
)

from whet.errors import InputError, TrainingRefused
from whet.learn.optimizers.awr import AWR, AWROptions
from whet.learn.optimizers.grpo import GRPO, GRPOOptions
from whet.learn.optimizers.ppo import PPO, A2COptions, PPOOptions
from whet.learn.optimizers.reinforce import REINFORCE, REINFORCEOptions
from whet.learn.optimizers.rloo import RLOO, RLOOOptions
from whet.learn.training.actor_critic import ActorCriticOptions, Episode, estimate
from whet.learn.training.alarms import AlarmOptions
from whet.learn.training.assignment import decompose
from whet.learn.training.batch import merge
from whet.learn.training.credit import credit
from whet.learn.training.local import LocalModels
from whet.learn.training.losses import gae, value_loss, whiten
from whet.learn.training.network import ScalarHead
from whet.learn.training.optim import OptimOptions
from whet.types import Group, Outcome, Score, Step, Task, Tokens, Trajectory

NEVER = AlarmOptions(success_drop=None, min_entropy=None, max_no_signal=None)
SLOWER = OptimOptions(learning_rate=1e-2, schedule="constant")
SHARED = {"steps": 22, "checkpoint_every": 22, "alarms": NEVER}
METHODS = {
    "grpo": lambda models: GRPO(GRPOOptions(optim=FAST, **SHARED), models=models),
    "paper": lambda models: GRPO(GRPOOptions.paper(optim=FAST, **SHARED), models=models),
    "dr_grpo": lambda models: GRPO(GRPOOptions.dr_grpo(1, optim=FAST, **SHARED), models=models),
    "gspo": lambda models: GRPO(GRPOOptions.gspo(optim=FAST, **SHARED), models=models),
    "rloo": lambda models: RLOO(RLOOOptions(optim=FAST, **SHARED), models=models),
    "reinforce": lambda models: REINFORCE(REINFORCEOptions(optim=FAST, **SHARED), models=models),
    "ppo": lambda models: PPO(
        PPOOptions(optim=SLOWER, **SHARED, passes=3, entropy_bonus=0.03), models=models
    ),
    "a2c": lambda models: PPO(A2COptions(optim=FAST, **SHARED), models=models),
}


async def trained(name, folder, seed, **options):
    models = LocalModels()
    start = beginning(folder, seed)
    before = await measured(start, models)
    update, _ = await rounds(METHODS[name](models), start, folder, models, count=22, seed=seed, **options)
    return before, await measured(update.bundle, models), update


@pytest.mark.parametrize(
    ("name", "seed"),
    [("grpo", 0), ("rloo", 0), ("reinforce", 1), ("ppo", 0), ("a2c", 0)],
)
def test_a_method_learns_what_each_digit_wants(name, seed, tmp_path):
    before, after, _ = asyncio.run(trained(name, tmp_path, seed))
    assert before <= 0.3
    assert after >= 0.9


@pytest.mark.parametrize("name", ["paper", "dr_grpo", "gspo"])
def test_grpos_named_variants_learn_too(name, tmp_path):
    before, after, _ = asyncio.run(trained(name, tmp_path, 0))
    assert before <= 0.3
    assert after >= 0.85


@pytest.mark.parametrize("name", ["grpo", "reinforce", "ppo"])
def test_a_method_learns_nothing_from_each_others_rewards(name, tmp_path):
    _, after, _ = asyncio.run(trained(name, tmp_path, 0, relabel=shuffled))
    assert after <= 0.4


def test_ppo_resumes_to_the_same_bits_value_head_included(tmp_path):
    async def run(folder, stop):
        models, start = LocalModels(), beginning(tmp_path / folder)
        options = PPOOptions(steps=4, checkpoint_every=2, optim=SLOWER, value_width=8, minibatch=16)
        optimizer, bundle, state = PPO(options, models=models), start, None
        for number in range(4):
            if number == stop:  # a new process would have nothing but the bundle and the state
                models, state = LocalModels(), msgspec.json.decode(msgspec.json.encode(state))
                optimizer = PPO(options, models=models)
            groups = await collect(bundle, tasks(8, number), 2, models=models, seed=number)
            update = await optimizer.step(bundle, groups, context(tmp_path / folder, state=state))
            bundle, state = update.bundle, update.state
        return update

    straight, resumed = asyncio.run(run("a", None)), asyncio.run(run("b", 2))
    assert straight.bundle["policy"].id == resumed.bundle["policy"].id
    assert straight.metrics == resumed.metrics


def test_gae_is_monte_carlo_at_one_and_temporal_difference_at_zero():
    rewards, values = [1.0, 0.0, 2.0], [0.5, 1.0, -0.3]
    advantages, returns = gae(rewards, values, gamma=0.9, lam=1.0)
    monte_carlo = [1.0 + 0.9**2 * 2.0, 0.9 * 2.0, 2.0]
    assert returns == pytest.approx(monte_carlo)
    assert advantages == pytest.approx([r - v for r, v in zip(monte_carlo, values, strict=True)])
    advantages, _ = gae(rewards, values, gamma=0.9, lam=0.0, last_value=4.0)
    assert advantages == pytest.approx([1.0 + 0.9 * 1.0 - 0.5, 0.9 * -0.3 - 1.0, 2.0 + 0.9 * 4.0 + 0.3])


def test_the_value_loss_is_clipped_the_pessimistic_way():
    values, old, returns = torch.tensor([1.0, 0.1]), torch.tensor([0.0, 0.0]), torch.tensor([1.0, 1.0])
    assert value_loss(values, old, returns, clip=0.2).tolist() == pytest.approx([0.5 * 0.8**2, 0.5 * 0.9**2])
    assert value_loss(values, old, returns, clip=None).tolist() == pytest.approx([0.0, 0.5 * 0.9**2])
    assert whiten(torch.tensor([3.0, 3.0])).tolist() == [0.0, 0.0]


def calls(*tokens, outcome=Outcome.FAILURE, rewards=(), agents=()):
    """A trajectory whose steps wrote these ids, one call each, on one growing context."""
    steps, ids = [], [WORDS.bos]
    for number, token in enumerate(tokens):
        written = None if token is None else Tokens(tuple(ids), (token,), (-1.0,))
        reward = rewards[number] if rewards else None
        agent = agents[number] if agents else ""
        steps.append(Step(action=token, tokens=written, reward=reward, agent=agent))
        ids = ids if token is None else [*ids, token]
    return Trajectory(task=Task(id="t"), steps=steps, outcome=outcome)


def estimated(trajectory, folder, *, bias=0.0, **options):
    models = LocalModels()
    network = models.decoder(beginning(folder)["policy"])
    head = ScalarHead(16)
    with torch.no_grad():
        head.out.bias.fill_(bias)
    sequences, _ = merge(trajectory)
    episode = Episode(trajectory, sequences, [step.reward or 0.0 for step in trajectory.steps])
    estimate([episode], network, head, None, ActorCriticOptions(whiten=False, **options))
    return [a for s in sequences for a in s.advantages], [r for s in sequences for r in s.extra["returns"]]


def test_a_tool_steps_reward_goes_to_the_call_before_it(tmp_path):
    trajectory = calls(5, None, 6, rewards=(0.0, 1.0, 0.5))
    advantages, _ = estimated(trajectory, tmp_path, lam=0.0)
    assert advantages == pytest.approx([1.0, 0.5])


def test_what_was_cut_off_is_completed_by_its_value_and_what_ended_is_not(tmp_path):
    rewards = (0.0, 0.0)
    ended = calls(5, 6, rewards=rewards, outcome=Outcome.FAILURE)
    cut = calls(5, 6, rewards=rewards, outcome=Outcome.TRUNCATED)
    _, returns = estimated(ended, tmp_path / "a", bias=0.7, lam=1.0)
    assert returns == pytest.approx([0.0, 0.0], abs=1e-6)
    _, returns = estimated(cut, tmp_path / "b", bias=0.7, lam=1.0)
    assert returns == pytest.approx([0.7, 0.7], abs=1e-5)


def test_a_higher_price_on_divergence_keeps_ppo_nearer_to_the_reference(tmp_path):
    async def drift(price):
        models, start = LocalModels(), beginning(tmp_path / str(price))
        options = PPOOptions(
            steps=8, checkpoint_every=8, kl_every=1, kl_coefficient=price, optim=SLOWER, alarms=NEVER
        )
        _, updates = await rounds(PPO(options, models=models), start, tmp_path / str(price), models, count=8)
        return updates[-1].metrics["kl"]

    drifts = [asyncio.run(drift(price)) for price in (0.0, 0.3, 3.0)]
    assert drifts[0] > drifts[1] > drifts[2]


def test_credit_by_step_blames_no_step_for_what_came_before_it():
    good = calls(5, 6, rewards=(1.0, 0.0))
    bad = calls(6, 6, rewards=(0.0, 0.0))
    found = credit([Group(Task(id="t"), [good, bad])], score=None, assignment="to_go")
    first, second = (sequence.advantages for sequence in found.sequences)
    assert first == pytest.approx([0.5, 0.0])
    assert second == pytest.approx([-0.5, 0.0])
    whole = credit([Group(Task(id="t"), [good, bad])], score=None)
    assert whole.sequences[0].advantages == pytest.approx([0.5, 0.5])


def test_each_agent_answers_for_its_own_rewards():
    one = calls(5, 6, rewards=(1.0, 0.0), agents=("planner", "writer"))
    other = calls(6, 5, rewards=(0.0, 1.0), agents=("planner", "writer"))
    found = credit([Group(Task(id="t"), [one, other])], score=None, assignment="agent")
    assert [sequence.advantages for sequence in found.sequences] == [[0.5, -0.5], [-0.5, 0.5]]
    flat = credit([Group(Task(id="t"), [one, other])], score=None)
    assert flat.metrics["groups_flat"] == 1.0  # as a team they are equal, which teaches nothing


@pytest.mark.parametrize("assignment", ["to_go", "agent", "decomposition"])
@pytest.mark.parametrize("baseline", ["group", "leave_one_out"])
def test_a_run_is_not_rewarded_for_going_on_where_the_others_have_ended(assignment, baseline):
    good, bad = calls(5, rewards=(1.0,)), calls(5, 6, 6, 6, 6, rewards=(0.0, 0.0, 0.0, 0.0, 0.2))
    credited = credit(
        [Group(Task(id="t"), [good, bad])], score=None, assignment=assignment, baseline=baseline
    )
    of_good, of_bad = (sequence.advantages for sequence in credited.sequences)
    stretch = 2.0 if baseline == "leave_one_out" else 1.0
    if assignment != "decomposition":  # whose shares are the regression's
        assert of_good == pytest.approx([0.4 * stretch])
        assert of_bad[0] == pytest.approx(-0.4 * stretch)
    assert of_bad[1:] == pytest.approx([-0.4 * stretch] * 4)


@pytest.mark.parametrize("assignment", ["broadcast", "to_go", "agent"])
def test_awr_gives_a_long_failure_the_weight_of_a_failure_at_every_step(assignment):
    good, bad = calls(5, rewards=(1.0,)), calls(5, 6, 6, 6, 6, rewards=(0.0, 0.0, 0.0, 0.0, 0.2))
    awr = AWR(AWROptions(assignment=assignment))
    sequences, _, _ = awr._weighted([Group(Task(id="t"), [good, bad])])
    assert sequences[0].advantages == pytest.approx([math.exp(0.4 / 0.3)])
    assert sequences[1].advantages == pytest.approx([math.exp(-0.4 / 0.3)] * 5)


def test_awr_compares_the_only_run_of_a_task_as_a_whole_with_all():
    sole, other = calls(5, 6, rewards=(1.0, 1.0)), calls(5, rewards=(0.0,))
    awr = AWR(AWROptions(assignment="to_go"))
    sequences, _, _ = awr._weighted([Group(Task(id="t"), [sole]), Group(Task(id="u"), [other])])
    assert sequences[0].advantages == pytest.approx(
        [20.0] * 2
    )  # e^(1 / 0.3), capped; not e^0 at its last step
    assert sequences[1].advantages == pytest.approx([math.exp(-1 / 0.3)])


def test_a_judgement_of_the_whole_run_is_every_agents():
    good, bad = (
        replace(calls(5, 6, agents=("planner", "writer")), scores={"whole": Score(name="whole", value=value)})
        for value in (1.0, 0.0)
    )
    awr = AWR(AWROptions(assignment="agent", score="whole"))
    sequences, _, _ = awr._weighted([Group(Task(id="t"), [good, bad])])
    assert [s.advantages for s in sequences] == [
        pytest.approx([math.exp(0.5 / 0.3)] * 2),
        pytest.approx([math.exp(-0.5 / 0.3)] * 2),
    ]


def test_leaving_one_out_leaves_it_out_of_those_that_came_as_far():
    runs = [calls(5, rewards=(1.0,)), calls(5, 6, rewards=(0.0, 0.6)), calls(5, 6, rewards=(0.0, 0.2))]
    credited = credit([Group(Task(id="t"), runs)], score=None, assignment="to_go", baseline="leave_one_out")
    assert [s.advantages for s in credited.sequences] == [
        pytest.approx([0.6]),
        pytest.approx([0.0, 0.4]),
        pytest.approx([-0.6, -0.4]),
    ]


def test_decomposition_finds_the_deed_that_the_return_hangs_on():
    generator = torch.Generator().manual_seed(0)
    every = []
    for _ in range(60):
        deeds = [4 + int(i) for i in torch.randint(0, 4, (4,), generator=generator)]
        every.append(calls(*deeds, rewards=(0.0, 0.0, 0.0, float(6 in deeds))))
    totals = {t.id: float(t.reward) for t in every}
    shares = decompose([Group(Task(id="t"), every)], totals)
    planted, others = [], []
    for trajectory in every:
        assert sum(shares[trajectory.id]) == pytest.approx(totals[trajectory.id])
        for step, share in zip(trajectory.steps, shares[trajectory.id], strict=True):
            (planted if step.action == 6 else others).append(share)
    assert sum(planted) / len(planted) > sum(others) / len(others) + 0.3
    found = credit([Group(Task(id="t"), every)], score=None, assignment="decomposition", gamma=0.0)
    assert found.metrics["no_signal"] == 0.0


def test_trajectories_that_are_too_old_are_left_out_and_counted(tmp_path):
    async def run():
        models, start = LocalModels(), beginning(tmp_path)
        optimizer = GRPO(GRPOOptions(steps=5, max_staleness=1, optim=FAST, alarms=NEVER), models=models)
        groups = await collect(start, tasks(16), 4, models=models)
        bundle, state, counted = start, None, []
        for number in range(3):
            fresh = await collect(bundle, tasks(4, 7), 4, models=models, seed=number)
            given = [*groups, *fresh]  # the first ones grow old: 0, 1, 2 updates
            update = await optimizer.step(bundle, given, context(tmp_path, state=state))
            bundle, state = update.bundle, update.state
            counted.append((update.metrics["stale"], update.metrics["trajectories"]))
        with pytest.raises(TrainingRefused, match="all 64 trajectories were sampled more than 1"):
            await optimizer.step(bundle, groups, context(tmp_path, state=state))
        return counted

    assert asyncio.run(run()) == [(0.0, 80.0), (0.0, 80.0), (64.0, 16.0)]


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(InputError, match="leaves none"):
        RLOOOptions(group_size=1)
    with pytest.raises(InputError, match="group of one"):
        REINFORCEOptions(baseline="group", group_size=1)
    with pytest.raises(InputError, match=r"lam must be from 0 to 1; got 1\.5"):
        PPOOptions(lam=1.5)
    with pytest.raises(InputError, match="aggregation must be grpo"):
        GRPOOptions(ratio="sequence")
    with pytest.raises(InputError, match="completion_length"):
        GRPOOptions(aggregation="dr_grpo")


def test_rewards_that_the_machine_failed_to_give_stay_out(tmp_path):
    models, start = LocalModels(), beginning(tmp_path)
    groups = asyncio.run(collect(start, tasks(8), 4, models=models))
    broken = [
        Group(
            g.task,
            [replace(t, outcome=Outcome.INFRASTRUCTURE_ERROR) for t in g.trajectories[:1]]
            + list(g.trajectories[1:]),
        )
        for g in groups
    ]
    optimizer = PPO(PPOOptions(optim=FAST), models=models)
    update = asyncio.run(optimizer.step(start, broken, context(tmp_path)))
    assert update.metrics["masked"] == 8.0
    assert update.metrics["targets"] == 24.0
