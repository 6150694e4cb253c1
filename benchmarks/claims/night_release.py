"""Releases and deliveries at night: what a kill, a race, a clock that goes back and a stranger find.

The log is killed before every statement that its transitions send to SQLite, one life for each; beside it a naive log
that takes the old release off and puts the new one on in two commits. Two processes race on one record, one of them
killed at random. A gateway answers while releases, canaries and rollbacks come. A pull request goes to a real
local remote and a fake GitHub, and a stranger's clone repeats its verdict.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from whet.models.fakes import ScriptedGitHub, ScriptedServer
from whet.record.store import Stage, Store, bundle_of
from whet.types import Bundle

TESTS = Path(__file__).resolve().parents[2] / "tests"
PROMPT = "gateway.system_prompt"


@dataclass
class Line:
    """One row of the table."""

    what: str
    seen: str
    wanted: str
    holds: bool


def night_release(*, seed: int, seconds: float = 20.0) -> bool:
    """Print the table; True if every line holds."""
    with tempfile.TemporaryDirectory(prefix="whet-night-") as folder:
        place = Path(folder)
        lines = [
            *_kills(place, seed),
            *_race(place, seed),
            *_swaps(place, seed, seconds),
            *_delivery(place, seed),
        ]
    width = max(len(line.what) for line in lines)
    for line in lines:
        mark = "holds " if line.holds else "MISSED"
        print(f"{mark}  {line.what:{width}}  {line.seen}  (wanted: {line.wanted})")
    return all(line.holds for line in lines)


def _transitions(seed: int) -> list[Callable[[Store], object]]:
    """Every kind of transition, in an order of the seed that is possible."""
    chance = random.Random(seed)
    a, b, c, d = (bundle_of({PROMPT: f"{name} {seed}"}) for name in "abcd")
    steps: list[Callable[[Store], object]] = [
        lambda store: store.release(a, stage=Stage.SHADOW),
        lambda store: store.release(a, stage=Stage.CANARY, share=0.1, unproven=True),
        lambda store: store.release(b, stage=Stage.CANARY, share=0.2, unproven=True),
        lambda store: store.release(c, stage=Stage.SHADOW),
    ]
    chance.shuffle(steps)
    return [
        *steps,
        lambda store: store.release(a, stage=Stage.CANARY, share=0.5, unproven=True),
        lambda store: store.retire(b.id),
        lambda store: store.release(a, unproven=True),
        lambda store: store.release(d, unproven=True),
        lambda store: store.rollback(),
        lambda store: store.release(b, stage=Stage.CANARY, share=0.3, unproven=True),
        lambda store: store.rollback(),
    ]


def _life(path: Path, seed: int, kill_at: int, back: bool) -> tuple[int, bool]:
    """One process that goes through the transitions, killed before statement `kill_at`.

    Returns:
        The transitions that it acknowledged, and whether it was killed.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        real, sent, lag = time.time, 0, 0.0

        def count(_: str) -> None:
            nonlocal sent
            sent += 1
            if sent == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        if back:  # as a clock that is set back by an hour at each transition
            time.time = lambda: real() - lag
        store = Store(path)
        owner = store.database.owner
        assert owner is not None
        owner.connection.set_trace_callback(count)
        for step in _transitions(seed):
            step(store)
            lag += 3_600
            os.write(writer, b".")
        os.kill(os.getpid(), signal.SIGKILL if kill_at else signal.SIGTERM)
    os.close(writer)
    acknowledged = len(b"".join(iter(lambda: os.read(reader, 64), b"")))
    os.close(reader)
    _, status = os.waitpid(child, 0)
    return acknowledged, os.WTERMSIG(status) == signal.SIGKILL


def _faults(store: Store) -> list[str]:
    """What the log must never be, by its entries in their order."""
    faults, live, standing = [], Bundle().id, dict[str, str]()
    for entry in store.release_log():
        store.bundle(entry.bundle.id)  # raises where a Version that is served is not recorded
        if entry.stage is Stage.LIVE:
            live = entry.bundle.id
            standing.pop(entry.trial, None)
        elif entry.stage is Stage.RETIRED:
            standing.pop(entry.trial, None)
        elif entry.base != live:
            faults.append(f"{entry.id} was made from {entry.base}, and {live} was live")
        else:
            standing[entry.trial] = entry.base
    shown = store.live()
    if shown is None or shown.id != live:
        faults.append(f"live is {shown}, and the log says {live}")
    if {trial.trial for trial in store.on_trial()} != standing.keys():
        faults.append("who is on trial is not what the log says")
    if any(base != live for base in standing.values()):
        faults.append("a trial stands on a base that is not live")
    return faults


