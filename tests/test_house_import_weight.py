"""What `import whet` costs: an application pays it before it has done anything."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

import pytest

HEAVY = {
    "accelerate", "aiohttp", "fastapi", "granian", "lightgbm", "litestar", "numpy", "opentelemetry",
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
        timeout=60,
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


@pytest.mark.parametrize("module", ["numpy", "json.tool"])
def test_what_a_statement_loads_is_seen(module: str) -> None:
    """The negative control of the measure."""
    _, modules = fresh(f"import {module}")
    assert module in modules
