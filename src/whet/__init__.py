"""whet: improve LLM agents from what they actually do.

The names below are the public surface; `docs/nouns.md` says what each is.
They are looked up when first used (PEP 562), so `import whet` costs next to
nothing and loads no numerical library, web framework or telemetry package.
A test holds the names and their signatures to `tests/public_names.txt`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .agent_env import calls
    from .data.tasks import tasks
    from .env import check_env, rollout
    from .loop import Experiment
    from .loop_checks import check_optimizer
    from .models import ScriptedModel
    from .optimizers.evolve import Evolve
    from .reward import check_reward, fewer_steps
    from .store import Store
    from .tracing import attach, evolve, feedback, propagate, resource, run, step, trace
    from .types import Budget, Bundle, Outcome, Score, Step, Task, Trajectory, Verdict, Version

_HOME = {
    "Budget": "types",
    "Bundle": "types",
    "Evolve": "optimizers.evolve",
    "Experiment": "loop",
    "Outcome": "types",
    "Score": "types",
    "ScriptedModel": "models",
    "Step": "types",
    "Store": "store",
    "Task": "types",
    "Trajectory": "types",
    "Verdict": "types",
    "Version": "types",
    "attach": "tracing",
    "calls": "agent_env",
    "check_env": "env",
    "check_optimizer": "loop_checks",
    "check_reward": "reward",
    "evolve": "tracing",
    "feedback": "tracing",
    "fewer_steps": "reward",
    "propagate": "tracing",
    "resource": "tracing",
    "rollout": "env",
    "run": "tracing",
    "step": "tracing",
    "tasks": "data.tasks",
    "trace": "tracing",
}
"""Public name → module that defines it."""

__all__ = [
    "Budget",
    "Bundle",
    "Evolve",
    "Experiment",
    "Outcome",
    "Score",
    "ScriptedModel",
    "Step",
    "Store",
    "Task",
    "Trajectory",
    "Verdict",
    "Version",
    "attach",
    "calls",
    "check_env",
    "check_optimizer",
    "check_reward",
    "evolve",
    "feedback",
    "fewer_steps",
    "propagate",
    "resource",
    "rollout",
    "run",
    "step",
    "tasks",
    "trace",
]

if not TYPE_CHECKING:  # to a type checker this would make every misspelt name valid

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'whet' has no attribute {name!r}")
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value  # looked up once
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
