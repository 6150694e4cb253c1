"""The flat loop in examples/ learns, its control does not, and it stays flat."""

import importlib.util
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
