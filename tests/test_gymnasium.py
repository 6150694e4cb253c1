"""Gymnasium environments, of both generations and by shape alone, play as Envs, and Envs as Gymnasium's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import gymnasium
import numpy
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env as gymnasium_check
from methods_toys import CHANCE, WORDS, beginning
from test_policy_cli import answer, started

from whet.cli import app
from whet.errors import ContractError, EnvError, GateError, InputError, NotFoundError
from whet.learn.experiment import Experiment
from whet.record.env import StepResult, check_env, rollout
from whet.record.gym import adapted, as_gymnasium, as_json, episodes, factory_of
from whet.record.policy import FunctionPolicy
from whet.record.store import Store
from whet.record.store.bundles import read_bundle
from whet.types import Fault, Outcome, Split, Task, Trajectory
from whet.worlds.qa import QAEnv

TASK = Task(instruction="play", initial_state={"seed": 3})


class Guess(gymnasium.Env[Any, Any]):
    """The hidden one of three words is in the observation; naming it ends the episode with 1."""

    action_names = ("left", "straight on", "right")

    def __init__(self) -> None:
        self.observation_space = spaces.Dict({"hint": spaces.Discrete(3), "view": spaces.Box(0, 1, (2,))})
        self.action_space = spaces.Discrete(3)
        self.options: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.options = options
        self._hidden = int(self.np_random.integers(3))
        return self._seen(), {"array": numpy.zeros(2)}

    def _seen(self) -> dict[str, Any]:
        return {"hint": numpy.int64(self._hidden), "view": numpy.zeros(2, numpy.float32)}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        won = action == self._hidden
        return self._seen(), float(won), True, False, {"object": object(), "n": numpy.float32(0.5)}


def play(env: Any, act: Any, task: Task = TASK, **given: Any) -> Trajectory:
    return asyncio.run(rollout(env, FunctionPolicy(act), task, **{"seed": 0, **given}))


def named(observation: Any) -> str:
    return Guess.action_names[observation["hint"]]


def test_a_gymnasium_env_plays_without_being_adapted_by_hand() -> None:
    played = play(Guess(), named)
    assert (played.outcome, played.reward, played.error) == (Outcome.SUCCESS, 1.0, None)
    assert played.steps[0].observation == {"hint": played.steps[0].observation["hint"], "view": [0.0, 0.0]}
    assert played.steps[0].info == {"object": "<object>", "n": 0.5, "success": True}
    assert play(Guess(), lambda seen: (seen["hint"] + 1) % 3).outcome is Outcome.FAILURE


def test_the_seed_of_the_task_comes_before_that_of_the_rollout() -> None:
    alike = {play(Guess(), named, seed=number).steps[0].observation["hint"] for number in range(12)}
    assert len(alike) == 1
    bare = {play(Guess(), named, Task(), seed=number).steps[0].observation["hint"] for number in range(12)}
    assert len(bare) == 3


def test_what_else_the_task_begins_with_are_gymnasiums_options() -> None:
    env = Guess()
    play(env, named, Task(initial_state={"seed": 1, "level": "hard"}))
    assert env.options == {"level": "hard"}


@pytest.mark.parametrize("said", ["left", " Left ", "I go left.", "0", "action: 0", 0, 0.0])
def test_a_discrete_action_is_read_from_what_a_model_says(said: Any) -> None:
    assert play(Guess(), lambda _: said).outcome in (Outcome.SUCCESS, Outcome.FAILURE)
    assert "refused" not in play(Guess(), lambda _: said).steps[0].info


@pytest.mark.parametrize(
    "said", ["up", "left or right", "7", -1, 1.5, True, None, float("inf"), "", {"a": 1}]
)
def test_an_action_that_there_is_not_is_the_policys_failure(said: Any) -> None:
    played = play(Guess(), lambda _: said)
    assert (played.outcome, played.reward, played.error) == (Outcome.FAILURE, -1.0, None)
    assert "choose left, straight on, right" in played.steps[0].info["refused"]
    assert play(adapted(Guess(), penalty=-5.0), lambda _: said).reward == -5.0


class Parts(gymnasium.Env[Any, Any]):
    """Takes one action and shows what it was given."""

    observation_space = spaces.Text(9)

    def __init__(self, space: Any) -> None:
        self.action_space = space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return "begin", {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        return "end", 1.0, True, False, {"taken": action}


@pytest.mark.parametrize(
    ("space", "said", "taken"),
    [
        (spaces.Text(9), "abc", "abc"),
        (spaces.Discrete(3, start=5), "6", 6),
        (spaces.Box(-1, 1, (2,)), "[0.5, -1]", [0.5, -1.0]),
        (spaces.MultiBinary(2), [1, 0], [1, 0]),
        (spaces.MultiDiscrete([3, 4]), "[2, 3]", [2, 3]),
        (
            spaces.Dict(go=spaces.Discrete(2), say=spaces.Text(5)),
            '{"go": 1, "say": "hey"}',
            {"go": 1, "say": "hey"},
        ),
        (spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1)]), "[1, [0.5]]", [1, [0.5]]),
    ],
)
def test_actions_of_every_space_can_be_written_as_text_or_json(space: Any, said: Any, taken: Any) -> None:
    played = play(Parts(space), lambda _: said)
    assert played.error is None
    assert played.steps[0].info["taken"] == taken


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (spaces.Box(-1, 1, (2,)), "[2, 0]"),
        (spaces.Box(-1, 1, (2,)), "[1, 0, 1]"),
        (spaces.Box(-1, 1, (2,)), "west"),
        (spaces.MultiDiscrete([3, 4]), "[3, 0]"),
        (spaces.Dict(go=spaces.Discrete(2)), '{"stay": 1}'),
        (spaces.Tuple([spaces.Discrete(2)]), "[1, 2]"),
        (spaces.Text(9), 4),
    ],
)
def test_an_action_outside_of_its_space_never_reaches_the_env(space: Any, said: Any) -> None:
    played = play(Parts(space), lambda _: said)
    assert (played.outcome, played.error) == (Outcome.FAILURE, None)
    assert played.steps[0].info["refused"]


# -- by shape, without gymnasium ---------------------------------------------------------------


class Classic:
    """A four-value environment of the old kind."""

    def __init__(self, info: dict[str, Any] | None = None, reward: Any = 1) -> None:
        self.info, self.reward = info or {}, reward
        self.given: list[Any] = []

    def reset(self, task_id: str) -> str:
        self.given.append(task_id)
        return "begin"

    def step(self, action: Any) -> Any:
        return "end", self.reward, True, self.info


@pytest.mark.parametrize(
    ("info", "outcome"),
    [
        ({"correct": True}, Outcome.SUCCESS),
        ({"correct": False}, Outcome.FAILURE),
        ({"correct": True, "success": False}, Outcome.FAILURE),
        ({"is_success": numpy.bool_(True)}, Outcome.SUCCESS),
        ({"TimeLimit.truncated": True}, Outcome.TRUNCATED),
        ({"outcome": "blocked"}, Outcome.BLOCKED),
        ({}, Outcome.SUCCESS),
    ],
)
def test_a_four_value_env_plays_as_an_env(info: dict[str, Any], outcome: Outcome) -> None:
    classic = Classic(info)
    played = play(classic, lambda _: "any")
    assert (played.outcome, played.reward) == (outcome, 1.0)
    assert classic.given == [TASK.id]


def test_a_reward_of_none_stays_none_and_nothing_says_that_it_went_well() -> None:
    played = play(Classic(reward=None), lambda _: "any")
    assert (played.reward, played.outcome) == (None, Outcome.UNKNOWN)


class Seeded(Classic):
    """Gym before 0.26: the seed has a method of its own."""

    def seed(self, seed: int) -> None:
        self.given.append(seed)

    def reset(self) -> Any:  # type: ignore[override]
        return "begin"


class Positional(Classic):
    """Its reset could be taken for that of an Env: two arguments, in their places."""

    def reset(self, seed: Any = None, options: Any = None) -> Any:  # type: ignore[override]
        self.given.append((seed, options))
        return "begin", {}


def test_seeds_reach_envs_of_every_generation() -> None:
    seeded, positional = Seeded(), Positional()
    for env in (seeded, positional):
        assert play(env, lambda _: "any").error is None
    assert (seeded.given, positional.given) == ([3], [(3, None)])


def test_success_is_the_infos_then_the_thresholds_then_a_sum_above_0() -> None:
    assert play(Classic(reward=0), lambda _: "any").outcome is Outcome.FAILURE
    assert play(adapted(Classic(), success=2.0), lambda _: "any").outcome is Outcome.FAILURE
    cart = gymnasium.make("CartPole-v1")
    assert cart.spec is not None
    assert cart.spec.reward_threshold == 475
    played = play(cart, lambda _: 0)
    assert played.outcome is Outcome.FAILURE
    assert (played.reward or 0) > 5


def test_an_env_is_left_as_it_is() -> None:
    env = QAEnv()
    assert adapted(env) is env


@pytest.mark.parametrize("make", [Guess, Classic])
def test_adapted_envs_keep_the_contract(make: Any) -> None:
    asyncio.run(check_env(make, TASK, ["left"]))
    with pytest.raises(EnvError, match="before reset"):
        adapted(make()).step("left")


class NoStep:
    def reset(self) -> str:
        return ""


class NoReset:
    def step(self, action: Any) -> None: ...


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (
            NoStep(),
            r"NoStep is not an environment: it has no step\. Give it the method: step\(action\) answers",
        ),
        (
            NoReset(),
            r"NoReset is not an environment: it has no reset\. Give it the method: reset\(task, seed\)",
        ),
        (object(), "it has no reset and no step"),
        (gymnasium.make_vec("CartPole-v1", num_envs=2), "several episodes at once; give a function"),
    ],
)
def test_what_an_env_lacks_is_said_with_what_to_do(env: Any, said: str) -> None:
    with pytest.raises(ContractError, match=said):
        adapted(env)
    played = play(env, lambda _: 0)
    assert played.error is not None
    assert played.error.fault is Fault.ENVIRONMENT
    assert "environment" in played.error.message


def test_observations_without_a_json_form_are_the_environments_fault() -> None:
    with pytest.raises(EnvError, match="holds a object, which has no JSON form; wrap the environment"):
        as_json([object()])
    assert as_json((numpy.float64(1.5), {1: numpy.arange(2)}, None)) == [1.5, {"1": [0, 1]}, None]


# -- in an Experiment --------------------------------------------------------------------------


def test_episodes_are_tasks_of_different_seeds_that_no_two_splits_share() -> None:
    train, gate = (episodes(Guess, 50, split=split) for split in (Split.TRAIN, Split.GATE))
    seeds = [task.initial_state["seed"] for task in (*train, *gate)]
    assert len(set(seeds)) == 100
    assert [task.id for task in episodes(Guess, 50, split=Split.GATE)] == [task.id for task in gate]
    assert len({task.group for task in (*train, *gate)}) == 100
    assert episodes(gymnasium.make("CartPole-v1"), 1)[0].id == "CartPole-v1-episode-0-0"


@pytest.mark.parametrize("env", [Guess, Guess()], ids=["what makes it", "the environment"])
def test_an_experiment_takes_a_gymnasium_env(env: Any) -> None:
    experiment = Experiment(
        env=env, tasks=episodes(env, 30), rewards=[], policy=lambda bundle, seed: FunctionPolicy(named)
    )
    groups = asyncio.run(experiment.collect(n=2))
    assert {run.outcome for group in groups for run in group.trajectories} == {Outcome.SUCCESS}


def test_an_experiment_ends_at_once_where_the_env_lacks_a_method() -> None:
    experiment = Experiment(
        env=NoStep, tasks=episodes(NoStep, 30), rewards=[], policy=lambda bundle, seed: FunctionPolicy(named)
    )
    with pytest.raises(ContractError, match="it has no step"):
        asyncio.run(experiment.collect())


def test_an_env_that_cannot_be_copied_says_so() -> None:
    class Handle(Guess):
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("a socket")

    with pytest.raises(ContractError, match=r"Handle cannot be copied \(a socket\).*give a function"):
        factory_of(Handle())()


# -- the other way -----------------------------------------------------------------------------

QUESTIONS = [Task(id=f"q{n}", instruction=f"Name {n}", answer=str(n)) for n in range(4)]


class Later:
    """An Env with async methods and observations that are no text; several steps."""

    async def reset(self, task: Task, seed: int) -> Any:
        self._loop, self._left = asyncio.get_running_loop(), 3
        return {"task": task.id}

    async def step(self, action: Any) -> StepResult:
        assert asyncio.get_running_loop() is self._loop
        self._left -= 1
        return StepResult({"left": self._left}, None, self._left == 0)


@pytest.mark.parametrize("make", [QAEnv, Later])
def test_gymnasiums_own_checker_passes_an_env(make: Any) -> None:
    env = as_gymnasium(make, QUESTIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*render")
        gymnasium_check(env, skip_render_check=True)
    env.close()


class Sums(gymnasium.Env[Any, Any]):
    """Numbers of every kind of space go out, and come in."""

    observation_space = gymnasium.spaces.Dict(
        {
            "grid": gymnasium.spaces.Box(0, 9, (2, 2), dtype=numpy.float32),
            "pair": gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(5), gymnasium.spaces.MultiBinary(3)]),
            "word": gymnasium.spaces.Text(8),
        }
    )
    action_space = gymnasium.spaces.Box(-1, 1, (2,), dtype=numpy.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        draw = self.np_random
        self._shown = {
            "grid": draw.uniform(0, 9, (2, 2)).astype(numpy.float32),
            "pair": (int(draw.integers(5)), draw.integers(0, 2, 3).astype(numpy.int8)),
            "word": "left" if draw.integers(2) else "right",
        }
        return self._shown, {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        return self._shown, float(action.sum()), True, False, {}


def sums() -> Any:
    """Gymnasium's, as an Env, and as Gymnasium's again."""
    spaces = {"observation_space": Sums.observation_space, "action_space": Sums.action_space}
    return as_gymnasium(lambda: adapted(Sums()), QUESTIONS, **spaces)


def questions() -> Any:
    return as_gymnasium(QAEnv, QUESTIONS)


def test_members_of_every_space_come_back_as_they_went() -> None:
    env = sums()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*render")
        gymnasium_check(env, skip_render_check=True)
    observation, _ = env.reset(seed=3)
    assert env.observation_space.contains(observation)


@pytest.mark.parametrize("make", [sums, questions])
@pytest.mark.parametrize("processes", [False, True])
def test_envs_play_side_by_side_in_gymnasiums_vectors(make: Any, processes: bool) -> None:
    vector = (
        gymnasium.vector.AsyncVectorEnv([make] * 2, shared_memory=False)
        if processes
        else gymnasium.vector.SyncVectorEnv([make] * 2)
    )
    with contextlib.closing(vector):
        first, infos = vector.reset(seed=[1, 2])
        alone = [make() for _ in range(2)]
        seen = [env.reset(seed=seed) for env, seed in zip(alone, (1, 2), strict=True)]
        assert list(infos["task"]) == [info["task"] for _, info in seen]
        actions = vector.action_space.sample()
        if make is questions:
            assert list(first) == [observation for observation, _ in seen]
            actions = tuple(info["task"].removeprefix("q") for _, info in seen)
        _, rewards, terminated, _, _ = vector.step(actions)
        own = [env.step(action)[1] for env, action in zip(alone, actions, strict=True)]
        assert (list(rewards), list(terminated)) == (pytest.approx(own), [True, True])


@pytest.mark.parametrize("vector", ["SyncVectorEnv", "AsyncVectorEnv"])
def test_of_a_vector_one_environment_is_played(vector: str) -> None:
    def made() -> Any:
        return getattr(gymnasium.vector, vector)([sums] * 2)

    task = Task(initial_state={"seed": 4})
    alone = adapted(sums()).reset(task, 0)
    assert adapted(made()).reset(task, 0) == alone
    with contextlib.closing(made()) as whole:
        assert adapted(factory_of(whole)()).reset(task, 0) == alone


def test_a_vector_that_plays_all_at_once_is_refused_in_a_sentence() -> None:
    # It has no single environments, as those that compute all states in one array.
    made = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")
    with contextlib.closing(made):
        for take in (adapted, factory_of):
            with pytest.raises(ContractError, match="give a function that makes one of its environments"):
                take(made)


def test_an_env_as_gymnasiums_plays_a_task_by_id_or_by_seed() -> None:
    env = as_gymnasium(QAEnv, QUESTIONS)
    observation, info = env.reset(options={"task": "q2"})
    assert (observation, info) == ("User: Name 2", {"task": "q2"})
    assert env.step("it is 2")[1:4] == (1.0, True, False)
    assert env.reset(seed=5) == env.reset(seed=5)
    assert len({env.reset(seed=number)[0] for number in range(30)}) == 4
    with pytest.raises(InputError, match="no task 'other' among these 4"):
        env.reset(options={"task": "other"})
    with pytest.raises(InputError, match="at least one task"):
        as_gymnasium(QAEnv, [])


def test_async_envs_step_inside_a_running_loop() -> None:
    env = as_gymnasium(Later, QUESTIONS)

    async def notebook() -> Any:
        env.reset(seed=1)
        return env.step("go")

    assert asyncio.run(notebook())[:2] == ('{"left":2}', 0.0)
    env.close()


def test_there_and_back_again_is_the_same_episode() -> None:
    back = adapted(as_gymnasium(QAEnv, QUESTIONS))
    played = play(back, lambda seen: seen, Task(initial_state={"seed": 1, "task": "q3"}))
    assert played.steps[0].observation == "User: Name 3"
    assert (played.outcome, played.error) == (Outcome.SUCCESS, None)


# -- from an environment to weights that are proven --------------------------------------------


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with two environments and a tiny model whose vocabulary is digits."""
    (tmp_path / "digits_world.py").write_text(CHANCE)
    monkeypatch.chdir(tmp_path)
    beginning(tmp_path)
    WORDS.save(tmp_path / "start" / "vocabulary.json")
    yield tmp_path
    sys.modules.pop("digits_world", None)


