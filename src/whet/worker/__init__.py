"""The worker: runs a user's agent on the rollouts that a server gives out (`whet work`).

It needs no web framework: an HTTP client and the agent.  `lit.py` has the interface of Agent
Lightning 0.1 for agents that were written for it.
"""

from .agent import attempt, load
from .client import Client
from .lit import LLM, LitAgent, PromptTemplate, Report, Triplet
from .run import Tally, Worker

__all__ = [
    "LLM",
    "Client",
    "LitAgent",
    "PromptTemplate",
    "Report",
    "Tally",
    "Triplet",
    "Worker",
    "attempt",
    "load",
]
