"""The flat loop in examples/ learns, its control does not, and it stays flat."""

import importlib.util
import sys
from statistics import fmean

import pytest
import torch


@pytest.fixture(scope="module")
def example(repository):
    path = repository / "examples" / "train_loop.py"
    spec = importlib.util.spec_from_file_location("train_loop", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.set_num_threads(1)
    return module


def test_the_flat_loop_learns_and_from_shuffled_rewards_it_does_not(example):
    curve = example.train(0, 26)
    assert fmean(curve[:3]) < 0.3
    assert fmean(curve[-3:]) > 0.75
    assert fmean(example.train(0, 12, shuffled=True)[-3:]) < 0.4


def test_the_flat_loop_is_short_and_needs_torch_alone(repository):
    text = (repository / "examples" / "train_loop.py").read_text()
    assert len(text.splitlines()) <= 150
    assert "import whet" not in text
    assert "from whet" not in text


@pytest.fixture(scope="module")
def nlpo(repository):
    path = repository / "examples" / "nlpo.py"
    spec = importlib.util.spec_from_file_location("nlpo", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["nlpo"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["nlpo"]


@pytest.mark.parametrize("top", [0.3, 0.85, 1.0])
def test_nlpos_mask_leaves_the_fewest_tokens_that_have_the_probability(nlpo, top):
    logits = torch.randn(6, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    allowed = nlpo.nucleus(logits, top)
    for row, kept in zip(logits.softmax(dim=-1).tolist(), allowed.tolist(), strict=True):
        total, expected = 0.0, 0
        for probability in sorted(row, reverse=True):
            if top < 1 and total >= top:
                break
            total, expected = total + probability, expected + 1
        assert sum(kept) == expected
        assert min(p for p, one in zip(row, kept, strict=True) if one) >= max(
            [p for p, one in zip(row, kept, strict=True) if not one], default=0.0
        )
    scores = nlpo.masked(logits, allowed)
    assert scores.exp().sum(dim=-1).tolist() == pytest.approx([1.0] * 6)
    assert (scores.exp()[~allowed] == 0).all()


def test_nlpo_learns_faster_than_ppo_and_not_from_shuffled_rewards(nlpo):
    torch.set_num_threads(1)
    masked = nlpo.train(0, updates=16)
    assert masked[-1] > masked[0] + 0.25
    assert fmean(masked[-4:]) > fmean(nlpo.train(0, nlpo.Options(top_mask=1.0), updates=16)[-4:])
    assert fmean(nlpo.train(0, updates=16, shuffled=True)[-4:]) < fmean(masked[-4:]) - 0.2
