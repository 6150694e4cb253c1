"""`whet serve` and `whet work`: the record, its queue and its gateway over HTTP, and its workers."""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter
from cyclopts.types import NonNegativeFloat, NonNegativeInt

from ..errors import InputError
from .autopilot import AS_IT_COMES, PilotFlags, agent_file, refuse_half_a_pilot
from .permitted import ProgramGuard
from .root import (
    ADVANCED,
    AllowHost,
    AskTokens,
    AtLeastOne,
    Host,
    NewRecord,
    Port,
    Speaks,
    Token,
    Upstream,
    command,
    counted,
    needed_token,
)

if TYPE_CHECKING:
    from ..serve import Role
    from ..serve.worker.run import Tally

PILOT = Group("Autopilot", sort_key=2)


@command("serve")
def serve(
    *,
    store: NewRecord,
    host: Host = "127.0.0.1",
    port: Port = 4777,
    upstream: Upstream = None,
    token: Annotated[Token, ADVANCED] = None,
    allow_host: Annotated[AllowHost, ADVANCED] = (),
    speaks: Annotated[Speaks, ADVANCED] = (),
    tokens: Annotated[AskTokens, ADVANCED] = False,
    durable_calls: Annotated[bool, ADVANCED] = False,
    keep_days: Annotated[NonNegativeFloat | None, ADVANCED] = None,
    open_legacy: Annotated[bool, ADVANCED] = False,
    readers: Annotated[NonNegativeInt | None, ADVANCED] = None,
    permissions: Annotated[Path | None, ADVANCED] = None,
    moderate: Annotated[str | None, ADVANCED] = None,
    shadow_calls: Annotated[NonNegativeInt, ADVANCED] = 10_000,
    shadow_tokens: Annotated[NonNegativeInt | None, ADVANCED] = None,
    shadow_dollars: Annotated[NonNegativeFloat | None, ADVANCED] = None,
    shadow_concurrency: Annotated[AtLeastOne, ADVANCED] = 4,
    autopilot: Annotated[Path | None, Parameter(group=PILOT)] = None,
    pilot: Annotated[PilotFlags, Parameter(name="pilot", group=PILOT)] = AS_IT_COMES,
) -> int:
    """Serve a store over HTTP: agents send traces, workers fetch tasks, people give feedback.

    It also proxies and records model calls, and other processes on this machine record through it. Every request needs
    a token, also on this machine; the tokens are made at the first start and kept beside the store. Ctrl-C finishes
    the requests in progress, then stops.

    Parameters
    ----------
    token
        The only token to accept, for everything, instead of those kept beside the store.
    durable_calls
        Give an agent a model's answer only once the call is recorded on the disk, so that no crash can lose it. It adds
        a disk flush to each call. Without it, an agent asks for that by the header x-whet-durable: true.
    keep_days
        Delete runs older than this many days, at the start and every hour, except those that `whet retain` keeps. If
        omitted, everything is kept.
    open_legacy
        Serve the task, resource and rollout routes of the Agent Lightning 0.1 protocol without a token, to this machine
        only: its client cannot send one.
    readers
        Processes that read the spans of exporters beside the one that serves, from the first larger request on. If
        omitted, as many as there are cores, at most 4, and none on a single core; 0 reads them in the server itself.
    permissions
        A file of rules that allow, deny or ask for the tool calls in models' answers. A call that a rule leaves to a
        person waits at /api/approvals for a token of the role admin, and is denied if nobody answers.
    moderate
        A function, as module:name, that sees every prompt before it is sent, and may mask or block it; or the address
        of a moderation endpoint of OpenAI's form.
    shadow_calls
        Model calls that shadows (whet release --to shadow) may make until the server ends, in a process of their own.
    shadow_tokens
        Tokens of these calls, at most.
    shadow_dollars
        Dollars for these calls, at most; a model without a known price is not asked then.
    shadow_concurrency
        Calls of shadows at once; what comes beyond that is dropped and counted.
    autopilot
        Run whet autopilot on the record, in a process that ends with this one: the agent's file, or its folder with
        --pilot.entry. --pilot.* are the options of whet autopilot.
    """
    from ..autopilot.serving import PilotProcess
    from ..record.store import Store
    from ..serve import Access, Server, run, standard
    from ..serve.gateway import Gateway
    from ..serve.gateway.launch import upstreams_of
    from ..serve.gateway.mirror_wire import MirrorLimits
    from ..serve.memory import share_arenas

    share_arenas()
    guard = ProgramGuard(permissions, moderate)
    words = None if autopilot is None else _pilot_words(store, autopilot, pilot)
    upstreams = upstreams_of(os.environ, upstream, speaks=speaks, tokens=tokens)
    stopped = interrupted()
    with Store(store, serve=True) as opened:
        accepted, notice = _tokens(store, token)
        access = Access(accepted, hosts=(host, *allow_host))
        parts = standard(
            opened,
            access.limits,
            open_legacy=open_legacy,
            keep_days=keep_days,
            upstreams=upstreams,
            readers=_readers() if readers is None else readers,
            secrets=access.secrets,
            durable_calls=durable_calls,
            permissions=guard.permissions,
            moderation=guard.moderation,
            shadow_limits=MirrorLimits(
                calls=shadow_calls,
                tokens=shadow_tokens,
                dollars=shadow_dollars,
                concurrency=shadow_concurrency,
            ),
            pilot=None if words is None else PilotProcess(opened, words),
        )
        server = Server(access, parts, host=host, port=port)

        def ready(url: str) -> None:
            count = counted(opened.count("trajectories"), "trajectory")
            lines = [f"{store}: serving, {count}, on {url}; stop with Ctrl-C", notice]
            if durable_calls:
                lines.append(
                    "every model call waits until it is recorded, which adds a flush of this disk, "
                    f"{flushing(store) * 1000:.1f} ms"
                )
            if lost := sum(part.lost for part in parts if isinstance(part, Gateway)):
                lines.append(
                    f"never recorded: {counted(lost, 'model call')} of earlier servers, answered or begun; "
                    "--durable-calls lets no crash lose one that was answered"
                )
            if not opened.database.owner:
                lines.append(
                    "another process opened this store first: rollouts are handed out once it has ended; "
                    "everything else works"
                )
            print("\n".join(lines), flush=True)

        report_cut_off(run(server, stopped, ready))
    return 0


