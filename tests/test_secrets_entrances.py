"""A secret that comes in by any entrance is nowhere in the files of the record: its database, log and spools."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gateway_world
import msgspec
import processes
import pytest
import server_world
from otlp_spans import one, pairs, protobuf_request, protobuf_span
from server_world import TOKENS, bearer

import whet
from whet.cli import app
from whet.errors import InputError
from whet.learn.evolution.programs import evolve_program
from whet.learn.evolution.search.settings import Settings
from whet.learn.loop import Update
from whet.models import ScriptedModel
from whet.models.base import Completion, ToolCall
from whet.models.fakes import ScriptedServer
from whet.record.env import StepResult, rollout
from whet.record.policy import Action, FunctionPolicy
from whet.record.store import Log, Store, version_of
from whet.record.store.redaction.redact import Redactor
from whet.record.tracing import flush
from whet.record.tracing.assemble import Assembler
from whet.serve import Role
from whet.types import (
    Bundle,
    Failure,
    Fault,
    Feedback,
    Preference,
    Rollout,
    Split,
    Step,
    Task,
    Tokens,
    Trajectory,
    Usage,
    Verdict,
    Version,
)

KEPT = "keepsake-4711"
"""Stands beside the secrets: a text that was not recorded at all proves nothing."""
# Put together here, so that no file holds what a scanner would take for a key.
SECRETS = ("hunter2-Zx81qLm4", "AKIA" + "Q7ZK3M5XW2P9R8TB", "sk-" + "proj-aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF")
TEXT = f"{KEPT}: the login is password={SECRETS[0]}, the key {SECRETS[1]} and then {SECRETS[2]} again"
DEEP = {"list": [TEXT, {"inner": TEXT}], "password": SECRETS[0]}


def stored(path: Path) -> bytes:
    """All that lies in the folder of a record."""
    return b"\n".join(file.read_bytes() for file in sorted(path.parent.rglob("*")) if file.is_file())


def clean(path: Path) -> None:
    """Check that the record holds what came in, and no secret."""
    held = stored(path)
    assert KEPT.encode() in held, "nothing of it was recorded"
    assert [secret for secret in SECRETS if secret.encode() in held] == []


def trajectory(**more: Any) -> Trajectory:
    tokens = Tokens((1,), (2,), (-0.5,))
    step = Step(observation=DEEP, action=TEXT, error=Failure(Fault.TOOL, "E", TEXT), tokens=tokens)
    task = Task(instruction=TEXT, initial_state=DEEP, answer=TEXT, meta=DEEP)
    given: dict[str, Any] = {"output": DEEP, "error": Failure(Fault.AGENT, "E", TEXT), "meta": DEEP}
    return Trajectory(task=task, steps=(step,), **(given | more))


# -- in this process -------------------------------------------------------------------------------


def traced(path: Path) -> None:
    @whet.step(kind="tool")
    def look(word: str) -> dict[str, Any]:
        return DEEP | {"word": word}

    @whet.trace(str(path))
    def agent(question: str) -> str:
        look(question)
        raise ValueError(TEXT)

    with pytest.raises(ValueError, match=KEPT), whet.run() as run:
        agent(TEXT)
    whet.feedback(run.id, 1.0, TEXT)
    whet.feedback(run.id, correction=DEEP)
    flush()


def recorded(path: Path) -> None:
    with Store(path) as store:
        store.put(trajectory(feedback=(Feedback(run="r", comment=TEXT, correction=DEEP),)))
        store.add_feedback(Feedback(run="r", comment=TEXT, correction=DEEP))
        store.put_tasks(Task(instruction=TEXT, initial_state=DEEP, answer=TEXT, group=TEXT, meta=DEEP))
        store.put_preferences(Preference(prompt=TEXT, chosen=DEEP, rejected=[TEXT]))
        store.put_state("notes", DEEP)
        store.subjects.put("somebody", DEEP)


def worked_off(path: Path) -> None:
    with Store(path) as store:
        queue = store.queue
        queue.add(
            [Rollout(task=Task(instruction=TEXT), meta=DEEP), Rollout(task=Task(instruction="b"))]
        ).result()
        first, second = queue.claim("tester", n=2).result()
        queue.finish(first.rollout.id, first.fence, trajectory=trajectory()).result()
        queue.finish(second.rollout.id, second.fence, error=Failure(Fault.AGENT, "E", TEXT)).result()


def in_an_environment(path: Path) -> None:
    class Env:
        def reset(self, task: Task, seed: int) -> str:
            return TEXT

        def step(self, action: Any) -> StepResult:
            return StepResult(TEXT, 1.0, True, False, DEEP)

    class Policy:
        async def act(self, observation: Any, /) -> Action:
            return Action(TEXT, Tokens((1,), (2,), (-0.5,)), Usage())

    done = asyncio.run(rollout(Env(), Policy(), Task(instruction=TEXT), seed=0))
    with Store(path) as store:
        store.put(done)


def logged(path: Path) -> None:
    answer = Completion(text=TEXT, usage=Usage(), tokens=Tokens((1,), (2,), (-0.5,)))
    with Store(path) as store:
        log = Log(store, "improve")
        log.put("answer/1", msgspec.to_builtins(answer))
        log.flush()
        again = msgspec.convert(Log(store, "improve").get("answer/1"), Completion)
        assert again.text.startswith(KEPT)
        assert again.tokens is None


def judged(path: Path) -> None:
    start, better = (Bundle([Version(resource="p", content=word, kind="prompt")]) for word in ("a", "b"))
    with Store(path) as store:
        evidence: dict[str, Any] = {
            "promote": True,
            "effect": 0.1,
            "interval": (0.0, 0.2),
            "e_value": 30.0,
            "n": 9,
        }
        verdict = Verdict(**evidence, candidate=better.id, baseline=start.id, reasons=(TEXT,))
        kept = store.put_verdict(verdict)
        assert [kept] == [each.id for each in store.verdicts()]
        store.release(start, unproven=True, new_names=True, reason=TEXT)
        assert store.release(better, reason=TEXT).verdict == kept
        store.rollback(reason=TEXT)


def improved(path: Path) -> None:
    class Same:
        name, group_size, on_policy, ordered = "same", 1, True, False

        async def step(self, bundle: Bundle, groups: Any, context: Any) -> Update:
            return Update(bundle=bundle, state={"seen": DEEP}, metrics={})

    class Env:
        def reset(self, task: Task, seed: int) -> str:
            return task.instruction

        def step(self, action: Any) -> StepResult:
            raise RuntimeError(TEXT)

    def success(trajectory: Trajectory) -> bool:
        return False

    sides = (Split.TRAIN, Split.VALIDATION, Split.GATE)
    tasks = [Task(instruction=f"{n}: {TEXT}", group=str(n), split=sides[n % 3]) for n in range(12)]

    def adds(bundle: Bundle, seed: int) -> FunctionPolicy:
        return FunctionPolicy(str)

    with Store(path) as store:
        experiment = whet.Experiment(
            env=Env, tasks=tasks, rewards=[success], policy=adds, store=store, seed=0
        )
        with pytest.raises(InputError, match="'p' holds"):
            asyncio.run(experiment.improve(Same(), bundle=Bundle([version_of("p", TEXT)])))
        asyncio.run(experiment.improve(Same(), rounds=1))


EVALUATOR = f"""
def evaluate(path):
    text, names = open(path).read(), {{}}
    exec(text, names)
    if "x + 2" in text:
        raise ValueError({TEXT!r})
    return {{"combined_score": 1 / (1 + abs(names["f"](1) - 5)), "artifacts": {{"note": {TEXT!r}}}}}
