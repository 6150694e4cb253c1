"""`whet run -- COMMAND`: any agent, recorded without changing it."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

from ..errors import InputError, StoreBusyError
from .permitted import ProgramGuard
from .root import AskTokens, NewRecord, Speaks, Token, Upstream, command, counted, needed_token

STORE = Path("whet.db")


@command("run")
def run(
    *command: str,
    store: NewRecord = STORE,
    upstream: Upstream = None,
    speaks: Speaks = (),
    tokens: AskTokens = False,
    run_id: str | None = None,
    url: str | None = None,
    token: Token = None,
    port: int = 0,
    permissions: Path | None = None,
    moderate: str | None = None,
    deployed: str = "",
) -> int:
    """Run your agent and record its model calls and traces: whet run -- python my_agent.py

    While the program runs, a gateway runs on this machine, and the program's environment points the clients of OpenAI
    and Anthropic, and OpenTelemetry, at it. The program's own API keys are passed on and never recorded. The exit code
    is the program's.

    Parameters
    ----------
    command
        The program and its arguments, after `--`.
    run_id
        Id of the run; a new one if omitted.
    url
        Record through the server at this address instead of starting one. --store and the options of the upstream are
        then those of that server.
    token
        A token of the server at --url, with the role write. The program gets one of its own, for this run alone.
    port
        Port of the gateway; 0 takes any free port.
    permissions
        A file of rules that allow, deny or ask for the agent's tool calls (docs/permissions.md): those in the model's
        answers, and those of tools that the program marks. Where a rule says ask, you are asked at the terminal, and
        without one the call is denied.
    moderate
        A function, as module:name, that sees every prompt before it is sent, and may mask or block it; or the address
        of a moderation endpoint of OpenAI's form, such as http://127.0.0.1:8001/v1/moderations.
    deployed
        The program is a copy of the agent with the code of this Bundle, such as a trial of whet autopilot: its runs
        name it.
    """
    from ..record.tracing.record import new_run, process_run

    if not command:
        raise InputError("no program was given. Put it after --, as in: whet run -- python agent.py")
    name = run_id or new_run(process_run())
    guard = ProgramGuard(permissions, moderate)
    if url is not None:
        if moderate is not None:
            raise InputError("--moderate is an option of the server at --url: give it to whet serve")
        return _behind(command, url.rstrip("/"), name, token, guard, deployed)
    upstreams = (upstream, speaks, tokens)
    return _served(command, name, store=store, port=port, upstream=upstreams, guard=guard, deployed=deployed)


def _behind(
    command: tuple[str, ...], url: str, name: str, token: str | None, guard: ProgramGuard, deployed: str
) -> int:
    from ..record.tracing.remote import Remote
    from ..serve.gateway.launch import child_environment, run_child
    from ..serve.worker.run_token import held_run_token

    token = needed_token(token)
    if not url.startswith(("http://", "https://")):
        raise InputError(f"--url is {url!r}; it must look like http://127.0.0.1:4777")
    # Without WHET_STORE its traced functions record to that server too: it alone can join them and their model calls.
    environ = {key: value for key, value in os.environ.items() if key != "WHET_STORE"} | guard.environment()
    # Asked for before the program runs and nothing of it is recorded.
    with held_run_token(url, token, name) as own:
        try:
            code_of = Remote(url, token).bundle(deployed) if deployed else None
        except (OSError, ValueError) as error:
            raise InputError(
                f"{url} gives no Bundle {deployed!r}, which --deployed names: {error}"
            ) from error
        own_environment = child_environment(environ, url=url, run=name, token=own, deployed=code_of)
        code = run_child(command, own_environment)
    # Standard output is the program's own.
    print(f"whet: recorded by {url} as run {name}", file=sys.stderr)
    return code


def _served(
    command: tuple[str, ...],
    name: str,
    *,
    store: Path,
    port: int,
    upstream: tuple[str | None, tuple[str, ...], bool],
    guard: ProgramGuard,
    deployed: str,
) -> int:
    from ..record.permissions.person import ask_terminal
    from ..record.store import Store
    from ..record.tracing.assemble import Assembler
    from ..record.transcript import how_to_separate
    from ..serve import Access, Server, new_tokens, running, standard
    from ..serve.gateway import Gateway
    from ..serve.gateway.launch import child_environment, run_child, upstreams_of

    held = guard.environment()
    address, speaks, tokens = upstream
    upstreams = upstreams_of(os.environ, address, speaks=speaks, tokens=tokens)
    try:
        opened = Store(store, serve=True)
    except StoreBusyError as busy:
        raise StoreBusyError(f"{busy} Or record through it: whet run --url URL -- ...") from busy
    with opened:
        code_of = opened.bundle(deployed) if deployed else None
        access = Access(new_tokens())
        parts = standard(
            opened,
            access.limits,
            upstreams=upstreams,
            permissions=guard.permissions,
            moderation=guard.moderation,
            ask=ask_terminal,
        )
        (recorder,) = (part.recorder for part in parts if isinstance(part, Gateway))
        with running(Server(access, parts, port=port)) as url:
            environ = child_environment(
                {**os.environ, **held},
                url=url,
                run=name,
                token=access.runs.mint(name, math.inf),  # it ends with this server
                store=os.path.abspath(store),
                own_key=address is not None,
                deployed=code_of,
            )
            code = run_child(command, environ)
        Assembler(opened).flush()  # the program has ended: nothing more will come
        separate = next(filter(None, map(how_to_separate, opened.trajectories(ids=[name], limit=1))), "")
    lost = f", {recorder.lost:,} could not be recorded ({recorder.error})" if recorder.lost else ""
    print(
        f"whet: {counted(recorder.recorded, 'model call')} recorded{lost}; "
        f"see them with: whet show trajectories --store {store} --run {name}",
        file=sys.stderr,
    )
    if separate:
        print(f"whet: {separate}", file=sys.stderr)
    return code
