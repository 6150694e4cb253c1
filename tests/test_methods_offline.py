"""DPO, IPO, KTO, AWR, STaR, DAgger, reward models: each learns, and not from a broken signal."""

import asyncio
import random
from collections import Counter
from dataclasses import replace

import msgspec
import pytest
import torch
from methods_toys import (
    DIGITS,
    FAST,
    RIGHT,
    WORDS,
    beginning,
    collect,
    context,
    measured,
    rounds,
    shuffled,
    success,
    tasks,
)

from whet.errors import InputError, TrainingRefused
from whet.learn.loop_checks import check_optimizer
from whet.learn.optimizers.awr import AWR, AWROptions
from whet.learn.optimizers.dagger import DAgger, DAggerOptions
from whet.learn.optimizers.dpo import DPO, DPOOptions
from whet.learn.optimizers.kto import KTO, KTOOptions
from whet.learn.optimizers.reward_model import RewardModel, RewardModelOptions
from whet.learn.optimizers.star import STaR, STaROptions
from whet.learn.training.local import LocalModels
from whet.learn.training.losses import dpo
from whet.learn.training.pairs import step_pairs, trajectory_pairs
from whet.learn.training.scorer import LearnedReward
from whet.types import Feedback, Group, Outcome, Preference, Trajectory

EPOCHS = {"epochs": 10, "batch": 32, "optim": FAST, "validation_share": 0.0}


def offline(name, models):
    return {
        "dpo": lambda: DPO(DPOOptions(**EPOCHS, beta=0.5), models=models),
        "step": lambda: DPO(DPOOptions(**EPOCHS, beta=0.5, pairs="step"), models=models),
        "ipo": lambda: DPO(DPOOptions(**EPOCHS, loss="ipo", beta=0.1), models=models),
        "kto": lambda: KTO(KTOOptions(**EPOCHS, beta=0.5, desirable_weight=3.0), models=models),
        "awr": lambda: AWR(AWROptions(**EPOCHS, beta=0.2), models=models),
        "orm": lambda: RewardModel(RewardModelOptions(**EPOCHS, objective="outcome"), models=models),
        "rm": lambda: RewardModel(RewardModelOptions(**EPOCHS), models=models),
    }[name]()


async def recorded(folder, seed, *, turns=1, count=40, n=8):
    models, start = LocalModels(), beginning(folder, seed)
    return models, start, await collect(start, tasks(count, seed, turns), n, models=models, seed=seed)


@pytest.mark.parametrize(
    ("name", "seed"),
    [("dpo", 0), ("kto", 1), ("step", 0), ("ipo", 0), ("awr", 0)],
)
def test_a_method_improves_on_recorded_trajectories(name, seed, tmp_path):
    async def run(relabel):
        models, start, groups = await recorded(tmp_path / f"{relabel.__name__}", seed)
        before = await measured(start, models)
        update = await offline(name, models).step(start, relabel(groups), context(tmp_path))
        return before, await measured(update.bundle, models), update

    before, after, update = asyncio.run(run(list))
    assert update.done
    assert after >= before + 0.4
    if seed == 0:
        _, broken, _ = asyncio.run(run(shuffled))
        assert broken <= before + 0.3
        assert broken <= after - 0.3


