"""whet: improve LLM agents from what they actually do.

The names below are the public surface; `docs/nouns.md` says what each is.
They are looked up when first used (PEP 562), so `import whet` costs next to
nothing and loads no numerical library, web framework or telemetry package.
A test holds the names and their signatures to `tests/public_names.txt`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .judge import check_reward, fewer_steps
    from .judge.agent_env import calls
    from .learn.evolution.in_one_call import improve
    from .learn.experiment import Experiment
    from .learn.improvement import Improvement
    from .learn.loop import Context, Optimizer, Update
    from .learn.loop_checks import check_optimizer
    from .learn.optimizers.dpo import DPO
    from .learn.optimizers.evolve import Evolve
    from .learn.optimizers.grpo import GRPO
    from .learn.optimizers.head import Head
    from .learn.optimizers.kto import KTO
    from .learn.optimizers.ppo import PPO
    from .learn.optimizers.sft import SFT
    from .learn.training.chat import ChatPolicy
    from .models import Model, ScriptedModel
    from .prove.gate import compare
    from .prove.guardrails import Guardrail
    from .prove.verdict import verdict
    from .record.env import Env, StepResult, check_env, rollout
    from .record.permissions.enforcement import permissions
    from .record.policy import Action, Policy
    from .record.store import Store
    from .record.tasks import tasks
    from .record.tracing import attach, evolve, feedback, propagate, resource, run, step, trace
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
    "Action": "record.policy",
    "Budget": "types",
    "Bundle": "types",
    "ChatPolicy": "learn.training.chat",
    "Context": "learn.loop",
    "DPO": "learn.optimizers.dpo",
    "Env": "record.env",
    "Evolve": "learn.optimizers.evolve",
    "Experiment": "learn.experiment",
    "Feedback": "types",
    "GRPO": "learn.optimizers.grpo",
    "Group": "types",
    "Guardrail": "prove.guardrails",
    "Head": "learn.optimizers.head",
    "Improvement": "learn.improvement",
    "KTO": "learn.optimizers.kto",
    "Model": "models",
    "Optimizer": "learn.loop",
    "Outcome": "types",
    "PPO": "learn.optimizers.ppo",
    "Policy": "record.policy",
    "Preference": "types",
    "SFT": "learn.optimizers.sft",
    "Score": "types",
    "ScriptedModel": "models",
    "Step": "types",
    "StepResult": "record.env",
    "Store": "record.store",
    "Task": "types",
    "Trajectory": "types",
    "Update": "learn.loop",
    "Verdict": "types",
    "Version": "types",
    "attach": "record.tracing",
    "calls": "judge.agent_env",
    "check_env": "record.env",
    "check_optimizer": "learn.loop_checks",
    "check_reward": "judge",
    "compare": "prove.gate",
    "evolve": "record.tracing",
    "feedback": "record.tracing",
    "fewer_steps": "judge",
    "improve": "learn.evolution.in_one_call",
    "permissions": "record.permissions.enforcement",
    "propagate": "record.tracing",
    "resource": "record.tracing",
    "rollout": "record.env",
    "run": "record.tracing",
    "step": "record.tracing",
    "tasks": "record.tasks",
    "trace": "record.tracing",
    "verdict": "prove.verdict",
}
"""Public name → module that defines it."""

__all__ = [
    "DPO",
    "GRPO",
    "KTO",
    "PPO",
    "SFT",
    "Action",
    "Budget",
    "Bundle",
    "ChatPolicy",
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
    "improve",
    "permissions",
    "propagate",
    "resource",
    "rollout",
    "run",
    "step",
    "tasks",
    "trace",
    "verdict",
]


if not TYPE_CHECKING:  # to a type checker this would make every misspelt name valid

    def __getattr__(name: str) -> object:
        from whet.lazy import from_home  # absolute: what is imported relatively here is public

        return from_home(__name__, _HOME, name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
