"""`whet train` and `whet show --trainable`, from files and a store, with kill -9 and every error that one meets.

A recording is learned from once, gone on with, and refused where other weights sampled it.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import msgspec
import pytest
from methods_toys import beginning, collect, context, tasks
from processes import until

from whet.cli import app
from whet.cli.steps import ProgressPrinter
from whet.cli.train import METHODS, NEED_MORE
from whet.errors import InputError, NotFoundError, TrainingRefused
from whet.learn.optimizers.ppo import PPO
from whet.learn.training import capture, dataset
from whet.learn.training.local import LocalModels
from whet.record.exchange import formats
from whet.record.store import Store
from whet.types import Bundle, Feedback, Group, Outcome, Split, Step, Task, Tokens, Trajectory, Version


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """The weights that made the recording: folder and Bundle."""
    folder = tmp_path_factory.mktemp("recorded")
    return folder / "start", beginning(folder)


@pytest.fixture(scope="module")
def groups(start) -> list[Group]:
    return asyncio.run(collect(start[1], tasks(24), 8, models=LocalModels()))


@pytest.fixture
def recorded(groups, tmp_path):
    return written(tmp_path / "trajectories.jsonl", [t for group in groups for t in group.trajectories])


def run(*words):
    return app([str(word) for word in words], result_action="return_value")


SMALL = {
    "sft": ["--epochs", 2],
    "awr": ["--epochs", 2],
    "star": ["--steps", 1, "--epochs", 2],
    "dpo": ["--epochs", 1, "--pairs", "step", "--optim.schedule", "cosine"],
    "kto": ["--epochs", 1],
    "reward-model": ["--epochs", 1, "--objective", "outcome"],
    "grpo": ["--steps", 2, "--optim.learning-rate", 0.01],
    "rloo": ["--steps", 2],
    "reinforce": ["--steps", 2, "--assignment", "broadcast"],
    "ppo": ["--steps", 2, "--no-whiten"],
    "a2c": ["--steps", 2],
    "webrl": ["--steps", 2, "--epochs", 1],
    "prm": ["--epochs", 1],
    "rlhf": ["--clone.epochs", 1, "--reward.epochs", 1, "--reinforce.steps", 2, "--tasks", 4],
}
OWN = [method for method, about in METHODS.items() if about.own]
"""Methods that learn from tokens of their own."""
LEARNED = {"reward-model": "reward_model", "rlhf": "reward_model", "prm": "process_reward"}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_from_a_file(method, recorded, start, tmp_path, capsys):
    output = tmp_path / "out"
    words = ["--data", recorded, "--output", output, "--json", *SMALL[method]]
    assert run("train", method, *words, *(["--model", start[0]] if method in OWN else [])) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["method"] == method
    assert result["metrics"]
    bundle = json.loads((output / "bundle.json").read_bytes())["bundle"]
    kinds = {version["resource"]: version["kind"] for version in bundle}
    assert kinds["policy"] == "weights"
    assert set(kinds) - {"policy"} == ({LEARNED[method]} if method in LEARNED else set())
    version = msgspec.convert(bundle[0], type=Version)
    assert LocalModels().decoder(version).count() > 0
    assert len((output / "metrics.jsonl").read_bytes().splitlines()) == result["rounds"]


def rewarded(path, groups, change):
    """The same runs with other rewards or outcomes."""
    return written(path, [change(trajectory) for group in groups for trajectory in group.trajectories])


def unknown_outcome(trajectory):
    return replace(trajectory, outcome=Outcome.UNKNOWN, scores={})


def outcome_alone(trajectory):
    steps = [replace(step, reward=None) for step in trajectory.steps]
    return replace(trajectory, steps=steps, scores={})


@pytest.mark.parametrize("change", [unknown_outcome, outcome_alone])
@pytest.mark.parametrize("method", ["grpo", "ppo", "awr", "sft", "kto"])
def test_step_rewards_are_learned_from_or_else_the_outcome(method, change, groups, start, tmp_path, capsys):
    path = rewarded(tmp_path / "runs.jsonl", groups, change)
    words = ["--data", path, "--output", tmp_path / "out", "--json", *SMALL[method]]
    assert run("train", method, *words, *(["--model", start[0]] if method in OWN else [])) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]


def test_step_rewards_that_teach_nothing_are_refused_for_that_and_not_for_their_outcome(groups, tmp_path):
    def even(trajectory):
        return unknown_outcome(replace(trajectory, steps=[replace(s, reward=0.5) for s in trajectory.steps]))

    path = rewarded(tmp_path / "runs.jsonl", groups, even)
    with pytest.raises(TrainingRefused, match="the runs of each task are all worth the same"):
        run("train", "grpo", "--data", path, "--output", tmp_path / "out", "--steps", 1)
    path = rewarded(tmp_path / "bare.jsonl", groups, lambda t: outcome_alone(unknown_outcome(t)))
    with pytest.raises(TrainingRefused, match="no step reward, no score of that name, no outcome"):
        run("train", "grpo", "--data", path, "--output", tmp_path / "bare", "--steps", 1)


@pytest.mark.parametrize("method", ["grpo", "sft", "dpo"])
def test_what_cannot_be_learned_from_is_refused_before_torch_is_imported(method, groups, tmp_path):
    def silent(trajectory):
        return replace(trajectory, steps=[replace(step, tokens=None) for step in trajectory.steps])

    path = rewarded(tmp_path / "runs.jsonl", groups, silent)
    words = ["train", method, "--data", str(path), "--output", str(tmp_path / "out")]
    code = (
        "import sys; from whet.cli import app; from whet.errors import TrainingRefused\n"
        f"try: app({words!r}, result_action='return_value')\n"
        "except TrainingRefused as error: print(error, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "no model call was recorded" in done.stdout
    assert done.stdout.rstrip().endswith("False")


@pytest.mark.parametrize("method", NEED_MORE)
def test_what_a_recording_is_not_enough_for_says_what_to_use(method, recorded, tmp_path, capsys):
    words = ["train", method, "--data", recorded, "--output", tmp_path / "out"]
    with pytest.raises(
        InputError, match=r"Experiment\.improve\(whet\.learn\.(optimizers|evolution)\..*whet train"
    ):
        run(*words)
    assert not (tmp_path / "out").exists()
    run("train", "--help")
    assert f" {method} " in capsys.readouterr().out


def test_prompts_of_several_calls_need_their_environment(tmp_path):
    folder = tmp_path / "two"
    groups = asyncio.run(collect(beginning(folder), tasks(2, turns=2), 2, models=LocalModels()))
    path = written(
        tmp_path / "two.jsonl", [trajectory for group in groups for trajectory in group.trajectories]
    )
    with pytest.raises(TrainingRefused, match="2 calls, and what follows an answer only its environment"):
        run("train", "rlhf", "--data", path, "--output", tmp_path / "out")


def test_a_run_that_drifts_too_far_stops_and_says_why(recorded, start, tmp_path, capsys):
    words = ["train", "grpo", "--data", recorded, "--steps", 12, "--kl-every", 1, "--checkpoint-every", 2]
    words += ["--optim.learning-rate", 0.02, "--json", "--model", start[0], "--round-tasks", 2, "--passes", 4]
    assert run(*words, "--output", tmp_path / "free") == 0
    free = json.loads(capsys.readouterr().out)
    assert free["reason"] == "all 12 rounds done"
    assert free["metrics"]["kl"] > 0.05
    # What was not said is told as it was settled: of a small fresh model Muon, and a rate that falls.
    settled = json.loads((tmp_path / "free" / "run.json").read_bytes())["settled"]
    assert settled["optim.learning_rate"] == 0.02
    assert (settled["optim.muon"], settled["optim.schedule"]) == (True, "linear")
    assert (settled["device"], settled["dtype"], settled["recompute"]) == ("cpu", "float32", False)
    assert settled["part_tokens"] == 4096
    assert run(*words, "--output", tmp_path / "held", "--alarms.max-kl", 0.05) == 0
    held = json.loads(capsys.readouterr().out)
    assert held["rounds"] < 12
    assert re.fullmatch(r"collapse: kl [\d.]+ is above 0\.05 for 3 steps", held["reason"])
    record = json.loads((tmp_path / "held" / "run.json").read_bytes())
    assert (record["status"], record["reason"]) == ("collapsed", held["reason"])
    rows = [json.loads(row) for row in (tmp_path / "held" / "metrics.jsonl").read_bytes().splitlines()]
    over = [row["round"] for row in rows if row["kl"] > 0.05]
    version = json.loads((tmp_path / "held" / "bundle.json").read_bytes())["bundle"][0]
    assert version["meta"].get("round", 0) < over[0]  # the weights are those before the alarm began to count


def test_a_run_that_fails_says_so_in_its_record(groups, tmp_path):
    path = written(tmp_path / "one.jsonl", [group.trajectories[0] for group in groups])
    with pytest.raises(TrainingRefused):
        run("train", "grpo", "--data", path, "--output", tmp_path / "out")
    record = json.loads((tmp_path / "out" / "run.json").read_bytes())
    assert record["status"] == "failed"
    assert "of one trajectory" in record["reason"]


FIGURES = {"reward": 0.5, "unknown": 0.25, "entropy": 1.25, "clip_share": 0.125, "gradient_norm": 2.0}


def test_on_a_terminal_each_step_is_a_row_under_a_heading(monkeypatch, capsys):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("NO_COLOR", "1")
    show = ProgressPrinter()
    show("grpo", 1, 100, **FIGURES, kl=0.0, tokens=100)
    for number in range(2, 23):
        show("grpo", number, 100, **FIGURES, tokens=100)
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in capsys.readouterr().err.splitlines()]
    assert lines[0].split() == ["reward", "answered", "entropy", "KL", "tokens/s"]  # what fits in 70 columns
    assert lines[1].split() == ["grpo", "1/100", "0.5", "0.75", "1.25", "0", "·"]
    assert lines[2].split()[:-1] == ["grpo", "2/100", "0.5", "0.75", "1.25", "·"]
    assert float(lines[2].split()[-1]) > 0
    assert len(lines) == 22 + 2
    assert max(map(len, lines)) <= 70


def test_in_a_log_each_round_is_a_line_and_updates_are_a_tenth(capsys):
    show = ProgressPrinter()
    for number in range(1, 31):
        show("grpo", number, 30, **FIGURES)
        show("cloning", number, 30, loss=1.0)
    lines = capsys.readouterr().err.splitlines()
    rounds = [line for line in lines if line.startswith("grpo")]
    assert (
        rounds[2]
        == "grpo 3/30 reward 0.5 answered 0.75 entropy 1.25 clip_share 0.125 gradient_norm 2 left 0:00"
    )
    assert rounds[0].endswith("gradient_norm 2"), "how long a round takes is not known before the second"
    assert len(rounds) == 30
    assert len(lines) - len(rounds) == 10


def test_a_store_will_do_and_nested_defaults_are_kept(groups, tmp_path, capsys):
    with Store(tmp_path / "runs.db") as store:
        store.put(*[trajectory for group in groups for trajectory in group.trajectories])
    words = ["train", "sft", "--store", tmp_path / "runs.db", "--output", tmp_path / "out"]
    assert run(*words, "--epochs", 1, "--optim.warmup", 2) == 0
    said = capsys.readouterr()
    assert "192 trajectories: 192 can be trained on by RL" in said.out
    assert "cloning" in said.err


def test_help_explains_every_option_of_a_method(capsys):
    run("train", "dpo", "--help")
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for words in (
        "--beta",
        "How closely the policy is held",
        "--optim.learning-rate",
        "0.001 for a small fresh model, 1e-06 for all weights of a pretrained one",
    ):
        assert words in said


WORKER = "import sys; from whet.cli import main; main(sys.argv[1:])"


def started(*words):
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def weights(output):
    (policy,) = json.loads((output / "bundle.json").read_bytes())["bundle"]
    return policy["content"]["sha256"]


def rows_of(output):
    path = output / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_killed_in_training_it_goes_on_to_the_same_bits(recorded, start, tmp_path):
    def words(name):
        shared = ["--checkpoint-every", 5, "--round-tasks", 1, "--passes", 12, "--model", start[0]]
        return ["train", "grpo", "--data", recorded, "--output", tmp_path / name, "--json", *shared]

    assert run(*words("whole")) == 0
    for _ in range(5):  # again where it was over before our turn came
        first = started(*words("killed"))
        # A round after the first checkpoint.
        until(lambda: rows_of(tmp_path / "killed") >= 6 or first.poll() is not None)  # noqa: B023
        assert rows_of(tmp_path / "killed") >= 6, first.stderr.read().decode()
        first.send_signal(signal.SIGKILL)
        first.communicate()
        if not (tmp_path / "killed" / "bundle.json").exists():
            break
        shutil.rmtree(tmp_path / "killed")
    assert first.returncode == -signal.SIGKILL
    assert not (tmp_path / "killed" / "bundle.json").exists()
    with pytest.raises(InputError, match="go on with --resume"):
        run(*words("killed"))
    assert run(*words("killed"), "--resume") == 0
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")
    rows = (tmp_path / "killed" / "metrics.jsonl").read_bytes().splitlines()
    assert [json.loads(row)["round"] for row in rows] == list(range(1, 25))
    with pytest.raises(InputError, match=r"a run with other seed \(0\); give the same"):
        run(*words("killed"), "--resume", "--seed", 3)


def written(path, trajectories):
    formats.write_trajectories(path, trajectories)
    return path


def without_rewards(trajectory):
    steps = [replace(step, reward=None) for step in trajectory.steps]
    return replace(trajectory, steps=steps, outcome=Outcome.UNKNOWN)


def test_what_cannot_be_trained_on_is_refused_with_the_reason(groups, tmp_path):
    every = [trajectory for group in groups for trajectory in group.trajectories]
    out = ["--output", tmp_path / "out"]

    def refused(error, match, trajectories, method="grpo", *more):
        path = written(tmp_path / "bad.jsonl", trajectories)
        with pytest.raises(error, match=match):
            run("train", method, "--data", path, *out, *more)

    refused(TrainingRefused, "no trajectories", [])
    refused(TrainingRefused, "no reward: nothing judged it", [without_rewards(t) for t in every])
    refused(TrainingRefused, "of one trajectory", [group.trajectories[0] for group in groups])
    refused(InputError, "omit --round-tasks", every, "sft", "--round-tasks", 3)
    refused(InputError, "not both", every, "grpo", "--env", "somewhere:env", "--tasks-file", tmp_path / "x")
    same = [replace(t, steps=[replace(s, reward=0.5) for s in t.steps]) for t in every if len(t.steps) == 1]
    refused(TrainingRefused, "the runs of each task are all worth the same", same)
    refused(TrainingRefused, "is a success or a failure", [without_rewards(t) for t in every[:8]], "prm")
    nan = [replace(t, steps=[replace(s, reward=float("nan")) for s in t.steps]) for t in every[:8]]
    with pytest.raises(TrainingRefused, match="NaN or infinite"):
        capture.require(nan)
    optimizer = PPO(models=LocalModels())
    with pytest.raises(InputError, match="a reward is a finite number"):
        asyncio.run(
            optimizer.step(beginning(tmp_path), dataset.grouped([*every[8:], *nan]), context(tmp_path))
        )
    mute = [replace(t, steps=[replace(s, tokens=None, kind="llm") for s in t.steps]) for t in every]
    refused(TrainingRefused, "text is not tokenised again", mute, "sft")
    strange = [
        replace(t, steps=[replace(s, tokens=replace(s.tokens, prompt_ids=(-1,))) for s in t.steps])
        for t in every
    ]
    refused(TrainingRefused, "token ids that no vocabulary has", strange, "sft")
    refused(InputError, "a token id lies outside", [*every[1:], strange[0]], "sft", "--keep", "all")
    large = [
        replace(t, steps=[replace(s, tokens=replace(s.tokens, prompt_ids=(2**30,))) for s in t.steps])
        for t in every
    ]
    refused(InputError, "token ids up to 1073741824, and a tiny model is for", large, "sft")
    bare = [
        replace(t, steps=[replace(s, tokens=replace(s.tokens, logprobs=())) for s in t.steps]) for t in every
    ]
    refused(TrainingRefused, "good for cloning and pairs, not for RL", bare)
    with pytest.raises(InputError, match="either as --data FILE or as --store FILE"):
        run("train", "sft", *out)
    with pytest.raises(NotFoundError, match="there is no store"):
        run("train", "sft", *out, "--store", tmp_path / "none.db")
    with pytest.raises(InputError, match=r"bad\.jsonl is a file; give a folder"):
        run("train", "sft", "--data", tmp_path / "bad.jsonl", "--output", tmp_path / "bad.jsonl")
    (tmp_path / "odd.jsonl").write_text("{}\n[1, 2]\n")
    with pytest.raises(InputError, match="line 1"):
        run("train", "sft", *out, "--data", tmp_path / "odd.jsonl")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sft", "--part-tokens", 0], "part_tokens must be 1 or more; got 0"),
        (["sft", "--per-task", 0], "per_task must be 1 or more; got 0"),
        (["sft", "--optim.betas", 0.9, 1.5], r"betas must be at least 0 and below 1; got \(0.9, 1.5\)"),
        (["sft", "--optim.weight-decay", -1], "weight_decay must be 0 or more; got -1"),
        (["sft", "--optim.learning-rate", "nan"], "learning_rate must be above 0 and at most 1e6; got nan"),
        (["awr", "--beta", 0], "beta must be above 0; got 0"),
        (["grpo", "--temperature", -1], "temperature must be above 0; got -1"),
        (["grpo", "--clip-low", 2], "clip_low must be from 0 to 1; got 2"),
        (["grpo", "--gamma", 7], "gamma must be from 0 to 1; got 7"),
        (["ppo", "--value-coefficient", "nan"], "value_coefficient must be 0 or more; got nan"),
        (["rlhf", "--reinforce.optim.momentum", 1], "momentum must be at least 0 and below 1; got 1"),
        (["sft", "--lora-rank", 4], "--lora-rank trains factors beside a pretrained model"),
    ],
    ids=lambda given: " ".join(map(str, given)) if isinstance(given, list) else "",
)
def test_a_value_that_an_option_cannot_take_is_named_with_its_bound(words, said, tmp_path):
    with pytest.raises(InputError, match=said):
        run("train", *words, "--data", tmp_path / "none.jsonl", "--output", tmp_path / "out")


def test_models_that_cannot_be_had_or_trusted_are_refused(recorded, tmp_path, monkeypatch):
    words = ["train", "sft", "--data", recorded, "--output", tmp_path / "out", "--model"]
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "config.json").write_text('{"model_type": "qwen2"}')
    (pickled / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch /tmp/owned'\ntR.")
    with pytest.raises(InputError, match=r"pytorch_model\.bin, a pickle"):
        run(*words, pickled)
    (pickled / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(InputError, match="could not be loaded as a causal language model"):
        run(*words, pickled)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(NotFoundError, match="give the folder's path"):
        run(*words, "some-one/no-such-model")


def test_the_capture_check_says_what_is_there(groups, tmp_path, capsys):
    whole = groups[0].trajectories[0]
    task = Task(id="t")
    forked = Trajectory(
        task=task,
        id="forked",
        outcome=Outcome.SUCCESS,
        steps=[Step(tokens=Tokens((1, 2), (3,), (-0.1,))), Step(tokens=Tokens((1, 9), (3,), (-0.1,)))],
    )
    masked = Trajectory(
        task=task,
        id="masked",
        outcome=Outcome.SUCCESS,
        steps=[Step(tokens=Tokens((1,), (3,), (-0.1,), (False,)))],
    )
    misfit = Trajectory(
        task=task, id="misfit", outcome=Outcome.SUCCESS, steps=[Step(tokens=Tokens((1,), (3, 4), (-0.1,)))]
    )
    silent = Trajectory(task=task, id="silent", outcome=Outcome.SUCCESS, steps=[Step(action="x")])
    strange = replace(
        whole,
        id="strange",
        steps=[replace(s, tokens=replace(s.tokens, prompt_ids=(-1,))) for s in whole.steps],
    )
    likely = replace(
        whole,
        id="likely",
        steps=[
            replace(s, tokens=replace(s.tokens, logprobs=(0.5,) * len(s.tokens.logprobs)))
            for s in whole.steps
        ],
    )
    assert capture.check(strange).reasons == ("bad ids",)
    assert capture.check(likely).reasons == ("bad log-probabilities",)
    assert capture.check(likely).clonable
    failed = replace(whole, id="failed", outcome=Outcome.INFRASTRUCTURE_ERROR)
    found = {t.id: capture.check(t) for t in (whole, forked, masked, misfit, silent, failed)}
    assert found[whole.id].trainable
    assert found[whole.id].continuous
    assert (found["forked"].sequences, found["forked"].forked, found["forked"].continuous) == (2, 1, False)
    assert found["forked"].trainable
    assert [found[id].reasons for id in ("masked", "misfit", "silent", "failed")] == [
        ("nothing chosen",),
        ("bad mask",),
        ("no calls",),
        ("machine failed",),
    ]
    path = written(tmp_path / "some.jsonl", [whole, forked, masked])
    assert run("show", "--trainable", "--data", path) == 0
    said = capsys.readouterr().out
    assert run("capture", "check", "--data", path) == 0  # its earlier name
    assert capsys.readouterr().out == said
    with pytest.raises(InputError, match="need --trainable"):
        run("show", "--data", path)
    assert "3 trajectories: 2 can be trained on by RL" in said
    assert "masked  nothing chosen" in said
    assert run("show", "--trainable", "--json", "--data", written(tmp_path / "no.jsonl", [silent])) == 1
    survey, row = map(json.loads, capsys.readouterr().out.splitlines())
    assert survey["reasons"] == {"no calls": 1}
    assert row["trainable"] is False


def test_feedback_survives_the_file(groups, tmp_path):
    thumbed = replace(groups[0].trajectories[0], feedback=[Feedback(run="r", value=1.0)])
    (back,) = formats.read_trajectories(written(tmp_path / "one.jsonl", [thumbed]))
    assert back.feedback[0].value == 1.0
    assert back.steps[0].tokens == thumbed.steps[0].tokens
    assert dataset.grouped([back, back])[0].trajectories == [back, back]


def unjudged(groups, *, value=None):
    """The same runs with nothing recorded of how they went but, if given, what people said of them."""
    return [
        replace(
            one,
            outcome=Outcome.UNKNOWN,
            steps=tuple(replace(step, reward=None) for step in one.steps),
            feedback=() if value is None else (Feedback(run=one.id, value=value(one)),),
            meta={"worth": one.reward},
        )
        for group in groups
        for one in group.trajectories
    ]


def test_what_people_said_can_be_the_reward(groups, start, tmp_path, capsys):
    path = written(tmp_path / "said.jsonl", unjudged(groups, value=lambda one: 2.0 * one.reward))
    words = ["--data", path, "--json"]
    own = ["--model", start[0]]
    with pytest.raises(TrainingRefused, match="no reward"):
        run("train", "grpo", *words, "--steps", 1, "--output", tmp_path / "refused")
    rated = ["--reward-function", "whet.judge:rated"]
    assert run("show", "--trainable", *words, *rated) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["trainable"] == sum(
        len(group.trajectories) for group in groups
    )
    for method, options in {"grpo": ["--steps", 1], "kto": ["--epochs", 1], "sft": ["--epochs", 1]}.items():
        assert run("train", method, *words, *rated, *options, *own, "--output", tmp_path / method) == 0
        assert json.loads(capsys.readouterr().out)["metrics"]


def test_a_function_of_ones_own_is_the_reward_as_if_it_had_been_recorded(
    groups, start, tmp_path, capsys, monkeypatch
):
    (tmp_path / "my_rewards.py").write_text(
        "def worth(trajectory):\n    return trajectory.meta['worth']\n\n\ndef unsure(trajectory):\n    return None\n"
    )
    monkeypatch.chdir(tmp_path)
    recorded = written(tmp_path / "recorded.jsonl", [one for group in groups for one in group.trajectories])
    path = written(tmp_path / "unjudged.jsonl", unjudged(groups))
    words = ["train", "grpo", "--steps", 2, "--json", "--model", start[0]]
    assert run(*words, "--data", recorded, "--output", tmp_path / "one") == 0
    expected = json.loads(capsys.readouterr().out)["metrics"]
    assert (
        run(*words, "--data", path, "--reward-function", "my_rewards:worth", "--output", tmp_path / "two")
        == 0
    )
    found = json.loads(capsys.readouterr().out)["metrics"]
    assert {key: found[key] for key in ("loss", "recorded_reward", "gradient_norm")} == {
        key: expected[key] for key in ("loss", "recorded_reward", "gradient_norm")
    }
    words += ["--data", path, "--output", tmp_path / "three"]
    with pytest.raises(InputError, match="could judge none of 192"):
        run(*words, "--reward-function", "my_rewards:unsure")
    with pytest.raises(InputError, match="my_rewards has no 'nothing'"):
        run(*words, "--reward-function", "my_rewards:nothing")
    with pytest.raises(InputError, match="rlhf takes no reward function"):
        run(
            "train",
            "rlhf",
            "--data",
            path,
            "--output",
            tmp_path / "three",
            "--reward-function",
            "my_rewards:worth",
        )
    kto = ["train", "kto", "--data", path, "--output", tmp_path / "three", "--judged-by", "thumbs"]
    with pytest.raises(InputError, match="--judged-by thumbs, or --reward-function"):
        run(*kto, "--reward-function", "my_rewards:worth")
    with pytest.raises(InputError, match=r"--score .* or --reward-function"):
        run(*words, "--reward-function", "my_rewards:worth", "--score", "other")
    assert not (tmp_path / "three").exists()


# -- a recording is learned from once -------------------------------------------------------


@pytest.mark.parametrize("method", OWN)
def test_of_a_record_each_run_is_learned_from_once_and_then_it_says_how_to_sample(
    method, recorded, groups, start, tmp_path, capsys
):
    words = ["--data", recorded, "--output", tmp_path / "out", "--model", start[0]]
    more = {"webrl": ["--epochs", 1], "star": ["--epochs", 1]}.get(method, [])
    assert run("train", method, *words, "--steps", 100, "--round-tasks", 8, *more) == 0
    said = capsys.readouterr()
    assert "one pass over the recorded trajectories" in said.out
    assert f"whet train {method} --store STORE --output {tmp_path / 'out'} --resume" in said.out
    rows = [json.loads(row) for row in (tmp_path / "out" / "metrics.jsonl").read_bytes().splitlines()]
    assert len(rows) == 3  # 24 tasks, 8 a round
    assert not any({"reward", "success"} & set(row) for row in rows), "recorded figures are named so"
    if method != "star":
        worth = [row["recorded_reward"] for row in rows]
        assert len(set(worth)) > 1, "each round is of other runs"
        every = [t.reward for group in groups for t in group.trajectories]
        assert sum(worth) / 3 == pytest.approx(sum(every) / len(every))
    version = msgspec.convert(
        json.loads((tmp_path / "out" / "bundle.json").read_bytes())["bundle"][0], type=Version
    )
    assert LocalModels().decoder(version).count() > 0  # written, though the last round was no checkpoint's


def test_a_run_goes_on_with_what_is_new_in_the_record(groups, start, tmp_path, capsys):
    words = ["train", "grpo", "--output", tmp_path / "out", "--model", start[0], "--json"]
    every = [trajectory for group in groups for trajectory in group.trajectories]
    half = written(tmp_path / "half.jsonl", every[:96])
    assert run(*words, "--data", half) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["rounds"], first["metrics"]["trajectories"]) == (1, 96)
    assert run(*words, "--data", half, "--resume") == 0
    assert json.loads(capsys.readouterr().out)["bundle"] == first["bundle"]  # nothing new, nothing learned
    models = LocalModels()
    policy = msgspec.convert(
        json.loads((tmp_path / "out" / "bundle.json").read_bytes())["bundle"][0], type=Version
    )
    sampled = asyncio.run(collect(Bundle([policy]), tasks(12, 5), 8, seed=5, models=models))
    fresh = [trajectory for group in sampled for trajectory in group.trajectories]
    both = written(tmp_path / "both.jsonl", [*every[:96], *fresh])
    assert run(*words, "--data", both, "--resume") == 0
    second = json.loads(capsys.readouterr().out)
    assert (second["rounds"], second["metrics"]["trajectories"]) == (2, 96)
    assert second["bundle"] != first["bundle"]
    assert second["metrics"]["staleness"] == 0.0


def test_tokens_of_other_weights_are_refused_with_what_to_do(recorded, tmp_path, capsys):
    words = ["train", "grpo", "--data", recorded, "--output", tmp_path / "out", "--json"]
    with pytest.raises(TrainingRefused, match=r"not sampled from these weights.*--off-policy"):
        run(*words)
    assert run(*words, "--off-policy") == 0
    found = json.loads(capsys.readouterr().out)["metrics"]
    assert found["gap"] > 0.1
    assert 0 < found["effective_share"] < 1


def test_a_run_begins_where_another_ended(recorded, tmp_path, capsys):
    cloned = tmp_path / "cloned"
    assert run("train", "sft", "--data", recorded, "--output", cloned, "--epochs", 1, "--json") == 0
    (before,) = json.loads((cloned / "bundle.json").read_bytes())["bundle"]
    words = ["--data", recorded, "--output", tmp_path / "dpo", "--model", cloned]
    assert run("train", "dpo", *words, "--epochs", 1, "--json") == 0
    (after,) = json.loads((tmp_path / "dpo" / "bundle.json").read_bytes())["bundle"]
    assert after["parent"] == before["id"]
    with Store(tmp_path / "dpo" / "runs.db") as store:
        assert {version.id for version in store.versions("policy")} >= {before["id"], after["id"]}


def test_nothing_is_learned_from_the_gates_tasks(groups, tmp_path, capsys):
    hidden = [
        replace(t, task=replace(t.task, split=Split.GATE if number < 6 else Split.TRAIN))
        for number, group in enumerate(groups)
        for t in group.trajectories
    ]
    path = written(tmp_path / "split.jsonl", hidden)
    assert run("train", "sft", "--data", path, "--output", tmp_path / "out", "--epochs", 1) == 0
    assert "left out: 48 trajectories of the gate's tasks" in capsys.readouterr().err
    (version,) = json.loads((tmp_path / "out" / "bundle.json").read_bytes())["bundle"]
    assert not {t.id for t in hidden[:48]} & set(version["meta"]["data"])
