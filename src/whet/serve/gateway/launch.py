"""Running a program behind a gateway: its environment, its signals and its exit code.

The program is started as the user would start it, with the same standard input and output; only
where its model calls and traces go is changed, through the variables that the clients read.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from urllib.parse import quote

import msgspec

from ...errors import InputError
from ...record.store.releases import GATEWAY
from ...record.tracing.record import DEPLOYED
from ...types import Bundle
from .identity import LONGEST
from .upstream import KEY, Upstream

OPENAI, ANTHROPIC = "https://api.openai.com/v1", "https://api.anthropic.com/v1"
LONGEST_RUN = LONGEST - 40
"""Characters of a program's run id: those of the runs inside it begin with it."""
_FORWARDED = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


def upstreams_of(
    environ: Mapping[str, str],
    url: str | None = None,
    *,
    speaks: Sequence[str] = (),
    tokens: bool = False,
) -> dict[str, Upstream]:
    """The upstreams that a user means: the one given, else those that the environment names.

    Args:
        environ: `WHET_UPSTREAM_KEY` is the key of the one given; without a url, the base URLs that
            OpenAI's and Anthropic's clients read name the upstreams.
        speaks: APIs of the one given.
        tokens: ask for token ids.

    Raises:
        InputError: an address that cannot be one.
    """
    key = environ.get(KEY) or None
    if url is not None:
        return {"default": Upstream(url=url, speaks=frozenset(speaks), key=key, tokens=tokens)}
    openai = environ.get("OPENAI_BASE_URL") or environ.get("OPENAI_API_BASE") or OPENAI
    anthropic = environ.get("ANTHROPIC_BASE_URL")
    if anthropic and not anthropic.rstrip("/").endswith("/v1"):
        anthropic = anthropic.rstrip("/") + "/v1"  # Anthropic's client adds it, OpenAI's does not
    return {
        "openai": Upstream(url=openai, speaks=frozenset(speaks), key=key, tokens=tokens),
        "anthropic": Upstream(url=anthropic or ANTHROPIC, speaks=frozenset({"messages"})),
    }


def child_environment(
    environ: Mapping[str, str],
    *,
    url: str,
    run: str,
    token: str,
    store: str | None = None,
    own_key: bool = False,
    deployed: Bundle | None = None,
) -> dict[str, str]:
    """The environment of a program whose calls and traces go to the server at `url`.

    Args:
        token: of the run.
        store: the record's file, where it is on this machine.
        own_key: the program needs no key of its own; one that says so is set where it has none,
            because the clients do not start without.
        deployed: the Bundle whose code the program is.

    Raises:
        InputError: the run id cannot stand in a path.
    """
    if not run.isascii() or not run.isprintable() or not run or len(run) > LONGEST_RUN or "," in run:
        raise InputError(
            f"the run id is {run[:40]!r}: give 1 to {LONGEST_RUN} printable ASCII characters, no comma"
        )
    code = f"/deployed/{quote(deployed.id, safe='')}" if deployed else ""
    base = f"{url}{code}/run/{quote(run, safe='')}/{quote(token, safe='')}"
    attributes = f"whet.run={quote(run, safe='')}"
    before = environ.get("OTEL_RESOURCE_ATTRIBUTES")
    changed = {
        "OPENAI_BASE_URL": f"{base}/v1",
        "OPENAI_API_BASE": f"{base}/v1",
        "ANTHROPIC_BASE_URL": base,
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        # The same again for SDKs before 1.10, which take the general one as it is, without a path.
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{url}/v1/traces",
        "OTEL_EXPORTER_OTLP_HEADERS": f"x-whet-token={quote(token, safe='')}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_RESOURCE_ATTRIBUTES": f"{before},{attributes}" if before else attributes,
        "WHET_URL": url,
        "WHET_TOKEN": token,
        "WHET_RUN": run,
    }
    if store is not None:
        changed["WHET_STORE"] = store
    if deployed:
        # For what the program traces itself: an agent that calls no model has no other way to say it.
        own = {name: id for name, id in deployed.ids.items() if name not in GATEWAY}
        changed[DEPLOYED] = msgspec.json.encode(own).decode()
    inherited = {
        name: text
        for name, text in environ.items()
        if name not in (KEY, DEPLOYED) and not name.startswith(_SIGNALS)
    }
    if own_key:
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
            inherited.setdefault(name, "none-needed")
    return {**inherited, **changed}


_SIGNALS = ("OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_LOGS_")
"""Prefixes of the variables that would win over the general ones."""


def run_child(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a program to its end and return its exit code, 128 + n if signal n ended it.

    Signals sent to this process are passed on.  Ctrl-C reaches both from the terminal, and it is for
    the program to decide what it does about it.  A program that cannot be started is 127, one
    that may not be 126, as in a shell.
    """
    started: list[subprocess.Popen[bytes]] = []
    early: list[int] = []  # before there was a program to pass them on to

    def pass_on(number: int, frame: object) -> None:
        if not started:
            early.append(number)
        elif number != signal.SIGINT or not _in_foreground():
            started[0].send_signal(number)

    # Before the program is started: a signal that comes in between is kept in `early`.
    numbers = [getattr(signal, name) for name in (*_FORWARDED, "SIGINT") if hasattr(signal, name)]
    before = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        try:
            child = subprocess.Popen(list(command), env=dict(environ))
        except OSError as exception:
            print(f"whet: cannot run {command[0]}: {exception.strerror}", file=sys.stderr)
            return 126 if isinstance(exception, PermissionError) else 127
        started.append(child)
        for number in early:
            child.send_signal(number)
        code = _ended(child)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code


def _ended(child: subprocess.Popen[bytes]) -> int:
    """The exit code, once there is one; a signal that comes meanwhile is heeded at once.

    One that comes just before a call that blocks is heeded after it.  So this waits for a byte, which the
    interpreter sends for each signal, and a thread for the program's end.
    """
    awaited, waker = socket.socketpair()
    with awaited, waker:
        waker.setblocking(False)
        before = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)

        def wait() -> None:
            child.wait()
            with contextlib.suppress(OSError):  # it is full, and wakes who waits, or nobody waits any more
                waker.send(b"\0")

        thread = threading.Thread(target=wait, name="whet-run", daemon=True)
        thread.start()
        try:
            while child.returncode is None:
                awaited.recv(64)
        finally:
            # While the sockets are open: the interpreter would write to a
            # descriptor that may be another's by then.
            signal.set_wakeup_fd(before)
            if child.returncode is not None:
                thread.join()
    return child.wait()


def _in_foreground() -> bool:
    """True if the terminal's Ctrl-C reaches the program too."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
