"""The same optimizers on a Tinker server: the same gradient as here, and a policy that learns.  Needs its SDK."""

import asyncio
import gc
from contextlib import contextmanager

import pytest
import torch

tinker = pytest.importorskip("tinker")

from methods_toys import FAST, RIGHT, SMALL, WORDS, Answer, AnswerPolicy, context, success, tasks  # noqa: E402
from tinker_server import tinker_server  # noqa: E402

from whet.errors import InputError, ModelError  # noqa: E402
from whet.learn.optimizers.grpo import GRPO, GRPOOptions  # noqa: E402
from whet.learn.optimizers.ppo import PPO, PPOOptions  # noqa: E402
from whet.learn.optimizers.sft import SFT, SFTOptions  # noqa: E402
from whet.learn.training.batch import Merged, parts  # noqa: E402
from whet.learn.training.model import build  # noqa: E402
from whet.learn.training.network import predict  # noqa: E402
from whet.learn.training.tinker import TinkerModels, data_of  # noqa: E402
from whet.record.env import rollout  # noqa: E402
from whet.types import Bundle, Group, Outcome, Step, Task, Tokens, Trajectory  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
PLAIN = {"entropy_bonus": 0.0, "kl_every": 100, "checkpoint_every": 4, "optim": FAST}


def test_the_sequences_of_a_part_come_out_one_by_one_with_every_target():
    shared = list(range(4, 8)) * 5
    rows = [
        Merged(0, [1, *shared, 5, 3], [21, 22], [0.0, 0.0]),
        Merged(1, [1, *shared, 6, 3], [21, 22], [0.0, 0.0]),
        Merged(2, [1, *shared, 6, 3, 4], [22, 23], [0.0, 0.0]),
        Merged(3, [2, 4], [1], [0.0]),
    ]
    for share in (rows, rows[:1], rows[3:]):
        (part,) = parts(share)
        seen = {}
        for datum in data_of(part):
            for position, target in datum.at.items():
                seen[target] = (datum.ids[: position + 1], int(part.targets[target]))
        assert len(seen) == len(part.targets)
        expected = sorted((row.ids[:place], row.ids[place]) for row in share for place in row.targets)
        assert sorted(seen.values()) == expected


async def rounds(models, start, folder, count, **options):
    optimizer = GRPO(GRPOOptions(steps=count, **{**PLAIN, **options}), models=models)
    bundle, state, rates, norms = start, None, [], []
    for number in range(count):
        sampler = models.sampler(bundle["policy"])
        groups = []
        for place, task in enumerate(tasks(6, number)):
            todo = [
                rollout(Answer(), AnswerPolicy(sampler.session(number * 1000 + place * 6 + i)), task, seed=i)
                for i in range(6)
            ]
            groups.append(Group(task, await asyncio.gather(*todo)))
        failed = [one.error for group in groups for one in group.trajectories if one.error]
        assert not failed, failed[0]
        rates.append(success(groups))
        update = await optimizer.step(bundle, groups, context(folder, state=state))
        norms.append(update.metrics["gradient_norm"])
        bundle, state = update.bundle, update.state
    return bundle, rates, norms


def right(decoder):
    """Mean log-probability of the right answers."""
    rows = [Merged(0, [1, *WORDS.encode([d]), 2, *WORDS.encode([a])], [3], [0.0]) for d, a in RIGHT.items()]
    with torch.no_grad():
        return sum(float(predict(decoder, part).chosen.sum()) for part in parts(rows)) / len(rows)


@contextmanager
def served(seed):
    """Models of a fresh server, and what the server has."""
    with tinker_server(build(SMALL, len(WORDS), seed)) as (url, trainer):
        service = tinker.ServiceClient(base_url=url, api_key="tml-test")
        try:
            yield TinkerModels(service, "tiny"), trainer
        finally:
            service.close("success").result()
            gc.collect()


