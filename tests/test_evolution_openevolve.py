"""`whet evolve` and the files of OpenEvolve: config, evaluators, checkpoints, the folder that comes out."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import answered
from evolution_toys import CURVE, LINE, write

from whet.cli import main
from whet.errors import InputError, MissingExtra
from whet.learn.evolution.search.openevolve import Config, config_of, read_checkpoint, read_config
from whet.models.fakes import ScriptedServer

OPTIONS = ["--timeout", "20", "--seed", "1", "--offline", "--unsafe-local", "--json"]


def run(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, object]:
    few = () if "--iterations" in words else ("--iterations", 12)
    return dict(answered(capsys, "evolve", *words, *few))


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    with pytest.raises(SystemExit) as done:
        main(["evolve", *map(str, words)])
    said = capsys.readouterr()
    assert done.value.code not in (0, None)
    assert said.out == ""
    return said.err


def test_the_command_says_what_it_found_and_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, evaluator = write(tmp_path)
    found = run(capsys, program, evaluator, "--output", tmp_path / "out", *OPTIONS)
    promised = (
        "best_score",
        "metrics",
        "iterations",
        "evaluations",
        "timeouts",
        "duplicates_skipped",
        "seconds",
    )
    assert set(promised) <= set(found)
    assert found["iterations"] == 12
    assert found["models"] == []
    assert found["trusted_only"] is True
    best = Path(str(found["best_program"])).read_text(encoding="utf-8")
    assert found["best_score"] >= found["start_score"]  # type: ignore[operator]
    history = json.loads((tmp_path / "out" / "history.json").read_text())
    assert history["history"][-1]["best_score"] == found["best_score"]
    assert history["lineage"][-1]["proposal"] == 0
    if best != LINE:
        subprocess.run(["git", "init", "-q", tmp_path / "copy"], check=True)
        (tmp_path / "copy" / "program.py").write_text(LINE, encoding="utf-8")
        patch = (tmp_path / "out" / "evolution.patch").read_text(encoding="utf-8")
        subprocess.run(["git", "apply", "-"], cwd=tmp_path / "copy", input=patch, text=True, check=True)
        assert (tmp_path / "copy" / "program.py").read_text(encoding="utf-8") == best


def test_the_patch_names_the_file_as_its_repository_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "src" / "rules").mkdir(parents=True)
    program, evaluator = write(tmp_path / "src" / "rules")
    run(capsys, program, evaluator, "--output", tmp_path / "out", *OPTIONS, "--iterations", "40")
    patch = (tmp_path / "out" / "evolution.patch").read_text()
    assert "+++ b/src/rules/program.py" in patch
    subprocess.run(["git", "apply", "--check", "-"], cwd=tmp_path, input=patch, text=True, check=True)


def test_run_again_it_goes_on_where_it_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, evaluator = write(tmp_path)
    run(capsys, program, evaluator, "--output", tmp_path / "out", *OPTIONS)
    more = run(capsys, program, evaluator, "--output", tmp_path / "out", *OPTIONS, "--iterations", "20")
    assert more["resumed"] == 12
    whole = run(capsys, program, evaluator, "--output", tmp_path / "whole", *OPTIONS, "--iterations", "20")
    assert whole["resumed"] == 0
    differ = {"seconds", "cpu_seconds", "resumed", "best_program", "patch", "bundle"}
    assert {name: whole[name] for name in whole.keys() - differ} == {
        name: more[name] for name in more.keys() - differ
    }


def test_begun_anew_it_says_which_file_is_another_and_its_own_results_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, evaluator = write(tmp_path)

    def again(folder: str) -> tuple[object, str]:
        words = ["--output", str(tmp_path / folder), "--iterations", "12", *OPTIONS]
        with pytest.raises(SystemExit):
            main(["evolve", str(program), str(evaluator), *words])
        said = capsys.readouterr()
        return json.loads(said.out)["resumed"], said.err

    assert again("out") == (0, "")
    assert again("other") == (0, "")
    assert again("out") == (12, "")
    (tmp_path / "run.log").write_text("beside it")
    assert again("out") == (
        0,
        "program.py: begins anew, for this is not what it was: run.log beside the evaluator\n",
    )


def test_nothing_begins_anew_where_nothing_had_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, evaluator = write(
        tmp_path, evaluator="def evaluate(path):\n    return {'combined_score': 0.5}\n"
    )
    words = ("--output", tmp_path / "out", "--iterations", "2", *OPTIONS)
    assert "cannot tell" in refused(capsys, program, evaluator, *words)
    evaluator.write_text(CURVE, encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["evolve", *map(str, (program, evaluator, *words))])
    assert capsys.readouterr().err == ""


def test_in_the_sandbox_the_program_sees_no_files_of_the_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("do not read", encoding="utf-8")
    spy = CURVE.replace(
        'return {"combined_score"',
        f'import os\n    return {{"seen": float(os.path.exists({str(secret)!r})), "combined_score"',
    )
    program, evaluator = write(tmp_path, evaluator=spy)
    options = ["--iterations", "2", "--timeout", "20", "--offline", "--json"]
    found = run(capsys, program, evaluator, "--output", tmp_path / "out", *options)
    assert found["metrics"]["seen"] == 0.0  # type: ignore[index]
    assert found["trusted_only"] is False
    assert found["co_resident"] is True
    found = run(capsys, program, evaluator, "--output", tmp_path / "local", *options, "--unsafe-local")
    assert found["metrics"]["seen"] == 1.0  # type: ignore[index]


def test_an_evaluator_reads_and_imports_what_lies_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wanted.json").write_text("[1, 2]", encoding="utf-8")
    (tmp_path / "measure.py").write_text("def far(a, b):\n    return abs(a - b)\n", encoding="utf-8")
    text = CURVE.replace(
        "import importlib.util", "import importlib.util, json\nfrom measure import far"
    ).replace(
        "    wrong = sum(",
        "    assert json.load(open('wanted.json')) == [1, 2]\n    wrong = far(1, 2) + sum(",
    )
    program, evaluator = write(tmp_path, evaluator=text)
    found = run(capsys, program, evaluator, "--output", tmp_path / "out", *OPTIONS)
    assert found["evaluations"] > 1  # type: ignore[operator]


LOADS = """
import importlib.util

