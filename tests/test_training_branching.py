"""Search over a policy's own answers: branches see what an unbranched rollout saw, and go where it pays."""

import asyncio
from dataclasses import replace
from statistics import fmean

import pytest
from methods_toys import DIGITS, RIGHT, SMALL, WORDS

from whet.errors import InputError
from whet.learn.training.branching import Recalling, TreeOptions, searched
from whet.learn.training.local import LocalModels, fresh
from whet.learn.training.pairs import step_pairs
from whet.record.env import rollout
from whet.record.policy import Action
from whet.types import Bundle, Outcome
from whet.worlds.tree import Tree, right_turns, tree_tasks


class Walker:
    """Reads the turns so far and says the next one."""

    def __init__(self, session):
        self.session = session

    async def act(self, observation):
        seen = [WORDS.bos, *WORDS.encode(observation["goal"])] if not self.session.context else []
        ids = [*seen, *WORDS.encode(observation["path"][-1:]), WORDS.act]
        sampled = await self.session.generate(ids, stop_id=None, max_new_tokens=1)
        return Action(WORDS.tokens[sampled.output_ids[0]], sampled.tokens, sampled.usage)


def world(tmp_path):
    bundle = Bundle([fresh("policy", tmp_path / "start", options=SMALL, vocab_size=len(WORDS), seed=0)])
    recalling = Recalling(LocalModels())

    async def play(task, said, seed):
        recalling.begin(seed, said)
        walker = Walker(recalling.sampler(bundle["policy"]).session(seed))
        return await rollout(Tree(), walker, task, seed=seed)

    return play


TASK = tree_tasks(1, depth=3, branches=len(DIGITS), seed=1)[0]


def test_a_branch_has_the_prompts_of_the_rollout_that_it_branches_from(tmp_path):
    play = world(tmp_path)

    async def work():
        whole = await play(TASK, (), 1)
        said = [step.tokens for step in whole.steps[:1]]
        return whole, await play(TASK, said, 2)

    # A first turn that is no digit ends the walk; the seed's is one.
    whole, branch = asyncio.run(work())
    assert whole.error is None
    assert branch.error is None
    assert branch.steps[0].action == whole.steps[0].action
    assert branch.steps[0].tokens == whole.steps[0].tokens
    if len(whole.steps) > 1:
        assert branch.steps[1].tokens.prompt_ids == whole.steps[1].tokens.prompt_ids


def test_a_branch_from_another_episode_is_refused(tmp_path):
    play = world(tmp_path)
    other = tree_tasks(3, depth=3, branches=len(DIGITS), seed=1)[2]
    assert right_turns(other) != right_turns(TASK)

    async def work():
        whole = await play(other, (), 1)
        return await play(TASK, [whole.steps[0].tokens], 2)

    found = asyncio.run(work())
    assert found.outcome is Outcome.FAILURE
    assert "not deterministic" in found.error.message


def test_search_finds_what_sampling_hardly_finds_and_its_pairs_point_there(tmp_path):
    play = world(tmp_path)
    tasks = tree_tasks(6, depth=3, branches=len(DIGITS), seed=1)

    async def shaped(task, said, seed):
        walk = await play(task, said, seed)
        right = right_turns(task)
        good = next((n for n, one in enumerate(walk.steps) if one.action != right[n]), len(walk.steps))
        paid = [*walk.steps[:-1], replace(walk.steps[-1], reward=good / len(right))]
        return replace(walk, steps=tuple(paid))

    async def rewards(rollouts, width):
        options = TreeOptions(rollouts=rollouts, width=width, exploration=0.3)
        groups = await asyncio.gather(
            *(searched(task, shaped, options, seed=1000 * n) for n, task in enumerate(tasks))
        )
        return groups, fmean(fmean(one.reward for one in group.trajectories) for group in groups)

    groups, grown = asyncio.run(rewards(48, 2.0))
    _, sampled = asyncio.run(rewards(48, 1e9))  # so wide that nothing is ever gone back to
    assert [len(group.trajectories) for group in groups] == [48] * 6
    assert grown > 1.5 * sampled
    pairs, _ = step_pairs(groups, margin=0.05)
    goals = {task.id: right_turns(task) for task in tasks}
    first = [pair for pair in pairs if len(pair.chosen[0].ids) == 6]  # bos, goal of 3, act, answer
    right = [WORDS.tokens[pair.chosen[0].ids[-1]] == goals[pair.task][0] for pair in first]
    assert first
    assert fmean(right) > 0.7


def test_options_that_make_no_tree_are_refused():
    assert set(RIGHT) == set(DIGITS)
    with pytest.raises(InputError, match="rollouts"):
        TreeOptions(rollouts=0)