def _kills(place: Path, seed: int) -> list[Line]:
    lives = killed = lost = 0
    faults: list[str] = []
    kill_at = 0
    while True:
        kill_at += 1
        path = place / f"kill-{kill_at}.db"
        with Store(path) as store:
            store.release(bundle_of({PROMPT: "first"}), unproven=True)
        acknowledged, dead_early = _life(path, seed, kill_at, back=kill_at % 2 == 0)
        lives += 1
        with Store(path) as store:
            faults += _faults(store)
            # Each transition adds an entry of its own; entries that end trials come beside one.
            own = sum("no longer live" not in entry.reason for entry in store.release_log()) - 1
            lost += own < acknowledged
            whole = acknowledged == len(_transitions(seed))
            store.release(bundle_of({PROMPT: "after"}), unproven=True)
            faults += _faults(store)
        for left in place.glob(f"kill-{kill_at}.db*"):
            left.unlink()
        killed += dead_early and not whole
        if whole:
            break
    naive = _naive(place)
    return [
        Line(
            "killed before each statement of each transition",
            f"{killed} kills, {len(faults)} faults, {lost} acknowledged and lost",
            "0 and 0",
            killed > 50 and not faults and not lost,
        ),
        Line(
            "  the same in two commits (control)", f"{naive} of 4 kills leave none live", "over 0", naive > 0
        ),
    ]


def _naive(place: Path) -> int:
    """Kills that leave a log without a live release, where one is taken off and the next put on in two commits."""
    none = 0
    for kill_at in range(1, 5):
        path = place / f"naive-{kill_at}.db"
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE releases (id TEXT, live INTEGER)")
            connection.execute("INSERT INTO releases VALUES ('a', 1)")
        connection.close()
        child = os.fork()
        if child == 0:
            own, sent = sqlite3.connect(path, isolation_level=None), 0

            def count(_: str, kill_at: int = kill_at) -> None:
                nonlocal sent
                sent += 1
                if sent == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

            own.set_trace_callback(count)
            own.execute("UPDATE releases SET live = 0")
            own.execute("INSERT INTO releases VALUES ('b', 1)")
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        connection = sqlite3.connect(path)
        none += connection.execute("SELECT count(*) FROM releases WHERE live = 1").fetchone()[0] != 1
        connection.close()
    return none


def _race(place: Path, seed: int) -> list[Line]:
    faults: list[str] = []
    entries = 0
    for number in range(6):
        path = place / f"race-{number}.db"
        with Store(path) as store:
            store.release(bundle_of({PROMPT: "first"}), unproven=True)
        racers = [
            subprocess.Popen([sys.executable, __file__, str(path), who, str(seed * 100 + number)])
            for who in "ab"
        ]
        time.sleep(random.Random(seed * 10 + number).uniform(0.6, 2.0))
        racers[0].kill()
        for racer in racers:
            racer.wait(60)
        with Store(path) as store:
            faults += _faults(store)
            entries += len(store.release_log())
    return [
        Line(
            "two processes race, one is killed, clocks 10 h apart",
            f"6 races, {entries} entries, {len(faults)} faults",
            "0",
            not faults and entries > 50,
        )
    ]


def racer(path: Path, who: str, seed: int) -> None:
    """One of two processes: random transitions for two seconds, by a clock of its own."""
    from whet.errors import WhetError

    real, ahead = time.time, 36_000 if who == "b" else 0
    time.time = lambda: real() - ahead
    chance, until = random.Random(f"{who}{seed}"), time.monotonic() + 2
    with Store(path) as store:
        while time.monotonic() < until:
            candidate = bundle_of({PROMPT: f"{who}{chance.randrange(5)}"})
            try:
                match chance.randrange(5):
                    case 0:
                        store.release(candidate, unproven=True)
                    case 1:
                        store.rollback()
                    case 2:
                        store.release(candidate, stage=Stage.SHADOW)
                    case 3:
                        store.release(candidate, stage=Stage.CANARY, share=0.2, unproven=True)
                    case _:
                        store.retire(candidate.id)
            except WhetError:
                pass  # nothing to go back to, or on trial already: said, and nothing is written


