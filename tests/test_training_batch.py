"""What trajectories become before a network sees them, and the credit they carry."""

import math
import random
from dataclasses import replace

import pytest
import torch

from whet.errors import InputError
from whet.learn.training.batch import MergeCounts, merge, minibatches, parts
from whet.learn.training.credit import credit, staleness
from whet.types import Group, Outcome, Score, Step, Task, Tokens, Trajectory

TASK = Task(id="t")


def trajectory(*calls, reward=None, outcome=Outcome.FAILURE, version=None):
    steps = [Step(tokens=Tokens(*call, policy_version=version) if call else None) for call in calls]
    if reward is not None and steps:
        steps[-1] = replace(steps[-1], reward=reward)
    return Trajectory(task=TASK, steps=steps, outcome=outcome)


def test_calls_that_extend_each_other_are_one_sequence():
    found, counts = merge(
        trajectory(((1, 5), (7, 3), (-0.1, -0.2)), None, ((1, 5, 7, 3, 6, 6), (8,), (-0.3,)))
    )
    assert len(found) == 1
    assert found[0].ids == [1, 5, 7, 3, 6, 6, 8]
    assert found[0].targets == [2, 3, 6]
    assert found[0].logprobs == [-0.1, -0.2, -0.3]
    assert counts == MergeCounts(calls=2, sequences=1, forked=0, tokens=7, targets=3, unmerged_tokens=11)
    assert counts.merged == 1


def test_a_rewritten_history_forks_and_an_interleaved_agent_finds_its_own():
    found, counts = merge(
        trajectory(
            ((1, 5), (7,), (-0.1,)),
            ((2, 2), (9,), (-0.2,)),  # another agent
            ((1, 5, 7, 4), (8,), (-0.3,)),  # the first goes on
            ((1, 5, 6, 4), (8,), (-0.4,)),  # its history is rewritten
        )
    )
    assert [sequence.ids for sequence in found] == [[1, 5, 7, 4, 8], [2, 2, 9], [1, 5, 6, 4, 8]]
    assert (counts.calls, counts.sequences, counts.forked, counts.merged) == (4, 3, 2, 1)


def test_loss_falls_on_what_the_mask_leaves():
    found, _ = merge(trajectory(((1,), (7, 8, 9), (-0.1, -0.2, -0.3), (True, False, True))))
    assert found[0].targets == [1, 3]
    assert found[0].logprobs == [-0.1, -0.3]


@pytest.mark.parametrize(
    "call", [((), (7,), (-0.1,)), ((1,), (7, 8), (-0.1,)), ((1,), (7,), (-0.1,), (True, False))]
)
def test_calls_that_do_not_fit_together_are_refused(call):
    with pytest.raises(InputError, match="trajectory"):
        merge(trajectory(call))


def test_parts_hold_every_target_once_and_stay_within_their_size():
    rng = random.Random(0)
    sequences, expected = [], []
    for unit in range(40):
        prompt = [rng.randrange(4, 20) for _ in range(rng.randint(1, 60))]
        output = [rng.randrange(4, 20) for _ in range(rng.randint(1, 6))]
        found, _ = merge(trajectory((prompt, output, [-float(unit)] * len(output))), unit)
        sequences += found
        expected += [(unit, token, -float(unit)) for token in output]
    made = parts(sequences, part_tokens=300)
    seen = []
    for part in made:
        assert part.computed <= 300
        assert len(part.layout.index) == len(part.targets)
        seen += list(zip(part.units.tolist(), part.targets.tolist(), part.logprobs.tolist(), strict=True))
    assert sorted(seen) == sorted(expected)
    assert sum(part.tokens for part in made) == sum(len(sequence.ids) for sequence in sequences)


def test_targets_are_predicted_from_the_position_before():
    found, _ = merge(trajectory(((1, 5), (7, 3), (-0.1, -0.2))))
    (part,) = parts(found)
    assert part.layout.positions[part.layout.wanted][part.layout.index].tolist() == [1, 2]
    assert part.targets.tolist() == [7, 3]


def test_minibatches_keep_a_trajectory_together_and_repeat_with_the_seed():
    sequences = []
    for unit in range(10):
        sequences += merge(trajectory(((1, unit), (7,), (-0.1,)), ((2, unit), (8,), (-0.1,))), unit)[0]
    batches = list(minibatches(sequences, 3, random.Random(4)))
    assert [len(batch) for batch in batches] == [6, 6, 6, 2]
    assert all(len({sequence.unit for sequence in batch}) == len(batch) // 2 for batch in batches)
    assert batches == list(minibatches(sequences, 3, random.Random(4)))
    assert batches != list(minibatches(sequences, 3, random.Random(5)))


def call(token):
    return ((1, 5), (token,), (-0.5,))


def options(**given):
    return {"score": None, "baseline": "group", "scale": "none", "unknown": None} | given


def test_credit_masks_failed_machines_and_skips_groups_without_a_signal():
    broken = trajectory(call(9), reward=0.0, outcome=Outcome.INFRASTRUCTURE_ERROR)
    groups = [
        Group(TASK, [trajectory(call(7), reward=1.0), trajectory(call(8), reward=0.0), broken]),
        Group(TASK, [trajectory(call(7), reward=1.0), trajectory(call(8), reward=1.0)]),
        Group(TASK, [trajectory(call(7), reward=1.0), broken]),
        Group(TASK, [trajectory(call(7)), trajectory(call(7))]),
    ]
    found = credit(groups, **options())
    assert [(s.ids[-1], s.advantages) for s in found.sequences] == [(7, [0.5]), (8, [-0.5])]
    metrics = found.metrics
    assert metrics["masked"] == 4
    assert metrics["groups_flat"] == 1
    assert metrics["groups_too_small"] == 2
    assert metrics["no_signal"] == 0.75
    assert metrics["reward"] == pytest.approx(4 / 5)


def test_credit_reads_a_named_score_and_the_rate_of_giving_up():
    def scored(token, value, gave_up):
        made = trajectory(call(token), reward=-9.0)
        return made.scored(Score("right", value), Score("unknown", gave_up))

    found = credit(
        [Group(TASK, [scored(7, 1.0, 0.0), scored(8, 0.0, 1.0), scored(9, None, None)])],
        **options(score="right", unknown="unknown"),
    )
    assert [sequence.advantages for sequence in found.sequences] == [[0.5], [-0.5]]
    assert found.metrics["reward"] == 0.5
    assert found.metrics["unknown"] == 0.5
    assert "unknown" not in credit([], **options(unknown="unknown")).metrics


def test_rewards_that_are_not_finite_and_missing_logprobs_are_named():
    bad = trajectory(call(7), reward=math.nan)
    with pytest.raises(InputError, match=bad.id):
        credit([Group(TASK, [bad, trajectory(call(8), reward=1.0)])], **options())
    silent = trajectory(((1, 5), (7,), ()), reward=0.0)
    with pytest.raises(InputError, match="log-probabilities"):
        credit([Group(TASK, [silent, trajectory(call(8), reward=1.0)])], **options())


def test_staleness_counts_updates_since_sampling():
    groups = [Group(TASK, [trajectory(call(7), version="4"), trajectory(call(7), version="6")])]
    assert staleness(groups, 7) == 2
    assert staleness([Group(TASK, [trajectory(call(7), version="a8f")])], 7) is None


def test_tensors_have_the_types_that_the_forward_wants():
    (part,) = parts(merge(trajectory(call(7)))[0])
    assert part.layout.ids.dtype == part.layout.wanted.dtype == part.targets.dtype == torch.int64
    assert part.logprobs.dtype == part.advantages.dtype == torch.float32
