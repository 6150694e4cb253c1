"""Cloning and GRPO as Optimizers: they learn, do not learn what is not there, resume and refuse."""

import asyncio
import random
from dataclasses import replace

import msgspec
import pytest
import torch
from methods_toys import success
from training_toys import beginning, collect, context, demonstrations, tasks

from whet.errors import InputError, NotFoundError, TrainingRefused
from whet.learn.optimizers.grpo import GRPO, GRPOOptions
from whet.learn.optimizers.sft import SFT, SFTOptions
from whet.learn.training.alarms import AlarmOptions, check
from whet.learn.training.batch import Merged, parts
from whet.learn.training.learner import Learner
from whet.learn.training.local import LocalModels
from whet.learn.training.model import ModelOptions, build
from whet.learn.training.network import predict
from whet.learn.training.optim import OptimOptions
from whet.types import Bundle, Group, Outcome, Score, Version

HELD_OUT = tasks(200, seed=77)
FAST = OptimOptions(learning_rate=1e-2)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


async def cloned(folder, models, seed, **options):
    settings = {"epochs": 8, "batch": 32, "seed": seed, "optim": FAST} | options
    learner = SFT(SFTOptions(**settings), models=models)
    groups = demonstrations(400, wrong=0.3, seed=seed)
    return await learner.step(beginning(folder, seed), groups, context(folder))


async def trained(folder, models, bundle, seed, rounds, relabel=lambda groups: groups, **options):
    settings = {"steps": rounds, "seed": seed, "optim": FAST} | options
    learner = GRPO(GRPOOptions(**settings), models=models)
    update, state = None, None
    for number in range(rounds):
        groups = relabel(
            await collect(bundle, tasks(24, seed * 1000 + number), 8, seed=number, models=models)
        )
        update = await learner.step(bundle, groups, context(folder, baseline={"success": 0.3}, state=state))
        bundle, state = update.bundle, update.state
        if update.done:
            break
    return update


async def measured(bundle, models):
    return success(await collect(bundle, HELD_OUT, 1, seed=1, models=models))


def test_cloning_then_grpo_learns_a_task_of_several_turns(tmp_path):
    async def run():
        models = LocalModels()
        update = await cloned(tmp_path, models, 0, epochs=5)
        before = await measured(update.bundle, models)
        final = await trained(tmp_path, models, update.bundle, 0, 28, passes=2)
        return before, await measured(final.bundle, models), final

    before, after, final = asyncio.run(run())
    assert before <= 0.6
    assert after >= 0.9
    assert final.done
    assert set(final.metrics) >= {"reward", "success", "no_signal", "tokens", "masked", "updates"}


def test_grpo_learns_nothing_from_shuffled_rewards(tmp_path):
    shuffler = random.Random(0)

    def shuffled(groups):
        rewards = [t.reward for group in groups for t in group.trajectories]
        shuffler.shuffle(rewards)
        left = iter(rewards)
        return [
            Group(g.task, [t.scored(Score("shuffled", next(left))) for t in g.trajectories]) for g in groups
        ]

    async def run():
        models = LocalModels()
        update = await cloned(tmp_path, models, 0, epochs=5)
        before = await measured(update.bundle, models)
        never = AlarmOptions(success_drop=None, min_entropy=None)
        final = await trained(
            tmp_path, models, update.bundle, 0, 16, shuffled, score="shuffled", alarms=never
        )
        return before, await measured(final.bundle, models)

    before, after = asyncio.run(run())
    assert after <= before + 0.1


def test_cloning_with_the_filter_inverted_learns_to_fail(tmp_path):
    async def run():
        models = LocalModels()
        right = await cloned(tmp_path / "right", models, 1)
        wrong = await cloned(tmp_path / "wrong", models, 1, invert=True)
        return await measured(right.bundle, models), await measured(wrong.bundle, models), right, wrong

    right, wrong, kept, failed = asyncio.run(run())
    assert right >= 0.5
    assert wrong <= right / 3
    assert kept.metrics["filtered"] + failed.metrics["filtered"] == 400
    assert kept.metrics["validation_trajectories"] > 0


def test_cloning_stops_early_and_keeps_the_best_weights(tmp_path):
    options = SFTOptions(keep="all", epochs=40, batch=4, patience=1, validation_share=0.3, optim=FAST)

    async def noisy():
        learner = SFT(options, models=LocalModels())
        return await learner.step(
            beginning(tmp_path), demonstrations(60, wrong=0.6, seed=3), context(tmp_path)
        )

    update = asyncio.run(noisy())
    assert update.done
    assert update.metrics["epochs"] < 40
    assert update.metrics["validation_loss"] > update.metrics["loss"]


