"""Every method with an update of its own, whole, against references from the papers.

SFT, STaR, DAgger, AWR, GRPO and its variants, RLOO, REINFORCE, PPO, A2C, DPO, IPO, Step-DPO, the reward models and PRM;
KTO, WebRL and GLAM are in test_training_references.py.

Every update that a method's own `step` makes is watched: the weights it starts from, its loss, its gradient.  The
reference computes the same in float64, through transformers' forward, call by call, with nothing of the method's own.
A float32 network stands between, and both agree to 1e-6 of their size.  Each reference is also made wrong in one place
at a time, which must show.
"""

import asyncio
import itertools
import math
import random
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from training_toys import context

from whet.learn.optimizers.awr import AWR, AWROptions
from whet.learn.optimizers.dagger import DAgger, DAggerOptions
from whet.learn.optimizers.dpo import DPO, DPOOptions
from whet.learn.optimizers.grpo import GRPO, GRPOOptions
from whet.learn.optimizers.ppo import PPO, A2COptions, PPOOptions
from whet.learn.optimizers.prm import PRM, PRMOptions
from whet.learn.optimizers.reinforce import REINFORCE, REINFORCEOptions
from whet.learn.optimizers.reward_model import RewardModel, RewardModelOptions
from whet.learn.optimizers.rloo import RLOO, RLOOOptions
from whet.learn.optimizers.sft import SFT, SFTOptions
from whet.learn.optimizers.star import STaR, STaROptions
from whet.learn.training.learner import Learner
from whet.learn.training.local import LocalModels, fresh
from whet.learn.training.model import ModelOptions, build, to_transformers
from whet.learn.training.optim import MuonAdamW, OptimOptions
from whet.learn.training.process_labels import Labelled
from whet.types import Bundle, Group, Outcome, Step, Task, Tokens, Trajectory

SHAPE = ModelOptions(hidden=16, layers=2, heads=2, kv_heads=1, ffn=24, max_length=64)
WORDS = 19
BOUND = 1e-6
SEEN = 300 * BOUND
"""A wrong reference is at least this far off."""


@dataclass
class Update:
    """One optimizer step as it was made."""

    weights: dict
    gradients: dict
    loss: float = math.nan


@pytest.fixture
def updates(monkeypatch):
    """The optimizer steps that are made, in turn; they are made as ever."""
    seen, step, descend = [], MuonAdamW.step, Learner.descend

    def watched_step(self, rate, norm):
        weights = {name: value.clone() for name, value in self.values().items()}
        seen.append(
            Update(weights, {n: w.grad.clone() for n, w in self._weights.items() if w.grad is not None})
        )
        step(self, rate, norm)

    def watched_descend(self, *arguments, **named):
        loss, norm = descend(self, *arguments, **named)
        seen[-1].loss = loss
        return loss, norm

    monkeypatch.setattr(MuonAdamW, "step", watched_step)
    monkeypatch.setattr(Learner, "descend", watched_descend)
    return seen


class Reference:
    """transformers' Qwen2 and a linear head, in float64, at the weights of an update."""

    def __init__(self, weights):
        self.model = to_transformers(build(SHAPE, WORDS, 0)).double()
        own = {name: value for name, value in weights.items() if not name.startswith("head.")}
        self.model.load_state_dict(own, strict=False)
        heads = {name: value for name, value in weights.items() if name.startswith("head.")}
        self.head = {n: value.double().requires_grad_() for n, value in heads.items()}

    def read(self, call):
        """Of a call's tokens: log-probabilities and entropies, and the states before each and after the last."""
        ids = torch.tensor([[*call.prompt_ids, *call.output_ids]])
        out = self.model(ids, output_hidden_states=True)
        begin = len(call.prompt_ids) - 1
        logs = torch.log_softmax(out.logits[0, begin:-1], dim=-1)
        chosen = logs[torch.arange(len(call.output_ids)), torch.tensor(call.output_ids)]
        # A head of whet's reads the normalised state without the final norm's weight, as a linear head may hold it.
        states = out.hidden_states[-1][0, begin:] / self.model.model.norm.weight
        return chosen, -(logs.exp() * logs).sum(dim=-1), states

    def number(self, states):
        weight, bias = (
            next(v for n, v in self.head.items() if n.endswith(end)) for end in ("weight", "bias")
        )
        return states @ weight[0] + bias[0]

    def everything(self, runs):
        """The log-probabilities, entropies and values of all tokens of these runs, in their order."""
        reads = [self.read(step.tokens) for run in runs for step in run.steps]
        chosen, entropies = (torch.cat([read[i] for read in reads]) for i in (0, 1))
        values = torch.cat([self.number(read[2][:-1]) for read in reads]) if self.head else None
        return chosen, entropies, values

    def distance(self, loss, update):
        """How far an update's loss and gradient are from this loss and its gradient, in units of their size."""
        loss.backward()
        own = {name: p.grad for name, p in self.model.named_parameters() if p.grad is not None}
        own |= {name: p.grad for name, p in self.head.items() if p.grad is not None}
        assert set(update.gradients) >= set(own) - {"model.norm.weight"}
        zero = torch.zeros(1)
        apart = [abs(float(loss.detach()) - update.loss) / max(1.0, abs(update.loss))]
        for name, gradient in own.items():
            room = 0.1 + float(
                gradient.abs().max()
            )  # or a gradient near 0 would be asked for all its rounding
            apart.append(float((update.gradients.get(name, zero).double() - gradient).abs().max()) / room)
        return max(apart)


