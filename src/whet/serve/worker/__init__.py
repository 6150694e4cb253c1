"""The worker: runs a user's agent on the rollouts that a server gives out (`whet work`).

It needs no web framework: an HTTP client and the agent.  `run.py` is the loop, `client.py` the
server as it sees it, `agent.py` one attempt, `wire.py` the bodies of requests and answers.  The
names that an agent for the Agent Lightning 0.1 interface imports are here.
"""

from .lit import LLM, LitAgent, LitReport, PromptTemplate, Triplet

__all__ = ["LLM", "LitAgent", "LitReport", "PromptTemplate", "Triplet"]
