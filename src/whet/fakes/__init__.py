"""Public fakes: a scripted model endpoint over real HTTP on loopback.

`server.py` is the endpoint and its script; `chat.py`, `responses.py` and `messages.py` write an
answer as each of the three model APIs does.  `whet.models.ScriptedModel` is the same without HTTP.
"""

from .server import Received, Reply, ScriptedServer

__all__ = ["Received", "Reply", "ScriptedServer"]
