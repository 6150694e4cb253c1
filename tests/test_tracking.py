"""Metrics of training as MLflow and W&B keep them, read back by their formats."""

import asyncio
import json
from importlib.util import find_spec

import pytest
import yaml
from methods_toys import beginning, collect, tasks

from whet.cli import app
from whet.data import files, tracking
from whet.errors import InputError, MissingExtra, NotFoundError
from whet.improvement import Improvement
from whet.store import Store
from whet.training.local import LocalModels
from whet.types import Bundle


def run(*words):
    return app([str(word) for word in words], result_action="return_value")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Output folders of an online and of an offline method."""
    folder = tmp_path_factory.mktemp("trained")
    groups = asyncio.run(collect(beginning(folder), tasks(8), 8, models=LocalModels()))
    data = folder / "trajectories.jsonl"
    files.write(data, [trajectory for group in groups for trajectory in group.trajectories])
    own = ("--model", folder / "start", "--round-tasks", 3)
    for method, *more in (("grpo", "--steps", 3, *own), ("sft", "--epochs", 3)):
        assert run("train", method, "--data", data, "--output", folder / method, "--json", *more) == 0
    return folder


def metric(folder, name):
    """(milliseconds, value, step) of every line, as mlflow.store.tracking.file_store splits them."""
    lines = (folder / "metrics" / name).read_text().splitlines()
    return [(int(when), float(value), int(step)) for when, value, step in map(str.split, lines)]


def only_run(root):
    (about,) = root.glob("*/*/meta.yaml")
    return about.parent


def test_each_round_of_a_run_is_a_line_of_each_metric(trained, tmp_path, capsys):
    assert run("export", "mlflow", trained / "grpo", "--output", tmp_path / "mlruns") == 0
    assert "grpo grpo, 3 points, finished" in capsys.readouterr().out
    folder = only_run(tmp_path / "mlruns")
    rows = [json.loads(row) for row in (trained / "grpo" / "metrics.jsonl").read_bytes().splitlines()]
    entropy = metric(folder, "entropy")
    assert [(value, step) for _, value, step in entropy] == [(row["entropy"], row["round"]) for row in rows]
    about = yaml.safe_load((folder / "meta.yaml").read_text())
    assert about["run_id"] == folder.name
    assert len(folder.name) == 32
    assert about["experiment_id"] == folder.parent.name
    assert about["status"] == 3
    assert all(about["start_time"] <= when <= about["end_time"] for when, _, _ in entropy)
    assert (folder / "params" / "clip_high").read_text() == "0.28"
    assert (folder / "params" / "optim.schedule").read_text() == "linear"
    assert (folder / "tags" / "mlflow.runName").read_text() == "grpo grpo"
    assert (folder / "tags" / "whet.reason").read_text() == "all 3 rounds done"
    assert not (folder / "metrics" / "round").exists()
    assert not (folder / "metrics" / "time").exists()
    assert yaml.safe_load((folder.parent / "meta.yaml").read_text())["name"] == "whet"


def test_the_loss_of_an_offline_method_is_a_curve(trained, tmp_path):
    run("export", "mlflow", trained / "sft", "--output", tmp_path / "mlruns")
    folder = only_run(tmp_path / "mlruns")
    losses = metric(folder, "cloning.loss")
    assert [step for _, _, step in losses] == [1, 2, 3]
    assert losses[-1][1] < losses[0][1]
    assert [step for _, _, step in metric(folder, "loss")] == [1]


def test_exported_again_it_is_the_same_run_and_what_was_noted_there_stays(trained, tmp_path, capsys):
    words = [
        "export",
        "mlflow",
        trained / "grpo",
        trained / "sft",
        "--output",
        tmp_path,
        "--experiment",
        "a: b",
    ]
    assert run(*words, "--json") == 0
    first = json.loads(capsys.readouterr().out)["runs"]
    folder = tmp_path / first[0]["folder"]
    (folder / "tags" / "mlflow.note.content").write_text("the good one")
    before = metric(folder, "recorded_reward")
    assert run(*words, "--json") == 0
    assert json.loads(capsys.readouterr().out)["runs"] == first
    assert metric(folder, "recorded_reward") == before
    assert (folder / "tags" / "mlflow.note.content").read_text() == "the good one"
    assert len(list(tmp_path.glob("*/meta.yaml"))) == 1
    assert len(list(tmp_path.glob("*/*/meta.yaml"))) == 2
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


def test_a_run_under_way_is_exported_up_to_its_last_whole_row(trained, tmp_path):
    live = tmp_path / "live"
    live.mkdir()
    record = json.loads((trained / "grpo" / "run.json").read_bytes())
    (live / "run.json").write_text(json.dumps({**record, "status": "running", "ended": None}))
    rows = (trained / "grpo" / "metrics.jsonl").read_bytes()
    (live / "metrics.jsonl").write_bytes(rows[: rows.index(b"\n") + 20])
    run("export", "mlflow", live, "--output", tmp_path / "mlruns")
    folder = only_run(tmp_path / "mlruns")
    assert len(metric(folder, "recorded_reward")) == 1
    about = yaml.safe_load((folder / "meta.yaml").read_text())
    assert (about["status"], about["end_time"]) == (1, None)


def test_an_improvement_and_what_a_store_recorded_are_runs_too(tmp_path, capsys):
    metrics = [{"success": 0.25, "rollouts": 8.0}, {"success": 0.5, "rollouts": 16.0, "odd": float("nan")}]
    done = Improvement(bundle=Bundle(), parent=Bundle(), optimizer="knobs", metrics=metrics)
    one = tracking.of_metrics(done.metrics, name=done.optimizer, params={"seed": 3}, reason="enough")
    folder = tracking.write_mlflow(one, tmp_path / "a")
    assert [(value, step) for _, value, step in metric(folder, "success")] == [(0.25, 1), (0.5, 2)]
    assert (folder / "params" / "seed").read_text() == "3"
    assert not (folder / "metrics" / "odd").exists()
    with Store(tmp_path / "whet.db") as store:
        store.put_state("mail/improve/knobs", {"metrics": metrics, "reason": "", "done": False})
        store.put_state("mail/other", {"metrics": metrics})
    assert run("export", "mlflow", "--store", tmp_path / "whet.db", "--output", tmp_path / "b", "--json") == 0
    (said,) = json.loads(capsys.readouterr().out)["runs"]
    assert said["name"] == "mail/improve/knobs"
    stored = only_run(tmp_path / "b")
    assert [(value, step) for _, value, step in metric(stored, "rollouts")] == [(8.0, 1), (16.0, 2)]
    assert (stored / "params" / "experiment").read_text() == "mail"


def test_names_from_the_data_are_never_folders_elsewhere(tmp_path):
    hostile = {"../../up": 1.0, "/etc/x": 2.0, "..": 3.0, "a/b": 4.0, "": 5.0}
    run_ = tracking.of_metrics([hostile], name="x", params={"../p": "../v"})
    folder = tracking.write_mlflow(run_, tmp_path / "deep" / "mlruns")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep"]
    found = sorted(path.name for path in (folder / "metrics").iterdir())
    assert found == ["_", "_.._up", "_etc_x", "a_b"]
    assert (folder / "params" / "_p").read_text() == "../v"


def test_what_is_no_run_is_refused_with_what_to_give(tmp_path):
    out = ["--output", tmp_path / "mlruns"]
    with pytest.raises(InputError, match="name the output folders"):
        run("export", "mlflow", *out)
    with pytest.raises(NotFoundError, match="give its --output folder"):
        run("export", "mlflow", tmp_path, *out)
    with pytest.raises(NotFoundError, match="there is no store"):
        run("export", "mlflow", "--store", tmp_path / "none.db", *out)
    (tmp_path / "run.json").write_text('{"id": 3}')
    with pytest.raises(InputError, match="is no run of whet train"):
        run("export", "mlflow", tmp_path, *out)


@pytest.mark.skipif(find_spec("wandb") is not None, reason="wandb is installed")
def test_without_wandb_its_extra_is_named(trained, tmp_path):
    with pytest.raises(MissingExtra, match=r"whet\[wandb\]"):
        run("export", "wandb", trained / "grpo", "--output", tmp_path)
    assert not (tmp_path / "wandb").exists()


@pytest.mark.skipif(find_spec("wandb") is None, reason="needs the extra wandb")
def test_wandb_gets_an_offline_run(trained, tmp_path, capsys):
    assert run("export", "wandb", trained / "grpo", "--output", tmp_path, "--json") == 0
    (said,) = json.loads(capsys.readouterr().out)["runs"]
    (binary,) = (tmp_path / "wandb").glob(f"offline-run-*/run-{said['run']}.wandb")
    assert b"gradient_norm" in binary.read_bytes()


def test_the_trajectories_can_still_be_exported(tmp_path):
    with Store(tmp_path / "whet.db"):
        pass
    words = ["export", "whet", "--store", tmp_path / "whet.db", "--output", tmp_path / "out.jsonl"]
    assert run(*words) == 1
