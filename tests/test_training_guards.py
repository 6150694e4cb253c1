"""Forgetting, and what holds against it: EWC, L2-SP, replay, and a guard suite at the gate."""

import asyncio
from dataclasses import replace

import pytest
import torch
from methods_toys import DIGITS, FAST, RIGHT, WORDS, beginning, context

from whet.errors import InputError, TrainingRefused
from whet.learn.optimizers.sft import SFT, SFTOptions
from whet.learn.training.batch import Merged, merge, parts
from whet.learn.training.guards import Guard, GuardOptions, fisher
from whet.learn.training.learner import Learner, mean_loss
from whet.learn.training.local import LocalModels
from whet.learn.training.optim import OptimOptions
from whet.types import Group, Outcome, Step, Task, Tokens, Trajectory


def said(digit, answer, number):
    task = Task(id=f"{digit}-{number}", group=digit)
    tokens = Tokens((WORDS.bos, *WORDS.encode([digit]), WORDS.act), tuple(WORDS.encode([answer])), (-1.0,))
    return Group(task, [Trajectory(task=task, steps=[Step(tokens=tokens)], outcome=Outcome.SUCCESS)])


OLD = [said(digit, RIGHT[digit] if n % 2 else digit, n) for digit in DIGITS[:2] for n in range(16)]
NEW = [said(digit, digit, n) for digit in DIGITS[2:] for n in range(16)]
"""The first two digits want themselves or the next one, evenly; the last two themselves."""


def loss(network, groups):
    sequences = [s for unit, g in enumerate(groups) for s in merge(g.trajectories[0], unit)[0]]
    return mean_loss(network, parts(sequences))


PLAIN = OptimOptions(learning_rate=1e-2, schedule="constant", muon=False)


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Task one learned, then task two under each guard; the loss on both of each."""
    folder = tmp_path_factory.mktemp("guards")
    models = LocalModels()

    async def run():
        start = beginning(folder)
        options = SFTOptions(epochs=20, batch=16, validation_share=0.0, optim=FAST)
        first = (await SFT(options, models=models).step(start, OLD, context(folder))).bundle
        guards = {
            "plain": None,
            "ewc": Guard(OLD, GuardOptions(ewc=100.0)),
            "l2sp": Guard((), GuardOptions(l2sp=1.0)),
            "replay": Guard(OLD, GuardOptions(replay=0.5)),
        }
        found = {}
        for name, guard in guards.items():
            settings = SFTOptions(epochs=30, batch=16, validation_share=0.0, optim=PLAIN)
            update = await SFT(settings, models=models, guard=guard).step(first, NEW, context(folder))
            network = models.decoder(update.bundle["policy"])
            found[name] = (loss(network, OLD), loss(network, NEW))
        before = models.decoder(first["policy"])
        return (loss(before, OLD), loss(before, NEW)), found

    return asyncio.run(run())


def test_learning_something_new_forgets_what_was_known(learned):
    (old, new), found = learned
    assert old == pytest.approx(0.693, abs=0.1)  # two answers, evenly
    assert new > 1.0
    assert found["plain"][1] < 0.1
    assert found["plain"][0] > old + 0.5


def test_ewc_holds_on_better_than_l2_and_learns_better_too(learned):
    (old, _), found = learned
    assert found["ewc"][0] < old + 0.1
    assert found["ewc"][0] < found["l2sp"][0]
    assert found["ewc"][1] < found["l2sp"][1]


def test_replay_keeps_both(learned):
    (old, _), found = learned
    assert found["replay"][0] < old + 0.2
    assert found["replay"][1] < 0.2


def test_the_fisher_information_is_that_of_sampled_labels(tmp_path):
    network = LocalModels().decoder(beginning(tmp_path)["policy"])
    sequences = [Merged(u, [1, 4 + u % 4, 2, 5], [3], [0.0]) for u in range(40)]
    found = fisher(network, sequences, 0)
    assert set(found) == set(network.weights())
    assert all(bool((value >= 0).all()) for value in found.values())
    # its value does not hang on the recorded labels, only on the prompts
    others = [replace(one, ids=[*one.ids[:3], 6]) for one in sequences]
    again = fisher(network, others, 0)
    assert all(torch.allclose(found[name], again[name], atol=1e-6) for name in found)
    # E[(∂ log p)²] over many draws is near the exact one, summed over labels by hand
    name = "model.norm.weight"
    exact = torch.zeros_like(network.weight(name))
    from whet.learn.training.learner import logprobs

    for sequence in sequences[:4]:
        (part,) = parts([sequence])
        scores = logprobs(network, part)[0]
        for label in range(len(scores)):
            (gradient,) = torch.autograd.grad(scores[label], network.weight(name), retain_graph=True)
            exact += scores[label].exp().detach() * gradient.square() / 4
    many = fisher(network, sequences[:4] * 50, 1)[name]
    torch.testing.assert_close(many, exact, rtol=0.5, atol=1e-3)


def test_guards_without_anything_to_hold_on_to_are_refused(tmp_path):
    network = LocalModels().decoder(beginning(tmp_path)["policy"])
    with pytest.raises(TrainingRefused, match="no trajectories of it"):
        Guard((), GuardOptions(ewc=1.0)).protect(Learner(network, FAST))
    with pytest.raises(InputError, match="0 or more"):
        GuardOptions(replay=-1.0)
