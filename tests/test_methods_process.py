"""Step labels and process reward models, on a tree whose wrong turns are known."""

import asyncio
import json
import random
from statistics import fmean

import pytest
from methods_toys import FAST, context

from whet.errors import BudgetExceeded, EnvError, InputError, TrainingRefused
from whet.learn.optimizers.prm import PRM, PRMOptions
from whet.learn.optimizers.reward_model import RewardModel, RewardModelOptions
from whet.learn.training.local import LocalModels, fresh
from whet.learn.training.model import ModelOptions
from whet.learn.training.process_labels import hardened, monte_carlo, prm800k
from whet.learn.training.scorer import LearnedReward, load_scorer
from whet.learn.training.vocabulary import Vocabulary
from whet.models.budget import Meter
from whet.record.env import check_env, rollout
from whet.record.policy import Action
from whet.types import Budget, Bundle, Group, Tokens
from whet.worlds.tree import Tree, first_wrong, right_turns, tree_tasks

BRANCHES = 3
DEPTH = 4
WORDS = Vocabulary(["0", "1", "2", "undo", "goal", "x"])
SIZE = ModelOptions(hidden=24, layers=2, heads=2, kv_heads=1, ffn=48, max_length=64)


def test_the_tree_keeps_the_environments_contract():
    (task,) = tree_tasks(1, depth=3, repairable=True)
    turns = right_turns(task)
    wrong = str((int(turns[0]) + 1) % 3)
    asyncio.run(check_env(Tree, task, [wrong, "undo", *turns]))
    with pytest.raises(EnvError, match="not a walk"):
        Tree().reset(type(task)(id="x"), 0)
    with pytest.raises(InputError, match="branches"):
        tree_tasks(1, branches=1)
    assert first_wrong(task, turns) is None
    assert first_wrong(task, [wrong, "undo", *turns]) is None
    assert first_wrong(task, [turns[0], wrong if wrong != turns[1] else turns[0]]) in (1, None)


class Walker:
    """Takes the right turn with some chance; its calls hold the tokens that a language model would."""

    def __init__(self, task, seed, skill, undo):
        self._right, self._rng, self._skill = right_turns(task), random.Random(seed), skill
        self._undo = undo
        self._goal = [str(turn) for turn in task.initial_state["goal"]]
        self._ids = [WORDS.bos]

    async def act(self, observation):
        right = self._right[len(observation["path"])]
        bad = observation["path"] != self._right[: len(observation["path"])]
        if bad and observation["undo"] and self._rng.random() < self._undo:
            turn = "undo"
        else:
            turn = right if self._rng.random() < self._skill else str(self._rng.randrange(BRANCHES))
        self._ids += [*WORDS.encode(["goal", self._goal[len(observation["path"])]]), WORDS.act]
        output = WORDS.encode([turn])
        tokens = Tokens(tuple(self._ids), tuple(output), (-1.0,))
        self._ids = [*self._ids, *output]
        return Action(turn, tokens)


def walks(skill=0.5, *, undo=0.5, budget=None):
    meter = Meter(budget or Budget())

    async def play(bundle, tasks, n=1, *, seed=0, prefix=None):
        meter.reserve(rollouts=len(tasks) * n)
        groups = []
        for task in tasks:
            runs = []
            for index in range(n):
                policy = Walker(task, f"{seed}/{task.id}/{index}", skill, undo)
                runs.append(
                    await rollout(Tree(), policy, task, seed=index, prefix=prefix, id=f"{task.id}-{index}")
                )
            groups.append(Group(task, runs))
        return groups

    return play


def labels_against_truth(labelled):
    """(label, whether the step was right) of every step up to the first wrong one, the last left out."""
    found = []
    for one in labelled:
        actions = [step.action for step in one.trajectory.steps]
        wrong = first_wrong(one.trajectory.task, actions)
        found += [
            (label, wrong is None or step < wrong)
            for step, label in one.labels.items()
            if step < len(actions) - 1 and (wrong is None or step <= wrong)
        ]
    return found


