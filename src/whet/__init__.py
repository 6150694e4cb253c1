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
    from .env import Env, StepResult, check_env, rollout
    from .experiment import Experiment
    from .gate import compare
    from .guardrails import Guardrail
    from .improvement import Improvement
    from .loop import Context, Optimizer, Update
    from .loop_checks import check_optimizer
    from .models import Model, ScriptedModel
    from .optimizers.evolve import Evolve
    from .optimizers.grpo import GRPO
    from .optimizers.head import Head
    from .policy import Action, Policy
    from .reward import check_reward, fewer_steps
    from .store import Store
    from .tracing import attach, evolve, feedback, propagate, resource, run, step, trace
    from .types import (
        Budget,
        Bundle,
        Feedback,
        Group,
        Outcome,
        Preference,
        Score,
        Step,
        Task,
        Trajectory,
        Verdict,
        Version,
    )

_HOME = {
    "Action": "policy",
    "Budget": "types",
    "Bundle": "types",
    "Context": "loop",
    "Env": "env",
    "Evolve": "optimizers.evolve",
    "Experiment": "experiment",
    "Feedback": "types",
    "GRPO": "optimizers.grpo",
    "Group": "types",
    "Guardrail": "guardrails",
    "Head": "optimizers.head",
    "Improvement": "improvement",
    "Model": "models",
    "Optimizer": "loop",
    "Outcome": "types",
    "Policy": "policy",
    "Preference": "types",
    "Score": "types",
    "ScriptedModel": "models",
    "Step": "types",
    "StepResult": "env",
    "Store": "store",
    "Task": "types",
    "Trajectory": "types",
    "Update": "loop",
    "Verdict": "types",
    "Version": "types",
    "attach": "tracing",
    "calls": "agent_env",
    "check_env": "env",
    "check_optimizer": "loop_checks",
    "check_reward": "reward",
    "compare": "gate",
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
    "GRPO",
    "Action",
    "Budget",
    "Bundle",
    "Context",
    "Env",
    "Evolve",
    "Experiment",
    "Feedback",
    "Group",
    "Guardrail",
    "Head",
    "Improvement",
    "Model",
    "Optimizer",
    "Outcome",
    "Policy",
    "Preference",
    "Score",
    "ScriptedModel",
    "Step",
    "StepResult",
    "Store",
    "Task",
    "Trajectory",
    "Update",
    "Verdict",
    "Version",
    "attach",
    "calls",
    "check_env",
    "check_optimizer",
    "check_reward",
    "compare",
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
