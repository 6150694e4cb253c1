"""The whole loop on two agents and a repository: from thumbs to a pull request that CI passes, and back.

An agent of `whole_agents` has a repository with a remote and a workflow of GitHub.  `whet serve` stands before its
model, and nothing of it names whet.  People ask, and some rate; `whet autopilot` looks at the record between two days,
or works inside `whet serve` all the time (the mail agent).  Its trials are deployed beside the agent under the Bundle
that they are, and what it ships is a pull request at a real git remote and a fake GitHub.  There the workflow of
docs/verdict.md runs on a fresh clone (`whole_ci.py`), and the team merges what passes.  At the end somebody undoes a
merged repair, and its issue has to be opened again.  With the thumbs shuffled nothing may ship.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from newcomers_frameworks import environment
from newcomers_shell import Noted, report
from night_pilot import begun, ended
from whole_agents import LangGraphDesk, MailDesk, WholeAgent, thumb
from whole_ci import SLUG, TOKEN, Check, Forge, prompt_repository, workflow

from whet.autopilot.journal import read
from whet.models.fakes import ScriptedServer
from whet.record.store import Store
from whet.types import Feedback, digest

PARTS = ("ci", "langgraph", "mail")
DAYS, ROUNDS, SHUFFLED = 2, 5, 2
"""Of traffic before the first look; looks of the autopilot with a day between them, and those with shuffled thumbs."""
SHARE, AGENT_CALLS, MODEL_CALLS = 0.5, 4_000, 600
WAIT, _WINDOW, _LOOKS = 5.0, 12.0, 1.0
"""Seconds between two looks of an autopilot inside a server; it has nothing to do where it computes for less than the
last of these in the second, which a process that works has also on a busy machine."""
_SERVICE = """import json, sys
import whet
import desk

person = ""


@whet.trace
def answer(question):
    return desk.answer(question, person)


for line in sys.stdin:
    asked = json.loads(line)
    person = asked["person"]
    with whet.run(subject=person) as run:
        said = answer(asked["question"])
    print(json.dumps({"run": run.id, **asked, "answer": said}), flush=True)
"""
"""The service around the agent, which knows who asks and says so; the agent knows nothing of whet."""
_GIT = ("git", "-c", "user.name=team", "-c", "user.email=team@localhost")


@dataclass
class WholeNight:
    """One agent's night."""

    before: dict[str, float] = field(default_factory=dict)
    """Fault, or "all" → share of fresh questions that it spoils which are answered right."""
    after: dict[str, float] = field(default_factory=dict)
    shipped: int = 0
    pulls: int = 0
    repeated: int = 0
    """Verdicts that the command of the pull request gives again, to the byte, in a fresh clone."""
    passed: int = 0
    """Pull requests of the autopilot that the workflow passes."""
    checks: list[Check] = field(default_factory=list)
    worse: Check | None = None
    """Of a pull request that makes the agent worse."""
    steps: Counter[str] = field(default_factory=Counter)
    tried: int = 0
    """Runs that name the Versions of the trial that they were served."""
    reopened: bool | None = None
    """Whether the issue of a repair that somebody undid was opened again, and the repair taken back."""
    agent_calls: int = 0
    minutes: float = 0.0

    @property
    def repaired(self) -> list[str]:
        """Faults three quarters of whose questions are answered right, half as many again as before."""
        shares = {id: share for id, share in self.after.items() if id != "all"}
        return [id for id, share in shares.items() if share >= 0.75 and share >= 1.5 * self.before[id]]


