"""WebRL's update, the paper's and the released one, its replay and its curriculum."""

import asyncio

import pytest
import torch
from methods_toys import FAST, beginning, measured, rounds, shuffled

from whet.errors import InputError, TrainingRefused
from whet.learn.optimizers.webrl import WebRL, WebRLOptions, phase_loss
from whet.learn.training.local import LocalModels

OPTIONS = {"steps": 3, "epochs": 4, "batch": 64, "optim": FAST, "beta": 0.3}


async def phases(folder, kind, relabel=lambda groups: groups, seed=0, **more):
    models, start = LocalModels(), beginning(folder, seed)
    optimizer = WebRL(WebRLOptions(**{**OPTIONS, **more}, loss=kind), models=models)
    update, updates = await rounds(
        optimizer, start, folder, models, count=3, todo=24, n=8, seed=seed, relabel=relabel
    )
    return await measured(start, models), await measured(update.bundle, models), updates


@pytest.mark.parametrize("kind", ["paper", "released"])
def test_each_loss_learns_and_from_each_others_rewards_neither_does(kind, tmp_path):
    before, after, updates = asyncio.run(phases(tmp_path / "a", kind))
    assert after >= before + 0.4
    assert updates[-1].done
    assert updates[0].metrics["replayed"] == 0.0
    _, broken, _ = asyncio.run(phases(tmp_path / "b", kind, shuffled))
    assert broken <= after - 0.3


def test_the_papers_loss_is_least_at_the_tilted_reference():
    generator = torch.Generator().manual_seed(0)
    reference = torch.log_softmax(torch.randn(4, generator=generator, dtype=torch.float64), dim=0)
    advantage = torch.randn(4, generator=generator, dtype=torch.float64)
    options = WebRLOptions(beta=0.7)
    wanted = reference + advantage / options.beta
    shift = torch.logsumexp(wanted, dim=0) * options.beta  # the normaliser, absorbed into the advantage
    logits = reference.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([logits], max_iter=300, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        ratio = torch.log_softmax(logits, dim=0) - reference
        loss = phase_loss(ratio, advantage - shift, options).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.testing.assert_close(
        torch.softmax(logits.detach(), dim=0), torch.softmax(wanted, dim=0), atol=1e-4, rtol=1e-3
    )


def test_the_released_loss_masks_what_was_worse_than_expected():
    options = WebRLOptions(loss="released")
    ratio = torch.tensor([0.2, 0.2, -3.0], requires_grad=True)
    phase_loss(ratio, torch.tensor([0.9, -0.9, 0.1]), options).sum().backward()
    assert ratio.grad[0] < 0
    assert ratio.grad[1] == 0
    assert ratio.grad[2] < 0
    paper = torch.tensor([0.2], requires_grad=True)
    phase_loss(paper, torch.tensor([-0.9]), WebRLOptions()).sum().backward()
    assert paper.grad[0] > 0


def test_earlier_successes_are_replayed_if_they_are_neither_forgotten_nor_known_by_heart(tmp_path):
    _, _, wide = asyncio.run(phases(tmp_path / "a", "paper", replay_band=(0.0, 1.0)))
    _, _, none = asyncio.run(phases(tmp_path / "b", "paper", replay_band=(0.999, 1.0)))
    _, _, off = asyncio.run(phases(tmp_path / "c", "paper", replay_ratio=0.0))
    assert wide[1].metrics["replayed"] > 0
    assert none[1].metrics["replayed"] < wide[1].metrics["replayed"]
    assert off[2].metrics["replayed"] == 0.0


def test_a_phase_without_rewards_is_refused(tmp_path):
    models, start = LocalModels(), beginning(tmp_path)
    with pytest.raises(TrainingRefused, match="none of 0 groups"):
        asyncio.run(rounds(WebRL(models=models), start, tmp_path, models, count=1, todo=0))
    with pytest.raises(InputError, match="beta"):
        WebRLOptions(beta=0)
