"""An agent's file, its record and people's thumbs: a better prompt that is proven, or the reason why there is none."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import whet as whet_command
from msgspec import UNSET
from processes import python
from processes import whet as whet_process
from test_fitted import ARTICLES, WRONG

from whet.models.base import ModelRequest
from whet.models.fakes import Reply, ScriptedServer
from whet.record.influence import weighed
from whet.record.reviewing import clear, put_findings
from whet.record.store import Store
from whet.record.store.findings import RewardFinding
from whet.types import Feedback, Split, Step, Task, Trajectory

PROMPT = "You help at the desk of a shop."
AGENT = f'''"""A desk that asks a model, with the standard library alone."""

import json
import os
import urllib.request

SYSTEM_PROMPT = "{PROMPT}"
GREETING_PROMPT = "You greet people who come in, and say nothing else to them."


def answer(question: str) -> str:
    messages = [{{"role": "system", "content": SYSTEM_PROMPT}}, {{"role": "user", "content": question}}]
    body = json.dumps({{"model": "scripted", "messages": messages}}).encode()
    request = urllib.request.Request(os.environ["DESK_URL"] + "/chat/completions", body)
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]


def main(question: str) -> str:
    return answer(question)
'''
RULES = {
    "warranty": "State a warranty with its unit.",
    "order": "Repeat the number of the order.",
    "price": "Admit that you do not know a price.",
}


def said(prompt: str, question: str, chance: float) -> tuple[str, bool]:
    """The model's answer under a prompt, and whether it is right."""
    kind = next(kind for kind in RULES if kind in question)
    right = RULES[kind] in prompt or chance < 0.4
    if kind == "warranty":
        return ("The warranty is 3 years." if right else "The warranty is 3."), right
    if kind == "order":
        order = re.findall(r"\d+", question)[0]
        return (f"Order {order} is sent." if right else "It is on its way."), right
    return ("I do not know." if right else "It will be 12 euros."), right


def chance_of(prompt: str, question: str) -> float:
    return random.Random(f"{prompt}|{question}").random()


def desk(request: ModelRequest) -> str:
    system, question = (str(message["content"]) for message in request.messages)
    return said(system, question, chance_of(system, question))[0]


def adviser(request: ModelRequest) -> str:
    """Proposes a rule for a kind of question that goes wrong; every second answer is of no use."""
    shown = "\n".join(str(message["content"]) for message in request.messages)
    draw = random.Random(shown)
    lacking = [rule for kind, rule in RULES.items() if kind in shown and rule not in shown]
    return draw.choice(["{}", *lacking]) if lacking else "Tell people about the weather of the day."


def questions(seed: int) -> list[tuple[str, str]]:
    draw = random.Random(seed)
    asked = []
    for person in range(60):
        for _ in range(4):
            kind = draw.choice(["warranty", "order", "price"])
            question = {
                "warranty": f"How long is the warranty of the {draw.choice(ARTICLES)}?",
                "order": f"Where is my order {4000 + draw.randint(0, 20)}?",
                "price": f"What is the price of a {draw.choice(ARTICLES)} next spring?",
            }[kind]
            asked.append((f"person-{person}", question))
    return asked


