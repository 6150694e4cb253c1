"""Metrics of training as MLflow and W&B keep them, read back by MLflow's client and W&B's format."""

import asyncio
import json
import os
from importlib.util import find_spec

import pytest
from methods_toys import beginning, collect, tasks

from whet.cli import app
from whet.errors import InputError, MissingExtra, NotFoundError
from whet.learn.improvement import Improvement
from whet.learn.training.local import LocalModels
from whet.record.exchange import formats, tracking
from whet.record.store import Store
from whet.types import Bundle


def run(*words):
    return app([str(word) for word in words], result_action="return_value")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Output folders of an online and of an offline method."""
    folder = tmp_path_factory.mktemp("trained")
    groups = asyncio.run(collect(beginning(folder), tasks(8), 8, models=LocalModels()))
    data = folder / "trajectories.jsonl"
    formats.write_trajectories(data, [trajectory for group in groups for trajectory in group.trajectories])
    own = ("--model", folder / "start", "--round-tasks", 3)
    for method, *more in (("grpo", "--steps", 3, *own), ("sft", "--epochs", 3)):
        assert run("train", method, "--data", data, "--output", folder / method, "--json", *more) == 0
    return folder


@pytest.fixture
def client(tmp_path, monkeypatch):
    """MLflow's own, on the folder `mlruns`."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return mlflow.MlflowClient((tmp_path / "mlruns").as_uri())


def curve(client, tracked, name):
    """(value, step) of every point of a metric."""
    return [(point.value, point.step) for point in client.get_metric_history(tracked.info.run_id, name)]


def runs_of(client, experiment="whet"):
    return client.search_runs([client.get_experiment_by_name(experiment).experiment_id])


def test_each_round_of_a_run_is_a_point_of_each_metric(trained, tmp_path, capsys, client):
    assert run("export", "mlflow", trained / "grpo", "--output", tmp_path / "mlruns") == 0
    assert "grpo grpo, 3 points, finished" in capsys.readouterr().out
    (tracked,) = runs_of(client)
    rows = [json.loads(row) for row in (trained / "grpo" / "metrics.jsonl").read_bytes().splitlines()]
    assert curve(client, tracked, "entropy") == [(row["entropy"], row["round"]) for row in rows]
    assert (tracked.info.status, tracked.info.run_name) == ("FINISHED", "grpo grpo")
    times = [point.timestamp for point in client.get_metric_history(tracked.info.run_id, "entropy")]
    assert all(tracked.info.start_time <= when <= tracked.info.end_time for when in times)
    assert tracked.data.params["clip_high"] == "0.28"
    assert tracked.data.params["optim.final_share"] == "0.1"
    assert tracked.data.tags["whet.reason"] == "all 3 rounds done"
    assert not {"round", "time"} & set(tracked.data.metrics)


def test_the_loss_of_an_offline_method_is_a_curve(trained, tmp_path, client):
    run("export", "mlflow", trained / "sft", "--output", tmp_path / "mlruns")
    (tracked,) = runs_of(client)
    losses = curve(client, tracked, "cloning.loss")
    assert [step for _, step in losses] == [1, 2, 3]
    assert losses[-1][0] < losses[0][0]
    assert [step for _, step in curve(client, tracked, "loss")] == [1]


def test_exported_again_it_is_the_same_run_and_notes_given_there_stay(trained, tmp_path, capsys, client):
    output = ["--output", tmp_path / "mlruns", "--experiment", "a: b", "--json"]
    words = ["export", "mlflow", trained / "grpo", trained / "sft", *output]
    assert run(*words) == 0
    first = json.loads(capsys.readouterr().out)["runs"]
    folders = [(tmp_path / row["folder"]) for row in first]
    assert all((folder / "meta.yaml").is_file() for folder in folders)
    client.set_tag(folders[0].name, "mlflow.note.content", "the good one")
    before = client.get_run(folders[0].name)
    points = curve(client, before, "recorded_reward")
    assert run(*words) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == first
    assert len(runs_of(client, "a: b")) == 2
    again = client.get_run(folders[0].name)
    assert curve(client, again, "recorded_reward") == points
    assert again.to_dictionary() == before.to_dictionary()