def auc(pairs):
    good = [label for label, fine in pairs if fine]
    bad = [label for label, fine in pairs if not fine]
    return fmean([(a > b) + 0.5 * (a == b) for a in good for b in bad])


def test_soft_labels_get_better_with_more_completions_and_hard_ones_worse_where_steps_can_be_repaired(
    tmp_path,
):
    tasks = tree_tasks(40, depth=DEPTH, branches=BRANCHES, repairable=True)
    walk, go_on = walks(0.5, undo=0.0), walks(0.85)

    async def run(n):
        groups = await walk(Bundle(), tasks, 1)
        every = [trajectory for group in groups for trajectory in group.trajectories]
        return await monte_carlo(every, Bundle(), context(tmp_path, rollout=go_on), completions=n)

    few, many = asyncio.run(run(3)), asyncio.run(run(24))
    assert auc(labels_against_truth(many)) > auc(labels_against_truth(few))

    def accuracy(labelled):
        return fmean([(label > 0.5) == fine for label, fine in labels_against_truth(labelled)])

    assert accuracy(hardened(many)) < accuracy(hardened(few)) - 0.03
    assert auc(labels_against_truth(many)) > auc(labels_against_truth(hardened(many))) + 0.05


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prm")
    play, go_on = walks(0.6), walks(0.9)
    models = LocalModels()
    start = Bundle([fresh("policy", folder / "start", options=SIZE, vocab_size=len(WORDS), seed=0)])
    tasks = tree_tasks(120, depth=DEPTH, branches=BRANCHES, seed=1)

    async def run():
        groups = await play(start, tasks, 2)
        options = PRMOptions(completions=6, trajectories=240, epochs=14, batch=16, optim=FAST)
        prm = await PRM(options, models=models).step(start, groups, context(folder, rollout=go_on))
        orm_options = RewardModelOptions(objective="outcome", epochs=14, batch=16, optim=FAST)
        orm = await RewardModel(orm_options, models=models).step(start, groups, context(folder))
        unseen = await play(start, tree_tasks(100, depth=DEPTH, branches=BRANCHES, seed=77), 1, seed=5)
        return prm, orm, [t for group in unseen for t in group.trajectories]

    return (models, *asyncio.run(run()))


def located(scorer, trajectories):
    """Share of failed walks whose first wrong turn is where the score falls the most, or begins low."""
    hits = []
    for trajectory, scores in zip(trajectories, scorer.score_steps(trajectories), strict=True):
        wrong = first_wrong(trajectory.task, [step.action for step in trajectory.steps])
        if wrong is not None:
            before = 1.0
            falls = []
            for step in range(len(trajectory.steps)):
                falls.append(before - scores[step])
                before = scores[step]
            hits.append(falls.index(max(falls)) == wrong)
    return fmean(hits)


def test_a_process_reward_model_finds_the_planted_error_and_an_outcome_model_does_not(trained):
    models, prm, orm, unseen = trained
    assert prm.metrics["labelled_steps"] > 700
    found = located(load_scorer(prm.bundle["process_reward"], models), unseen)
    by_outcome = located(load_scorer(orm.bundle["reward_model"], models), unseen)
    assert found >= 0.8
    assert by_outcome <= found - 0.15


def test_a_learned_process_reward_scores_a_walk_by_its_worst_step(trained):
    models, prm, _, unseen = trained
    reward = LearnedReward(prm.bundle["process_reward"], models=models)
    good = [t for t in unseen if t.outcome.value == "success"]
    bad = [t for t in unseen if t.outcome.value == "failure"]
    assert fmean(reward(t).value for t in good) > fmean(reward(t).value for t in bad) + 0.3
    product = LearnedReward(prm.bundle["process_reward"], models=models, steps="product")
    assert product(good[0]).value <= reward(good[0]).value
    with pytest.raises(InputError, match="not a learned reward"):
        LearnedReward(prm.bundle["policy"], models=models)


