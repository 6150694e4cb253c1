"""One live: a release and its rollback reach everything that runs an agent, and each run says what it ran under."""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from processes import until
from processes import whet as whet_command
from server_world import World, bearer, world
from test_experiment import Climb, experiment
from test_server_worker import work

import whet
from whet.cli import app
from whet.errors import GateError, InputError, NotFoundError
from whet.models.base import ModelRequest
from whet.models.fakes import ScriptedServer
from whet.record.store import Store, bundle_of, read_bundle, write_bundle
from whet.record.tracing import flush
from whet.serve import Role
from whet.serve.gateway import Upstream
from whet.serve.worker import LitAgent
from whet.types import Bundle, Rollout, Task, Verdict, Version

AGENT = """
import whet
GREETING = whet.resource("greeting", default="as it came")

@whet.trace
def agent(question):
    return str(GREETING)

print(agent("hello"))
"""
PROMPT, GREETING = "gateway.system_prompt", "greeting"
AS_IT_CAME = "as it came"


def shell(*words: object) -> str:
    """A command in a process of its own, which has declared nothing; what it printed."""
    done = whet_command(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def system_prompt(request: ModelRequest) -> str:
    """A model that answers with its system prompt."""
    first = request.messages[0]
    return str(first["content"]) if first["role"] == "system" else AS_IT_CAME


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with (
        ScriptedServer(system_prompt) as upstream,
        world(
            tmp_path / "runs.db",
            open_legacy=True,
            grace=0.1,
            upstreams={"default": Upstream(url=upstream.base_url)},
        ) as found,
    ):
        yield found


class Everyone:
    """All that may run the agent, asked by turns; each answers with (text, Version id recorded)."""

    def __init__(self, here: World, folder: Path) -> None:
        self.here, self.folder, self.asked = here, folder, 0
        self.greeting = whet.resource(GREETING, default=AS_IT_CAME)
        self.traced = whet.trace(here.store)(self.agent)

    def agent(self, question: str) -> str:
        return str(self.greeting)

    def recorded(self, run: str, name: str) -> str | None:
        until(lambda: bool([*self.here.store.trajectories(ids=[run])]), f"{run} was not recorded")
        return self.here.store.trajectory(run).versions.get(name)

    def worker(self, run: str) -> tuple[str, str | None]:
        self.here.store.add_rollouts(Rollout(id=run, task=Task(instruction="hello")))
        assert work(self.here, self.agent, limit=1).succeeded == 1
        return str(self.here.store.trajectory(run).output), self.recorded(run, GREETING)

    def in_process(self, run: str) -> tuple[str, str | None]:
        with whet.run() as handle:
            said = self.traced("hello")
        assert flush()
        return said, self.recorded(handle.id, GREETING)

    def subprocess(self, run: str) -> tuple[str, str | None]:
        environment = {**os.environ, "WHET_STORE": self.here.store.path, "WHET_RUN": run}
        done = subprocess.run(
            [sys.executable, "-c", AGENT], env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), self.recorded(run, GREETING)

    def behind_a_server(self, run: str) -> tuple[str, str | None]:
        command = [sys.executable, "-m", "whet", "run", "--url", self.here.url, "--run-id", run, "--"]
        environment = {**os.environ, "WHET_TOKEN": bearer(Role.WRITE)["authorization"].split()[1]}
        done = subprocess.run(
            [*command, sys.executable, "-c", AGENT],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), self.recorded(run, GREETING)

    def gateway(self, run: str) -> tuple[str, str | None]:
        body = {"model": "scripted", "messages": [{"role": "user", "content": "hello"}]}
        token = bearer(Role.WRITE)["authorization"].split()[1]
        answered = self.here.http.post(f"/run/{run}/{token}/v1/chat/completions", json=body)
        assert answered.status_code == 200, answered.text
        said = answered.json()["choices"][0]["message"]["content"]
        return said, self.recorded(run, PROMPT)

    def old_protocol(self, run: str) -> tuple[str, str | None]:
        self.here.store.add_rollouts(Rollout(id=run, task=Task(instruction="hello")))
        task = self.here.http.get("/task").json()["task"]
        found = self.here.http.get(f"/resources/{task['resources_id']}").json()["resources"]
        assert self.here.http.get("/resources/latest").json()["resources"] == found
        said = found[GREETING]["template"] if GREETING in found else AS_IT_CAME
        report = {"rollout_id": task["rollout_id"], "final_reward": 1.0, "metadata": {"said": said}}
        assert self.here.http.post("/rollout", json=report).status_code == 200
        return said, self.recorded(run, GREETING)

    def answers(self) -> dict[str, tuple[str, str | None]]:
        """Who → what it answered and the Version that was recorded, None of the agent as it came."""
        self.asked += 1
        came = self.greeting.default_version.id
        found = {}
        for ask in (
            self.worker,
            self.in_process,
            self.subprocess,
            self.behind_a_server,
            self.gateway,
            self.old_protocol,
        ):
            text, version = ask(f"{ask.__name__}-{self.asked}")
            found[ask.__name__] = (text, None if version == came else version)
        return found

    def settled(self, text: str) -> None:
        """Wait until what watches has seen it: the gateway and this process look once in a second."""
        live = self.here.store.live() or Bundle()
        wanted = {PROMPT: live[PROMPT].id} if PROMPT in live else {}
        until(lambda: self.here.get("/api/gateway")["live"] == wanted, "the gateway did not follow")
        until(lambda: self.agent("") == text or self.traced("") == text, "this process did not follow")


def test_a_released_prompt_reaches_all_that_runs_an_agent_and_so_does_its_rollback(
    here: World, tmp_path: Path
) -> None:
    everyone, file, store = Everyone(here, tmp_path), tmp_path / "greeting.txt", here.store.path
    assert set(everyone.answers().values()) == {(AS_IT_CAME, None)}
    came = {GREETING: everyone.greeting.default_version.id}
    assert here.store.trajectory("worker-1").versions == came  # what it read, though nothing was released
    file.write_text("good morning")
    release = ["release", GREETING, file, "--store", store]
    told = subprocess.run(
        [sys.executable, "-m", "whet", *map(str, release)], capture_output=True, text=True, timeout=300
    )
    assert told.returncode == GateError.exit_code, told.stderr
    assert "--unproven" in told.stderr
    first = json.loads(shell(*release, "--unproven", "--json"))
    shell("release", PROMPT, file, "--store", store, "--unproven")
    everyone.settled("good morning")
    answers, live = everyone.answers(), here.store.live()
    assert live is not None
    assert live[GREETING].id == first[GREETING]
    assert answers.pop("gateway") == ("good morning", live[PROMPT].id)
    assert set(answers.values()) == {("good morning", live[GREETING].id)}
    shell("rollback", "--store", store)
    assert "the agent is as it came" in shell("rollback", "--store", store)
    everyone.settled(AS_IT_CAME)
    assert set(everyone.answers().values()) == {(AS_IT_CAME, None)}
    assert [one.unproven for one in here.store.history()] == [True, True, True, False]


def test_a_traced_call_is_one_agent_though_a_release_comes_while_it_runs() -> None:
    with Store(":memory:") as store:
        prompt = whet.resource("pinned", default="first")

        @whet.trace(store)
        def agent() -> tuple[str, str]:
            before = str(prompt)
            store.release(bundle_of({"pinned": "second"}), unproven=True)
            until(lambda: outside() == "second", "the release was not seen")
            return before, str(prompt)

        def outside() -> str:
            import contextvars

            return contextvars.Context().run(whet.trace(store)(lambda: str(prompt)))

        assert agent() == ("first", "first")


@pytest.mark.parametrize("path", [None, "runs.db"], ids=["memory", "file"])
def test_a_release_takes_effect_in_the_process_that_wrote_it_with_the_next_call(
    tmp_path: Path, path: str | None
) -> None:
    """Also where the trace follows the file by its path."""
    prompt = whet.resource("at once", default="as it came")
    with Store(tmp_path / path if path else ":memory:") as store:
        followed = [whet.trace(store)(lambda: str(prompt))]
        if path:
            followed.append(whet.trace(str(tmp_path / path))(lambda: str(prompt)))
        assert [ask() for ask in followed] == ["as it came"] * len(followed)
        for text in ("first", "second"):
            store.release(bundle_of({"at once": text}), unproven=True, new_names=True)
            assert [ask() for ask in followed] == [text] * len(followed)
        store.rollback()
        assert [ask() for ask in followed] == ["first"] * len(followed)
        store.rollback()
        assert [ask() for ask in followed] == ["as it came"] * len(followed)


def test_the_gateway_serves_a_release_of_its_own_process_to_the_next_run(here: World, tmp_path: Path) -> None:
    everyone = Everyone(here, tmp_path)
    assert everyone.gateway("before") == (AS_IT_CAME, None)
    for text in ("first", "second"):
        here.store.release(bundle_of({PROMPT: text}), unproven=True)
        assert everyone.gateway(f"run of {text}")[0] == text
    here.store.rollback()
    assert everyone.gateway("after")[0] == "first"


def test_a_rollout_that_names_a_bundle_has_it_at_the_gateway_whatever_is_live(
    here: World, tmp_path: Path
) -> None:
    everyone, store = Everyone(here, tmp_path), here.store
    named = bundle_of({PROMPT: "the one that was named"})
    store.put_bundle(named)
    store.release(bundle_of({PROMPT: "live"}), unproven=True)
    served = {}

    class Agent(LitAgent):
        def training_rollout(self, task: Any, rollout_id: str, resources: Any) -> float:
            served[task["run"]] = everyone.gateway(rollout_id if task["attempt"] else task["run"])
            return 1.0

    for attempt in (True, False):
        for resources in (named.id, None):
            id = f"{resources} {attempt}"
            task = Task(instruction="hello", initial_state={"run": id, "attempt": attempt})
            store.add_rollouts(Rollout(id=id, task=task, resources=resources))
    assert work(here, Agent(), limit=4).succeeded == 4
    live = store.live()
    assert live is not None
    of_it, of_live = (named[PROMPT].content, named[PROMPT].id), ("live", live[PROMPT].id)
    assert served == {
        f"{named.id} True": of_it,
        f"{named.id} False": of_it,
        "None True": of_live,
        "None False": of_live,
    }
    assert everyone.gateway("nobody's")[0] == "live"


def verdict(bundle: Bundle, *, promote: bool = True) -> Verdict:
    return Verdict(
        promote=promote,
        effect=0.2,
        interval=(0.1, 0.3),
        e_value=math.inf,
        n=40,
        candidate=bundle.id,
        baseline=Bundle().id,
        reasons=("+0.200 over 40 pairs.",),
    )


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(":memory:") as opened:
        yield opened


def test_a_release_asks_for_a_verdict_that_promotes_this_very_bundle(store: Store) -> None:
    better, other = bundle_of({PROMPT: "better"}), bundle_of({PROMPT: "other"})
    with pytest.raises(GateError, match="no Verdict on it"):
        store.release(better)
    with pytest.raises(GateError, match=r"does not promote it\. \+0\.200 over 40 pairs"):
        store.release(better, verdict(better, promote=False))
    with pytest.raises(InputError, match=f"on Bundle {other.id}"):
        store.release(better, verdict(other), unproven=True)
    with pytest.raises(InputError, match="none named"):
        store.release(better, replace(verdict(better), candidate=""))
    assert store.live() is None
    released = store.release(better, verdict(better), reason="proven")
    assert (released.verdict, released.unproven) == (verdict(better).id, False)
    assert list(store.verdicts(candidate=better.id)) == [verdict(better)]
    store.put_verdict(verdict(other), experiment="job")
    assert not store.release(other).unproven  # the record has its Verdict
    assert store.release(other).id == store.history()[-1].id  # released already: nothing to go back over
    assert store.rollback() == better
    assert store.history()[-1].verdict == verdict(better).id
    third = bundle_of({PROMPT: "third"})
    store.put_verdict(verdict(third))
    store.put_verdict(verdict(third, promote=False))
    with pytest.raises(GateError):
        store.release(third)  # what the gate said last
    assert store.release(third, unproven=True).unproven
    store.release(bundle_of({"limits": "90"}), unproven=True, new_names=True)
    fourth = bundle_of({PROMPT: "fourth"})
    beside = (store.live() or Bundle()).put(*fourth.values())
    store.put_verdict(verdict(beside))
    store.put_verdict(verdict(fourth, promote=False))
    with pytest.raises(GateError):
        store.release(fourth)  # said last, if of the Bundle alone


def test_what_the_gate_promoted_is_released_and_what_it_did_not_is_not(tmp_path: Path) -> None:
    path, worse = tmp_path / "runs.db", Bundle([Version(resource="addend", content=-1)])
    with Store(path) as store:
        run = experiment(store=store, name="sums")
        better = asyncio.run(run.improve(Climb(), rounds=4)).bundle
        with pytest.raises(GateError, match="no Verdict"):
            store.release(better)
        judged = asyncio.run(run.gate(better))
        assert (judged.candidate, judged.baseline) == (better.id, Bundle().id)
        asyncio.run(run.gate(worse))
        with pytest.raises(GateError, match="does not promote"):
            store.release(worse)
        proven = store.release(better)  # its names are known from what the experiment recorded
        assert (proven.verdict, proven.unproven) == (judged.id, False)
        assert store.rollback() == Bundle()
    assert json.loads(shell("release", better.id, "--store", path, "--json")) == better.ids


def test_a_release_leaves_the_rest_of_what_is_live(store: Store) -> None:
    store.release(bundle_of({PROMPT: "short"}), unproven=True)
    store.release(bundle_of({"gateway.model": "small"}), unproven=True)
    assert store.live() == bundle_of({PROMPT: "short", "gateway.model": "small"})
    with pytest.raises(InputError, match="roll back"):
        store.release(Bundle(), unproven=True)


def test_a_name_that_nobody_reads_is_refused_with_those_close_to_it(store: Store) -> None:
    with pytest.raises(InputError, match=r"gateway\.sytem_prompt.*close to it: gateway\.system_prompt"):
        store.release(bundle_of({"gateway.sytem_prompt": "x"}), unproven=True)
    with pytest.raises(InputError, match="--new-name"):
        store.release(bundle_of({"unheard_of": "x"}), unproven=True)
    store.release(bundle_of({"unheard_of": "x"}), unproven=True, new_names=True)
    store.release(bundle_of({"unheard_of": "y"}), unproven=True)  # it is live: known


def test_what_a_program_declared_or_ran_under_is_known_to_the_shell(tmp_path: Path) -> None:
    path, program, file = tmp_path / "runs.db", tmp_path / "agent.py", tmp_path / "greeting.txt"
    program.write_text(AGENT.replace("print(agent", "whet.resource('never_read', default='x')\nprint(agent"))
    subprocess.run(
        [sys.executable, program], env={**os.environ, "WHET_STORE": str(path)}, check=True, timeout=300
    )
    file.write_text("good morning")
    for name in (GREETING, "never_read"):
        assert name in json.loads(shell("release", name, file, "--store", path, "--unproven", "--json"))
    with Store(path) as opened:
        (done,) = opened.trajectories()
        assert opened.version(done.versions[GREETING]).content == AS_IT_CAME  # which a diff can show


def test_whet_release_takes_what_a_learner_wrote_and_what_the_record_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: object) -> Any:
        assert app([str(word) for word in words], result_action="return_value") == 0
        return capsys.readouterr().out

    folder, path = tmp_path / "out", tmp_path / "runs.db"
    folder.mkdir()
    made, came = bundle_of({PROMPT: "learned"}), bundle_of({PROMPT: "came"})
    write_bundle(folder / "bundle.json", made, baseline=came, verdict=verdict(made), store=path)
    assert read_bundle(folder).verdict == verdict(made)
    run("release", folder)  # the store and the Verdict are the ones that the learner names
    with Store(path) as opened:
        assert opened.live() == made
        assert not opened.history()[-1].unproven
        assert opened.bundle(came.id) == came
        other = bundle_of({PROMPT: "recorded"})
        opened.put_bundle(other)
        checkpoint = {"bundle": [{"resource": PROMPT, "content": "improved", "kind": "prompt"}], "done": True}
        opened.put_state("job/search", checkpoint)
        proven = opened.put_verdict(verdict(other))
    assert verdict(made).id in run("show", "verdicts", "--store", path)
    shown = run("show", "verdicts", "--store", path, "--candidate", other.id, "--json")
    assert json.loads(shown)["id"] == proven
    for id, content in (
        (made.id, "learned"),
        (other[PROMPT].id, "recorded"),
        (proven, "recorded"),
        ("job/search", "improved"),
        (other.id, "recorded"),
    ):
        run("release", id, "--store", path, "--unproven")
        with Store(path) as opened:
            live = opened.live()
            assert live is not None
            assert live[PROMPT].content == content
    run("release", folder / "bundle.json", "--store", path)
    with pytest.raises(NotFoundError, match="whet release NAME FILE"):
        run("release", "nothing", "--store", path)
    with pytest.raises(InputError, match="no store was named"):
        run("release", "nothing")


