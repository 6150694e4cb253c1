"""What `import whet` costs: an application pays it before it has done anything."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "accelerate", "aiohttp", "fastapi", "lightgbm", "litestar", "numpy", "opentelemetry",
    "pandas", "peft", "pyarrow", "pydantic", "scipy", "starlette", "torch", "transformers",
}  # fmt: skip
CLIENTS = {"httpcore", "httpcore2", "httpx", "httpx2", "rich", "cyclopts", "sqlite3", "asyncio"}
"""Light enough to use, too heavy to load for someone who has only imported whet."""

MEASURE = """
import os, sys, json
{statement}
used = os.times()
json.dump({{"seconds": used.user + used.system, "modules": list(sys.modules)}}, sys.stdout)
"""


def fresh(statement: str) -> tuple[float, list[str]]:
    """CPU seconds of a fresh interpreter that runs `statement`, and the modules it ends with."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", MEASURE.format(statement=statement)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    return report["seconds"], report["modules"]


def packages(modules: list[str]) -> set[str]:
    return {name.split(".")[0] for name in modules}


def test_importing_whet_is_light() -> None:
    runs = [fresh("import whet") for _ in range(3)]
    bare = statistics.median(fresh("pass")[0] for _ in range(3))
    modules = runs[0][1]
    assert not packages(modules) & (HEAVY | CLIENTS)
    assert len(modules) < 250
    assert statistics.median(seconds for seconds, _ in runs) - bare < 0.3


@pytest.mark.parametrize(
    "statement",
    [
        "from whet import Task, Step, Trajectory, Score, Version, Bundle, Budget, Outcome, Verdict",
        "from whet import Store, trace, step, run, feedback, resource, evolve, attach",
        "from whet import Experiment, tasks, rollout, fewer_steps, check_env, check_reward, check_optimizer",
    ],
    ids=["types", "observe", "learn"],
)
def test_using_the_core_stays_light(statement: str) -> None:
    _, modules = fresh(statement)
    assert not packages(modules) & HEAVY


def test_the_command_line_starts_without_numerical_libraries() -> None:
    _, modules = fresh("from whet.cli import main")
    assert not packages(modules) & HEAVY
    assert "whet.cli" in modules
    # Every command would pay for what those that read a record need.
    assert not {"sqlite3", "whet.record.store", "whet.record.tracing"} & set(modules)
    # It refuses to be imported where the extra is not installed, and the command line starts there too.
    assert "whet.learn.training" not in modules


EACH_COMMAND = """
from whet.cli import app, main
from contextlib import redirect_stdout

def commands(parent, path=()):
    yield path
    for word in parent:
        if not word.startswith("-"):
            yield from commands(parent[word], (*path, word))

def ended(words):
    try:
        with redirect_stdout(sys.stderr):
            main(words)
    except SystemExit as done:
        return done.code

for path in commands(app):
    assert ended([*path, "--help"]) in (0, None), path
"""


def test_no_help_of_any_command_loads_a_numerical_library() -> None:
    """Not even of those that train, whose options are many: torch alone takes seconds."""
    _, modules = fresh(EACH_COMMAND)
    assert "whet.learn.training.options" in modules
    assert not packages(modules) & HEAVY


WRONGLY_ASKED = [
    ["train", "sft", "--output", "{folder}/out", "--data", "{folder}/none.jsonl"],
    ["train", "sft", "--output", "{folder}/out", "--store", "{folder}/none.db"],
    ["train", "sft", "--output", "{folder}/out"],
    ["train", "grpo", "--output", "{folder}/out", "--data", "{folder}/empty.jsonl", "--group-size", "1"],
    ["train", "ppo", "--output", "{folder}/out", "--data", "{folder}/empty.jsonl", "--lam", "2"],
]


def test_what_was_wrongly_asked_of_training_is_refused_before_torch_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    words = [[word.format(folder=tmp_path) for word in line] for line in WRONGLY_ASKED]
    refused = f"for words in {words!r}:\n    assert ended(words) == 2, words\n"
    _, modules = fresh(EACH_COMMAND.partition("for path")[0] + refused)
    assert not packages(modules) & HEAVY


@pytest.mark.parametrize("module", ["numpy", "json.tool"])
def test_what_a_statement_loads_is_seen(module: str) -> None:
    """The negative control of the measure."""
    _, modules = fresh(f"import {module}")
    assert module in modules