"""


def evolved(path: Path) -> None:
    evaluator = path.parent.parent / "evaluator.py"
    evaluator.write_text(EVALUATOR)
    program = path.parent.parent / "program.py"
    program.write_text("# EVOLVE-BLOCK-START\ndef f(x):\n    return x + 1\n# EVOLVE-BLOCK-END\n")
    output = path.parent.parent / "out"
    settings = Settings(iterations=3, models_only=True, unsafe_local=True, output=output, store=path)
    model = ScriptedModel(f"```python\ndef f(x):\n    return x + 2  # {TEXT}\n```")
    asyncio.run(evolve_program(program, evaluator, settings, models=[model]))


# -- commands --------------------------------------------------------------------------------------


def command(*words: object) -> Any:
    return app([*map(str, words)], result_action="return_value")


def imported(path: Path) -> None:
    file = path.parent / "outside.jsonl"
    file.write_bytes(msgspec.json.encode(trajectory()) + b"\n")
    command("import", file, "--store", path)
    steps = [{"obs": TEXT, "action": TEXT, "reward": 1.0, "done": True, "info": DEEP}]
    file.write_text(json.dumps({"task_id": "t", "natural_language_instruction": TEXT, "steps": steps}))
    command("import", file, "--store", path)
    file.unlink()


def tasks_added(path: Path) -> None:
    file = path.parent / "tasks.jsonl"
    published = {"task_id": "t", "natural_language_instruction": TEXT, "initial_state": DEEP, "note": TEXT}
    file.write_text("\n".join(json.dumps(row) for row in (published, {"instruction": TEXT, "answer": TEXT})))
    command("tasks", "add", file, "--store", path)
    file.unlink()


def rated(path: Path) -> None:
    Store(path).close()
    command("feedback", "some-run", "--value", "1", "--comment", TEXT, "--correction", TEXT, "--store", path)


def released(path: Path) -> None:
    file = path.parent / "prompt.txt"
    file.write_text("be kind")
    unproven = ("--unproven", "--new-name", "--reason", TEXT, "--store", path)
    command("release", "p", file, *unproven)
    command("rollback", "--reason", TEXT, "--store", path)
    file.write_text(TEXT)
    with pytest.raises(InputError, match=r"'p' holds .*password.*environment"):
        command("release", "p", file, *unproven)
    file.unlink()


PROGRAM = f"""
import json, os, urllib.request
import whet