def test_swapping_the_preferences_turns_the_ranking_round(tmp_path):
    async def run(swap):
        models, start = LocalModels(), beginning(tmp_path / str(swap))
        asked = [([WORDS.bos, WORDS.encode([d])[0], WORDS.act], d) for d in DIGITS for _ in range(4)]
        pairs = [
            Preference(prompt=prompt, chosen=WORDS.encode([RIGHT[d]]), rejected=WORDS.encode([d]))
            for prompt, d in asked
        ]
        if swap:
            pairs = [replace(p, chosen=p.rejected, rejected=p.chosen) for p in pairs]
        pairs += [replace(pairs[0], tie=True), replace(pairs[0], rejected=pairs[0].chosen)]
        learner = DPO(DPOOptions(**EPOCHS), models=models)
        update = await learner.step(start, [], context(tmp_path, preferences=pairs))
        groups = await collect(update.bundle, tasks(100, 3), 1, models=models)
        return update.metrics, Counter(
            t.output == RIGHT[t.task.initial_state["digits"][0]] for g in groups for t in g.trajectories
        )

    metrics, straight = asyncio.run(run(False))
    _, swapped = asyncio.run(run(True))
    assert (metrics["ties"], metrics["identical"], metrics["pairs"]) == (1.0, 1.0, 16.0)
    assert metrics["accuracy"] == 1.0
    assert straight[True] > 3 * max(1, swapped[True])


def test_tabular_dpo_converges_to_the_tilted_reference():
    generator = torch.Generator().manual_seed(0)
    reference = torch.log_softmax(torch.randn(5, generator=generator, dtype=torch.float64), dim=0)
    reward = torch.randn(5, generator=generator, dtype=torch.float64)
    wins = torch.sigmoid(reward[:, None] - reward[None, :])  # exact Bradley–Terry preferences
    beta = 0.7
    logits = reference.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [logits], max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        ratio = torch.log_softmax(logits, dim=0) - reference
        one, other = ratio[:, None].expand(5, 5), ratio[None, :].expand(5, 5)
        loss = (wins * dpo(one, other, beta=beta)).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    wanted = torch.softmax(reference + reward / beta, dim=0)
    torch.testing.assert_close(torch.softmax(logits.detach(), dim=0), wanted, atol=1e-5, rtol=1e-4)


def test_pairs_from_a_tree_compare_answers_to_the_same_prompt(tmp_path):
    _, _, groups = asyncio.run(recorded(tmp_path, 0, turns=2, count=3, n=100))
    pairs, left = step_pairs(groups, per_task=40)
    assert pairs
    for pair in pairs:
        (good,), (bad,) = pair.chosen, pair.rejected
        assert good.ids[: good.targets[0]] == bad.ids[: bad.targets[0]]
        assert good.ids[good.targets[0] :] != bad.ids[bad.targets[0] :]
        assert pair.margin > 0
    first_calls = [pair for pair in pairs if len(pair.chosen[0].ids) == 4]
    later_calls = [pair for pair in pairs if len(pair.chosen[0].ids) > 4]
    assert first_calls
    assert later_calls
    assert left["nodes"] > 3
    whole, _ = trajectory_pairs(groups, per_task=2)
    assert all(len(pair.chosen[0].targets) == 2 for pair in whole)
    assert max(Counter(pair.task for pair in whole).values()) == 2


@pytest.mark.parametrize("name", ["dpo", "kto", "awr", "orm"])
def test_an_offline_method_keeps_the_optimizers_contract(name, tmp_path):
    _, start, groups = asyncio.run(recorded(tmp_path, 0, count=8))
    counter = iter(range(1000))

    def fresh(_):
        folder = tmp_path / f"run-{next(counter)}"
        folder.mkdir()
        return context(folder)

    def make():
        made = offline(name, LocalModels())
        made.options = replace(made.options, epochs=1)
        return made

    asyncio.run(check_optimizer(make, start, groups, fresh, budgets=(0,)))


def test_kto_learns_from_thumbs_and_needs_both_kinds(tmp_path):
    async def run():
        models, start, groups = await recorded(tmp_path, 1)
        thumbs = [
            Group(
                g.task,
                [
                    replace(
                        t,
                        outcome=Outcome.UNKNOWN,
                        feedback=[Feedback(run=t.id, value=1.0 if t.outcome is Outcome.SUCCESS else -1.0)],
                    )
                    for t in g.trajectories
                ],
            )
            for g in groups
        ]
        options = KTOOptions(**EPOCHS, judged_by="thumbs", beta=0.5, desirable_weight=3.0)
        update = await KTO(options, models=models).step(start, thumbs, context(tmp_path))
        good = [Group(g.task, [t for t in g.trajectories if t.outcome is Outcome.SUCCESS]) for g in groups]
        with pytest.raises(TrainingRefused, match="judged the same"):
            await KTO(KTOOptions(**EPOCHS), models=models).step(start, good, context(tmp_path))
        return await measured(start, models), await measured(update.bundle, models), update.metrics

    before, after, metrics = asyncio.run(run())
    assert after >= before + 0.4
    assert metrics["desirable_logprob_change"] > metrics["undesirable_logprob_change"]


