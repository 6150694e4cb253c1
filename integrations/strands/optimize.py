"""Strands' harness optimizer rewrites an agent's system prompt; `strands_evals` reports on both, on unseen tasks."""

import json
import os
from pathlib import Path

from strands import Agent
from strands.models.openai import OpenAIModel
from strands_evals import Case, Experiment
from strands_evals.evaluators import Equals
from strands_harness_optimizer.adapters import apply_formulas_on_strands_agent
from strands_harness_optimizer.data import DataLoader
from strands_harness_optimizer.datamodels import Reward, Rollout
from strands_harness_optimizer.formulas import SystemPromptFormula
from strands_harness_optimizer.optimizers.system_prompt import (
    ContrastiveReflectionOptimizer,
    base_agentic_optimizer,
)
from strands_harness_optimizer.rewards import RewardFunction
from strands_harness_optimizer.rollout_engines import LocalRolloutEngine
from strands_harness_optimizer.trainer import Trainer
from strands_harness_optimizer.utils.templates import load_builtin_template


def model(name, base):
    return OpenAIModel(client_args={"base_url": os.environ[base], "api_key": "none"}, model_id=name)


# Its optimizers ask Amazon Bedrock, and take no other model.
base_agentic_optimizer.BedrockModel = lambda **_: model("prompter", "PROMPTER_BASE_URL")


def agent(formula):
    made = Agent(model=model("clerk", "OPENAI_BASE_URL"), callback_handler=None)
    apply_formulas_on_strands_agent(made, [formula])
    return made


def asked(made, row):
    made.messages.clear()
    answer = str(made(row["question"])).strip()
    return Rollout(data_sample=row, messages=list(made.messages), metadata={"answer": answer})


class Exact(RewardFunction):
    def __call__(self, rollout):
        return Reward(reward=float(rollout.metadata["answer"] == rollout.data_sample["expected"]))


def rows(name):
    return [json.loads(line) for line in Path(name).read_text().splitlines()]


def report(name, formula):
    def task(case):
        return str(agent(formula)(case.input)).strip()

    cases = [
        Case(
            name=row["id"],
            input=row["question"],
            expected_output=row["expected"],
            metadata={"group": row["group"]},
        )
        for row in rows("held_out.jsonl")
    ]
    Experiment(cases=cases, evaluators=[Equals()]).run_evaluations(task).to_file(f"{name}.json")


formula = SystemPromptFormula(system_prompt=os.environ["PROMPT"])
report("before", formula)
Trainer(
    formula=formula,
    optimizer=ContrastiveReflectionOptimizer(
        formula,
        load_builtin_template("contrastive_reflection/system_prompt.jinja"),
        load_builtin_template("contrastive_reflection/task_message_system_prompt.jinja"),
    ),
    reward_fn=Exact(),
    engine=LocalRolloutEngine(formula, agent_creator=lambda: agent(formula), agent_invoker=asked),
    dataloader=DataLoader(rows("train.jsonl"), batch_size=20),
    n_epochs=2,
).fit()
report("after", formula)