def _pilot_words(store: Path, agent: Path, pilot: PilotFlags) -> list[str]:
    """What the server's autopilot is told.

    Raises:
        InputError: it cannot run so.
    """
    if str(store) == ":memory:":
        raise InputError(
            "--autopilot is a process of its own, which needs a record in a file: give --store FILE"
        )
    refuse_half_a_pilot(pilot)
    file = agent_file(agent, pilot.entry)
    waiting = pilot if pilot.wait is not None else replace(pilot, wait=60.0)
    return [f"--agent={file}", *waiting.words()]


def flushing(store: Path) -> float:
    """Seconds that one flush of the disk beside a store takes: the median of 11."""
    took = []
    with tempfile.TemporaryFile(dir=store.resolve().parent) as probe:
        for _ in range(11):
            began = time.perf_counter()
            probe.write(bytes(4096))
            probe.flush()
            os.fsync(probe.fileno())
            took.append(time.perf_counter() - began)
    return statistics.median(took)


def _readers() -> int:
    """Processes that read for the server, by the cores that this process may use."""
    # Not os.cpu_count: a container may have fewer than the machine.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(4, cores) if cores > 1 else 0


def interrupted() -> threading.Event:
    """Set by Ctrl-C or SIGTERM."""
    stopped = threading.Event()
    for signal_ in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_, lambda *_: stopped.set())
    return stopped


def report_cut_off(requests: int) -> None:
    """Say how many requests the server did not finish."""
    if requests:
        print(f"{requests} requests did not end in time and were cut off", flush=True)


def _tokens(store: Path, token: str | None) -> tuple[dict[Role, str], str]:
    """The tokens to accept, and a line on them for the user."""
    from ..serve import Role, make_tokens, new_tokens, token_file, tokens_of

    if token is not None:
        return {Role.ADMIN: token}, "token: as given"
    if str(store) == ":memory:":
        fresh = new_tokens()
        return fresh, f"token (admin), for as long as this runs: {fresh[Role.ADMIN]}"
    stored = tokens_of(store)
    if stored:
        return stored, f"tokens: in {token_file(store)}; whet token --help shows how to print or replace them"
    fresh = make_tokens(store)
    return (
        fresh,
        f"token (admin): {fresh[Role.ADMIN]}\nkept, with those for read and write, in {token_file(store)}",
    )


@command("work")
def work(
    agent: str,
    *,
    url: str,
    token: Token = None,
    concurrency: int = 8,
    processes: int = 1,
    limit: AtLeastOne | None = None,
    json: bool = False,
    mode: Annotated[tuple[Literal["train", "val", "test"], ...], ADVANCED] = (),
    lease: Annotated[float, ADVANCED] = 60.0,
    patience: Annotated[NonNegativeFloat | None, ADVANCED] = None,
) -> int:
    """Run an agent on the tasks that a server hands out, until Ctrl-C.

    An exception of the agent is recorded as a failure of its rollout; if the machine or the model endpoint fails, the
    rollout is handed out again. Ctrl-C finishes the rollouts in progress; a second one hands them back.

    Parameters
    ----------
    agent
        A function, or a class with `training_rollout`, as module:name.
    url
        Address of `whet serve`.
    token
        A token of the server with the role write.
    concurrency
        Rollouts in parallel in each process.
    processes
        Number of processes.
    limit
        Stop after this many rollouts in each process.
    json
        Print one JSON object per process.
    mode
        Take only rollouts of this mode. May be repeated.
    lease
        Seconds without a heartbeat after which the server hands a rollout to another worker.
    patience
        Give up, with exit code 75, after the server has been unreachable for this many seconds. If omitted, the worker
        logs once that the server is unreachable and retries indefinitely.
    """
    import msgspec

    from ..serve.worker.main import WorkerOptions, work_here, work_in_processes

    token = needed_token(token)
    if processes != 1:
        # The token goes through the environment: arguments can be read by every user of the machine.
        words = [agent, "--url", url, "--concurrency", str(concurrency), "--lease", str(lease)]
        words += [word for name in mode for word in ("--mode", name)]
        words += [] if limit is None else ["--limit", str(limit)]
        words += [] if patience is None else ["--patience", str(patience)]
        return work_in_processes(processes, [*words, *(["--json"] if json else [])], token)

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

    settings = WorkerOptions(
        agent=agent,
        url=url,
        token=token,
        concurrency=concurrency,
        lease=lease,
        modes=mode,
        limit=limit,
        patience=patience,
    )
    return work_here(settings, done)
