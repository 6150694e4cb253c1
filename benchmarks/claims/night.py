"""One unattended night, as `whet autopilot` spends it: faults repaired, decoys left alone, kills survived.

The world is `night_world`, or another in its form.  The autopilot runs as a command on the record and the agent's file,
with the agent's model, its service and the model that proposes answered on this machine.  Between two of its looks the
people ask on: those whom a trial's share draws are served the trial's folder, the others what is merged.  What it ships
is merged, as a team would.  Only the test knows the truth: which faults there are, and what a right answer is.
"""

from __future__ import annotations

import http.server
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from night_issues import night_issues
from night_pilot import begun, ended
from night_setting import Night, night

from whet.autopilot.journal import read
from whet.autopilot.trial import AgentSource
from whet.models.base import Completion, ModelRequest, ToolCall
from whet.models.fakes import ScriptedServer
from whet.record.store import Store
from whet.types import Bundle, Feedback, digest

REPAIRED, KINDS = 15, 4
"""What has to be reached: faults that are repaired, and kinds of learner that repair one."""
ROUNDS, RUNS = 8, 12_000
"""Looks of the autopilot, and questions between two of them."""
AGENT_CALLS, MODEL_CALLS = 20_000, 2_000
GAINED = 0.3
"""Share of a fault's questions that is right since a repair and was not, from which on the repair was not in vain."""
SHARE, FIRST_SHARE = 0.5, 0.25
FIRST = 3_000
"""Questions after which the autopilot looks at a trial that has its first share."""


@dataclass
class Outcome:
    """One night."""

    seed: int
    repaired: list[str] = field(default_factory=list)
    learners: set[str] = field(default_factory=set)
    shipped: list[str] = field(default_factory=list)
    """Names of issues whose repair went live."""
    in_vain: list[str] = field(default_factory=list)
    """Those of them that no fault is repaired by: a decoy, or harm."""
    faults: int = 0
    issues: int = 0
    kills: int = 0
    agent_calls: int = 0
    model_calls: int = 0
    switch_seconds: float | None = None
    """From the kill switch to the end of the process; None where it had ended by itself."""
    switch_calls: int = 0
    """Calls of models that were begun after it."""
    unrepeated: list[str] = field(default_factory=list)
    """Shipped repairs without a branch whose command repeats its verdict."""
    journal: int = 0
    incomplete: list[str] = field(default_factory=list)
    """Shipped issues of which the journal lacks a step."""
    reopened: bool | None = None
    minutes: float = 0.0
    cpu_minutes: float = 0.0
    """Of the autopilot, of all that it began, and of the world; without what was killed."""
    missed: list[str] = field(default_factory=list)


@contextmanager
def served(world: Night) -> Iterator[tuple[ScriptedServer, ScriptedServer, dict[str, str]]]:
    """The agent's model, the model that proposes, and the variables by which the agent finds model and service."""

    class Shop(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = urllib.parse.urlparse(self.path)
            key = urllib.parse.parse_qs(address.query)["key"][0]
            last = int(world.world["people"].DAYS) - 1
            try:
                body = world._service(address.path.strip("/"), key, last, world.ends)
            except OSError:
                body = None
            content = json.dumps(body).encode()
            self.send_response(200 if body is not None else 404)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    def script(request: ModelRequest) -> Completion:
        limits = {"temperature": request.temperature or 0.0, "max_tokens": request.max_tokens}
        body = {"messages": request.messages, "tools": request.tools or (), **limits}
        draw = int(digest([world.seed, body["messages"]], 12), 16)
        message, finish = world.world["model"].complete(body, draw)
        calls = [
            ToolCall(name=each["function"]["name"], arguments=each["function"]["arguments"], id=each["id"])
            for each in message.get("tool_calls", ())
        ]
        return Completion(text=message["content"] or "", tool_calls=calls, finish=finish)

    shop = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=shop.serve_forever, args=(0.02,), daemon=True).start()
    try:
        with (
            ScriptedServer(script, models=(world.about["model"],)) as agent,
            ScriptedServer(world.advise, models=("adviser",)) as adviser,
        ):
            variables = {
                "OPENAI_BASE_URL": agent.base_url,
                "SHOP_URL": f"http://127.0.0.1:{shop.server_address[1]}",
            }
            yield agent, adviser, variables
    finally:
        shop.shutdown()
        shop.server_close()


