"""The model gateway: OpenAI's and Anthropic's APIs in front of any upstream, every call recorded.

`gateway.py` is the part of the server; `exchange.py` one call; `serving.py` says what a Bundle can
change.  The other modules each hold one thing that those need.
"""

from .assignment import Assignments
from .gateway import Gateway, Status
from .serving import ServedBundle, served
from .upstream import Upstream

__all__ = ["Assignments", "Gateway", "ServedBundle", "Status", "Upstream", "served"]
