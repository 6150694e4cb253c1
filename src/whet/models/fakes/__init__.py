"""Public fakes: a scripted model endpoint, and GitHub's pull requests, over real HTTP on loopback.

`server.py` is the endpoint and its script; `answers.py` has each model API's form of an answer, `weights.py`
vLLM's routes for weights.  `whet.models.ScriptedModel` is the same without HTTP.
"""

from .github import ScriptedGitHub
from .server import Received, Reply, ScriptedServer

__all__ = ["Received", "Reply", "ScriptedGitHub", "ScriptedServer"]