def test_grpo_learns_on_a_tinker_server_and_its_weights_are_kept_there(tmp_path):
    with served(0) as (models, trainer):
        start = Bundle([models.start()])
        before = right(trainer.base)
        bundle, rates, norms = asyncio.run(rounds(models, start, tmp_path, 5))
        assert trainer.steps == 5
        assert all(0 < norm < 100 for norm in norms)
        assert len(rates) == 5
        assert right(trainer.decoder) > before + 0.2
        kept = bundle["policy"]
        assert kept.content["tinker"].startswith("tinker://")
        session = models.sampler(kept, greedy=True).session(0)
        sampled = asyncio.run(session.generate([1, 4, 2], stop_id=None, max_new_tokens=1))
        here = predict(trainer.decoder, parts([Merged(0, [1, 4, 2, *sampled.output_ids], [3], [0.0])])[0])
        assert sampled.logprobs[0] == pytest.approx(float(here.chosen.detach()), abs=1e-5)
        again = asyncio.run(rounds(models, bundle, tmp_path / "again", 1))
        assert "load_weights" in trainer.asked
        assert again[0]["policy"].meta["policy_version"] == kept.meta["policy_version"] + 1


def test_sft_learns_on_a_tinker_server_and_keeps_the_weights_of_its_best_epoch(tmp_path):
    def demonstrations(task):
        (digit,) = task.initial_state["digits"]
        prompt = (WORDS.bos, *WORDS.encode([digit]), WORDS.act)
        tokens = Tokens(prompt, tuple(WORDS.encode([RIGHT[digit]])), (-1.0,))
        step = Step(observation=digit, action=RIGHT[digit], reward=1.0, tokens=tokens)
        return Group(task, [Trajectory(task=task, steps=[step], outcome=Outcome.SUCCESS)])

    with served(0) as (models, trainer):
        start = Bundle([models.start()])
        before = right(trainer.base)
        options = SFTOptions(epochs=6, batch=8, patience=1, validation_share=0.3, optim=FAST)
        digits = [*RIGHT] * 6
        todo = [Task(id=str(n), initial_state={"digits": [digit]}) for n, digit in enumerate(digits)]
        groups = [demonstrations(task) for task in todo]
        update = asyncio.run(SFT(options, models=models).step(start, groups, context(tmp_path)))
        assert update.metrics["validation_loss"] == pytest.approx(-right(trainer.decoder), abs=0.1)
        assert right(trainer.decoder) > before + 0.5
        assert update.bundle["policy"].content["tinker"].startswith("tinker://")
        assert "load_weights" in trainer.asked, "the best epoch's weights were taken up again"


def test_what_needs_states_is_refused_on_a_tinker_server(tmp_path):
    with served(0) as (models, _):
        start = Bundle([models.start()])
        with pytest.raises(InputError, match="no states or logits"):
            asyncio.run(PPO(PPOOptions(**PLAIN), models=models).step(start, [], context(tmp_path)))


def test_a_losss_gradient_reaches_the_server_whole(tmp_path):
    """A step on the server from the weights of targets is a step here from the loss itself."""
    from whet.learn.training.optim import OptimOptions
    from whet.learn.training.policy_gradient import PolicyLoss

    twin = build(SMALL, len(WORDS), 3)
    rows = [
        Merged(unit, [1, 4 + unit % 4, 2, 5, 3], [3, 4], [-1.0, -1.2], [0.7 - 0.4 * unit, 0.3])
        for unit in range(5)
    ]
    cut = parts(rows)
    with served(3) as (models, trainer):
        learner = models.learn(models.decoder(models.start()), OptimOptions(max_norm=1e9))
        learner.update(cut, PolicyLoss(parts=cut), rate=1e-2)
        theirs = trainer.decoder.weights()
    loss = PolicyLoss(parts=cut)
    sum(loss(predict(twin, part), part) for part in cut).backward()
    optimizer = torch.optim.AdamW(twin.weights().values(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.0)
    optimizer.step()
    first = build(SMALL, len(WORDS), 3).weights()
    moved = max(float((twin.weights()[name] - first[name]).detach().abs().max()) for name in first)
    apart = max(float((twin.weights()[name] - theirs[name]).detach().abs().max()) for name in first)
    assert moved > 5e-3
    assert apart < 1e-3 * moved


def test_what_a_tinker_server_cannot_do_is_refused(tmp_path):
    with served(0) as (models, trainer):
        start = Bundle([models.start()])
        with pytest.raises(InputError, match="entropy_bonus"):
            asyncio.run(rounds(models, start, tmp_path, 1, entropy_bonus=0.1))
        trainer.broken = "optim_step"
        with pytest.raises(ModelError, match="Tinker server failed"):
            asyncio.run(rounds(models, start, tmp_path / "b", 1))
