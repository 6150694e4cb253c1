"""`whet run -- CMD`: any agent, recorded, without changing it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ..errors import InputError, StoreBusyError
from .app import Record, app, counted

STORE = Path("whet.db")


@app.command
def run(
    *command: str,
    store: Record = STORE,
    upstream: str | None = None,
    speaks: tuple[str, ...] = (),
    tokens: bool = False,
    run_id: str | None = None,
    url: str | None = None,
    token: Annotated[str | None, Parameter(env_var="WHET_TOKEN")] = None,
    port: int = 0,
) -> int:
    """Run a program with its model calls and traces recorded: whet run -- python agent.py

    A gateway is started on this machine for as long as the program runs, and the program's
    environment points OpenAI's and Anthropic's clients and OpenTelemetry at it. The program's own
    API keys are passed on and never recorded. Ends with the program's exit code.

    Parameters
    ----------
    command
        The program and its arguments, after `--`.
    store
        The record; made if it does not exist.
    upstream
        Where model calls go: any OpenAI-compatible address, up to and including /v1. By default the
        base URLs in the environment, else OpenAI and Anthropic. WHET_UPSTREAM_KEY may hold its key.
    speaks
        API that the upstream speaks: chat, responses or messages; repeat it for several. Calls in another
        are translated to chat.
    tokens
        Ask the upstream for token ids and log-probabilities, as vLLM gives them: what training needs.
    run_id
        Id of the run; a new one by default.
    url
        Use the server that runs at this address instead of starting one; --store and the options of the
        upstream are then that server's.
    token
        Of the server at --url, with the role write.
    port
        Port of the gateway; 0 takes any that is free.
    """
    from ..types import new_id

    if not command:
        raise InputError("no program was given. Put it after --, as in: whet run -- python agent.py")
    name = run_id or new_id()
    if url is not None:
        return _behind(command, url.rstrip("/"), name, token)
    return _served(command, name, store=store, port=port, upstream=(upstream, speaks, tokens))


def _behind(command: tuple[str, ...], url: str, name: str, token: str | None) -> int:
    from ..server.gateway.launch import child_environment, run_child
    from ..worker.client import check

    if token is None:
        raise InputError("no token: give --token, or set WHET_TOKEN; whet serve says where its tokens are")
    if not url.startswith(("http://", "https://")):
        raise InputError(f"--url is {url!r}; it must look like http://127.0.0.1:4777")
    check(url, token)  # else the program would run, and nothing of it be recorded
    # What its traced functions record goes to that server too: it alone can put them and their calls together.
    given = {key: value for key, value in os.environ.items() if key != "WHET_STORE"}
    code = run_child(command, child_environment(given, url=url, run=name, token=token))
    print(f"whet: recorded by {url} as run {name}", file=sys.stderr)
    return code


def _served(
    command: tuple[str, ...],
    name: str,
    *,
    store: Path,
    port: int,
    upstream: tuple[str | None, tuple[str, ...], bool],
) -> int:
    from ..server import Access, Role, Server, new_tokens, running, standard
    from ..server.gateway import Gateway
    from ..server.gateway.launch import child_environment, run_child, upstreams_of
    from ..store import Store
    from ..tracing.assemble import Assembler

    address, speaks, tokens = upstream
    upstreams = upstreams_of(os.environ, address, speaks=speaks, tokens=tokens)
    # A token for this program alone: it is in the program's environment, and ends with it.
    token = new_tokens()[Role.WRITE]
    try:
        opened = Store(store, serve=True)
    except StoreBusyError as busy:
        raise StoreBusyError(f"{busy} Or record through it: whet run --url URL -- ...") from busy
    with opened:
        access = Access({Role.WRITE: token})
        parts = standard(opened, access.limits, upstreams=upstreams)
        (recorder,) = (part.recorder for part in parts if isinstance(part, Gateway))
        with running(Server(access, parts, port=port)) as url:
            environ = child_environment(
                os.environ,
                url=url,
                run=name,
                token=token,
                store=os.path.abspath(store),
                own_key=address is not None,
            )
            code = run_child(command, environ)
        Assembler(opened).flush()  # the program has ended: nothing more will come
    lost = f", {recorder.lost:,} could not be recorded ({recorder.error})" if recorder.lost else ""
    print(
        f"whet: {counted(recorder.recorded, 'model call')} recorded{lost}; "
        f"see them with: whet show trajectories --store {store} --run {name}",
        file=sys.stderr,
    )
    return code