Record = Callable[..., Path]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Writes the agent and its record; `shuffled` deals the thumbs out to other answers."""

    def write(
        *,
        shuffled: bool = False,
        thumbs: bool = True,
        people: int = 60,
        role: str = "",
        prompt: str = PROMPT,
        subject: str = "",
    ) -> Path:
        framed = f"{json.dumps(role)} + SYSTEM_PROMPT" if role else "SYSTEM_PROMPT"
        (tmp_path / "desk.py").write_text(AGENT.replace('"content": SYSTEM_PROMPT', f'"content": {framed}'))
        draw = random.Random(7)
        runs, values = [], []
        for number, (person, question) in enumerate(questions(3)[: 4 * people]):
            text, right = said(prompt, question, chance_of(role + prompt, question))
            step = Step(kind="llm", observation=[{"role": "system", "text": role + prompt}], action=text)
            values.append(1.0 if right != (draw.random() < WRONG) else -1.0)
            runs.append(
                Trajectory(
                    id=f"run-{number}",
                    task=Task(instruction=question),
                    output=text,
                    subject=subject or person,
                    steps=[step],
                    meta={"function": "answer"},
                )
            )
        if shuffled:
            draw.shuffle(values)
        with Store(tmp_path / "runs.db") as store:
            store.put(*runs)
            if thumbs:
                notes = [Feedback(run=run.id, value=value) for run, value in zip(runs, values, strict=True)]
                store.add_feedback(*notes)
        return tmp_path

    return write


@pytest.fixture
def servers() -> Iterator[tuple[ScriptedServer, ScriptedServer]]:
    with ScriptedServer(desk) as agent, ScriptedServer(adviser) as proposer:
        yield agent, proposer


def improve(
    folder: Path, servers: tuple[ScriptedServer, ScriptedServer], *words: str, behind: bool = False
) -> tuple[int, str, str]:
    """The command; `behind` a gateway that records it, as a whole program."""
    agent, proposer = servers
    model = ("--model", "scripted", "--base-url", proposer.base_url)
    command = ["improve", "desk.py", "--store", "runs.db", *model, *words]
    if behind:
        desk = folder / "desk.py"
        desk.write_text(desk.read_text().replace("DESK_URL", "OPENAI_BASE_URL"))
        gateway = [
            "run",
            "--store",
            "runs.db",
            "--upstream",
            agent.base_url,
            "--",
            sys.executable,
            "-m",
            "whet",
        ]
        command = [*gateway, *command]
    run = whet_process if behind else whet_command
    done = run(*command, folder=folder, DESK_URL=agent.base_url)
    return done.returncode, done.stdout, done.stderr


def test_thumbs_end_in_a_prompt_that_is_proven_and_live(
    record: Record, servers: tuple[ScriptedServer, ScriptedServer]
) -> None:
    folder = record()
    code, out, err = improve(folder, servers, "--release", "--reflections", "12")
    assert code == 0, f"{out}\n{err}"
    assert f"desk:SYSTEM_PROMPT can change ({len(PROMPT)} characters); desk:answer answers under it" in out
    assert "not changed: desk:GREETING_PROMPT" in out
    assert re.search(r"240 recorded runs; \d+ thumbs up and \d+ down of 60 people", out)
    assert re.search(r"agrees with [78]\d% of 240 thumbs of other people on other inputs", out)
    assert "at most 400 calls of the agent" in out
    assert "proven better, and live at the gateway" in out
    agent, proposer = servers
    report = json.loads((folder / "whet_output" / "verdict.json").read_text())
    assert report["agent_calls"] == len(agent.requests) <= 400
    assert report["model_calls"] == len(proposer.requests) <= 12
    assert sum(rule in report["after"] for rule in RULES.values()) >= 2
    assert report["gate"]["after"] > report["gate"]["before"] + 0.15
    with Store(folder / "runs.db") as store:
        live = store.live()
        assert live is not None
        assert live["gateway.system_prompt"].content == report["after"]
        # Candidates' runs are no evidence of what people asked for.
        assert sum(run.meta.get("function") == "answer" for run in store.trajectories()) == 240
    # The next improvement goes on from there.
    assert people_ask(folder, agent) == {report["after"]}
    code, plan, err = improve(folder, servers, "--release", "--dry-run")
    assert code == 0, f"{plan}\n{err}"
    assert "the gateway serves a released prompt in its place" in plan
    assert live["gateway.system_prompt"].id in plan
    assert whet_command("rollback", "--store", "runs.db", folder=folder).returncode == 0
    assert (folder / "desk.py").read_text() == AGENT
    assert (folder / "whet_output" / "agent.patch").read_text() in out


@pytest.mark.parametrize("sent", [True, False])
def test_a_prompt_that_is_declared_is_found_without_being_named(
    sent: bool, record: Record, servers: tuple[ScriptedServer, ScriptedServer]
) -> None:
    folder = record(prompt=PROMPT if sent else "")
    desk = folder / "desk.py"
    declared = (
        f'manner = whet.resource("tone", default="{PROMPT}")\nmodel = whet.resource("model", default="small")'
    )
    text = (
        desk.read_text()
        .replace(f'SYSTEM_PROMPT = "{PROMPT}"', declared)
        .replace("SYSTEM_PROMPT", "manner.get()")
    )
    text = text if sent else text.replace("GREETING_PROMPT", "GREETING")
    desk.write_text(text.replace("import urllib.request", "import urllib.request\n\nimport whet"))
    code, plan, err = improve(folder, servers, "--dry-run")
    assert code == 0, f"{plan}\n{err}"
    assert f"desk:tone can change ({len(PROMPT)} characters); desk:answer answers under it" in plan
    assert "desk:model" not in plan


def test_a_prompt_that_a_framework_writes_more_around_goes_live_as_a_passage_of_it(
    record: Record, servers: tuple[ScriptedServer, ScriptedServer]
) -> None:
    folder = record(role="You are a clerk with tools. ")
    code, out, err = improve(folder, servers, "--reflections", "8")
    assert code == 0, f"{out}\n{err}"
    assert "desk:SYSTEM_PROMPT can change" in out
    finding = found_on_what_was_judged(folder)
    code, out, err = improve(folder, servers, "--release", "--reflections", "8")
    assert code == 1, f"{out}\n{err}"
    assert f"whet findings --clear {finding.id}" in out
    assert not (folder / "whet_output" / "agent.patch").exists()
    with Store(folder / "runs.db") as store:
        assert store.live() is None
        clear(store, finding.id, by="Ann", why="people want it so")
    code, out, err = improve(folder, servers, "--release", "--reflections", "8")
    assert code == 0, f"{out}\n{err}"
    report = json.loads((folder / "whet_output" / "verdict.json").read_text())
    with Store(folder / "runs.db") as store:
        live = store.live()
        assert live is not None
        assert live["gateway.system_prompt"].content == {"passages": {PROMPT: report["after"]}}
        (release,) = store.history()
        assert not release.unproven
    assert whet_command("rollback", "--store", "runs.db", folder=folder).returncode == 0


def found_on_what_was_judged(folder: Path) -> RewardFinding:
    """A finding on the Bundle that was judged, by the rewards that judged it; another Bundle goes live."""
    bundle = json.loads((folder / "whet_output" / "verdict.json").read_text())["verdict"]["candidate"]
    with Store(folder / "runs.db") as store:
        scores = next(run.scores for run in store.trajectories() if len(run.scores) >= 3)
        rewards = {name: score.evaluator for name, score in scores.items()}
        (finding,) = put_findings(
            store, bundle, [RewardFinding(kind="loops", sentence="it goes round in circles")], rewards=rewards
        )
    return finding


TRAFFIC = """import os