def train(env: str, *words: Any, model: str = "start", output: str = "out") -> Any:
    given = ["train", "grpo", "--env", f"digits_world:{env}", "--model", model, "--answer-tokens", 1]
    given += ["--output", output, "--optim.learning-rate", 0.02, *words]
    return app([str(word) for word in given], result_action="return_value")


def metrics(folder: Path) -> list[dict[str, float]]:
    return [json.loads(row) for row in (folder / "metrics.jsonl").read_bytes().splitlines()]


def test_one_command_from_an_environment_to_weights_that_are_proven_and_live(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("Next", "--episodes", 40, "--steps", 20) == 0
    said = capsys.readouterr()
    rows = metrics(world / "out")
    assert rows[-1]["success"] > rows[0]["success"] + 0.4
    assert re.search(
        r"grpo 20/20 reward [\d.]+ success [\d.]+ entropy .* tokens_per_second .* left 0:00", said.err
    )
    assert "PROMOTE: shown to be better than baseline" in said.out
    assert "next: whet release out" in said.out
    written = read_bundle(world / "out")
    assert written.verdict is not None
    assert (written.verdict.promote, written.verdict.n) == (True, 200)
    with Store(world / "out" / "runs.db") as store:
        splits = {run.task.initial_state["seed"]: run.task.split for run in store.trajectories()}
    assert Counter(splits.values()) == {Split.TRAIN: 40, Split.VALIDATION: 64, Split.GATE: 200}
    assert app(["release", "out"], result_action="return_value") == 0
    with started("--store", "out/runs.db", "--vocabulary", "start/vocabulary.json") as (_, url, token):
        served = answer(url, token, max_tokens=1)
    assert served.system_fingerprint == written.bundle["policy"].id
    assert app(["rollback", "--store", "out/runs.db"], result_action="return_value") == 0


def test_rewards_by_chance_teach_nothing_that_the_gate_lets_through(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("Chance", "--episodes", 40, "--steps", 20, "--json") == 0
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    assert not verdict["promote"]
    with pytest.raises(GateError, match="does not promote it"):
        app(["release", "out"], result_action="return_value")
    assert mean(row["success"] for row in metrics(world / "out")[-5:]) < 0.35


def test_a_run_that_a_budget_cut_short_goes_on_to_the_same_weights(world: Path) -> None:
    words = (
        "--episodes",
        20,
        "--round-tasks",
        8,
        "--checkpoint-every",
        2,
        "--steps",
        6,
        "--no-gate",
        "--json",
    )
    assert train("Next", *words, output="whole") == 0
    assert train("Next", *words, "--max-rollouts", 4 * 8 * 8, output="parts") == 0
    assert len(metrics(world / "parts")) == 4
    with pytest.raises(InputError, match="holds a run already; go on with --resume"):
        train("Next", *words, output="parts")
    assert train("Next", *words, "--resume", output="parts") == 0
    whole, part = (read_bundle(world / name) for name in ("whole", "parts"))
    assert whole.verdict is None
    assert part.bundle["policy"].id == whole.bundle["policy"].id


@pytest.mark.parametrize(
    ("words", "model", "said"),
    [
        (["--tasks-file", "t.jsonl", "--episodes", 3], "start", "tasks or a number of episodes, not both"),
        (
            ["--policy", "digits_world:Next", "--system", "hm"],
            "start",
            "--system is of the chat with the model",
        ),
        ([], "tiny", "no policy to sample with: give a model with a tokenizer"),
        ([], "out", "there is no folder out"),
        (["--system", "be brief"], "start", "token 'be' is not among the 8 of this vocabulary"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_sampled(
    world: Path, words: list[Any], model: str, said: str
) -> None:
    (world / "t.jsonl").write_text('{"id": "a"}\n')
    with pytest.raises((InputError, NotFoundError), match=said):
        train("Next", *words, model=model)
    assert not (world / "out" / "runs.db").exists()