def _swaps(place: Path, seed: int, seconds: float) -> list[Line]:
    import httpx2

    sys.path.insert(0, str(TESTS))
    from gateway_world import HELLO, world

    failed, runs = [], list[str]()
    stop = threading.Event()
    with (
        ScriptedServer(lambda request: "fine") as upstream,
        Store(place / "swaps.db") as store,
        world(upstream, store=store, durable=True) as served,
    ):
        store.release(bundle_of({PROMPT: "0"}), unproven=True)

        def work(worker: int) -> None:
            number = 0
            with httpx2.Client(timeout=30, trust_env=False) as client:
                while not stop.is_set():
                    number += 1
                    run = f"run-{worker}-{number}"
                    answered = client.post(
                        f"{served.base(run)}/v1/chat/completions",
                        json={"model": "scripted", "messages": HELLO},
                    )
                    runs.append(run)
                    if answered.status_code != 200:
                        failed.append(answered.text)

        workers = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        for worker in workers:
            worker.start()
        chance, swaps, ends = random.Random(seed), 0, time.monotonic() + seconds
        while time.monotonic() < ends:
            swaps += 1
            candidate = bundle_of({PROMPT: str(swaps)})
            if chance.random() < 0.3:
                store.release(candidate, stage=Stage.CANARY, share=0.2, unproven=True)
            store.release(candidate, unproven=True)
            if chance.random() < 0.3:
                store.rollback()
            time.sleep(0.02)
        stop.set()
        for worker in workers:
            worker.join()
        recorded = {version.id: version.content for version in store.versions()}
        strange, prompts = 0, set[str]()
        for run in runs:
            call = served.call(run)
            (id,) = (call["versions"] or {"": "none"}).values()
            prompt = call["request"]["messages"][0]["content"]
            prompts.add(prompt)
            strange += recorded.get(id) != prompt
    return [
        Line(
            "requests while releases, canaries and rollbacks come",
            f"{len(runs)} requests, {swaps} swaps, {len(prompts)} prompts served, {len(failed)} failed, "
            f"{strange} served what is not recorded",
            "0 and 0",
            not failed and not strange and len(runs) > 100 and swaps > 20,
        )
    ]


def _delivery(place: Path, seed: int) -> list[Line]:
    sys.path.insert(0, str(TESTS))
    from delivery_world import blocks, git, outside, proven, repository

    from whet.learn.evolution.delivering import deliver_bundle
    from whet.ship.delivery import DeliveryOptions

    os.environ["GITHUB_TOKEN"] = "token-of-the-night"
    clone = repository(place)
    with Store(place / "pull.db") as store, ScriptedGitHub("ann/desk", token="token-of-the-night") as github:
        bundle, verdict = proven(store, seed=seed)
        options = DeliveryOptions(repository=clone, github="ann/desk", api_url=github.url)
        deliver_bundle(store, bundle, options)
        body = github.pulls[0]["body"]
        null, refused = proven(store, seed=seed + 1, better=False)
        try:
            deliver_bundle(store, null, options)
            control = "delivered"
        except Exception as error:
            control = f"refused ({type(error).__name__})"
    stranger = place / "stranger"
    git(place, "clone", "-q", "-b", f"whet/{bundle.id}", str(place / "remote.git"), str(stranger))
    (command,), (diff,) = blocks(body, "sh"), blocks(body, "diff")
    repeated = subprocess.run([sys.executable, "-m", *command.split()], cwd=stranger, capture_output=True)
    committed = (stranger / ".whet-proofs" / bundle.id / "verdict.json").read_bytes()
    git(stranger, "checkout", "-q", "origin/main")
    git(stranger, "apply", "--index", "-", stdin=diff)
    left = git(stranger, "diff", "--cached", f"origin/whet/{bundle.id}", "--", ":!.whet-proofs")
    rendered = outside(body)
    markup = [
        sign
        for sign in ("<script", "@", "#1", "alert(1)", "evil.example", "\u202e", "\x1b")
        if sign in rendered
    ]
    return [
        Line(
            "the verdict of a pull request, repeated in a clone",
            f"{len(repeated.stdout)} bytes, {'the same' if repeated.stdout == committed else 'others'}",
            "the same",
            repeated.stdout == committed and verdict.promote,
        ),
        Line(
            "the body's diff, applied, is the branch", left or "nothing differs", "nothing differs", not left
        ),
        Line("hostile text of runs stays text", f"{len(markup)} signs rendered", "0", not markup),
        Line(
            "  a candidate without an effect (control)",
            control,
            "refused",
            "refused" in control and not refused.promote,
        ),
    ]


if __name__ == "__main__":
    racer(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