def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program
"""


def test_a_program_that_has_earned_nothing_yet_may_begin_where_wrecks_are_said_to_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        f"{LOADS}\ndef evaluate(path):\n    try:\n        return {{'combined_score': load(path).f(3) - 7.0}}\n"
        "    except Exception as error:\n        return {'combined_score': 0.0, 'error': str(error)}\n"
    )
    program, evaluator = write(tmp_path, evaluator=text)
    found = run(capsys, program, evaluator, "--output", tmp_path / "out", *OPTIONS, "--iterations", "40")
    assert found["start_score"] == 0.0
    assert found["best_score"] > 0.0  # type: ignore[operator]


def test_an_evaluator_that_cannot_work_is_refused_with_what_it_says_of_the_start_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    says = "def evaluate(path):\n    return {'combined_score': 0.0, 'error': 'No module named jax'}\n"
    prints = (
        "import urllib.request\ndef evaluate(path):\n    try:\n        urllib.request.urlopen('http://judge.invalid')\n"
        "    except OSError as error:\n        print('no judge:', error)\n    return {'combined_score': 0.0}\n"
    )
    for text, expected in ((says, "No module named jax"), (prints, "no judge: <urlopen error")):
        program, evaluator = write(tmp_path, evaluator=text)
        said = refused(capsys, program, evaluator, "--offline", "--output", tmp_path / "out")
        assert "cannot tell better from worse" in said
        assert expected in said
        assert "without network" in said


@pytest.mark.parametrize("score", ["float('nan')", "float('inf')", "None", "'good'"])
def test_a_score_that_is_no_number_is_none_and_not_the_mean_of_what_stands_beside_it(
    score: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"def evaluate(path):\n    return {{'combined_score': {score}, 'seconds': 9.5}}\n"
    program, evaluator = write(tmp_path, evaluator=text)
    said = refused(capsys, program, evaluator, "--offline", "--unsafe-local", "--output", tmp_path / "out")
    assert "has no score" in said
    assert "combined_score = " in said


def test_a_stage_is_reached_over_its_threshold_and_without_one_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("yaml")
    stages = "".join(
        f"def evaluate_stage{number}(path):\n"
        f"    return {{'combined_score': load(path).f(3) * {number}, 'stage{number}': 1.0}}\n"
        for number in (1, 2, 3)
    )
    program, evaluator = write(tmp_path, evaluator=LOADS + stages)
    for thresholds, reached in (("[5]", {1, 2}), ("[5, 10]", {1, 2, 3}), ("[5, 15]", {1, 2}), ("[8]", {1})):
        (tmp_path / "config.yaml").write_text(f"evaluator: {{cascade_thresholds: {thresholds}}}\n")
        words = ("--config", tmp_path / "config.yaml", "--output", tmp_path / f"out{thresholds}", *OPTIONS)
        metrics = run(capsys, program, evaluator, *words, "--target-score", "0")["metrics"]
        assert {number for number in (1, 2, 3) if f"stage{number}" in metrics} == reached  # type: ignore[operator]


def test_an_evaluator_may_be_defined_in_a_branch_and_come_in_a_coroutine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = CURVE.replace(
        "def evaluate", "try:\n  import not_there\nexcept ImportError:\n  async def evaluate"
    )
    head, _, body = text.partition("async def evaluate(path):\n")
    body = "".join(f"  {line}\n" for line in body.splitlines())
    program, evaluator = write(tmp_path, evaluator=f"{head}async def evaluate(path):\n{body}")
    found = run(capsys, program, evaluator, "--output", tmp_path / "out", *OPTIONS)
    assert found["evaluations"] > 1  # type: ignore[operator]


def test_what_a_program_starts_counts_as_its_processor_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = "for i in range(3_000_000): pass"
    text = CURVE.replace(
        "    wrong = sum(",
        f"    import subprocess, sys\n    subprocess.run([sys.executable, '-c', {busy!r}])\n    wrong = sum(",
    )
    program, evaluator = write(tmp_path, evaluator=text)
    words = ("--output", tmp_path / "out", "--offline", "--json", "--timeout", "20", "--iterations", "3")
    found = run(capsys, program, evaluator, *words)
    assert found["cpu_seconds"] > 0.04 * found["evaluations"]  # type: ignore[operator]


def test_a_budget_of_tokens_is_used_up_and_not_overshot_and_what_was_spent_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = itertools.count(3)

    def answer(request: object) -> str:
        line = f"    return x * {next(numbers)} + 1"
        return f"<<<<<<< SEARCH\n    return x * 2 + 1\n=======\n{line}\n>>>>>>> REPLACE"

    program, evaluator = write(tmp_path)
    with ScriptedServer(answer) as server:
        asked = ("--model", "scripted", "--base-url", server.base_url, "--models-only", "--iterations", 200)
        options = [*asked, *(word for word in OPTIONS if word != "--offline")]
        # Eight in flight set aside more than a thousand each, for answers of thirty.
        found = run(capsys, program, evaluator, "--output", tmp_path / "out", *options, "--tokens", 9000)
        spent = found["spent"]
        assert found["stopped"] == "budget"
        assert isinstance(spent, dict)
        assert 6000 < spent["tokens"] <= 9000
        assert spent["calls"] == len(server.requests)
        assert spent["dollars"] is None
        said = refused(capsys, program, evaluator, *options[:-1], "--dollars", 1)
        assert "--price" in said


def test_a_model_that_never_answers_is_told_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, evaluator = write(tmp_path)
    with ScriptedServer(lambda request: "no idea") as server:
        asked = ("--model", "scripted", "--base-url", server.base_url, "--models-only", "--iterations", 3)
        found = run(
            capsys, program, evaluator, "--output", tmp_path / "out", *asked, "--unsafe-local", "--json"
        )
    (row,) = found["operators"]  # type: ignore[misc]
    assert "SEARCH/REPLACE" in row["failure"]


def test_what_an_evaluator_imports_is_loaded_once_for_all_candidates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = CURVE.replace(
        'return {"combined_score"',
        'import sys\n    warm = {"xml.etree.ElementTree", "concurrent.futures"} <= set(sys.modules)\n'
        "    import xml.etree.ElementTree\n    from concurrent import futures\n"
        '    return {"warm": float(warm), "combined_score"',
    )
    program, evaluator = write(tmp_path, evaluator=text)
    found = run(capsys, program, evaluator, "--output", tmp_path / "out", *OPTIONS)
    assert found["metrics"]["warm"] == 1.0  # type: ignore[index]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["none.py", "evaluator.py"], "no program"),
        (["program.py", "none.py"], "no evaluator"),
        (["program.py", "evaluator.py", "--config", "none.yaml"], "no config"),
        (["program.py", "evaluator.py", "--iterations", "0"], "at least 1"),
        (["program.py", "evaluator.py", "--models-only", "--offline"], "no model is configured"),
        (["program.py", "evaluator.py", "--checkpoint", "."], "not an OpenEvolve checkpoint"),
        (["program.py", "constant.py"], "cannot tell"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    words: list[str],
    expected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(tmp_path)
    (tmp_path / "constant.py").write_text("def evaluate(path):\n    return {'combined_score': 1.0}\n")
    monkeypatch.chdir(tmp_path)
    said = refused(capsys, *words, "--unsafe-local")
    assert expected in said
    assert "Traceback" not in said


YAML = """\
max_iterations: 7
random_seed: 3
diff_based_evolution: false
log_level: DEBUG
llm:
  primary_model: small
  secondary_model: large
  secondary_model_weight: 0.3
  api_base: http://127.0.0.1:9/v1
  api_key: ${WHET_TEST_KEY}
  temperature: 0.4
  timeout: 60
