"""The fault behind an exception: the agent's, or a machine's that says nothing of the agent.

An agent is an outside program, so what comes out of it is mostly the exceptions of other libraries.  An
endpoint that is down, a rate limit, a key that has run out and a lost connection are told by the class and
the HTTP status of the exception, or of the one that it was raised from; no library is imported to tell.
A request that an endpoint refuses as malformed or too long is the agent's: it wrote it.  So is a
TimeoutError that no socket raised, for which agents have their own reasons.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..types import Failure, Fault

_OWN = {
    "ModelError": Fault.MODEL,
    "BudgetExceeded": Fault.MODEL,
    "EnvError": Fault.ENVIRONMENT,
    "SandboxError": Fault.SANDBOX,
    "StoreError": Fault.STORE,
}
"""Classes of `whet.errors`."""
_CLIENTS = frozenset({"openai", "anthropic", "litellm", "mistralai", "cohere", "groq", "together", "ollama"})
"""Packages that ask a model and nothing else, or next to nothing."""
_NETWORK = frozenset(
    {"httpx", "httpx2", "httpcore", "requests", "urllib3", "aiohttp", "urllib", "http"}
    | {"google", "azure", "botocore", "huggingface_hub"}
)
"""Packages that ask anything: a model's endpoint, or that of a tool, which may well refuse the agent."""
_LOST = frozenset(
    {"APIConnectionError", "APITimeoutError", "ServiceUnavailableError", "EndpointConnectionError"}
    | {"TransportError", "NetworkError", "ConnectionError", "Timeout", "ConnectTimeout", "ReadTimeout"}
    | {"ClientConnectionError", "ServerTimeoutError", "MaxRetryError", "ProtocolError", "RemoteDisconnected"}
)
"""Classes of both kinds of package that say that no answer came."""
_LINE = frozenset(
    {("builtins", "ConnectionError"), ("socket", "gaierror"), ("socket", "timeout"), ("urllib", "URLError")}
)
"""The same of the standard library."""
_BUSY = frozenset({408, 425, 429, *range(500, 600)})
_REFUSED = frozenset({401, 402, 403})
"""Of a model's client: the key, not the request."""
_REFUSALS = frozenset({"AuthenticationError", "PermissionDeniedError"})
"""Classes of model clients that say no more than that."""
_REFUSED_STATUS = re.compile(r"\b(?:HTTP|code:?|status:?) ?(?:401|402|403|404)\b", re.IGNORECASE)
"""How clients write such a status, or that of a model that there is none of, into their messages."""
_DEEP = 8
"""Exceptions that one may have been raised from; more is a loop."""


def fault_of(error: BaseException) -> Fault:
    """The fault behind an exception that an agent raised.

    Returns:
        AGENT unless the exception, or one that it was explicitly raised from, is a machine's.
    """
    for exception in _chain(error):
        fault = fault_by(kinds_of(exception), status_of(exception))
        if fault is not Fault.AGENT:
            return fault
    return Fault.AGENT


def key_refused(failure: Failure | None) -> bool:
    """True if a model's endpoint refused whoever asked: it will refuse every further request of the same key, too."""
    if failure is None or failure.fault is not Fault.MODEL:
        return False
    return failure.type in _REFUSALS or bool(_REFUSED_STATUS.search(failure.message))


def fault_by(kinds: Iterable[tuple[str, str]], status: int | None) -> Fault:
    """The same from what an exception in another process was.

    Args:
        kinds: package and name of its class and of all that this derives from.
        status: of HTTP, None if it has none.
    """
    classes = list(kinds)
    # Our own first: a ModelError carries the status of its endpoint, by which it would be the agent's fault.
    for package, name in classes:
        if package == "whet" and name in _OWN:
            return _OWN[name]
    packages = {package for package, _ in classes}
    client = bool(packages & _CLIENTS)
    # The status before the class: a library raises one class for a busy endpoint and a refused request.
    if status is not None:
        if client and status in _BUSY | _REFUSED:
            return Fault.MODEL
        return Fault.ENVIRONMENT if packages & _NETWORK and status in _BUSY else Fault.AGENT
    lost = any(name in _LOST for package, name in classes if package in _CLIENTS | _NETWORK)
    if lost or not _LINE.isdisjoint(classes):
        return Fault.MODEL if client else Fault.ENVIRONMENT
    return Fault.AGENT


def kinds_of(error: BaseException) -> list[tuple[str, str]]:
    """Package and name of its class and of all that this derives from.

    A TimeoutError that a socket raised is `socket.timeout` besides, as it was called before Python 3.10.
    """
    # By names: classes would have to be imported, and those of another process may not be installed here.
    kinds = [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(error).__mro__]
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if isinstance(error, TimeoutError) and at and at.tb_frame.f_globals.get("__name__") in ("socket", "ssl"):
        kinds.append(("socket", "timeout"))
    return kinds


def status_of(error: BaseException) -> int | None:
    """The HTTP status that an exception tells, wherever its library keeps it."""
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "code", "status"):
            value = getattr(holder, name, None)
            # `code` of OpenAI's errors is a word, such as "invalid_api_key".
            if isinstance(value, int) and 100 <= value <= 599:
                return value
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    exception: BaseException | None = error
    for _ in range(_DEEP):
        if exception is None:
            return
        yield exception
        # Not `__context__`: an error raised while an outage is handled is the agent's, unless it says `from`.
        exception = exception.__cause__
