"""Policies over admissible actions, on a toy and in BabyAI's GoTo told in words."""

import asyncio
import importlib
import math
from dataclasses import replace

import pytest
import torch
from methods_toys import DIGITS, FAST, WORDS, Answer, beginning, context, measured, shuffled, success, tasks

from whet.errors import EnvError, InputError
from whet.learn.optimizers.candidates import CandidateOptions, Candidates
from whet.learn.training.alarms import AlarmOptions
from whet.learn.training.batch import parts
from whet.learn.training.choice import ChoicePolicy, Chooser, choice_logprobs, sequences_of
from whet.learn.training.learner import chosen_logprobs
from whet.learn.training.local import LocalModels
from whet.record.env import check_env, rollout
from whet.types import Group

NEVER = AlarmOptions(success_drop=None, min_entropy=None, max_no_signal=None)


def admissible(_):
    """Every digit; each is said twice over, and one of them at greater length."""
    return [(d, [*WORDS.encode([d]), WORDS.eos, *([WORDS.eos] if d == "2" else [])]) for d in DIGITS]


def prompt(seen):
    return [WORDS.bos, *WORDS.encode([seen[-1]]), WORDS.act]


async def collect(bundle, todo, n, models, seed=0):
    network = models.decoder(bundle["policy"])
    chooser = Chooser(network, policy_version=str(bundle["policy"].meta.get("policy_version")))
    runs = [
        rollout(Answer(), ChoicePolicy(chooser, admissible, prompt, seed * 977 + k * n + i), task, seed=i)
        for k, task in enumerate(todo)
        for i in range(n)
    ]
    done = await asyncio.gather(*runs)
    return [Group(task, done[k * n : (k + 1) * n]) for k, task in enumerate(todo)]


async def learned(folder, seed, relabel=lambda groups: groups):
    models, start = LocalModels(), beginning(folder, seed)
    options = CandidateOptions(
        steps=14, checkpoint_every=14, passes=2, optim=replace(FAST, learning_rate=1e-2), alarms=NEVER
    )
    optimizer, bundle, state = Candidates(admissible, options, models=models), start, None
    before = success(await collect(start, tasks(60, 5), 2, models, 3))
    for number in range(14):
        groups = relabel(await collect(bundle, tasks(24, number), 3, models, number))
        update = await optimizer.step(bundle, groups, context(folder, state=state))
        bundle, state = update.bundle, update.state
    return before, success(await collect(bundle, tasks(60, 5), 2, models, 3)), update


def test_a_policy_over_admissible_actions_learns_which_to_say(tmp_path):
    before, after, update = asyncio.run(learned(tmp_path, 1))
    assert before <= 0.5
    assert after >= 0.9
    assert update.metrics["entropy"] < 1.0


def test_it_learns_nothing_from_each_others_rewards(tmp_path):
    before, after, _ = asyncio.run(learned(tmp_path, 0, shuffled))
    assert after <= before + 0.25


def test_a_choice_is_the_softmax_of_what_its_tokens_are_worth(tmp_path):
    models = LocalModels()
    network = models.decoder(beginning(tmp_path)["policy"])
    ids = [1, 4, 2]
    actions = [[5], [6, 3], [7, 3, 3]]
    scores = asyncio.run(Chooser(network).scores(ids, actions))
    assert sum(map(math.exp, scores)) == pytest.approx(1.0, abs=1e-5)
    sums = []
    for action in actions:
        (part,) = parts(sequences_of(ids, [action], 0))
        with torch.no_grad():
            sums.append(float(chosen_logprobs(network, part).sum()))
    expected = torch.log_softmax(torch.tensor(sums), dim=0)
    assert scores == pytest.approx(expected.tolist(), abs=1e-4)
    even = asyncio.run(Chooser(network, normalised=True).scores(ids, actions))
    assert even[2] > scores[2]  # a long action is not held against it
    (part,) = parts(
        [*sequences_of(ids, actions, 0), *sequences_of(ids, actions[:2], 1)], block=lambda s: s.unit // 9
    )
    units, table = choice_logprobs(torch.zeros(len(part.targets)), part)
    assert units.tolist() == [0, 1]
    assert table[1, 2] == float("-inf")


def test_what_was_not_admissible_cannot_be_learned_from(tmp_path):
    models, start = LocalModels(), beginning(tmp_path)
    groups = asyncio.run(collect(start, tasks(2), 1, models))
    optimizer = Candidates(lambda _: admissible(_)[:1], models=models)
    with pytest.raises(InputError, match="not among the 1 admissible"):
        asyncio.run(optimizer.step(start, groups, context(tmp_path)))
    with pytest.raises(InputError, match="at least one id"):
        sequences_of([1], [[]], 0)
    assert asyncio.run(measured(start, models)) < 0.5


@pytest.fixture
def minigrid():
    return pytest.importorskip("minigrid")


def test_the_text_world_keeps_the_environments_contract_and_tells_what_is_there(minigrid):
    from whet.worlds.text import TextWorld, text_tasks

    (task,) = text_tasks(1, names={"ball": "sphere"})
    asyncio.run(check_env(lambda: TextWorld(3), task, ["turn left", "jump", "go forward"]))
    seen = TextWorld().reset(task, 0)
    assert seen["mission"] == "go to the red sphere"
    assert any("red sphere" in line for line in seen["seen"])
    assert len(seen["actions"]) == 6
    with pytest.raises(EnvError, match="not a mission"):
        TextWorld().reset(replace(task, initial_state={}), 0)
    with pytest.raises(InputError, match="no level"):
        text_tasks(1, level="goto_mars")


def test_walking_to_the_ball_that_is_told_of_succeeds(minigrid):
    """The sentences are true: who follows them arrives."""
    from whet.worlds.text import TextWorld, text_tasks

    won = []
    for task in text_tasks(20):
        world = TextWorld(40)
        seen, done = world.reset(task, 0), False
        while not done:
            line = next((one for one in seen["seen"] if "red ball" in one), "")
            if not line:
                action = "turn right"
            elif "forward" in line and "1 step forward" not in line:
                action = "go forward"
            elif " left" in line:
                action = "turn left" if "forward" not in line else "go forward"
            elif " right" in line:
                action = "turn right" if "forward" not in line else "go forward"
            else:
                action = "go forward"
            result = world.step(action)
            seen, done = result.observation, result.terminated or result.truncated
        won.append(result.info["success"])
    assert sum(won) >= 15


def test_the_claim_about_it_is_measured_and_published(minigrid, repository, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(repository / "benchmarks" / "claims")
    claim = importlib.import_module("glam")
    page = tmp_path / "claims.md"
    claim.glam(seeds=1, size=claim.Size(rounds=1, episodes=2, judged=2), page=page)
    rows = [line.split(" | ") for line in page.read_text().splitlines() if " | 0 | " in line]
    assert len(rows) == 4  # the policy and its control, with our settings and the paper's
    assert all(0 <= float(value) <= 1 for row in rows for value in row[2:5])