def test_labelling_keeps_to_the_budget_and_nothing_labelled_is_refused(tmp_path):
    models = LocalModels()
    start = Bundle([fresh("policy", tmp_path / "start", options=SIZE, vocab_size=len(WORDS), seed=0)])
    play = walks(budget=Budget(rollouts=30))

    async def run():
        groups = await play(start, tree_tasks(4, depth=DEPTH), 1)
        with pytest.raises(BudgetExceeded):
            await PRM(PRMOptions(completions=8), models=models).step(
                start, groups, context(tmp_path, rollout=play)
            )
        with pytest.raises(TrainingRefused, match="steps that helped"):
            await PRM(models=models).step(start, [], context(tmp_path, rollout=play))

    asyncio.run(run())


PRM800K = json.dumps(
    {
        "question": {"problem": "1+1"},
        "label": {
            "steps": [
                {
                    "completions": [{"text": "add", "rating": 1}, {"text": "guess", "rating": -1}],
                    "human_completion": None,
                    "chosen_completion": 0,
                },
                {
                    "completions": [{"text": "3", "rating": -1}],
                    "human_completion": {"text": "2"},
                    "chosen_completion": None,
                },
            ],
            "finish_reason": "solution",
        },
    }
)


def test_ratings_of_prm800k_become_labels_on_the_solution_they_were_given_to():
    made = prm800k([PRM800K, ""], lambda text: [ord(char) for char in text])
    paths = [([step.action for step in one.trajectory.steps], dict(one.labels)) for one in made]
    assert paths == [
        (["guess"], {0: 0.0}),
        (["add", "3"], {0: 1.0, 1: 0.0}),
        (["add", "2"], {0: 1.0, 1: 1.0}),
    ]
    last = made[-1].trajectory.steps[1].tokens
    assert last.prompt_ids == tuple(map(ord, "1+1add"))
    again = prm800k([PRM800K], lambda text: [ord(char) for char in text])
    assert [one.trajectory.id for one in again] == [one.trajectory.id for one in made]
    with pytest.raises(InputError, match="line 1 is not a PRM800K record"):
        prm800k(['{"label": 3}'], lambda text: [])


def rated(problem, right, wrong):
    """A line of PRM800K: two steps, each with a good and a bad way of going on."""
    steps = [
        {"completions": [{"text": good, "rating": 1}, {"text": bad, "rating": -1}], "chosen_completion": 0}
        for good, bad in zip(right, wrong, strict=True)
    ]
    return json.dumps({"question": {"problem": problem}, "label": {"steps": steps}})


def test_a_file_of_peoples_ratings_trains_a_process_reward_from_the_command_line(tmp_path, capsys):
    from whet.cli import app

    path = tmp_path / "prm800k.jsonl"
    path.write_text("\n".join(rated(f"{n}+1=", ["add;", f"{n + 1}."], ["eat;", "0."]) for n in range(24)))
    words = ["train", "prm", "--data", path, "--output", tmp_path / "out", "--epochs", 12, "--json"]
    words += ["--optim.learning-rate", 0.01]
    assert app([str(word) for word in words], result_action="return_value") == 0
    result = json.loads(capsys.readouterr().out)
    # a bad first step, a good and a bad second step after the good first, for each problem
    assert (result["metrics"]["labelled_trajectories"], result["metrics"]["labelled_steps"]) == (72, 120)
    assert result["metrics"]["validation_loss"] < 0.3, "well below the .67 of knowing the share alone"
    assert set(result["bundle"]) == {"policy", "process_reward"}
    path.write_text(path.read_text() + "\n{}\n")
    with pytest.raises(InputError, match="line 25 is not a PRM800K record"):
        app([str(word) for word in [*words[:5], tmp_path / "other", *words[6:]]])