def test_star_climbs_round_after_round_and_without_its_filter_does_not(tmp_path):
    async def run(filtered):
        models, start = LocalModels(), beginning(tmp_path / f"{filtered}")
        options = STaROptions(
            steps=4, filtered=filtered, accumulate=True, epochs=4, batch=16, optim=FAST, validation_share=0.0
        )
        update, updates = await rounds(STaR(options, models=models), start, tmp_path, models, count=4, n=8)
        return [u.metrics["success"] for u in updates], await measured(update.bundle, models)

    rates, after = asyncio.run(run(True))
    assert rates[0] < rates[1] < rates[2] < rates[3]
    assert after >= 0.9
    _, broken = asyncio.run(run(False))
    assert broken <= 0.4


def test_star_starts_from_the_base_every_round_and_resumes_with_what_it_kept(tmp_path):
    async def run(folder, resumed):
        models, start = LocalModels(), beginning(tmp_path / folder)
        options = STaROptions(steps=3, accumulate=True, epochs=2, batch=32, optim=FAST)
        learner, bundle, state, sizes = STaR(options, models=models), start, None, []
        for number in range(3):
            if resumed and number == 2:
                models, state = LocalModels(), msgspec.json.decode(msgspec.json.encode(state))
                learner = STaR(options, models=models)
            groups = await collect(bundle, tasks(24, number), 8, models=models, seed=number)
            update = await learner.step(bundle, groups, context(tmp_path / folder, state=state))
            bundle, state = update.bundle, update.state
            sizes.append(update.metrics["trajectories"] + update.metrics["validation_trajectories"])
        assert state["base"]["id"] == start["policy"].id
        return bundle["policy"].id, sizes

    straight, sizes = asyncio.run(run("a", False))
    resumed, _ = asyncio.run(run("b", True))
    assert straight == resumed
    assert sizes[0] < sizes[1] < sizes[2]


def test_star_refuses_to_clone_nothing(tmp_path):
    models, start, groups = asyncio.run(recorded(tmp_path, 0))
    failed = [Group(g.task, [t for t in g.trajectories if t.outcome is Outcome.FAILURE]) for g in groups]
    with pytest.raises(TrainingRefused, match="succeeded"):
        asyncio.run(STaR(models=models).step(start, failed, context(tmp_path)))


def expert(task, step):
    """What should have been said to the last digit of the prompt."""
    seen = step.tokens.prompt_ids[-2]
    return WORDS.encode([RIGHT[WORDS.tokens[seen]]])


def test_dagger_learns_from_corrections_of_its_own_states_and_not_from_random_ones(tmp_path):
    chance = random.Random(0)

    async def run(name, teacher):
        models, start = LocalModels(), beginning(tmp_path / name)
        options = DAggerOptions(steps=2, epochs=8, batch=16, optim=FAST, validation_share=0.0)
        update, updates = await rounds(
            DAgger(teacher, options, models=models), start, tmp_path, models, count=2, n=1, turns=3
        )
        return await measured(update.bundle, models, turns=3), updates

    after, updates = asyncio.run(run("expert", expert))
    assert after >= 0.9
    assert updates[1].metrics["agreement"] > updates[0].metrics["agreement"]
    assert updates[1].metrics["corrections"] > updates[0].metrics["corrections"]
    broken, _ = asyncio.run(run("random", lambda *_: WORDS.encode([chance.choice(DIGITS)])))
    assert broken <= 0.2
    with pytest.raises(TrainingRefused, match="declined all"):
        asyncio.run(run("silent", lambda *_: None))