prompt:
  system_message: Make it better.
  num_top_programs: 2
database:
  num_islands: 4
  feature_dimensions: [complexity, score]
  feature_bins: {complexity: 6, score: 8}
  migration_interval: 20
evaluator:
  timeout: 30
  cascade_thresholds: [0.1, 0.2]
  parallel_evaluations: 2
  memory_limit_mb: 256
"""


def test_a_config_of_openevolve_is_read_in_its_own_terms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("yaml")
    monkeypatch.setenv("WHET_TEST_KEY", "sk-secret")
    path = tmp_path / "config.yaml"
    path.write_text(YAML, encoding="utf-8")
    config = read_config(path)
    assert (config.iterations, config.seed, config.diff, config.workers) == (7, 3, False, 2)
    assert config.judge.timeout == 30.0
    assert config.judge.cascade_thresholds == (0.1, 0.2)
    assert config.judge.feature_dimensions == ("complexity", "score")
    assert (config.islands.num_islands, config.islands.feature_bins, config.islands.migration_interval) == (
        4,
        8,
        20,
    )
    assert [(each.name, each.weight, each.api_key) for each in config.models] == [
        ("small", 1.0, "sk-secret"),
        ("large", 0.3, "sk-secret"),
    ]
    assert config.models[0].settings == {"temperature": 0.4}
    assert config.system == "Make it better."
    assert set(config.ignored) == {"log_level"}
    assert config.models[0].retry.attempt_seconds == 60.0
    assert "sk-secret" not in repr(config)


def test_options_that_change_nothing_are_said_before_anything_is_spent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("yaml")
    program, evaluator = write(tmp_path)
    (tmp_path / "config.yaml").write_text(
        "llm: {models: [{name: small, provider: claude_code}]}\nevolution_trace: {enabled: true}\nlog_level: INFO\n"
        "checkpoint_interval: 10\n"
    )
    words = (
        "--config",
        tmp_path / "config.yaml",
        "--output",
        tmp_path / "out",
        "--iterations",
        "1",
        *OPTIONS,
    )
    with pytest.raises(SystemExit):
        main(["evolve", *map(str, (program, evaluator, *words))])
    said = capsys.readouterr()
    assert (
        said.err.count(
            "no effect here: evolution_trace, log_level, checkpoint_interval, llm.models[].provider\n"
        )
        == 1
    )
    found = json.loads(said.out)
    assert found["ignored_options"] == [
        "evolution_trace",
        "log_level",
        "checkpoint_interval",
        "llm.models[].provider",
    ]


def test_an_empty_config_has_the_defaults_of_openevolve() -> None:
    config = config_of({})
    assert config == Config()
    assert config.islands.num_islands == 5
    assert config.judge.cascade_thresholds == (0.5, 0.75, 0.9)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"max_iterations": "many"}, "max_iterations is 'many'"),
        ({"max_iterations": 0}, "at least 1"),
        ({"llm": []}, "llm is a list"),
        ({"llm": {"models": [{"weight": 1}]}}, r"llm.models\[0\]"),
        ({"llm": {"primary_model": "x", "api_key": "${WHET_NOT_SET}"}}, "WHET_NOT_SET"),
        ({"database": {"num_islands": 0}}, "database.num_islands"),
        ({"database": {"exploration_ratio": 1.5}}, "from 0 to 1"),
        ({"database": {"feature_dimensions": [1]}}, "list of names"),
        ({"evaluator": {"timeout": True}}, "evaluator.timeout is True"),
        ({"evaluator": {"cascade_thresholds": ["x"]}}, "cascade_thresholds"),
        ({"evaluator": {"memory_limit_mb": 0}}, "evaluator.memory_limit_mb is 0"),
        ({"early_stopping_patience": -5}, "early_stopping_patience is -5"),
        ({"llm": {"models": [{"name": "a", "weight": "heavy"}]}}, "llm.weight is 'heavy'"),
        ({"llm": {"primary_model": "a", "temperature": "hot"}}, "llm.temperature is 'hot'"),
        ({"llm": {"primary_model": "a", "api_base": 5}}, "llm.api_base is 5"),
    ],
)
def test_a_bad_config_is_refused_by_the_name_of_its_option(data: dict[str, object], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        config_of(data)


def test_yaml_without_its_library_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("raise ImportError('not here')\n", encoding="utf-8")
    (tmp_path / "config.yaml").write_text("{}", encoding="utf-8")
    text = "import sys; from pathlib import Path; from whet.learn.evolution.search.openevolve import read_config\n"
    text += "read_config(Path(sys.argv[1]))"
    paths = os.pathsep.join([str(tmp_path), *(path for path in sys.path if path)])
    done = subprocess.run(
        [sys.executable, "-c", text, str(tmp_path / "config.yaml")],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert MissingExtra.__name__ in done.stderr
    assert "whet[evolve]" in done.stderr


def test_a_checkpoint_is_written_as_openevolve_reads_it_and_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, evaluator = write(tmp_path)
    found = run(capsys, program, evaluator, "--output", tmp_path / "one", *OPTIONS, "--iterations", "25")
    (place,) = (tmp_path / "one" / "checkpoints").iterdir()
    assert place.name == "checkpoint_25"
    metadata = json.loads((place / "metadata.json").read_text())
    stored = {path.stem: json.loads(path.read_text()) for path in (place / "programs").glob("*.json")}
    assert metadata["best_program_id"] in stored
    assert stored[metadata["best_program_id"]]["metrics"]["combined_score"] == found["best_score"]
    assert {id for island in metadata["islands"] for id in island} == set(stored)
    assert read_checkpoint(place, "program.py")[0].text == Path(str(found["best_program"])).read_text()
    seeded = run(
        capsys,
        program,
        evaluator,
        "--output",
        tmp_path / "two",
        *OPTIONS,
        "--iterations",
        "1",
        "--checkpoint",
        place,
    )
    assert seeded["best_score"] >= found["best_score"]  # type: ignore[operator]