import whet

os.environ["DESK_URL"] = os.environ["OPENAI_BASE_URL"]
import desk

for number in range(3):
    with whet.run(subject="person-1"):
        whet.trace(desk.answer)(f"Where is my order {4100 + number}?")
"""


def people_ask(folder: Path, agent: ScriptedServer) -> set[str]:
    """The system prompts that reach the model while people ask through the gateway."""
    (folder / "traffic.py").write_text(TRAFFIC)
    agent.requests.clear()
    behind = ["run", "--store", "runs.db", "--upstream", agent.base_url, "--", sys.executable, "traffic.py"]
    asked = whet_process(*behind, folder=folder)
    assert asked.returncode == 0, asked.stderr
    prompts = {str(request.body["messages"][0]["content"]) for request in agent.requests}
    agent.requests.clear()
    return prompts


@pytest.mark.parametrize("role", ["", "You are a clerk with tools. "])
def test_an_improvement_begins_with_the_prompt_that_is_live(
    record: Record, servers: tuple[ScriptedServer, ScriptedServer], role: str
) -> None:
    folder, (agent, _) = record(role=role), servers
    live = f"{PROMPT} Be brief."
    (folder / "live.json").write_text(json.dumps({"passages": {PROMPT: live}} if role else live))
    release = ["release", "gateway.system_prompt", "live.json", "--store", "runs.db", "--unproven"]
    assert whet_command(*release, folder=folder).returncode == 0
    assert people_ask(folder, agent) == {role + live}
    code, out, err = improve(folder, servers, "--release", "--reflections", "16", behind=not role)
    assert code == 0, f"{out}\n{err}"
    # Candidates are asked past the record, and not under the live prompt, by a command that is itself recorded.
    assert role or "whet: 0 model calls recorded" in err
    assert len({str(request.body["messages"][0]["content"]) for request in agent.requests}) > 2
    assert f"the gateway serves a released prompt in its place ({len(live)} characters" in out
    assert str(agent.requests[0].body["messages"][0]["content"]) == role + live
    report = json.loads((folder / "whet_output" / "verdict.json").read_text())
    assert report["before"] == live
    assert report["after"].startswith(live)
    assert f'-SYSTEM_PROMPT = "{PROMPT}"' in report["diff"], "the patch is for the file as it is"
    with Store(folder / "runs.db") as store:
        (_, release_of_after) = store.history()
        content = {"passages": {PROMPT: report["after"]}} if role else report["after"]
        assert release_of_after.bundle["gateway.system_prompt"].content == content


SCRIPT = """import asyncio, json, sys
import whet
from whet.errors import TrainingRefused