def recorded(seed=0):
    """Three tasks' runs: of one to three calls, one that forgets its beginning, one cut off, unjudged or lost."""
    rng = random.Random(seed)

    def ids(low, high):
        return [rng.randrange(4, WORDS) for _ in range(rng.randint(low, high))]

    groups = []
    for task in range(3):
        runs = []
        for number in range(3):
            steps, before = [], []
            for call in range(1 + (task + number) % 3):
                forgets = (task, number, call) == (1, 1, 2)
                prompt = [*([] if forgets else before), *ids(2, 4)]
                output = ids(1, 4)
                old = tuple(rng.uniform(-3.4, -2.4) for _ in output)
                steps.append(Step(reward=rng.gauss(0, 0.7), tokens=Tokens(tuple(prompt), tuple(output), old)))
                before = [*prompt, *output]
            outcome = Outcome.SUCCESS if rng.random() < 0.5 else Outcome.FAILURE
            special = {
                (0, 1): Outcome.TRUNCATED,
                (1, 0): Outcome.UNKNOWN,
                (2, 2): Outcome.INFRASTRUCTURE_ERROR,
            }
            outcome = special.get((task, number), outcome)
            runs.append(Trajectory(task=Task(id=f"t{task}"), steps=steps, outcome=outcome))
        groups.append(Group(Task(id=f"t{task}"), runs))
    return groups


def counted(groups):
    return [
        t for group in groups for t in group.trajectories if t.outcome is not Outcome.INFRASTRUCTURE_ERROR
    ]


def resampled(groups, weights):
    """The same runs as if these weights had sampled them."""
    reference = Reference(weights)

    def again(step):
        chosen = reference.read(step.tokens)[0].tolist()
        return replace(step, tokens=replace(step.tokens, logprobs=tuple(chosen)))

    return [
        Group(g.task, [replace(t, steps=[again(step) for step in t.steps]) for t in g.trajectories])
        for g in groups
    ]


def start(folder):
    return Bundle([fresh("policy", folder / "start", options=SHAPE, vocab_size=WORDS, seed=0)])


def initial():
    return {name: value.detach() for name, value in build(SHAPE, WORDS, 0).weights().items()}


def first_order(chosen, advantages):
    """−A log π, with the value that −ρA has at ρ = 1."""
    return -advantages * (1.0 + chosen - chosen.detach())


def old_logprobs(runs):
    return torch.tensor([p for run in runs for step in run.steps for p in step.tokens.logprobs]).double()


def ppo_estimates(runs, reference, first, *, gamma, lam, beta=0.0, bootstraps=True, whitens=True):
    """Schulman et al. 2016: Â_t = Σ_l (γλ)^l (r + γ V′ − V) at t + l, the run's end worth 0 unless it was cut off."""
    everything, returns, values = [], [], []
    with torch.no_grad():
        for run in runs:
            reads = [reference.read(step.tokens) for step in run.steps]
            own = [float(v) for read in reads for v in reference.number(read[2][:-1])]
            own_rewards = []
            for step in run.steps:
                there = first.read(step.tokens)[0]
                kl = [beta * (a - float(b)) for a, b in zip(step.tokens.logprobs, there, strict=True)]
                own_rewards += [-k for k in kl[:-1]] + [step.reward - kl[-1]]
            cut_off = run.outcome is Outcome.TRUNCATED and bootstraps
            after = [*own[1:], float(reference.number(reads[-1][2][-1])) if cut_off else 0.0]
            errors = [r + gamma * v2 - v for r, v2, v in zip(own_rewards, after, own, strict=True)]
            gains = [sum((gamma * lam) ** k * e for k, e in enumerate(errors[t:])) for t in range(len(own))]
            everything += gains
            returns += [gain + value for gain, value in zip(gains, own, strict=True)]
            values += own
    advantages = np.array(everything)
    if whitens:
        advantages = (advantages - advantages.mean()) / advantages.std()
    return tuple(torch.tensor(np.array(column)) for column in (advantages, returns, values))


