"""The model addresses of a candidate on trial: past the record, where they lead through a gateway of ours.

Under `whet run`, or with a base URL that names a run, what an agent asks is recorded as its production and answered
under the prompt that is live.  A candidate that whet runs must not be: the gateway has the path `/trial/v1` for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

TRIAL = "trial"
_BASES = ("OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_BASE_URL")
_OF_RUN = re.compile(r"https?://[^/]+(/deployed/[^/]+)?/run/[^/]+(/[^/]+)?(/v1)?/?")
"""The path of a run at a gateway: no other server has one like it."""
_OTLP = "OTEL_EXPORTER_OTLP_"


def trial_address(url: str, gateway: str | None = None) -> str:
    """The address at which a candidate asks for what an agent asks for at `url`: the same, unless it is a gateway's.

    >>> trial_address("http://127.0.0.1:4777/run/a/b/v1")
    'http://127.0.0.1:4777/run/a/b/trial/v1'
    >>> trial_address("https://api.openai.com/v1")
    'https://api.openai.com/v1'

    Args:
        gateway: the server's address; that of the environment (WHET_URL) if None, and without any only an address that
            names a run is told from others.
    """
    gateway = gateway or os.environ.get("WHET_URL")
    plain = url.rstrip("/")
    ours = bool(gateway) and plain.startswith(f"{gateway}".rstrip("/") + "/")
    if not (ours or _OF_RUN.fullmatch(plain)) or f"/{TRIAL}" in (plain[-6:], plain[-9:-3]):
        return url
    before, version = (plain[:-3], "/v1") if plain.endswith("/v1") else (plain, "")
    return f"{before}/{TRIAL}{version}"


def trial_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of candidates: nothing that they ask or trace is recorded as the production of an agent."""
    gateway = environ.get("WHET_URL")
    changed = {name: text for name, text in environ.items() if name != "WHET_RUN"}
    for name in _BASES:
        if name in changed:
            changed[name] = trial_address(changed[name], gateway)
    exporter = changed.get(f"{_OTLP}ENDPOINT", "").rstrip("/")
    if gateway and exporter == gateway.rstrip("/"):
        for name in ("ENDPOINT", "TRACES_ENDPOINT", "HEADERS"):
            changed.pop(_OTLP + name, None)
        # Without an endpoint an exporter would look for a collector on this machine.
        changed["OTEL_SDK_DISABLED"] = "true"
    return changed
