"""WebRL's update, the paper's and the released one, its replay and its curriculum."""

import asyncio
import random

import pytest
import torch
from methods_toys import FAST, beginning, collect, measured, rounds, shuffled, tasks

from whet.errors import InputError, TrainingRefused
from whet.optimizers.webrl import WebRL, WebRLOptions, phase_loss
from whet.training.curriculum import in_band, informative, next_tasks, rates
from whet.training.local import LocalModels
from whet.types import Task

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


def test_a_band_of_chances_is_where_groups_are_informative():
    assert informative(0.01) == pytest.approx(0.077, abs=0.001)
    assert informative(0.05) == pytest.approx(0.337, abs=0.001)
    assert informative(0.3) == pytest.approx(0.942, abs=0.001)
    some = [Task(id=name) for name in ("hopeless", "fit", "solved", "new")]
    kept = in_band(some, {"hopeless": 0.01, "fit": 0.4, "solved": 0.9})
    assert [task.id for task in kept] == ["fit", "new"]


def test_new_tasks_come_of_failed_ones_and_stay_in_the_band(tmp_path):
    models, start = LocalModels(), beginning(tmp_path)
    groups = asyncio.run(collect(start, tasks(6), 4, models=models))
    seen = []

    def propose(failed, rng):
        seen.extend(failed)
        return [Task(id=f"{task.id}-{n}", meta={"p": n / 4}) for task in failed for n in range(5)]

    made = next_tasks(groups, propose, lambda task: task.meta["p"], rng=random.Random(0))
    assert {task.meta["p"] for task in made} == {0.25, 0.5, 0.75}
    assert {task.id for task in seen} == {id for id, rate in rates(groups).items() if rate < 1}


def test_a_phase_without_rewards_is_refused(tmp_path):
    models, start = LocalModels(), beginning(tmp_path)
    with pytest.raises(TrainingRefused, match="none of 0 groups"):
        asyncio.run(rounds(WebRL(models=models), start, tmp_path, models, count=1, todo=0))
    with pytest.raises(InputError, match="beta"):
        WebRLOptions(beta=0)