PPO_SETTINGS = {"gamma": 0.97, "lam": 0.9, "beta": 0.05, "clip": 0.2, "value_clip": 0.05, "entropy": 0.02}


def ppo_distance(runs, made, number, **changes):
    """Schulman et al. 2017, equations 7 and 9, in the update `number`, of the second round from number 2 on."""
    settings = {**PPO_SETTINGS, "sign": 1.0, **changes}
    clip, near, entropy, sign = (settings.pop(name) for name in ("clip", "value_clip", "entropy", "sign"))
    begun = number // 2 * 2
    advantages, returns, before = ppo_estimates(
        runs, Reference(made[begun].weights), Reference(made[0].weights), **settings
    )
    reference = Reference(made[number].weights)
    chosen, entropies, values = reference.everything(runs)
    ratio = (chosen - old_logprobs(runs)).exp()
    policy = -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
    bounded = before + (values - before).clamp(-near, near)
    of_value = 0.5 * torch.maximum((values - returns) ** 2, (bounded - returns) ** 2)
    bonus = entropy * (1.0 - number // 2 / 4)  # falls over the four rounds
    loss = (sign * policy + 0.5 * of_value - bonus * entropies).mean()
    return reference.distance(loss, made[number])


def test_ppo_is_the_papers(updates, tmp_path):
    options = PPOOptions(
        steps=4,
        passes=2,
        gamma=0.97,
        lam=0.9,
        kl_coefficient=0.05,
        value_clip=0.05,
        value_coefficient=0.5,
        entropy_bonus=0.02,
        off_policy=True,
        part_tokens=60,
        optim=OptimOptions(learning_rate=0.02),
    )
    groups, bundle, state = recorded(), start(tmp_path), None
    ppo = PPO(options, models=LocalModels())
    for _ in range(2):
        now = asyncio.run(ppo.step(bundle, groups, context(tmp_path, baseline={"success": 0.5}, state=state)))
        bundle, state = now.bundle, now.state
        assert 0 < now.metrics["clip_share"] < 1
    runs = counted(groups)
    assert len(updates) == 4
    for number in range(4):
        assert ppo_distance(runs, updates, number) <= BOUND
    wrong = [
        {"sign": -1.0},
        {"gamma": 0.96},
        {"lam": 0.91},
        {"beta": 0.0},
        {"clip": math.inf},
        {"value_clip": math.inf},
        {"entropy": 0.0},
        {"bootstraps": False},
        {"whitens": False},
    ]
    for changes in wrong:
        assert ppo_distance(runs, updates, 3, **changes) > SEEN, changes


def test_a2c_is_the_papers(updates, tmp_path):
    """Mnih et al. 2016: −A log π + c (R − V)² / 2 − b H, R the discounted rest and V after it where it was cut off."""
    options = A2COptions(
        steps=4, gamma=0.95, whiten=False, part_tokens=60, optim=OptimOptions(learning_rate=0.02)
    )
    groups, bundle, state = resampled(recorded(), initial()), start(tmp_path), None
    a2c = PPO(options, models=LocalModels())
    for _ in range(2):
        now = asyncio.run(a2c.step(bundle, groups, context(tmp_path, baseline={"success": 0.5}, state=state)))
        bundle, state = now.bundle, now.state
        groups = resampled(groups, a2c._learner.decoder.weights())

    def distance(number, *, gamma=0.95, sign=1.0, of_value=0.5, bootstraps=True):
        reference = Reference(updates[number].weights)
        runs = counted(groups)
        chosen, entropies, values = reference.everything(runs)
        returns = []
        for run in runs:
            rewards = []
            for step in run.steps:
                rewards += [0.0] * (len(step.tokens.output_ids) - 1) + [step.reward]
            last = float(reference.number(reference.read(run.steps[-1].tokens)[2][-1]).detach())
            rewards.append(last if run.outcome is Outcome.TRUNCATED and bootstraps else 0.0)
            returns += [sum(gamma**k * r for k, r in enumerate(rewards[t:])) for t in range(len(rewards) - 1)]
        rest = torch.tensor(returns).double()
        policy = sign * first_order(chosen, rest - values.detach())
        bonus = 0.01 * (1.0 - number / 4)
        loss = (policy + of_value * 0.5 * (values - rest) ** 2 - bonus * entropies).mean()
        return reference.distance(loss, updates[number])

    assert len(updates) == 2
    assert distance(0) <= BOUND
    assert distance(1) <= BOUND
    for changes in ({"gamma": 0.96}, {"sign": -1.0}, {"of_value": 0.25}, {"bootstraps": False}):
        assert distance(1, **changes) > SEEN, changes


def to_go(run, gamma):
    """What came from each step on, discounted."""
    rewards = [step.reward for step in run.steps]
    return [sum(gamma**k * r for k, r in enumerate(rewards[t:])) for t in range(len(rewards))]


def per_token(runs, by_step):
    """A number of each step, on each of its tokens."""
    return np.array(
        [
            number
            for run, own in zip(runs, by_step, strict=True)
            for step, number in zip(run.steps, own, strict=True)
            for _ in step.tokens.output_ids
        ]
    )


def test_reinforce_is_the_papers(updates, tmp_path):
    """Williams 1992: −(G_t − b) log π, b the round's mean over tokens, and divided by their deviation."""
    groups = resampled(recorded(), initial())
    options = REINFORCEOptions(gamma=0.9, entropy_bonus=0.02, part_tokens=60)
    reinforce = REINFORCE(options, models=LocalModels())
    asyncio.run(reinforce.step(start(tmp_path), groups, context(tmp_path, baseline={"success": 0.5})))
    (update,) = updates

    def distance(*, gamma=0.9, sign=1.0, centred=True, whitens=True, entropy=0.02):
        runs = counted(groups)
        advantages = per_token(runs, [to_go(run, gamma) for run in runs])
        spread = advantages.std()
        advantages = (advantages - advantages.mean() * centred) / (spread if whitens else 1.0)
        reference = Reference(update.weights)
        chosen, entropies, _ = reference.everything(runs)
        losses = sign * first_order(chosen, torch.tensor(advantages)) - entropy * entropies
        return reference.distance(losses.mean(), update)

    assert distance() <= BOUND
    for changes in (
        {"gamma": 0.91},
        {"sign": -1.0},
        {"centred": False},
        {"whitens": False},
        {"entropy": 0.0},
    ):
        assert distance(**changes) > SEEN, changes


def test_grpo_with_its_divergence_is_the_papers(updates, tmp_path):
    """Shao et al. 2024, equations 3 and 4: the mean of each output's mean, A by the group's deviation, and β k3."""
    options = GRPOOptions.paper(
        passes=2, off_policy=True, part_tokens=60, optim=OptimOptions(learning_rate=0.02)
    )
    groups, grpo = recorded(), GRPO(options, models=LocalModels())
    asyncio.run(grpo.step(start(tmp_path), groups, context(tmp_path, baseline={"success": 0.5})))
    assert len(updates) == 2

    def distance(number, *, beta=0.04, clip=0.2, sign=1.0, scaled=True, by_token=False):
        reference, first, losses = Reference(updates[number].weights), Reference(updates[0].weights), []
        for group in groups:
            runs = counted([group])
            rewards = [sum(step.reward for step in run.steps) for run in runs]
            deviation = np.std(rewards, ddof=1) + 1e-4 if scaled else 1.0
            for run, reward in zip(runs, rewards, strict=True):
                advantage = sign * (reward - np.mean(rewards)) / deviation
                chosen, there = reference.everything([run])[0], first.everything([run])[0].detach()
                ratio = (chosen - old_logprobs([run])).exp()
                gain = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
                k3 = (there - chosen).exp() - (there - chosen) - 1.0
                losses.append(beta * k3 - gain)
        means = torch.cat(losses) if by_token else torch.stack([own.mean() for own in losses])
        return reference.distance(means.mean(), updates[number])

    assert distance(0) <= BOUND
    assert distance(1) <= BOUND
    for changes in ({"beta": 0.0}, {"clip": math.inf}, {"sign": -1.0}, {"scaled": False}, {"by_token": True}):
        assert distance(1, **changes) > SEEN, changes


@pytest.mark.parametrize("assignment", ["broadcast", "to_go"])
def test_awr_is_the_papers_weighted_regression(assignment, updates, tmp_path):
    """Peng et al. 2019, algorithm 1: −min(exp(A / β), ω_max) log π, A against the task's mean as far as runs came."""
    options = AWROptions(
        beta=0.4,
        max_weight=1.5,
        assignment=assignment,
        gamma=0.9,
        epochs=2,
        validation_share=0.0,
        part_tokens=60,
    )
    groups = recorded()
    asyncio.run(AWR(options, models=LocalModels()).step(start(tmp_path), groups, context(tmp_path)))
    assert len(updates) == 2
    capped = []

    def distance(number, *, beta=0.4, most=1.5, gamma=0.9, sign=1.0, centred=True):
        runs, weights = counted(groups), []
        for run in runs:
            beside = [other for other in runs if other.task.id == run.task.id]
            totals = {other.id: sum(step.reward for step in other.steps) for other in beside}
            whole = totals[run.id] - np.mean(list(totals.values()))
            own = []
            for place, gain in enumerate(to_go(run, gamma)):
                there = [to_go(other, gamma)[place] for other in beside if len(other.steps) > place]
                alone = assignment == "broadcast" or len(there) == 1
                own.append(whole if alone else gain - np.mean(there))
            if not centred:
                own = [totals[run.id]] * len(own) if assignment == "broadcast" else to_go(run, gamma)
            weights.append([min(most, math.exp(sign * advantage / beta)) for advantage in own])
        by_token = per_token(runs, weights)
        capped.append((by_token == most).mean())
        reference = Reference(updates[number].weights)
        chosen = reference.everything(runs)[0]
        return reference.distance(-(torch.tensor(by_token) * chosen).mean(), updates[number])

    assert distance(0) <= BOUND
    assert distance(1) <= BOUND
    assert 0 < capped[0] < 1
    wrong = [{"beta": 0.41}, {"most": math.inf}, {"sign": -1.0}, {"centred": False}]
    for changes in [*wrong, *([{"gamma": 0.91}] if assignment == "to_go" else [])]:
        assert distance(1, **changes) > SEEN, changes


def binary(logits, targets):
    """−y log σ(s) − (1 − y) log(1 − σ(s))."""
    likely = 1.0 / (1.0 + (-logits).exp())
    return -targets * likely.log() - (1.0 - targets) * (1.0 - likely).log()


def test_the_process_reward_model_is_math_shepherds(updates, tmp_path):
    """Wang et al. 2024, equation 2: over the steps of a solution the sum of the cross-entropy where a step ends."""
    runs, rng = counted(recorded()), random.Random(0)
    labelled = [Labelled(run, {step: rng.random() for step in range(len(run.steps))}) for run in runs]
    del max(labelled, key=lambda rated: len(rated.labels)).labels[0]
    options = PRMOptions(
        epochs=3, validation_share=0.0, part_tokens=60, optim=OptimOptions(learning_rate=0.02)
    )
    prm = PRM(options, models=LocalModels(), labelled=labelled)
    asyncio.run(prm.step(start(tmp_path), [], context(tmp_path)))
    assert len(updates) == 3

    def distance(number, *, sign=1.0, place=-1, hard=False, everything=False):
        reference, total = Reference(updates[number].weights), 0.0
        for rated in labelled:
            for step, call in enumerate(rated.trajectory.steps):
                if everything or step in rated.labels:
                    label = rated.labels.get(step, 0.0)
                    score = reference.number(reference.read(call.tokens)[2][place])
                    total = total + binary(sign * score, float(label > 0) if hard else label)
        return reference.distance(total / len(labelled), updates[number])

    assert distance(0) <= BOUND
    assert distance(2) <= BOUND
    for changes in ({"sign": -1.0}, {"place": -2}, {"hard": True}, {"everything": True}):
        assert distance(2, **changes) > SEEN, changes


def test_the_outcome_reward_model_is_a_cross_entropy_of_success_at_the_end(updates, tmp_path):
    """Cobbe et al. 2021, the verifier that judges a solution where it ends."""
    groups = recorded()
    options = RewardModelOptions(
        objective="outcome",
        epochs=3,
        validation_share=0.0,
        part_tokens=60,
        optim=OptimOptions(learning_rate=0.02),
    )
    asyncio.run(RewardModel(options, models=LocalModels()).step(start(tmp_path), groups, context(tmp_path)))
    assert len(updates) == 3

    def distance(number, *, sign=1.0, place=-1, all_runs=False):
        reference, losses = Reference(updates[number].weights), []
        for run in counted(groups):
            if run.outcome is not Outcome.UNKNOWN or all_runs:
                score = reference.number(reference.read(run.steps[-1].tokens)[2][place])
                losses.append(binary(sign * score, float(run.outcome is Outcome.SUCCESS)))
        return reference.distance(sum(losses) / len(losses), updates[number])

    assert distance(0) <= BOUND
    assert distance(2) <= BOUND
    for changes in ({"sign": -1.0}, {"place": -2}, {"all_runs": True}):
        assert distance(2, **changes) > SEEN, changes


def likelihoods(reference, runs):
    """Of each run, the log-probabilities of what was chosen in it."""
    return [reference.everything([run])[0] for run in runs]


def test_sft_is_the_cross_entropy_of_what_succeeded(updates, tmp_path):
    """The mean over the chosen tokens of all that is cloned, −log π."""
    groups = recorded()
    options = SFTOptions(
        epochs=3, validation_share=0.0, part_tokens=60, optim=OptimOptions(learning_rate=0.02)
    )
    asyncio.run(SFT(options, models=LocalModels()).step(start(tmp_path), groups, context(tmp_path)))
    assert len(updates) == 3

    def distance(number, *, failed=False, by_run=False, sign=1.0):
        wanted = Outcome.FAILURE if failed else Outcome.SUCCESS
        reference = Reference(updates[number].weights)
        own = likelihoods(reference, [run for run in counted(groups) if run.outcome is wanted])
        mean = torch.stack([one.mean() for one in own]).mean() if by_run else torch.cat(own).mean()
        return reference.distance(-sign * mean, updates[number])

    assert distance(0) <= BOUND
    assert distance(2) <= BOUND
    for changes in ({"failed": True}, {"by_run": True}, {"sign": -1.0}):
        assert distance(2, **changes) > SEEN, changes


def test_star_clones_what_succeeded_from_the_base_in_each_round(updates, tmp_path):
    """Zelikman et al. 2022, algorithm 1; with all rounds' successes, Yuan et al. 2023."""
    options = STaROptions(steps=2, epochs=2, validation_share=0.0, accumulate=True, part_tokens=60)
    star, bundle, state, everything = STaR(options, models=LocalModels()), start(tmp_path), None, []
    for seed in range(2):
        groups = recorded(seed)
        everything.append([run for run in counted(groups) if run.outcome is Outcome.SUCCESS])
        now = asyncio.run(star.step(bundle, groups, context(tmp_path, state=state)))
        bundle, state = now.bundle, now.state
    assert len(updates) == 4
    for name, value in initial().items():
        assert torch.equal(updates[2].weights[name], value), "the second round begins with the base"
        assert torch.equal(updates[0].weights[name], value)

    def distance(number, rounds):
        reference = Reference(updates[number].weights)
        own = likelihoods(reference, [run for one in everything[rounds] for run in one])
        return reference.distance(-torch.cat(own).mean(), updates[number])

    assert distance(1, slice(0, 1)) <= BOUND
    assert distance(3, slice(0, 2)) <= BOUND
    assert distance(3, slice(1, 2)) > SEEN, "the successes of the first round are kept"


def test_dagger_clones_the_experts_answers_to_the_policys_own_prompts(updates, tmp_path):
    """Ross et al. 2011, algorithm 3.1 with the policy acting: the cross-entropy over all states so far."""

    def expert(task, step):
        last = step.tokens.prompt_ids[-1]
        return None if last % 3 == 0 else [4 + last % 11, 4 + last % 7]

    options = DAggerOptions(steps=2, epochs=2, validation_share=0.0, part_tokens=60)
    dagger, bundle, state, calls = DAgger(expert, options, models=LocalModels()), start(tmp_path), None, []
    for seed in range(2):
        groups = recorded(seed)
        for step in (step for group in groups for run in group.trajectories for step in run.steps):
            said = expert(None, step)
            if said is not None:
                calls.append((seed, Tokens(step.tokens.prompt_ids, tuple(said), (0.0, 0.0))))
        now = asyncio.run(dagger.step(bundle, groups, context(tmp_path, state=state)))
        bundle, state = now.bundle, now.state
    assert len(updates) == 4

    def distance(number, rounds):
        reference = Reference(updates[number].weights)
        own = [reference.read(call)[0] for seed, call in calls if seed in rounds]
        return reference.distance(-torch.cat(own).mean(), updates[number])

    assert distance(1, {0}) <= BOUND
    assert distance(3, {0, 1}) <= BOUND
    assert distance(3, {1}) > SEEN


VARIANTS = {
    # Yu et al. 2025, equation 8: by token over the whole batch, clipped higher above.
    "dapo": {"aggregation": "dapo", "scale": "group", "clip_low": 0.2, "clip_high": 0.28},
    # Liu et al. 2025: by token over a length that is the same for all, no deviation.
    "dr_grpo": {"aggregation": "dr_grpo", "scale": "none", "completion_length": 16, "clip_high": 0.2},
    # Zheng et al. 2025, equation 5: the ratio of a sequence is the geometric mean of its tokens'.
    "gspo": {
        "aggregation": "grpo",
        "ratio": "sequence",
        "scale": "group",
        "clip_low": 0.03,
        "clip_high": 0.04,
    },
}


@pytest.mark.parametrize("name", VARIANTS)
def test_grpos_variants_are_their_papers(name, updates, tmp_path):
    options = GRPOOptions(
        **VARIANTS[name],
        passes=2,
        off_policy=True,
        entropy_bonus=0.0,
        part_tokens=60,
        optim=OptimOptions(learning_rate=0.02),
    )
    groups, grpo = recorded(), GRPO(options, models=LocalModels())
    asyncio.run(grpo.step(start(tmp_path), groups, context(tmp_path, baseline={"success": 0.5})))
    assert len(updates) == 2
    low, high = options.clip_low, options.clip_high

    def distance(number, *, low=low, high=high, as_others=False, scaled=options.scale == "group"):
        reference, losses = Reference(updates[number].weights), []
        for group in groups:
            runs = counted([group])
            rewards = [sum(step.reward for step in run.steps) for run in runs]
            deviation = np.std(rewards, ddof=1) + 1e-4 if scaled else 1.0
            for run, reward in zip(runs, rewards, strict=True):
                advantage = (reward - np.mean(rewards)) / deviation
                chosen = reference.everything([run])[0]
                difference = chosen - old_logprobs([run])
                if (name == "gspo") != as_others:
                    # The value is the mean's and each token has its own gradient's share of it.
                    difference = difference.mean().expand(len(chosen))
                ratio = difference.exp()
                losses.append(-torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage))
        if name == "dapo":
            loss = torch.cat(losses).mean()
        elif name == "dr_grpo":
            loss = torch.cat(losses).sum() / (len(losses) * options.completion_length)
        else:
            loss = torch.stack([own.mean() for own in losses]).mean()
        return reference.distance(loss, updates[number])

    assert distance(0) <= BOUND
    assert distance(1) <= BOUND
    for changes in (
        {"low": math.inf},
        {"high": math.inf},
        {"as_others": True},
        {"scaled": options.scale == "none"},
    ):
        assert distance(1, **changes) > SEEN, changes