def test_cloning_counts_what_it_leaves_out(tmp_path):
    groups = demonstrations(20, wrong=0.0)
    once = [trajectory for group in groups for trajectory in group.trajectories]
    unjudged = replace(once[0], outcome=Outcome.UNKNOWN)
    broken = replace(once[0], outcome=Outcome.INFRASTRUCTURE_ERROR)
    silent = replace(once[0], steps=[replace(step, tokens=None) for step in once[0].steps])
    mixed = [*groups, *groups, Group(once[0].task, [unjudged, broken, silent])]
    learner = SFT(SFTOptions(epochs=1, validation_share=0.0), models=LocalModels())
    update = asyncio.run(learner.step(beginning(tmp_path), mixed, context(tmp_path)))
    assert update.metrics["trajectories"] == 20
    assert update.metrics["repeated"] == 20
    assert update.metrics["unjudged"] == 2
    assert update.metrics["without_tokens"] == 1
    with pytest.raises(TrainingRefused) as refused:
        asyncio.run(learner.step(update.bundle, mixed[-1:], context(tmp_path)))
    assert "2 without an outcome or score, 1 without token ids. To do: have them judged" in str(refused.value)
    assert "without_tokens" not in str(refused.value)
    with pytest.raises(TrainingRefused, match="none is recorded for these tasks"):
        asyncio.run(learner.step(update.bundle, [], context(tmp_path)))
    with pytest.raises(InputError, match="no resource"):
        asyncio.run(learner.step(Bundle(), groups, context(tmp_path)))


def test_cloning_is_the_same_for_the_same_seed(tmp_path):
    async def run(name, seed):
        return (await cloned(tmp_path / name, LocalModels(), seed, epochs=1)).bundle["policy"].id

    assert asyncio.run(run("one", 0)) == asyncio.run(run("two", 0)) != asyncio.run(run("three", 1))


async def rounds(folder, bundle, first, last, *, state=None, stop=None):
    """Rounds of GRPO in fresh memory, as after a restart, with state through JSON as a store keeps it."""
    models = LocalModels()
    learner = GRPO(
        GRPOOptions(steps=6, checkpoint_every=2, minibatch=40, passes=2, optim=FAST), models=models
    )
    updates = []
    for number in range(first, last):
        groups = await collect(bundle, tasks(12, number), 8, seed=number, models=models)
        update = await learner.step(bundle, groups, context(folder, baseline={"success": 0.3}, state=state))
        bundle, state = update.bundle, msgspec.json.decode(msgspec.json.encode(update.state))
        updates.append(update)
    return updates


def test_a_resumed_run_ends_with_the_same_bits(tmp_path):
    async def run():
        start = (await cloned(tmp_path, LocalModels(), 0, epochs=5)).bundle
        whole = await rounds(tmp_path / "whole", start, 0, 6)
        half = await rounds(tmp_path / "half", start, 0, 3)  # interrupted one round after a checkpoint
        saved = half[1]
        assert saved.state["resumable"]
        rest = await rounds(
            tmp_path / "half", saved.bundle, 2, 6, state=msgspec.json.decode(msgspec.json.encode(saved.state))
        )
        return whole, rest, start

    whole, rest, start = asyncio.run(run())
    assert whole[-1].bundle["policy"].id == rest[-1].bundle["policy"].id != start["policy"].id
    assert [u.metrics for u in whole[2:]] == [u.metrics for u in rest]
    assert whole[-1].done
    assert rest[-1].reason == "all 6 rounds done"


def test_between_checkpoints_the_version_is_live_and_only_current(tmp_path):
    async def run():
        models = LocalModels()
        bundle = (await cloned(tmp_path, models, 0, epochs=5)).bundle
        learner = GRPO(GRPOOptions(steps=9, checkpoint_every=3, optim=FAST), models=models)
        state, updates = None, []
        for number in range(3):
            groups = await collect(bundle, tasks(12, number), 8, seed=number, models=models)
            update = await learner.step(
                bundle, groups, context(tmp_path, baseline={"success": 0.3}, state=state)
            )
            bundle, state = update.bundle, update.state
            updates.append(update)
        return models, updates

    models, (first, second, third) = asyncio.run(run())
    contents = [update.bundle["policy"].content for update in (first, second, third)]
    assert ["live" in content for content in contents] == [True, True, False]
    assert len({update.bundle["policy"].id for update in (first, second, third)}) == 3
    for past in (first, second):
        with pytest.raises(NotFoundError, match="never written"):
            models.sampler(past.bundle["policy"])
    models.sampler(third.bundle["policy"])
    restarted = GRPO(GRPOOptions(steps=9, optim=FAST), models=LocalModels())
    resuming = context(tmp_path, baseline={"success": 0.3}, state=second.state)
    with pytest.raises(InputError, match="was not a checkpoint"):
        asyncio.run(restarted.step(third.bundle, [], resuming))
    assert first.metrics["staleness"] == 0