def test_a_run_under_way_is_exported_up_to_its_last_whole_row_and_then_to_its_end(trained, tmp_path, client):
    live = tmp_path / "live"
    live.mkdir()
    record = json.loads((trained / "grpo" / "run.json").read_bytes())
    (live / "run.json").write_text(json.dumps({**record, "status": "running", "ended": None}))
    rows = (trained / "grpo" / "metrics.jsonl").read_bytes()
    (live / "metrics.jsonl").write_bytes(rows[: rows.index(b"\n") + 20])
    words = ("export", "mlflow", live, "--output", tmp_path / "mlruns")
    run(*words)
    (tracked,) = runs_of(client)
    assert (tracked.info.status, tracked.info.end_time) == ("RUNNING", None)
    assert len(curve(client, tracked, "recorded_reward")) == 1
    (live / "run.json").write_text(json.dumps(record))
    (live / "metrics.jsonl").write_bytes(rows)
    run(*words)
    (tracked,) = runs_of(client)
    assert tracked.info.status == "FINISHED"
    assert tracked.data.params["optim.schedule"] == "linear"
    assert [step for _, step in curve(client, tracked, "recorded_reward")] == [1, 2, 3]


def test_an_improvement_and_what_a_store_recorded_are_runs_too(tmp_path, capsys, client):
    metrics = [{"success": 0.25, "rollouts": 8.0}, {"success": 0.5, "rollouts": 16.0, "odd": float("nan")}]
    done = Improvement(bundle=Bundle(), parent=Bundle(), optimizer="knobs", metrics=metrics)
    one = tracking.of_metrics(done.metrics, name=done.optimizer, params={"seed": 3}, reason="enough")
    tracking.write_mlflow(one, str(tmp_path / "mlruns"), experiment="own")
    (tracked,) = runs_of(client, "own")
    assert curve(client, tracked, "success") == [(0.25, 1), (0.5, 2)]
    assert tracked.data.params == {"seed": "3"}
    assert "odd" not in tracked.data.metrics
    with Store(tmp_path / "whet.db") as store:
        store.put_state("mail/improve/knobs", {"metrics": metrics, "reason": "", "done": False})
        store.put_state("mail/other", {"metrics": metrics})
    words = ("export", "mlflow", "--store", tmp_path / "whet.db", "--output", tmp_path / "mlruns", "--json")
    for _ in range(2):  # the second time of day is another one, and the points are the same
        assert run(*words) == 0
        (said,) = json.loads(capsys.readouterr().out)["runs"]
        assert said["name"] == "mail/improve/knobs"
    (stored,) = runs_of(client)
    assert curve(client, stored, "rollouts") == [(8.0, 1), (16.0, 2)]
    assert stored.data.params["experiment"] == "mail"


def test_names_from_the_data_are_never_folders_elsewhere(tmp_path, client):
    hostile = {"../../up": 1.0, "/etc/x": 2.0, "..": 3.0, "a/b": 4.0, "": 5.0}
    run_ = tracking.of_metrics([hostile], name="x", params={"../p": "../v"})
    tracking.write_mlflow(run_, str(tmp_path / "mlruns"))
    assert [path.name for path in tmp_path.iterdir()] == ["mlruns"]
    (tracked,) = runs_of(client)
    assert sorted(tracked.data.metrics) == ["_", "_.._up", "_etc_x", "a_b"]
    assert tracked.data.params == {"_p": "../v"}


def test_a_place_that_mlflow_does_not_know_is_refused(trained, client):
    with pytest.raises(InputError, match="cannot write to nowhere://"):
        run("export", "mlflow", trained / "grpo", "--output", "nowhere://x")


def test_mlflow_is_told_not_to_report_its_use(trained, tmp_path, client):
    run("export", "mlflow", trained / "grpo", "--output", tmp_path / "mlruns")
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


@pytest.mark.skipif(find_spec("mlflow") is not None, reason="mlflow is installed")
def test_without_mlflow_its_extra_is_named(trained, tmp_path):
    with pytest.raises(MissingExtra, match=r"whet\[mlflow\]"):
        run("export", "mlflow", trained / "grpo", "--output", tmp_path / "mlruns")
    assert not (tmp_path / "mlruns").exists()


def test_what_is_no_run_is_refused_with_what_to_give(tmp_path):
    out = ["--output", tmp_path / "mlruns"]
    with pytest.raises(InputError, match="name the output folders"):
        run("export", "mlflow", *out)
    with pytest.raises(NotFoundError, match="give its --output folder"):
        run("export", "mlflow", tmp_path, *out)
    with pytest.raises(NotFoundError, match="there is no store"):
        run("export", "mlflow", "--store", tmp_path / "none.db", *out)
    (tmp_path / "run.json").write_text('{"id": 3}')
    with pytest.raises(InputError, match="is not a run of whet train"):
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