def test_rloo_is_the_papers(updates, tmp_path):
    """Ahmadian et al. 2024, equations 8 and 9: a run is one action, and its divergence comes off its reward."""
    options = RLOOOptions(
        passes=2,
        off_policy=True,
        kl_coefficient=0.05,
        clip_low=0.3,
        clip_high=0.3,
        part_tokens=60,
        optim=OptimOptions(learning_rate=0.02),
    )
    groups, rloo = resampled(recorded(), initial()), RLOO(options, models=LocalModels())
    # Near the weights that sampled them, so that not every ratio of a whole run is clipped.
    shifts = itertools.cycle((-0.05, 0.02, 0.08))
    groups = [
        Group(
            group.task,
            [
                replace(
                    run,
                    steps=[
                        replace(
                            step,
                            tokens=replace(
                                step.tokens, logprobs=tuple(p - abs(shift) for p in step.tokens.logprobs)
                            ),
                        )
                        for step in run.steps
                    ],
                )
                for run, shift in zip(group.trajectories, shifts, strict=False)
            ],
        )
        for group in groups
    ]
    asyncio.run(rloo.step(start(tmp_path), groups, context(tmp_path, baseline={"success": 0.5})))
    assert len(updates) == 2

    def distance(number, *, beta=0.05, clip=0.3, leave_out=True, by_token=False):
        reference, first, losses = Reference(updates[number].weights), Reference(updates[0].weights), []
        for group in groups:
            runs = counted([group])
            rewards = []
            for run in runs:
                there = float(first.everything([run])[0].sum().detach())
                penalty = beta * (float(old_logprobs([run]).sum()) - there)
                rewards.append(sum(step.reward for step in run.steps) - penalty)
            for place, run in enumerate(runs):
                others = [r for at, r in enumerate(rewards) if at != place or not leave_out]
                advantage = rewards[place] - np.mean(others)
                difference = reference.everything([run])[0] - old_logprobs([run])
                ratio = (difference if by_token else difference.sum()).exp()
                gain = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
                losses.append(-gain.mean())
        return reference.distance(torch.stack(losses).mean(), updates[number])

    assert distance(0) <= BOUND
    assert distance(1) <= BOUND
    for changes in ({"beta": 0.0}, {"clip": math.inf}, {"leave_out": False}, {"by_token": True}):
        assert distance(1, **changes) > SEEN, changes