def test_saved_state_that_was_changed_is_refused(tmp_path):
    async def run():
        start = (await cloned(tmp_path, LocalModels(), 0, epochs=5)).bundle
        saved = (await rounds(tmp_path / "run", start, 0, 2))[-1]
        path = tmp_path / "run" / saved.state["saved"]["file"]
        kept = path.read_bytes()
        path.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
        with pytest.raises(InputError, match="was changed"):
            await rounds(tmp_path / "run", saved.bundle, 2, 3, state=saved.state)
        path.unlink()
        with pytest.raises(NotFoundError):
            await rounds(tmp_path / "run", saved.bundle, 2, 3, state=saved.state)
        astray = {**saved.state, "saved": {**saved.state["saved"], "file": "../../etc/passwd"}}
        with pytest.raises(InputError, match="not the name of a file"):
            await rounds(tmp_path / "run", saved.bundle, 2, 3, state=astray)

    asyncio.run(run())


def test_grpo_refuses_what_would_mean_nothing(tmp_path):
    models = LocalModels()

    async def run():
        bundle = beginning(tmp_path)
        groups = await collect(bundle, tasks(4), 4, seed=0, models=models)
        learner = GRPO(models=models)

        async def refused(match, groups=groups, baseline=None):
            with pytest.raises(TrainingRefused, match=match):
                await learner.step(bundle, groups, context(tmp_path, baseline=baseline))

        await refused("no baseline is recorded")
        await refused("no 'success'", baseline={"reward": 0.3})
        await refused("under the floor", baseline={"success": 0.01})
        await refused("under the floor", baseline={"success": float("nan")})
        good = {"success": 0.3}
        await refused("of one", [Group(g.task, g.trajectories[:1]) for g in groups], good)
        bare = [
            Group(
                g.task, [replace(t, steps=[replace(s, reward=None) for s in t.steps]) for t in g.trajectories]
            )
            for g in groups
        ]
        await refused("has a step reward", bare, good)
        with pytest.raises(InputError, match="no resource"):
            await learner.step(Bundle(), groups, context(tmp_path, baseline=good))
        with pytest.raises(InputError, match="no state of grpo"):
            await learner.step(bundle, groups, context(tmp_path, baseline=good, state={"round": "two"}))
        odd = Bundle([Version(resource="policy", kind="prompt", content="hello")])
        with pytest.raises(InputError, match="of kind prompt"):
            await learner.step(odd, groups, context(tmp_path, baseline=good))

    asyncio.run(run())
    with pytest.raises(InputError, match="group of one"):
        GRPOOptions(group_size=1)


def test_a_round_without_any_signal_changes_no_weights(tmp_path):
    async def run():
        models = LocalModels()
        bundle = beginning(tmp_path)
        groups = await collect(bundle, tasks(4), 4, seed=0, models=models)
        even = [Group(g.task, [t.scored(Score("even", 1.0)) for t in g.trajectories]) for g in groups]
        learner = GRPO(GRPOOptions(score="even", checkpoint_every=1), models=models)
        update = await learner.step(bundle, even, context(tmp_path, baseline={"success": 0.3}))
        return bundle, update

    bundle, update = asyncio.run(run())
    assert update.metrics["no_signal"] == 1.0
    assert update.metrics["updates"] == 0.0
    assert "entropy" not in update.metrics  # nothing was computed, so nothing is 0
    assert update.bundle == bundle


def test_a_loss_that_is_not_finite_changes_no_weights(tmp_path):
    async def run():
        models = LocalModels()
        bundle = beginning(tmp_path)
        groups = await collect(bundle, tasks(8), 8, seed=0, models=models)
        huge = [
            Group(g.task, [t.scored(Score("huge", 3e38 * (-1) ** i)) for i, t in enumerate(g.trajectories)])
            for g in groups
        ]
        learner = GRPO(GRPOOptions(score="huge", scale="none"), models=models)
        with pytest.raises(TrainingRefused, match="not finite"):
            await learner.step(bundle, huge, context(tmp_path, baseline={"success": 0.3}))
        kept = learner._learner
        assert kept.policy_version == 0
        start = models.decoder(bundle["policy"])
        assert all(
            torch.equal(a, b) for a, b in zip(kept.decoder.parameters(), start.parameters(), strict=True)
        )

    asyncio.run(run())