class Unattended:
    """The command, the people, and the team that merges."""

    def __init__(
        self, world: Night, folder: Path, variables: dict[str, str], adviser: ScriptedServer
    ) -> None:
        self.world, self.folder, self.variables, self.adviser = world, folder, variables, adviser
        self.store_path, self.log = Path(world.store.path), folder / "autopilot.log"
        self.outcome = Outcome(world.seed, faults=len(world.faults))
        self.shuffled = False
        self._merged: set[str] = set()
        self._asked = 0
        subprocess.run(["git", "init", "-q", "-b", "main"], cwd=world.folder, check=True)
        (world.folder / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")
        self._commit("the agent as it came")

    def begin(self) -> subprocess.Popen[bytes]:
        """The autopilot, begun."""
        module, _, _ = self.world.about["entry"].partition(":")
        options = {
            "--store": self.store_path, "--agent": self.world.folder / f"{module}.py",
            "--entry": self.world.about["entry"], "--model": "adviser", "--base-url": self.adviser.base_url,
            "--mode": "act", "--deliver": "offline", "--share": SHARE, "--first-share": FIRST_SHARE,
            "--agent-calls": AGENT_CALLS, "--model-calls": MODEL_CALLS, "--seed": self.world.seed,
            "--output": self.folder / "autopilot",
        }  # fmt: skip
        return begun(
            sys.executable, options, folder=self.world.folder, variables=self.variables, log=self.log
        )

    def look(self, kills: Sequence[float] = ()) -> None:
        """One look of the autopilot, killed after each of these seconds and begun again.

        Raises:
            RuntimeError: it ends with an error.
        """
        for seconds in kills:
            process = self.begin()
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                self.outcome.kills += 1
        ended(self.begin(), self.log)

    def merge(self) -> None:
        """Merge what was shipped, as a team does with a pull request."""
        with Store(self.store_path) as store:
            for issue in store.issues.read():
                work = store.state(f"autopilot/work/{issue.id}") or {}
                key = f"{issue.id}/{work.get('release')}"
                if work.get("stage") != "shipped" or key in self._merged:
                    continue
                self._merged.add(key)
                before = self._truth()
                source = AgentSource(self.world.folder)
                source.take(store, work)
                for path, text in source.changed.items():
                    (self.world.folder / path).write_text(text, encoding="utf-8")
                if not self._repeats(work):
                    self.outcome.unrepeated.append(issue.name)
                self._commit(f"merge {issue.id}")
                after = self._truth()
                gained = [id for id, share in after.items() if share >= before[id] + GAINED]
                self.outcome.shipped.append(issue.name)
                if not gained:
                    self.outcome.in_vain.append(f"{issue.name} ({work['learner']})")
                else:
                    self.outcome.learners.add(f"{work['learner']}:{issue.component.value}")

    def _commit(self, message: str) -> None:
        git = ["git", "-c", "user.name=team", "-c", "user.email=team@localhost"]
        for words in (["add", "-A"], ["commit", "-q", "--allow-empty", "-m", message]):
            subprocess.run([*git, *words], cwd=self.world.folder, check=True, capture_output=True)

    def _repeats(self, work: dict[str, Any]) -> bool:
        """True if the branch's command gives its verdict to the byte, in a clone of that branch alone."""
        clone = self.folder / "clone"
        shutil.rmtree(clone, ignore_errors=True)
        branch = ["--branch", str(work.get("branch")), "--single-branch"]
        cloned = subprocess.run(
            ["git", "clone", "-q", *branch, str(self.world.folder), str(clone)], check=False
        )
        if cloned.returncode:
            return False
        command = str(work["command"]).replace("whet ", f"{sys.executable} -m whet ", 1)
        told = subprocess.run(command, shell=True, cwd=clone, capture_output=True, check=False).stdout
        return any(
            path.read_bytes().strip() == told.strip() for path in clone.glob(".whet-proofs/*/verdict.json")
        )

    def _truth(self) -> dict[str, float]:
        return {
            fault.id: self.world.success(fault, Bundle(), count=25, folder=self.world.folder)
            for fault in self.world.faults
        }

    def days_pass(self) -> None:
        """The traffic between two looks; of a trial that has just begun the autopilot looks at the first of it."""
        with Store(self.store_path) as store:
            trial = store.state("autopilot/trial")
        if not trial or trial["ended"] or trial["share"] >= SHARE:
            self.people_ask()
            return
        self.people_ask(FIRST)
        self.look()
        self.merge()
        self.people_ask(RUNS - FIRST)

    def people_ask(self, count: int = RUNS) -> None:
        """The traffic of some more days, each person served by the arm that the trial's share draws."""
        people = self.world.world["people"]
        questions = people.traffic(self.world.seed + 1_000 + self._asked, self.world.faults, count)
        self._asked += 1
        began = time.time()
        with Store(self.store_path) as store:
            trial = store.state("autopilot/trial")
            standing = trial if trial and not trial["ended"] else None
            arms: dict[bool, list[Any]] = {False: [], True: []}
            for question in questions:
                draw = (
                    int(digest([standing and standing["release"], question.person, question.day], 8), 16)
                    / 16**8
                )
                arms[standing is not None and draw < standing["share"]].append(question)
            runs, notes = [], list[Feedback]()
            for tried, mine in arms.items():
                bundle = store.bundle(standing["bundle"]) if tried and standing else Bundle()
                folder = Path(standing["folder"]) if tried and standing else self.world.folder
                asked = [(question.person, question.text) for question in mine]
                for number, run in enumerate(self.world.run(bundle, asked, folder=folder)):
                    id = f"live-{self._asked}-{tried:d}-{number}"
                    at = began + number * 1e-3
                    session = f"{mine[number].person}-{mine[number].day}"
                    # One arm is run after the other, so what their runs took is no comparison.
                    run = replace(run, id=id, started=at, seconds=None, session=session)
                    runs.append(replace(run, meta={"source": "gateway", "run": id}))
                    reaction = people.reaction(
                        self.world.seed + self._asked, mine[number], str(run.output or ""), self.world.decoys
                    )
                    if reaction.thumb is not None:
                        notes.append(Feedback(run=id, value=float(reaction.thumb), id=f"thumb-{id}", at=at))
            if self.shuffled:
                values = [note.value for note in notes]
                random.Random(self._asked).shuffle(values)
                notes = [replace(note, value=value) for note, value in zip(notes, values, strict=True)]
            store.put(*runs)
            store.add_feedback(*notes)

    def finish(self) -> Outcome:
        """What the test knows of the night."""
        outcome, steps = self.outcome, dict[str, set[str]]()
        with Store(self.store_path) as store:
            rows = list(read(store))
            for row in rows:
                steps.setdefault(row.issue, set()).add(row.step)
            outcome.journal = len(rows)
            outcome.issues = len(store.issues.read())
            for issue in store.issues.read():
                work = store.state(f"autopilot/work/{issue.id}") or {}
                needed = {"diagnose", "propose", "trial", "look", "ship"}
                if work.get("stage") == "shipped" and needed - steps.get(issue.id, set()):
                    outcome.incomplete.append(issue.id)
            number = max((row.night for row in rows), default=1)
            spent = store.state(f"autopilot/{number:06d}/spent") or {}
            outcome.agent_calls = int(spent.get("rollouts", 0))
        outcome.repaired = [
            fault.id
            for fault in self.world.faults
            if self.world.repaired(fault, Bundle(), folder=self.world.folder)
        ]
        return outcome


def spend(
    folder: Path,
    seed: int,
    *,
    world: Path | None,
    shuffled: bool = False,
    kills: int = 0,
    relapse: bool = False,
) -> Outcome:
    """One night."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began, spent = time.monotonic(), _cpu_seconds()
    drawn = night(seed, folder, world=world, shuffled=shuffled, store=folder / "runs.db")
    drawn.store.close()
    chance = random.Random(f"kills {seed}")
    with served(drawn) as (agent, adviser, variables):
        work = Unattended(drawn, folder, variables, adviser)
        work.shuffled = shuffled
        for number in range(ROUNDS):
            share = kills // 2 if number < 2 else 0
            if number and not shuffled and work.outcome.switch_seconds is None:
                _switch(work, agent, adviser)
            work.look([chance.uniform(1, 15) for _ in range(share)])
            work.merge()
            work.days_pass()
        work.look()
        work.merge()
        outcome = work.finish()
        outcome.model_calls = len(adviser.requests)
        if relapse:
            outcome.reopened = _relapsed(work)
    outcome.minutes = (time.monotonic() - began) / 60
    outcome.cpu_minutes = (_cpu_seconds() - spent) / 60
    outcome.missed = list(_missed(outcome, shuffled=shuffled, relapse=relapse, kills=kills))
    return outcome


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _switch(work: Unattended, agent: ScriptedServer, adviser: ScriptedServer) -> None:
    """Turn the kill switch while the autopilot runs, and back once it has ended."""

    def calls() -> int:
        return len(agent.requests) + len(adviser.requests)

    store = ("--store", str(work.store_path))
    idle, process = calls(), work.begin()
    while calls() == idle and process.poll() is None:
        time.sleep(0.02)
    whet = [sys.executable, "-m", "whet", "autopilot"]
    subprocess.run([*whet, "stop", *store], check=True, capture_output=True)
    turned, before, at_work = time.monotonic(), calls(), process.poll() is None
    process.wait(60)
    if at_work:
        work.outcome.switch_seconds = time.monotonic() - turned
        work.outcome.switch_calls = calls() - before
    subprocess.run([*whet, "start", *store], check=True, capture_output=True)


def _relapsed(work: Unattended) -> bool:
    """Undo a repair in the agent's files behind the autopilot's back; True if its issue is opened again by itself."""
    with Store(work.store_path) as store:
        for issue in store.issues.read("shipped", "closed"):
            patch = (store.state(f"autopilot/work/{issue.id}") or {}).get("patch")
            if not patch:
                continue
            done = subprocess.run(
                ["git", "apply", "-R", "-"], input=patch, text=True, cwd=work.world.folder, check=False
            )
            if not done.returncode:
                break
        else:
            return False
    for _ in range(2):
        work.people_ask(8_000)
        work.look()
    with Store(work.store_path) as store:
        return any(move.status.value == "reopened" for move in store.issues.history(issue.id))


def _missed(outcome: Outcome, *, shuffled: bool, relapse: bool, kills: int) -> Iterator[str]:
    if shuffled:
        if outcome.shipped:
            yield f"nothing may ship where thumbs say nothing, and {len(outcome.shipped)} did"
        return
    if len(outcome.repaired) < REPAIRED:
        yield f"{len(outcome.repaired)} of {outcome.faults} faults repaired, and {REPAIRED} are due"
    kinds = {learner.partition(":")[0] for learner in outcome.learners}
    if len(kinds) < KINDS:
        yield f"{len(kinds)} kinds of learner, and {KINDS} are due"
    if outcome.in_vain:
        yield f"{len(outcome.in_vain)} repairs of nothing: {'; '.join(outcome.in_vain[:3])}"
    if outcome.unrepeated:
        yield f"{len(outcome.unrepeated)} verdicts are not repeated by their branch: {outcome.unrepeated[0]}"
    if outcome.agent_calls > AGENT_CALLS or outcome.model_calls > MODEL_CALLS:
        yield "a budget was passed"
    if outcome.switch_seconds is None:
        yield "the autopilot was not at work when the kill switch was turned"
    if outcome.switch_calls > 40:
        yield f"{outcome.switch_calls} calls after the kill switch"
    if outcome.incomplete:
        yield f"the journal lacks steps of {len(outcome.incomplete)} issues"
    if relapse and not outcome.reopened:
        yield "the relapse was not re-opened"
    if kills and outcome.kills < kills:
        yield f"{outcome.kills} kills hit a process at work, and {kills} are due"


def nights(folder: Path, seeds: Sequence[int], *, world: Path | None, only: str) -> bool:
    """The nights of these seeds, as many at a time as there are cores, a table of them; True if no line was missed."""
    passed = True
    if only in ("", "issues"):
        passed = night_issues(seeds, world=world, page=world is None and len(seeds) > 1)
    if only == "issues":
        return passed
    heads = "seed night repaired learners shipped in-vain issues kills agent-calls model-calls switch-s journal minutes"
    print(" | ".join([*heads.split(), "CPU-minutes"]), flush=True)
    parts = [only] if only else ["repairs", "shuffled"]
    # The longest first.
    jobs = [(part, seed) for part in parts for seed in seeds]
    workers = min(len(jobs), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        spent = [pool.submit(_night, folder, part, seed, world) for part, seed in jobs]
        for (part, seed), night_spent in zip(jobs, spent, strict=True):
            outcome = night_spent.result()
            _print(part, seed, outcome)
            passed = passed and not outcome.missed
    return passed


def _night(folder: Path, part: str, seed: int, world: Path | None) -> Outcome:
    return spend(
        (folder / f"night-{part}-{seed}").resolve(),
        seed,
        world=world,
        shuffled=part == "shuffled",
        kills=10 if part in ("repairs", "kills") else 0,
        relapse=part in ("repairs", "relapse"),
    )


def _print(part: str, seed: int, outcome: Outcome) -> None:
    cells = [
        seed,
        part,
        f"{len(outcome.repaired)}/{outcome.faults}",
        ",".join(sorted(outcome.learners)) or "–",
        len(outcome.shipped),
        len(outcome.in_vain),
        outcome.issues,
        outcome.kills,
        outcome.agent_calls,
        outcome.model_calls,
        "–" if outcome.switch_seconds is None else f"{outcome.switch_seconds:.1f}",
        outcome.journal,
        f"{outcome.minutes:.1f}",
        f"{outcome.cpu_minutes:.1f}",
    ]
    print(" | ".join(map(str, cells)), flush=True)
    print(f"  repaired: {', '.join(outcome.repaired)}", flush=True)
    for line in outcome.missed:
        print(f"  missed: {line}", flush=True)