class Team:
    """The agent's repository, the server before its model, the people, and the team that merges."""

    def __init__(
        self,
        folder: Path,
        agent: WholeAgent,
        python: Path,
        *,
        daily: int,
        shuffled: bool,
        inside: bool,
        adviser: str,
        forge: Forge,
    ) -> None:
        self.agent, self.python, self.daily, self.shuffled = agent, python, daily, shuffled
        self.inside, self.adviser, self.forge = inside, adviser, forge
        self.folder, self.code, self.remote = folder, folder / "agent", folder / "remote.git"
        self.store, self.day, self.night = folder / "runs.db", 0, WholeNight()
        self.variables: dict[str, str] = {}
        self._merged: list[dict[str, Any]] = []
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.git(folder, "init", "-q", "--bare", "-b", "main", str(self.remote))
        self.git(folder, "clone", "-q", str(self.remote), str(self.code))
        agent.write(self.code)
        workflow.put(self.code, agent.questions(77, workflow.EVALS), agent)
        (self.code / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")
        self.push("The desk")

    def git(self, folder: Path, *words: str) -> str:
        return subprocess.run([*_GIT, *words], cwd=folder, check=True, capture_output=True, text=True).stdout

    def push(self, message: str) -> None:
        for words in (["add", "-A"], ["commit", "-q", "-m", message], ["push", "-q", "origin", "HEAD:main"]):
            self.git(self.code, *words)

    def whet(
        self, *words: object, folder: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """A command in a folder, that of the agent unless another is named, and in the agent's environment."""
        return subprocess.run(
            [self.python, "-m", "whet", *map(str, words)],
            cwd=folder or self.code,
            env={**os.environ, **self.variables, **variables},
            capture_output=True,
            text=True,
            timeout=900,
        )

    @contextmanager
    def served(self) -> Iterator[None]:
        """`whet serve` before the agent's model, if it has one."""
        upstream = self.variables.get("OPENAI_BASE_URL")
        words = [
            "serve",
            "--store",
            self.store,
            "--port",
            "0",
            *(("--upstream", upstream) if upstream else ()),
        ]
        if self.inside:
            words += ["--autopilot", self.code / "desk.py", "--pilot.wait", WAIT]
            for name, value in self._options().items():
                words += [f"--pilot.{name}", value]
        log = open(self.folder / "server.log", "w", encoding="utf-8")  # noqa: SIM115
        process = subprocess.Popen(
            [self.python, "-u", "-m", "whet", *map(str, words)],
            cwd=self.code,
            env=self._environment() if self.inside else None,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            deadline = time.monotonic() + 60
            while "http://127.0.0.1" not in (said := (self.folder / "server.log").read_text()):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(said)
                time.sleep(0.1)
            address = next(word for word in said.split() if word.startswith("http://127.0.0.1"))
            self.url = address.rstrip("/.,;")
            self.token = self.whet("token", "write", "--store", self.store).stdout.strip()
            self.server = process.pid
            yield
        finally:
            process.terminate()
            process.wait(30)
            log.close()

    @contextmanager
    def service(self, folder: Path, *, deployed: str = "") -> Iterator[subprocess.Popen[str]]:
        """The service of a folder, through the server: a question a line, and its run and answer a line.

        Raises:
            RuntimeError: it ends with an error.
        """
        code = ("--deployed", deployed) if deployed else ()
        words = ("run", "--url", self.url, *code, "--", str(self.python), "-c", _SERVICE)
        log = self.folder / f"service-{deployed or 'live'}.log"
        with (
            log.open("w", encoding="utf-8") as errors,
            subprocess.Popen(
                [self.python, "-m", "whet", *map(str, words)],
                cwd=folder,
                env={**os.environ, **self.variables, "WHET_TOKEN": self.token},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process,
        ):
            try:
                yield process
                assert process.stdin is not None
                process.stdin.close()
                failed = process.wait(60)
            finally:
                process.kill()
        if failed:
            raise RuntimeError(log.read_text(encoding="utf-8")[-2_000:])

    def people_ask(self) -> None:
        """A day: everybody asks, those whom the trial's share draws are served its folder, and some rate the answer."""
        self.day += 1
        with Store(self.store) as store:
            trial, newest = store.state("autopilot/trial"), store.newest()
        standing = trial if trial and not trial["ended"] else None
        answered = []
        with ExitStack() as stack:
            services = {False: stack.enter_context(self.service(self.code))}
            if standing:
                code, bundle = Path(standing["folder"]), str(standing["bundle"])
                services[True] = stack.enter_context(self.service(code, deployed=bundle))
            # One after the other: arms that are not served at the same time are no experiment.
            for number, asked in enumerate(self.agent.questions(self.day, self.daily)):
                # Each by itself, for a run without a session is a unit of its own.
                draw = int(digest([standing and standing["release"], self.day, number], 8), 16) / 16**8
                answered.append(_told(services[standing is not None and draw < standing["share"]], asked))
        time.sleep(2.0)  # a run is whole once its calls are quiet
        notes = [
            Feedback(run=said["run"], value=value)
            for said in answered
            if (value := thumb(self.agent, self.day, said, said["answer"])) is not None
        ]
        if self.shuffled:
            values = [note.value for note in notes]
            random.Random(self.day).shuffle(values)
            notes = [replace(note, value=value) for note, value in zip(notes, values, strict=True)]
        with Store(self.store) as store:
            versions = set(store.bundle(standing["bundle"]).ids.values()) if standing else set()
            self.night.tried += sum(
                not versions.isdisjoint(run.versions.values()) for run in store.trajectories(after=newest)
            )
            store.add_feedback(*notes)

    def _options(self) -> dict[str, object]:
        """Of the autopilot, in a command of its own or inside the server."""
        return {
            "entry": self.agent.entry, "model": "adviser", "base-url": self.adviser, "mode": "act", "deliver": "remote",
            "share": SHARE, "first-share": SHARE, "agent-calls": AGENT_CALLS, "model-calls": MODEL_CALLS, "proofs": 12,
            "calls": 150, "seed": 1, "output": self.folder / "autopilot",
        }  # fmt: skip

    def _environment(self) -> dict[str, str]:
        """The agent's, and what a pull request needs."""
        at_github = {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": self.forge.url, "GITHUB_REPOSITORY": SLUG}
        return {**os.environ, **self.variables, **at_github}

    def look(self) -> None:
        """One look of the autopilot: its command, or as long as that of the server has something to do."""
        if self.inside:
            _idle(self.server)
            return
        options = {f"--{name}": value for name, value in self._options().items()}
        options |= {"--store": self.store, "--agent": self.code / "desk.py"}
        log = self.folder / "autopilot.log"
        ended(begun(self.python, options, folder=self.code, variables=self._environment(), log=log), log)

    def merge(self) -> None:
        """Merge the pull requests that came, each after a stranger's look at it and the workflow's check."""
        with Store(self.store) as store:
            works = [store.state(f"autopilot/work/{issue.id}") or {} for issue in store.issues.read()]
        for work in works:
            branch = work.get("branch")
            if (
                work.get("stage") != "shipped"
                or not branch
                or branch in {each["branch"] for each in self._merged}
            ):
                continue
            self._merged.append(work)
            self.night.shipped += 1
            clone = self.folder / f"clone-{len(self._merged)}"
            self.git(
                self.folder, "clone", "-q", "--single-branch", "-b", branch, str(self.remote), str(clone)
            )
            words = str(work["command"]).split()
            told = subprocess.run(
                [sys.executable, "-m", *words], cwd=clone, capture_output=True, check=False
            ).stdout
            proofs = [file.read_bytes().strip() for file in clone.glob(".whet-proofs/*/verdict.json")]
            self.night.repeated += told.strip() in proofs
            check = self.checked(branch)
            self.night.checks.append(check)
            self.night.passed += check.conclusion == "success"
            self.git(self.code, "fetch", "-q", "origin")
            self.git(self.code, "merge", "-q", "--no-edit", f"origin/{branch}")
            self.git(self.code, "push", "-q", "origin", "HEAD:main")

    def checked(self, branch: str) -> Check:
        """What the repository's workflow says of a branch."""
        place = self.folder / f"runner-{len(self.forge.checks)}"
        return workflow.run(self.remote, branch, place, self.python, self.variables, self.forge)

    def make_worse(self) -> None:
        """A pull request of somebody who undoes what makes the agent right, and the workflow's check of it."""
        self.git(self.code, "switch", "-q", "-c", "faster")
        for name, text in self.agent.worse(self.code).items():
            (self.code / name).write_text(text, encoding="utf-8")
        self.git(self.code, "commit", "-q", "-a", "-m", "Faster")
        self.git(self.code, "push", "-q", "origin", "faster")
        self.git(self.code, "switch", "-q", "main")
        self.forge.opened("faster")
        self.night.worse = self.checked("faster")

    def relapse(self) -> None:
        """Somebody undoes a merged repair; its issue has to be opened again, and the repair taken back.

        After some days on which it served people: what never did cannot come back.
        """
        self.people_ask()
        self.look()
        for work in self._merged:
            undone = subprocess.run(
                ["git", "apply", "-R", "-"], input=str(work["patch"]), text=True, cwd=self.code, check=False
            )
            if not undone.returncode:
                break
        else:
            return
        self.push("Tidied up")
        self.night.reopened = False
        for _ in range(3):
            self.people_ask()
            self.look()
            with Store(self.store) as store:
                back = [row for row in read(store) if row.step == "take back"]
                moved = {
                    row.issue
                    for row in back
                    if any(move.status.value == "reopened" for move in store.issues.history(row.issue))
                }
            if moved:
                self.night.reopened = True
                return

    def right(self) -> dict[str, float]:
        """Fault, or "all" → the share of fresh questions that are answered right; nothing of it is recorded."""
        asked = self.agent.questions(99, self.daily)
        done = subprocess.run(
            [self.python, "-c", _SERVICE],
            cwd=self.code,
            env={**os.environ, **self.variables},
            input="".join(json.dumps(each) + "\n" for each in asked),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        rights: dict[str, list[bool]] = {"all": []}
        for said in map(json.loads, done.stdout.splitlines()):
            right = self.agent.right(said, said["answer"])
            rights["all"].append(right)
            if fault := self.agent.spoilt(said):
                rights.setdefault(fault, []).append(right)
        return {id: sum(each) / len(each) for id, each in rights.items()}


def _told(service: subprocess.Popen[str], asked: dict[str, str]) -> dict[str, Any]:
    """A question with its run and its answer."""
    assert service.stdin is not None
    assert service.stdout is not None
    service.stdin.write(json.dumps(asked) + "\n")
    service.stdin.flush()
    said: dict[str, Any] = json.loads(service.stdout.readline())
    return said


def _idle(server: int) -> None:
    """Wait until the autopilot of a server computes nothing any more.

    Raises:
        RuntimeError: it still does after half an hour.
    """
    deadline = time.monotonic() + 1_800
    while True:
        before = sum(map(_computed, _below(server)))
        time.sleep(_WINDOW)
        if sum(map(_computed, _below(server))) - before < _LOOKS:
            return
        if time.monotonic() > deadline:
            raise RuntimeError("the autopilot of the server does not come to an end")


def _below(process: int) -> list[int]:
    """The processes that one has begun, and theirs."""
    below = []
    for threads in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, threads.read_text().split()):
            below += [child, *_below(child)]
    return below


def _computed(process: int) -> float:
    """Seconds of processor that a process has had."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spend(
    folder: Path,
    agent: WholeAgent,
    python: Path,
    *,
    daily: int,
    shuffled: bool = False,
    inside: bool = False,
) -> WholeNight:
    """One night of an agent.

    Args:
        inside: the autopilot runs inside `whet serve` all the time; else as a command between two days.
    """
    began = time.monotonic()
    with (
        agent.served() as variables,
        ScriptedServer(lambda request: str(agent.advise(request)), models=("adviser",)) as adviser,
        Forge() as forge,
    ):
        team = Team(
            folder,
            agent,
            python,
            daily=daily,
            shuffled=shuffled,
            inside=inside,
            adviser=adviser.base_url,
            forge=forge,
        )
        team.variables, night = variables, team.night
        with team.served():
            night.before = team.right()
            for _ in range(DAYS):
                team.people_ask()
            for _ in range(SHUFFLED if shuffled else ROUNDS):
                team.look()
                team.merge()
                team.people_ask()
            team.look()
            team.merge()
            night.after = team.right()
            night.pulls = len(forge.pulls)
            if not shuffled:
                team.make_worse()
                team.relapse()
        with Store(team.store) as store:
            night.steps = Counter(row.step for row in read(store))
            night.agent_calls = int((store.state("autopilot/000001/spent") or {}).get("rollouts", 0))
    night.minutes = (time.monotonic() - began) / 60
    return night


def night_whole(folder: Path, seeds: Sequence[int], parts: Sequence[str] = PARTS) -> bool:
    """Print the table; True if no line was missed."""
    folder = folder.resolve()  # processes of several folders are given it
    folder.mkdir(parents=True, exist_ok=True)
    noted = []
    for part in parts:
        if part == "ci":
            noted.append(_prompt_checks(folder / "prompt"))
            continue
        python = environment("langgraph", folder) if part == "langgraph" else Path(sys.executable)
        # As the workflow's first step does, for the evals.
        subprocess.run([python, "-m", "pip", "install", "-q", "pytest"], check=True, capture_output=True)
        for seed in seeds:
            for shuffled in (False, True):
                agent: WholeAgent = (
                    LangGraphDesk(seed) if part == "langgraph" else MailDesk(seed, folder / f"company-{seed}")
                )
                place = folder / f"{part}-{seed}{'-shuffled' if shuffled else ''}"
                daily = 700 if part == "langgraph" else 1_400
                inside = part == "mail"
                night = spend(place, agent, python, daily=daily, shuffled=shuffled, inside=inside)
                where = ", inside whet serve" if inside else ""
                name = f"{agent.name}, seed {seed}{where}{', thumbs shuffled' if shuffled else ''}"
                noted.append(Noted(name, _figures(night), _lines(night, shuffled=shuffled)))
                print(noted[-1], flush=True)
    about = (__doc__ or "").partition("\n")[0]
    return report("A night: the whole", about, noted, page=False)


def _prompt_checks(folder: Path) -> Noted:
    """Pull requests to the repository of a prompt, which `whet gate --ci` checks."""
    checks = prompt_repository(folder)
    lines = {
        "the one with rules passes": checks["rules"].conclusion == "success"
        and "KEEP" in checks["rules"].annotation,
        "the one with other words fails": checks["polite"].conclusion == "failure",
        "the one without the rules fails, and says why": checks["shorter"].conclusion == "failure"
        and "DROP" in checks["shorter"].annotation,
    }
    said = {branch: f"{check.conclusion}: {check.annotation}" for branch, check in checks.items()}
    return Noted("a prompt's repository", said, lines)


def _lines(night: WholeNight, *, shuffled: bool) -> dict[str, bool]:
    """What has to be reached, and whether it was."""
    if shuffled:
        return {"nothing ships": night.shipped == night.pulls == 0}
    worse = night.worse
    return {
        "a planted fault is repaired": bool(night.repaired),
        "each repair is a pull request": night.pulls == night.shipped + 0 and night.pulls >= 1,
        "its command repeats the verdict in a clone": night.repeated == night.shipped > 0,
        "CI passes it, with an annotation": night.passed == night.shipped
        and all(c.annotation for c in night.checks),
        "CI fails what is worse, and says why": worse is not None
        and worse.conclusion == "failure"
        and "DROP" in worse.annotation,
        "each trial was shadowed first": night.steps["shadow"] >= night.steps["trial"] > 0,
        "runs on trial say so": night.tried > 0,
        "a relapse is opened again": night.reopened is True,
        "within the calls": night.agent_calls <= AGENT_CALLS,
    }


def _figures(night: WholeNight) -> dict[str, str]:
    checks = Counter(check.conclusion for check in night.checks)
    return {
        "right before %": ", ".join(f"{id} {100 * share:.0f}" for id, share in night.before.items()),
        "after %": ", ".join(f"{id} {100 * share:.0f}" for id, share in night.after.items()),
        "repaired": ", ".join(night.repaired) or "none",
        "pull requests": str(night.pulls),
        "verdicts repeated": str(night.repeated),
        "checks": ", ".join(f"{count} x {name}" for name, count in sorted(checks.items())) or "none",
        "said of the worse": night.worse.annotation if night.worse else "–",
        "runs on trial": str(night.tried),
        "steps": ", ".join(f"{count} {step}" for step, count in night.steps.most_common()),
        "agent calls": str(night.agent_calls),
        "minutes": f"{night.minutes:.1f}",
    }
