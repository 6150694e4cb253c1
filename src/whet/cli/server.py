"""`whet serve` and `whet work`: the record, its queue and its gateway over HTTP, and who works on it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.types import NonNegativeFloat

from ..errors import InputError
from .app import AtLeastOne, Record, app, counted

if TYPE_CHECKING:
    from ..server import Role
    from ..worker.run import Tally


@app.command
def serve(
    *,
    store: Record,
    host: str = "127.0.0.1",
    port: int = 4777,
    token: Annotated[str | None, Parameter(env_var="WHET_TOKEN")] = None,
    allow_host: tuple[str, ...] = (),
    open_legacy: bool = False,
    upstream: str | None = None,
    speaks: tuple[str, ...] = (),
    tokens: bool = False,
    keep_days: NonNegativeFloat | None = None,
) -> int:
    """Serve a store over HTTP, and own it: other processes on this machine record through it too.

    Agents send traces, workers fetch tasks, people give feedback.  Every request needs a token, on
    this machine too; the tokens are made at the first start and kept beside the store.  Ctrl-C
    answers what is under way, then stops.

    Parameters
    ----------
    store
        The file; made if it does not exist.
    host
        Address to listen on.
    port
        0 takes any that is free and prints it.
    token
        The one token to accept, for everything, instead of those kept beside the store.
    allow_host
        A name that clients may call this server by, beside localhost; repeat it for several.
    open_legacy
        Serve the task, resource and rollout routes of the Agent Lightning 0.1 protocol without a
        token, to this machine only: its client cannot send one.
    upstream
        Where model calls go: any OpenAI-compatible address, up to and including /v1. By default the
        base URLs in the environment, else OpenAI and Anthropic. WHET_UPSTREAM_KEY may hold its key.
    speaks
        API that the upstream speaks: chat, responses or messages; repeat it for several.
    tokens
        Ask the upstream for token ids and log-probabilities, as vLLM gives them: what training needs.
    keep_days
        The rule of retention: what is older is taken out, at the start and every hour, but for what
        `whet retain` keeps; without it everything stays.
    """
    from ..server import Access, Server, run, standard
    from ..server.gateway.launch import upstreams_of
    from ..store import Store

    upstreams = upstreams_of(os.environ, upstream, speaks=speaks, tokens=tokens)
    stopped = threading.Event()
    for signal_ in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_, lambda *_: stopped.set())
    with Store(store, serve=True) as opened:
        known, said = _tokens(store, token)
        access = Access(known, hosts=(host, *allow_host))
        parts = standard(
            opened, access.limits, open_legacy=open_legacy, keep_days=keep_days, upstreams=upstreams
        )
        server = Server(access, parts, host=host, port=port)

        def ready(url: str) -> None:
            count = opened.count("trajectories")
            print(
                f"{store}: serving, {counted(count, 'trajectory')}, on {url}; stop with Ctrl-C\n{said}",
                flush=True,
            )
            if not opened.database.owner:
                print(
                    "another process has opened this store before: rollouts are handed out once it has ended; "
                    "everything else works",
                    flush=True,
                )

        cut = run(server, stopped, ready)
        if cut:
            print(f"{cut} requests did not end in time and were cut off", flush=True)
    return 0


def _tokens(store: Path, given: str | None) -> tuple[dict[Role, str], str]:
    """The tokens to accept, and what to tell the user of them."""
    from ..server import Role, make_tokens, new_tokens, token_file, tokens_of

    if given is not None:
        return {Role.ADMIN: given}, "token: as given"
    if str(store) == ":memory:":
        made = new_tokens()
        return made, f"token (admin), for as long as this runs: {made[Role.ADMIN]}"
    found = tokens_of(store)
    if found:
        return found, f"tokens: {token_file(store)}"
    made = make_tokens(store)
    return (
        made,
        f"token (admin): {made[Role.ADMIN]}\nkept, with those for read and write, in {token_file(store)}",
    )


@app.command
def work(
    agent: str,
    *,
    url: str,
    token: Annotated[str | None, Parameter(env_var="WHET_TOKEN")] = None,
    concurrency: int = 8,
    processes: int = 1,
    lease: float = 60.0,
    mode: tuple[Literal["train", "val", "test"], ...] = (),
    limit: AtLeastOne | None = None,
    patience: NonNegativeFloat | None = None,
    json: bool = False,
) -> int:
    """Run an agent on the rollouts that a server gives out, until Ctrl-C.

    What the agent raises is recorded as a failure of its rollout; when the machine or the model
    endpoint fails, the rollout is given out again.  Ctrl-C finishes what is under way; a second one
    gives it back.

    Parameters
    ----------
    agent
        MODULE:NAME of a function, or of a class with `training_rollout`.
    url
        Of `whet serve`.
    token
        One with the role write.
    concurrency
        Rollouts at once in each process.
    processes
        Processes.
    lease
        Seconds that the server waits for a sign of life before it gives a rollout to another worker.
    mode
        Take only these; repeat it for several.
    limit
        Stop after so many rollouts in each process.
    patience
        Give up, with exit code 75, when the server could not be reached for so many seconds; without it the
        worker says once that it is away and waits for ever.
    json
        Print what was done as one JSON object a process.
    """
    import msgspec

    from ..worker.main import Work, work_here, work_in_processes

    if token is None:
        raise InputError("no token: give --token, or set WHET_TOKEN; whet serve says where its tokens are")
    if processes != 1:
        given = [agent, "--url", url, "--concurrency", str(concurrency), "--lease", str(lease)]
        given += [part for one in mode for part in ("--mode", one)]
        given += [] if limit is None else ["--limit", str(limit)]
        given += [] if patience is None else ["--patience", str(patience)]
        return work_in_processes(processes, [*given, *(["--json"] if json else [])], token)

    def done(tally: Tally) -> None:
        if json:
            # In one piece: several processes share the output.
            sys.stdout.write(msgspec.json.encode(tally).decode() + "\n")
            sys.stdout.flush()
            return
        print(
            f"{tally.succeeded:,} rollouts done, {tally.failed:,} of them failed; {tally.retried:,} handed back, "
            f"{tally.stale:,} taken over by other workers, {tally.lost:,} lost",
            flush=True,
        )

    told = Work(
        agent=agent,
        url=url,
        token=token,
        concurrency=concurrency,
        lease=lease,
        modes=mode,
        limit=limit,
        patience=patience,
    )
    return work_here(told, done)