def test_running_out_of_memory_says_what_to_lower_and_changes_nothing(tmp_path):
    decoder = build(ModelOptions(hidden=16, heads=2, kv_heads=1, ffn=16), 8, 0)
    learner, before = Learner(decoder, OptimOptions()), build(decoder.options, 8, 0)

    def greedy(number):  # the allocator itself refuses the second one
        weight = decoder.weight("model.norm.weight")
        return weight.sum() if number == 0 else (weight.sum() * torch.ones(1 << 50)).sum()

    with pytest.raises(TrainingRefused, match="Lower part_tokens"):
        learner.descend(range(2), greedy, rate=1e-3)
    assert all(weight.grad is None for weight in decoder.parameters())
    for name, weight in decoder.weights().items():
        assert torch.equal(weight, before.weight(name))
    assert learner.updates == 0


def test_tokens_of_another_model_and_more_than_it_takes_are_named():
    decoder = build(ModelOptions(hidden=16, heads=2, kv_heads=1, ffn=16, max_length=8), 8, 0)
    (whole,) = parts([Merged(0, [1] * 8, [2], [0.0])])
    assert predict(decoder, whole).chosen.shape == (1,)
    (long,) = parts([Merged(0, [1] * 9, [2], [0.0])])
    with pytest.raises(InputError, match="is 9 tokens long, and the model takes 8"):
        predict(decoder, long)
    (part,) = parts([Merged(0, [1, 2, 8], [2], [0.0])])
    with pytest.raises(InputError, match="token id 8, and the model knows 8 ids"):
        predict(decoder, part)


def test_a_solved_task_stops_training_and_keeps_the_weights(tmp_path):
    async def run():
        models = LocalModels()
        bundle = beginning(tmp_path)
        groups = await collect(bundle, tasks(8), 8, seed=0, models=models)
        learner = GRPO(GRPOOptions(alarms=AlarmOptions(patience=1, success_drop=None)), models=models)
        first = await learner.step(bundle, groups, context(tmp_path, baseline={"success": 0.3}))
        flat = [
            Group(
                g.task, [replace(t, steps=[replace(s, reward=0.5) for s in t.steps]) for t in g.trajectories]
            )
            for g in groups
        ]
        again = context(tmp_path, baseline={"success": 0.3}, state=first.state)
        return bundle, await learner.step(first.bundle, flat, again)

    start, update = asyncio.run(run())
    assert update.done
    assert update.reason.startswith("nothing left to learn from: no_signal 1")
    assert update.bundle != start
    assert "path" in update.bundle["policy"].content


def test_validation_picks_the_bundle_that_is_returned(tmp_path):
    asked = []

    async def worse_every_time(bundle):
        asked.append(bundle)
        return 1.0 - 0.1 * len(asked)

    async def run():
        models = LocalModels()
        start = (await cloned(tmp_path, models, 0, epochs=5)).bundle
        learner = GRPO(
            GRPOOptions(steps=20, checkpoint_every=1, patience=2, optim=FAST),
            models=models,
            validate=worse_every_time,
        )
        bundle, state = start, None
        for number in range(20):
            groups = await collect(bundle, tasks(8, number), 8, seed=number, models=models)
            update = await learner.step(
                bundle, groups, context(tmp_path, baseline={"success": 0.3}, state=state)
            )
            bundle, state = update.bundle, update.state
            if update.done:
                return start, update

    start, update = asyncio.run(run())
    assert len(asked) == 3
    assert update.bundle == start
    assert update.reason.startswith("no better validation than 0.9")


def test_collapse_stops_training_and_returns_what_was_before(tmp_path):
    async def run():
        models = LocalModels()
        start = (await cloned(tmp_path, models, 0, epochs=5)).bundle

        def pays_for_failure(groups):
            return [
                Group(
                    g.task,
                    [t.scored(Score("odd", float(t.outcome is not Outcome.SUCCESS))) for t in g.trajectories],
                )
                for g in groups
            ]

        final = await trained(
            tmp_path,
            models,
            start,
            0,
            20,
            pays_for_failure,
            score="odd",
            alarms=AlarmOptions(success_drop=0.1, patience=2),
        )
        return start, final

    start, final = asyncio.run(run())
    assert final.done
    assert "collapse: success" in final.reason
    assert final.metrics["reward"] > 0.7  # it rose all the while
    assert final.bundle == start


def test_alarms_need_to_hold_and_forget_when_the_sign_passes():
    options, first = AlarmOptions(unknown_rise=0.2, patience=2), {"unknown": 0.1}
    held, stop = check(options, {"unknown": 0.5}, first, {})
    assert (held["unknown"], stop) == (1, None)
    again, stop = check(options, {"unknown": 0.5}, first, held)
    assert again["unknown"] == 2
    assert stop.kind == "collapse"
    assert "unknown 0.5 is above 0.3" in stop.reason
    assert check(options, {"unknown": 0.2}, first, held)[0]["unknown"] == 0
    assert check(options, {}, first, held)[0]["unknown"] == 1
    assert "unknown" not in check(AlarmOptions(unknown_rise=None), {"unknown": 1.0}, first, held)[0]