def compared(groups):
    """Every two runs of a task, the better one first."""
    pairs = []
    for group in groups:
        for one, other in itertools.combinations(counted([group]), 2):
            worth = [sum(step.reward for step in run.steps) for run in (one, other)]
            pairs.append((one, other) if worth[0] > worth[1] else (other, one))
    return pairs


@pytest.mark.parametrize("loss", ["dpo", "ipo"])
def test_dpo_and_ipo_are_the_papers(loss, updates, tmp_path):
    """Rafailov et al. 2023, equation 7, and Azar et al. 2023, equation 17, the margin by token."""
    groups = recorded()
    options = DPOOptions(
        loss=loss,
        beta=0.3,
        per_task=None,
        epochs=3,
        validation_share=0.0,
        part_tokens=60,
        optim=OptimOptions(learning_rate=0.02),
    )
    asyncio.run(DPO(options, models=LocalModels()).step(start(tmp_path), groups, context(tmp_path)))
    assert len(updates) == 3

    def distance(number, *, beta=0.3, sign=1.0, by_token=loss == "ipo", compares=True):
        reference, first, losses = Reference(updates[number].weights), Reference(updates[0].weights), []
        for pair in compared(groups):
            sides = []
            for run in pair:
                there = first.everything([run])[0].detach() if compares else 0.0
                ratio = reference.everything([run])[0] - there
                sides.append(ratio.mean() if by_token else ratio.sum())
            margin = sign * (sides[0] - sides[1])
            sigmoid = -(1.0 / (1.0 + (-beta * margin).exp())).log()
            losses.append(sigmoid if loss == "dpo" else (margin - 1.0 / (2.0 * beta)) ** 2)
        return reference.distance(torch.stack(losses).mean(), updates[number])

    # IPO's gradient is what is left of two runs' that nearly cancel: their float32 rounding counts for more of it.
    room = BOUND if loss == "dpo" else 5 * BOUND
    assert distance(0) <= room
    assert distance(2) <= room
    for changes in ({"beta": 0.33}, {"sign": -1.0}, {"by_token": loss == "dpo"}, {"compares": False}):
        assert distance(2, **changes) > SEEN, changes