def test_what_an_old_client_reports_is_what_a_trainer_takes(
    here: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client's own exporter gives token ids in prompt and response, and the name of the agent beside them."""
    here.store.add_rollouts(
        *(Rollout(id=f"r{n}", task=Task(instruction=str(n // 4), answer="1")) for n in range(8))
    )
    for n in range(8):
        task = here.http.get("/task").json()["task"]
        call = {
            "prompt": {"token_ids": [1, 2, n % 4]},
            "response": {"token_ids": [3, n % 3], "logprobs": [-0.5, -1.5]},
            "reward": None,
            "metadata": {"response_id": f"c{n}", "agent_name": "solver" if n else "*"},
        }
        report = {"rollout_id": task["rollout_id"], "final_reward": float(n % 2), "triplets": [call]}
        sent = [here.http.post("/rollout", json={**report, "trace": None, "logs": None, "metadata": {}})] * 2
        again = here.http.post("/rollout", json={**report, "trace": None, "logs": None, "metadata": {}})
        assert [one.status_code for one in (*sent, again)] == [200, 200, 200]
        late = here.http.post("/rollout", json={**report, "final_reward": 9.0})
        assert late.status_code == 409
    done = here.store.trajectory("r5")
    (step,) = done.steps
    assert step.tokens is not None
    assert (step.tokens.prompt_ids, step.tokens.output_ids, step.tokens.logprobs) == (
        (1, 2, 1),
        (3, 2),
        (-0.5, -1.5),
    )
    assert (step.agent, step.reward, step.done, done.reward) == ("solver", 1.0, True, 1.0)
    assert here.store.trajectory("r0").steps[0].agent == ""  # the exporter's word for any

    def run(*words: object) -> Any:
        assert app([str(word) for word in words], result_action="return_value") == 0
        return json.loads(capsys.readouterr().out.splitlines()[0])

    store = here.store.path
    assert run("capture", "check", "--store", store, "--json")["trainable"] == 8
    trained = run(
        "train",
        "grpo",
        "--store",
        store,
        "--output",
        tmp_path / "out",
        "--off-policy",  # the client's model is another one
        "--steps",
        1,
        "--success",
        "reward",
        "--json",
    )
    assert trained["method"] == "grpo"


def test_without_log_probabilities_an_old_report_is_for_cloning_and_the_rest_says_so(
    here: World, capsys: pytest.CaptureFixture[str]
) -> None:
    here.store.add_rollouts(
        Rollout(id="r", task=Task(instruction="x")), Rollout(id="s", task=Task(instruction="x"))
    )
    triplets = [
        {"prompt": {"token_ids": [1]}, "response": {"token_ids": [2, 3]}, "reward": 0.5, "metadata": {}}
    ]
    for given in ({"triplets": triplets}, {"final_reward": 1.0}):
        task = here.http.get("/task").json()["task"]
        assert here.http.post("/rollout", json={"rollout_id": task["rollout_id"], **given}).status_code == 200
    assert app(["capture", "check", "--store", here.store.path, "--json"], result_action="return_value") == 0
    found = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (found["trainable"], found["clonable"]) == (0, 1)
    assert set(found["reasons"]) == {"no log-probabilities", "no calls"}
    plain = here.store.trajectory("s")
    assert (plain.reward, plain.steps[0].observation, plain.scores["reward"].value) == (1.0, "x", 1.0)


def test_a_version_that_only_an_admin_may_bring_is_not_loaded_for_a_writer(here: World) -> None:
    weights = Version(resource="policy", kind="weights", content={"path": "/etc", "sha256": "0"})
    given = {
        "versions": [{"resource": "policy", "kind": "weights", "content": weights.content, "id": weights.id}]
    }
    assert here.http.post("/api/bundles", json=given, headers=bearer(Role.WRITE)).status_code == 403
    assert here.post("/api/bundles", given, Role.ADMIN)["id"] == Bundle([weights]).id
