"""The worker: runs a user's agent on the rollouts that a server gives out (`whet work`).

It needs no web framework: an HTTP client and the agent.  `run.py` is the loop, `client.py` the
server as it sees it, `agent.py` one attempt, `wire.py` the bodies that both sides speak in.  What
an agent written for the Agent Lightning 0.1 interface imports is here.
"""

from .lit import LLM, LitAgent, PromptTemplate, Report, Triplet

__all__ = ["LLM", "LitAgent", "PromptTemplate", "Report", "Triplet"]