@whet.trace
def agent(question):
    body = json.dumps({{"model": "scripted", "messages": [{{"role": "user", "content": question}}]}}).encode()
    headers = {{"content-type": "application/json", "authorization": "Bearer {SECRETS[2]}"}}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]

agent({TEXT!r})
"""


def run_as_a_program(path: Path) -> None:
    with ScriptedServer(TEXT, speaks=("chat",)) as upstream:
        words = ("run", "--store", path, "--upstream", upstream.base_url, "--", sys.executable, "-c", PROGRAM)
        done = processes.whet(*words)
    assert done.returncode == 0, done.stderr


# -- over HTTP -------------------------------------------------------------------------------------


def exported(path: Path) -> None:
    attributes = {"prompt": TEXT, "deep": DEEP, "http.request.header.x-api-key": [SECRETS[0]]}
    span = one(
        "chat " + TEXT,
        attributes | {"messages": json.dumps([{"role": "user", "content": TEXT}])},
        events=[{"name": TEXT, "timeUnixNano": "1", "attributes": pairs({"exception.message": TEXT})}],
        status={"code": 2, "message": TEXT},
    )
    log = {
        "timeUnixNano": "1",
        "traceId": "ab" * 16,
        "body": {"stringValue": TEXT},
        "attributes": pairs(attributes),
    }
    resource = {"attributes": pairs({"service.name": "s", "process.command_line": TEXT})}
    as_json = {**bearer(Role.WRITE), "content-type": "application/json"}
    packed = {**bearer(Role.WRITE), "content-type": "application/x-protobuf"}
    scoped = {"scope": {"name": "x", "attributes": pairs({"note": TEXT})}}
    traces = {"resourceSpans": [{"resource": resource, "scopeSpans": [{**scoped, "spans": [span]}]}]}
    logs = {"resourceLogs": [{"resource": resource, "scopeLogs": [{**scoped, "logRecords": [log]}]}]}
    protobuf = protobuf_request(protobuf_span("chat", attributes), resource={"token": TEXT})
    with server_world.world(path, grace=0.0) as here:
        for url, body in (("/v1/traces", traces), ("/v1/logs", logs)):
            answered = here.http.post(url, content=json.dumps(body), headers=as_json)
            assert answered.status_code == 200, answered.text
        assert here.http.post("/v1/traces", content=protobuf, headers=packed).status_code == 200
        Assembler(here.store, grace=0.0).flush()


def posted(path: Path) -> None:
    with server_world.world(path) as here:
        feedback = {"run": "r", "value": 1.0, "comment": TEXT, "correction": DEEP}
        here.post("/api/trajectories", {"trajectories": [msgspec.to_builtins(trajectory())]})
        here.post("/api/feedback", {"feedback": [feedback]})
        here.post("/api/subjects", {"subjects": [{"id": "somebody", "meta": DEEP}]})


def uploaded(path: Path) -> None:
    task = {"id": "t", "instruction": TEXT, "initial_state": DEEP, "answer": TEXT, "note": TEXT}
    with server_world.world(path) as here:
        told = here.post("/api/tasks", {"tasks": [task]})
        assert told["ids"] == ["t"]
        assert told["redacted"]["password"] >= 4
        told = here.post("/api/rollouts", {"rollouts": [{"id": "r", "task": task, "meta": DEEP}]})
        assert told["redacted"]["password"] >= 4
        assert "redacted" not in here.post("/api/tasks", {"tasks": [{"instruction": "harmless"}]})


def finished(path: Path) -> None:
    with server_world.world(path, open_legacy=True) as here:
        for number in range(3):
            here.post("/api/rollouts", {"rollouts": [{"id": f"r{number}", "task": {"instruction": TEXT}}]})
        first, second = here.post("/api/rollouts/claim", {"worker": "w", "n": 2})["leases"]
        spans = protobuf_request(protobuf_span("tool", {"prompt": TEXT}))
        report = msgspec.to_builtins(trajectory())
        del report["task"], report["id"]
        done = {"fence": first["fence"], "trajectory": report, "spans": msgspec.to_builtins(spans)}
        here.post(f"/api/rollouts/{first['rollout']['id']}/finish", done)
        error = {"fault": "agent", "type": "E", "message": TEXT}
        failed = {"id": second["rollout"]["id"], "fence": second["fence"], "error": error}
        here.post("/api/rollouts/finish", {"finished": [failed]})
        work = here.http.get("/task").json()["task"]
        lit = {"rollout_id": work["rollout_id"], "final_reward": 1.0, "metadata": DEEP}
        lit["triplets"] = [{"prompt": TEXT, "response": TEXT, "reward": 1.0, "metadata": DEEP}]
        assert here.http.post("/rollout", json=lit).status_code == 200


def released_over_http(path: Path) -> None:
    with server_world.world(path) as here:
        here.post(
            "/api/releases",
            {"resources": {"p": "be kind"}, "unproven": True, "new_names": True, "reason": TEXT},
            Role.ADMIN,
        )
        here.post("/api/releases/rollback", {"reason": TEXT}, Role.ADMIN)
        for url, role in (("/api/bundles", Role.WRITE), ("/api/releases", Role.ADMIN)):
            refused = here.http.post(url, json={"resources": {"p": TEXT}}, headers=bearer(role))
            assert refused.status_code == 400
            assert "'p' holds" in refused.text
            assert SECRETS[0] not in refused.text


def through_the_gateway(path: Path) -> None:
    messages: list[Any] = [{"role": "system", "content": TEXT}, {"role": "user", "content": TEXT}]
    called = Completion(text=TEXT, tool_calls=[ToolCall(name="login", arguments=json.dumps(DEEP), id="c")])
    headers = {
        "x-api-key": SECRETS[2],
        "x-note": TEXT,
        "x-whet-session": "s",
        "cookie": f"session={SECRETS[0]}",
    }
    with (
        ScriptedServer(lambda _: called, speaks=("chat",)) as upstream,
        Store(path) as store,
    ):
        from whet.serve import Access, Server, running
        from whet.serve.app import standard  # the gateway as the server makes it, with its Redactor
        from whet.serve.gateway import Upstream

        parts = standard(store, upstreams={"default": Upstream(url=upstream.base_url)})
        with running(Server(Access(TOKENS), parts)) as url:
            for stream in (False, True):
                answered = gateway_world.http(
                    "POST",
                    f"{url}/run/r1/{TOKENS[Role.WRITE]}/v1/chat/completions?api_key={SECRETS[2]}",
                    json={"model": "scripted", "messages": messages, "stream": stream},
                    headers=headers,
                )
                assert answered.status_code == 200, answered.text
                answered.read()


ENTRANCES: list[Callable[[Path], None]] = [
    *(improved, evolved),
    *(
        traced,
        recorded,
        worked_off,
        in_an_environment,
        logged,
        judged,
        imported,
        tasks_added,
        rated,
        released,
    ),
    *(run_as_a_program, exported, posted, uploaded, finished, released_over_http, through_the_gateway),
]


@pytest.mark.parametrize("enter", ENTRANCES, ids=lambda enter: enter.__name__)
def test_no_entrance_keeps_a_secret(enter: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "record" / "runs.db"
    path.parent.mkdir()
    enter(path)
    clean(path)


def test_the_negative_control_finds_what_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        store.database.redactor = Redactor([])
        store.put(trajectory())
    with pytest.raises(AssertionError):
        clean(path)