def improved():
    return whet.improve("desk.py", store="runs.db", model="scripted", base_url=sys.argv[1])


async def cell():
    return improved()


try:
    result = asyncio.run(cell()) if "notebook" in sys.argv else improved()
except TrainingRefused as error:
    print("refused:", error)
else:
    print(json.dumps([result.proven, result.after, result.diff()]))
"""


def test_python_has_the_same_in_a_notebook_where_a_loop_is_running(
    record: Record, servers: tuple[ScriptedServer, ScriptedServer]
) -> None:
    agent, proposer = servers
    done = python("-c", SCRIPT, proposer.base_url, "notebook", folder=record(), DESK_URL=agent.base_url)
    assert done.returncode == 0, done.stderr
    assert "desk:answer answers under it" in done.stdout
    proven, after, diff = json.loads(done.stdout.splitlines()[-1])
    assert proven
    assert sum(rule in after for rule in RULES.values()) >= 2
    assert "-SYSTEM_PROMPT" in diff


def test_python_says_why_shuffled_thumbs_are_refused_before_anything_is_spent(
    record: Record, servers: tuple[ScriptedServer, ScriptedServer]
) -> None:
    agent, proposer = servers
    done = python("-c", SCRIPT, proposer.base_url, folder=record(shuffled=True), DESK_URL=agent.base_url)
    assert "refused: these thumbs do not" in done.stdout, done.stderr
    assert [server.requests for server in servers] == [[], []]


def test_shuffled_thumbs_are_refused_before_anything_is_spent(
    record: Record, servers: tuple[ScriptedServer, ScriptedServer]
) -> None:
    code, out, err = improve(record(shuffled=True), servers)
    assert code == 1, err
    assert "nothing was spent: these thumbs do not" in out
    assert "whet label --store runs.db" in out
    assert [server.requests for server in servers] == [[], []]


@pytest.mark.parametrize(
    ("options", "words", "reason"),
    [
        ({"thumbs": False}, [], "nobody rated any of 240 recorded runs"),
        ({"people": 8}, [], "more are needed, of more people than "),
        ({}, ["--agent-calls", "50"], "are needed to search"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_spent(
    record: Record,
    servers: tuple[ScriptedServer, ScriptedServer],
    options: dict[str, object],
    words: list[str],
    reason: str,
) -> None:
    code, out, err = improve(record(**options), servers, *words)
    assert code == 1, err
    assert reason in out
    assert [server.requests for server in servers] == [[], []]


def test_an_agent_that_does_not_answer_is_said_in_a_sentence(
    record: Record, servers: tuple[ScriptedServer, ScriptedServer]
) -> None:
    folder = record()
    (folder / "desk.py").write_text(AGENT.replace('os.environ["DESK_URL"]', 'os.environ["NO_SUCH_URL"]'))
    code, _, err = improve(folder, servers)
    assert code == 7
    assert "the agent does not answer here: KeyError" in err
    assert servers[1].requests == []


def test_the_gate_has_inputs_and_people_that_the_search_does_not_see(record: Record) -> None:
    from whet.learn.datasets.signatures import read
    from whet.learn.datasets.thumbs import rated_runs, thumb_rows

    with Store(record() / "runs.db") as store:
        evidence = rated_runs(read(AGENT, "answer"), "answer", weighed(store.trajectories()))
    rows = thumb_rows(evidence, "answer", most=70, seed=1)
    searched = [task for task in rows.tasks if task.split is Split.TRAIN]
    assert not {task.instruction for task in searched} & {task.instruction for task in rows.gate}
    assert not {thumb.person for thumb in rows.search} & {thumb.person for thumb in rows.unseen}
    assert {task.group for task in rows.gate} <= {thumb.person for thumb in rows.unseen}
    assert len(rows.search) + len(rows.unseen) == len(rows.all) == 240
    disliked = next(task for task in searched if "disliked" in str(task.meta["said"]))
    assert "disliked '" in str(disliked.meta["said"])


def test_a_correction_is_a_thumb_for_what_should_have_been(tmp_path: Path) -> None:
    from whet.learn.datasets.signatures import read
    from whet.learn.datasets.thumbs import rated_runs

    run = Trajectory(
        id="a", task=Task(instruction="Is it red?"), output="Yes.", subject="ann", meta={"function": "answer"}
    )
    with Store(tmp_path / "runs.db") as store:
        store.put(run)
        store.add_feedback(Feedback(run="a", correction="No, blue.", kind="correction"))
        evidence = rated_runs(read(AGENT, "answer"), "answer", weighed(store.trajectories()))
    assert [(thumb.answer, thumb.up, thumb.person) for thumb in evidence.thumbs] == [
        ("Yes.", False, "ann"),
        ("No, blue.", True, "ann"),
    ]
    assert "1 corrected" in evidence.sentence


def test_one_of_five_stars_is_no_thumb_up_until_it_is_said_what_is_liked(tmp_path: Path) -> None:
    from whet.learn.datasets.signatures import read
    from whet.learn.datasets.thumbs import rated_runs
    from whet.record.tracing.labels import feedback_kind

    def evidence(values: list[float], liked_from: float | None = None) -> tuple[list[bool | None], str]:
        notes = [
            Feedback(run=str(n), value=v, kind=feedback_kind(None, v, UNSET)) for n, v in enumerate(values)
        ]
        runs = [
            Trajectory(
                id=note.run, task=Task(instruction=f"question {note.run}"), output="so", feedback=(note,)
            )
            for note in notes
        ]
        said = rated_runs(read(AGENT, "answer"), "answer", weighed(runs), liked_from=liked_from)
        ups = {run.run: run.up for run in said.runs}
        return [ups.get(note.run) for note in notes], said.sentence

    stars = [1.0, 2.0, 5.0, 1.0]
    ups, sentence = evidence(stars)
    assert ups == [None] * 4
    assert "4 runs rated on a scale, which count as no thumbs (--liked-from NUMBER" in sentence
    assert evidence(stars, 4.0)[0] == [False, False, True, False]
    # Thumbs beside ratings stay thumbs.
    assert evidence([1.0, -1.0, 3.0])[0] == [True, False, None]
    assert evidence([1.0, 1.0])[0] == [True, True]


def test_the_code_that_reads_a_prompt_from_a_file_is_refused_before_anything_is_asked(
    record: Record, servers: tuple[ScriptedServer, ScriptedServer]
) -> None:
    folder = record(people=20)
    desk = folder / "desk.py"
    (folder / "prompt.md").write_text(PROMPT)
    read = 'from pathlib import Path\n\nSYSTEM_PROMPT = Path(__file__).with_name("prompt.md").read_text()'
    desk.write_text(desk.read_text().replace(f'SYSTEM_PROMPT = "{PROMPT}"', read))
    code, out, err = improve(folder, servers, "--prompt", "SYSTEM_PROMPT")
    assert code == 2, out
    assert "desk:SYSTEM_PROMPT is not a text but code" in err
    assert "name the file that it is read from (--prompt FILE, or FILE:KEY)" in err
    assert [server.requests for server in servers] == [[], []]


def test_prompts_of_two_calls_are_improved_together(tmp_path: Path) -> None:
    """A note is taken of each question, and a letter written from it; each prompt lacks a rule."""
    letter, note = "You write the letters of a shop.", "You take notes for those who write."
    source = AGENT.replace(f'SYSTEM_PROMPT = "{PROMPT}"', f'LETTERS = "{letter}"\nNOTES = "{note}"')
    source = source.replace(
        "def answer(question: str) -> str:\n    messages",
        "def answer(question: str) -> str:\n"
        "    return asked(LETTERS, question + ' Note: ' + asked(NOTES, question))\n\n\n"
        "def asked(system: str, question: str) -> str:\n    messages",
    ).replace('"content": SYSTEM_PROMPT', '"content": system')
    (tmp_path / "desk.py").write_text(source)

    def notes(system: str, question: str) -> str:
        if "order" in question:
            return (
                "see its number"
                if RULES["order"] in system or chance_of(system, question) < 0.4
                else "see it"
            )
        return "nothing"

    def letters(system: str, asked: str) -> str:
        question, _, noted = asked.partition(" Note: ")
        if "order" in question:
            number = re.findall(r"\d+", question)[0]
            return f"Order {number} is sent." if "number" in noted else "It is on its way."
        right = RULES["warranty"] in system or chance_of(system, question) < 0.4
        return "The warranty is 3 years." if right else "The warranty is of course 3."

    def model(request: ModelRequest) -> str:
        system, text = (str(message["content"]) for message in request.messages)
        return letters(system, text) if "letters" in system else notes(system, text)

    def proposed(request: ModelRequest) -> str:
        shown = "\n".join(str(message["content"]) for message in request.messages)
        draw = random.Random(shown)
        lacking = [
            RULES[kind] for kind in ("warranty", "order") if kind in shown and RULES[kind] not in shown
        ]
        return draw.choice(["{}", *(f"CAUSE: unclear.\n- {rule}" for rule in lacking)])

    draw = random.Random(3)
    runs, thumbs = [], []
    for number, (person, question) in enumerate(questions(4)):
        if "price" in question:
            continue
        noted = notes(note, question)
        text = letters(letter, f"{question} Note: {noted}")
        right = "years" in text or "Order" in text
        sent = [(note, noted), (letter, text)]
        steps = [
            Step(kind="llm", observation=[{"role": "system", "text": system}], action=said)
            for system, said in sent
        ]
        runs.append(
            Trajectory(
                id=f"run-{number}",
                task=Task(instruction=question),
                output=text,
                subject=person,
                steps=steps,
                meta={"function": "answer"},
            )
        )
        value = 1.0 if right != (draw.random() < WRONG) else -1.0
        thumbs.append(Feedback(run=f"run-{number}", value=value))
    with Store(tmp_path / "runs.db") as store:
        store.put(*runs)
        store.add_feedback(*thumbs)
    with ScriptedServer(model) as agent, ScriptedServer(proposed) as proposer:
        code, out, err = improve(tmp_path, (agent, proposer), "--release", "--reflections", "16")
        assert code == 0, f"{out}\n{err}"
    assert "other calls of its model have desk:" in out
    report = json.loads((tmp_path / "whet_output" / "verdict.json").read_text())
    after = {report["prompt"]: report["after"], **report["beside"]}
    assert RULES["warranty"] in after["desk.LETTERS"]
    assert RULES["order"] in after["desk.NOTES"]
    with Store(tmp_path / "runs.db") as store:
        live = store.live()
        assert live is not None
        assert live["gateway.system_prompt"].content == {
            "passages": {letter: after["desk.LETTERS"], note: after["desk.NOTES"]}
        }
    patch = (tmp_path / "whet_output" / "agent.patch").read_text()
    assert RULES["warranty"] in patch
    assert RULES["order"] in patch


def test_an_agent_that_stops_answering_ends_the_command_and_no_answer_is_asked_for_twice(
    record: Record, servers: tuple[ScriptedServer, ScriptedServer]
) -> None:
    folder = record()
    answered = 0

    def failing(request: ModelRequest) -> str | Reply:
        nonlocal answered
        answered += 1
        return desk(request) if answered <= 60 else Reply(status=401)

    with ScriptedServer(failing) as agent:
        code, out, err = improve(folder, (agent, servers[1]), "--reflections", "6")
        assert code == 7, f"{out}\n{err}"
        assert "the agent no longer answers: HTTPError" in err
        assert "run the same command again" in err
        paid = [request.body for request in agent.requests[:60]]
    code, out, err = improve(folder, servers, "--reflections", "6")
    assert code in (0, 1), f"{out}\n{err}"
    asked = [request.body for request in servers[0].requests]
    assert asked, "what the failing one did not answer"
    assert not [body for body in asked if body in paid]
    # It came to its end, so the agent is asked anew.
    improve(folder, servers, "--reflections", "6")
    assert len(servers[0].requests) > 2 * len(asked)


def test_a_model_that_proposes_one_thing_is_asked_no_more(
    record: Record, servers: tuple[ScriptedServer, ScriptedServer]
) -> None:
    with ScriptedServer(lambda request: "Great question! Prompts matter a lot.") as chatting:
        code, out, _ = improve(record(), (servers[0], chatting))
        assert code == 1
        assert len(chatting.requests) == 8
        assert "all of which held one and the same: another model may propose better" in out


def test_a_model_that_stops_answering_is_asked_no_more_and_what_it_said_is_used(
    record: Record, servers: tuple[ScriptedServer, ScriptedServer]
) -> None:
    heard = 0

    def failing(request: ModelRequest) -> str | Reply:
        nonlocal heard
        heard += 1
        return adviser(request) if heard <= 2 else Reply(status=401)

    with ScriptedServer(failing) as proposer:
        _, out, _ = improve(record(), (servers[0], proposer), "--reflections", "20")
        # A key that is refused once is refused always.
        assert len(proposer.requests) == 3
    assert "the model that proposes no longer answers" in out
    assert "HTTP 401" in out


@pytest.mark.parametrize(
    ("subject", "value", "says"),
    [
        ("person-1", None, "all thumbs are of one person"),
        ("", 1.0, "all thumbs are up, so nothing tells liked answers from disliked ones"),
        ("", -1.0, "all thumbs are down, so nothing tells liked answers from disliked ones"),
    ],
)
def test_thumbs_that_can_tell_nothing_are_refused_in_a_sentence(
    record: Record,
    servers: tuple[ScriptedServer, ScriptedServer],
    subject: str,
    value: float | None,
    says: str,
) -> None:
    folder = record(thumbs=value is None, subject=subject)
    if value is not None:
        with Store(folder / "runs.db") as store:
            runs = list(store.trajectories())
            store.add_feedback(*(Feedback(run=run.id, value=value) for run in runs))
    code, out, err = improve(folder, servers)
    assert code == 1, f"{out}\n{err}"
    assert f"nothing was spent: {says}" in out
    assert not servers[0].requests