def test_step_dpo_compares_two_answers_to_one_prompt(updates, tmp_path):
    """Lai et al. 2024: DPO over the tokens of the step at which two runs part."""
    groups = []
    for task in range(2):
        prompt = (4 + task, 5, 6)
        runs = []
        for number, reward in enumerate((1.0, -0.5, 0.25)):
            ids = tuple(7 + (task + number + place) % 9 for place in range(2 + number))
            first = Step(reward=reward, tokens=Tokens(prompt, ids, (-2.5,) * len(ids)))
            after = Step(reward=0.0, tokens=Tokens((*prompt, *ids, 4), (8, 9), (-2.5, -2.5)))
            runs.append(Trajectory(task=Task(id=f"t{task}"), steps=[first, after], outcome=Outcome.FAILURE))
        groups.append(Group(Task(id=f"t{task}"), runs))
    options = DPOOptions(
        pairs="step",
        beta=0.3,
        epochs=3,
        validation_share=0.0,
        part_tokens=60,
        optim=OptimOptions(learning_rate=0.02),
    )
    asyncio.run(DPO(options, models=LocalModels()).step(start(tmp_path), groups, context(tmp_path)))
    assert len(updates) == 3

    def distance(number, *, whole=False):
        reference, first, losses = Reference(updates[number].weights), Reference(updates[0].weights), []

        def gain(run):
            calls = [step.tokens for step in run.steps[: None if whole else 1]]
            return sum(reference.read(c)[0].sum() - first.read(c)[0].sum().detach() for c in calls)

        for group in groups:
            best, *others = sorted(group.trajectories, key=lambda run: -run.steps[0].reward)
            for worse in others:
                losses.append(-(1.0 / (1.0 + (-0.3 * (gain(best) - gain(worse))).exp())).log())
        return reference.distance(torch.stack(losses).mean(), updates[number])

    assert distance(0) <= BOUND
    assert distance(2) <= BOUND
    assert distance(2, whole=True) > SEEN


