"""An agent of the Agent Lightning 0.1 package, with its own client and trainer; runs in its environment.

    python agent.py URL TASKS [--bare]

`--bare` leaves its AgentOps tracer out, which starts a server of its own.
"""

import sys
from contextlib import contextmanager

from agentlightning import AgentLightningClient, LitAgent, Trainer
from agentlightning.tracer.base import BaseTracer
from agentlightning.types import Triplet


class Agent(LitAgent):
    """Does what its task says."""

    def training_rollout(self, task, rollout_id, resources):
        if task["instruction"] == "raise":
            raise ValueError("the agent broke")
        if task["instruction"] == "triplets":
            return [
                Triplet(prompt=resources["prompt"].template, response=resources["llm"].model, reward=0.25)
            ]
        return 0.5


class NoTracer(BaseTracer):
    """Records nothing."""

    @contextmanager
    def trace_context(self, name=None):
        yield self

    def get_last_trace(self):
        return []


url, tasks = sys.argv[1], int(sys.argv[2])
tracer = NoTracer() if "--bare" in sys.argv else None
trainer = Trainer(n_workers=1, max_tasks=tasks, tracer=tracer)
trainer.fit(Agent(), backend=AgentLightningClient(url, poll_interval=0.2))