@pytest.mark.parametrize("name", ["rm", "orm"])
def test_a_reward_model_ranks_answers_to_questions_it_never_saw(name, tmp_path):
    async def run(relabel):
        folder = tmp_path / relabel.__name__
        turns = 2 if name == "rm" else 1
        models, start, groups = await recorded(folder, 0, turns=turns)
        learner = offline(name, models)
        learner.options = replace(learner.options, epochs=14)
        update = await learner.step(start, relabel(groups), context(folder))
        reward = LearnedReward(update.bundle["reward_model"], models=models, squash=name == "orm")
        unseen = await collect(start, tasks(40, 555, turns), 8, models=models, seed=9)
        ranked = total = 0
        for group in unseen:
            scored = [(t.reward, reward(t).value) for t in group.trajectories]
            for (first, one), (second, other) in zip(scored[::2], scored[1::2], strict=True):
                if first != second:
                    total += 1
                    ranked += (first > second) == (one > other)
        return ranked / total, update, reward, unseen

    right, update, reward, unseen = asyncio.run(run(list))
    assert right >= 0.8
    assert update.bundle["policy"].id != update.bundle["reward_model"].id
    assert update.bundle["reward_model"].kind == "reward"
    mute = Trajectory(task=unseen[0].task)
    assert reward(mute).value is None
    if name == "orm":
        assert all(0 < reward(t).value < 1 for t in unseen[0].trajectories)
    broken, _, _, _ = asyncio.run(run(shuffled))
    assert broken <= right - 0.1


def test_bradley_terry_recovers_latent_scores():
    generator = torch.Generator().manual_seed(3)
    latent = torch.tensor([-1.2, -0.5, -0.1, 0.3, 0.7, 0.8])
    picks = torch.randint(0, 6, (8000, 2), generator=generator)
    first = torch.rand(8000, generator=generator) < torch.sigmoid(latent[picks[:, 0]] - latent[picks[:, 1]])

    def fitted(winners):
        from whet.learn.training.losses import bradley_terry

        scores = torch.zeros(6, requires_grad=True)
        optimizer = torch.optim.LBFGS([scores], max_iter=100)

        def closure():
            optimizer.zero_grad()
            chosen = torch.where(winners, scores[picks[:, 0]], scores[picks[:, 1]])
            rejected = torch.where(winners, scores[picks[:, 1]], scores[picks[:, 0]])
            loss = bradley_terry(chosen, rejected).mean() + 1e-4 * scores.square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        return scores.detach() - scores.detach().mean()

    assert float((fitted(first) - latent).abs().max()) < 0.2
    coin = torch.rand(8000, generator=generator) < 0.5
    assert float(fitted(coin).abs().max()) < 0.15


def test_offline_methods_refuse_what_would_teach_nothing(tmp_path):
    models, start, groups = asyncio.run(recorded(tmp_path, 0, count=4))
    even = [
        Group(
            g.task,
            [replace(t, steps=[replace(s, reward=0.5) for s in t.steps]) for t in g.trajectories],
        )
        for g in groups
    ]
    for optimizer, what in (
        (DPO(models=models), "no pair"),
        (AWR(models=models), "all rewards are 0.5"),
        (RewardModel(models=models), "no pair"),
    ):
        with pytest.raises(TrainingRefused, match=what):
            asyncio.run(optimizer.step(start, even, context(tmp_path)))
    text = [Preference(prompt="hello", chosen="yes", rejected="no")]
    with pytest.raises(InputError, match="encode="):
        asyncio.run(DPO(models=models).step(start, [], context(tmp_path, preferences=text)))
    with pytest.raises(InputError, match="beta"):
        DPOOptions(beta=0.0)
    assert success(groups) < 0.5