def test_the_reward_model_is_instructgpts_with_a_term_that_centres(updates, tmp_path):
    """Ouyang et al. 2022, equation 1, and Eisenstein et al. 2023: −log σ(r_w − r_l) + c (r_w + r_l)²."""
    groups = recorded()
    options = RewardModelOptions(
        centring=0.05,
        epochs=3,
        validation_share=0.0,
        part_tokens=60,
        optim=OptimOptions(learning_rate=0.02),
    )
    asyncio.run(RewardModel(options, models=LocalModels()).step(start(tmp_path), groups, context(tmp_path)))
    assert len(updates) == 3

    def distance(number, *, sign=1.0, centring=0.05, place=-1):
        reference, losses = Reference(updates[number].weights), []
        for pair in compared(groups):
            better, worse = (reference.number(reference.read(run.steps[-1].tokens)[2][place]) for run in pair)
            likely = 1.0 / (1.0 + (-sign * (better - worse)).exp())
            losses.append(centring * (better + worse) ** 2 - likely.log())
        return reference.distance(torch.stack(losses).mean(), updates[number])

    assert distance(0) <= BOUND
    assert distance(2) <= BOUND
    for changes in ({"sign": -1.0}, {"centring": 0.0}, {"place": -2}):
        assert distance(2, **changes) > SEEN, changes
