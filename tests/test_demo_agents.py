"""The agents of the main job: the outside program, its wiring, recorded work by slot, and users' thumbs."""

from __future__ import annotations

import asyncio
import difflib
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from whet import Store
from whet.record.env import rollout
from whet.types import Bundle, Group, Score, Task, Trajectory, Version
from whet.worlds.demo.agents import IDS, MailAgents, load_agent
from whet.worlds.demo.proof import as_text
from whet.worlds.demo.report import html
from whet.worlds.demo.teachers import as_slots, calls_of, lessons
from whet.worlds.demo.users import Users
from whet.worlds.email import MailEnv, MailWorld, derive, generate, same, write
from whet.worlds.email.slots import END, TOKENS, SlotView


@pytest.fixture(scope="module")
def world() -> MailWorld:
    return MailWorld(generate(2, mailboxes=4, mails=80))


@pytest.fixture(scope="module")
def runs(world: MailWorld) -> list[Trajectory]:
    """What the agent as it came did on 60 questions."""
    agents = MailAgents(world)
    tasks = derive(world, mailboxes=list(world.mailboxes), seed=0)[:60]

    async def all_of_them() -> list[Trajectory]:
        return [
            await rollout(MailEnv(world), agents(Bundle(), 0), task, seed=0, id=task.id) for task in tasks
        ]

    return asyncio.run(all_of_them())


def test_the_example_agent_knows_nothing_of_whet(repository: Path) -> None:
    files = [*(repository / "examples" / "mail_agent").rglob("*.py"), repository / "examples" / "ask.py"]
    assert len(files) >= 4
    for file in files:
        assert not re.search(r"\bwhet\b", file.read_text(encoding="utf-8"), re.IGNORECASE), file


def test_wiring_it_up_takes_at_most_three_added_lines_of_code(repository: Path) -> None:
    before, after = (
        (repository / "examples" / name).read_text(encoding="utf-8").splitlines()
        for name in ("ask.py", "ask_with_whet.py")
    )
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "+-" and line[2:].strip()]
    assert 0 < len(changed) <= 3
    assert all(line.startswith("+") for line in changed)


def asked(entry: Path, folder: Path, question: str) -> str:
    """What one of the example's entry files prints."""
    command = [sys.executable, str(entry), str(folder / "mail"), question]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_every_order_of_the_rule_works_with_the_examples_own_inbox(
    repository: Path, tmp_path: Path, world: MailWorld, runs: list[Trajectory]
) -> None:
    write(world.mailboxes[runs[0].task.group], tmp_path / "mail")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from mail_agent import agent\nfrom mail_agent.tools import Inbox\n"
        "for order in ('relevance', 'words', 'clues'):\n"
        "    agent.RULE['order'] = order\n    print(agent.answer(sys.argv[3], Inbox(sys.argv[2])))\n"
    )
    known = next(run for run in runs if run.task.group == runs[0].task.group and run.task.answer)
    words = (str(repository / "examples"), str(tmp_path / "mail"), known.task.instruction)
    subprocess.run([sys.executable, "-c", program, *words], check=True, capture_output=True, text=True)


def test_the_example_runs_alone_on_a_folder_of_mails_and_is_traced_when_wired_up(
    repository: Path, tmp_path: Path, world: MailWorld, runs: list[Trajectory]
) -> None:
    examples = repository / "examples"
    mailbox = runs[0].task.group
    write(world.mailboxes[mailbox], tmp_path / "mail")
    exact = [
        run.task
        for run in runs
        if run.task.group == mailbox and run.task.meta["tier"] == "exact" and run.task.answer is not None
    ][:4]
    said = [asked(examples / "ask.py", tmp_path, task.instruction) for task in exact]
    right = [
        same(task.meta["kind"], text.splitlines()[0], task.answer)
        for task, text in zip(exact, said, strict=True)
    ]
    assert sum(right) >= 2
    assert not (tmp_path / "runs.db").exists()
    assert asked(examples / "ask_with_whet.py", tmp_path, exact[0].instruction) == said[0]
    with Store(tmp_path / "runs.db") as store:
        (recorded,) = store.trajectories()
    assert recorded.output == said[0].rstrip("\n")


def test_recorded_work_rewritten_by_slot_decodes_to_the_same_tool_calls(
    world: MailWorld, runs: list[Trajectory]
) -> None:
    agent = load_agent()
    rewritten = 0
    for run in runs:
        slots = as_slots(run, world, agent, Bundle())
        if slots is None:
            continue
        rewritten += 1
        inbox = world.inbox(run.task)
        view = SlotView(agent.parse(run.task.instruction, agent.PARSER), inbox)
        view.opening()
        for call, step in zip(calls_of(run), slots.steps, strict=True):
            decoded = view.decode(step.action.split())
            assert decoded["tool"] == call["tool"]
            assert decoded.get("id") == call.get("id")
            assert view.encode(decoded) == step.action.split()
            if call["tool"] == "search":
                assert set(decoded["words"]) <= set(call["words"])
                given = {key: call[key] for key in ("sender", "month") if call.get(key)}
                view.observe_search(
                    [hit.id for hit in inbox.search(call["words"], match=call["match"], **given)]
                )
            elif call["tool"] == "read":
                view.observe_read(call["id"])
    assert rewritten > len(runs) / 2


def test_a_lesson_carries_each_decision_after_all_that_was_seen_before_it(
    world: MailWorld, runs: list[Trajectory]
) -> None:
    taught = lessons([Group(run.task, (run,)) for run in runs], world, load_agent(), Bundle())
    assert taught
    for group in taught:
        context: tuple[int, ...] = ()
        for step in group.trajectories[0].steps:
            assert step.tokens is not None
            assert step.tokens.prompt_ids[: len(context)] == context
            assert step.tokens.output_ids[-1] == IDS[END]
            assert all(index < len(TOKENS) for index in step.tokens.prompt_ids)
            context = step.tokens.prompt_ids + step.tokens.output_ids


def test_work_on_a_mail_that_was_not_shown_has_no_form_by_slot(
    world: MailWorld, runs: list[Trajectory]
) -> None:
    read = next(run for run in runs if any(step.name == "read" for step in run.steps))
    hidden = [
        replace(step, observation={"id": "no-such-mail"}) if step.name == "read" else step
        for step in read.steps
    ]
    assert as_slots(read, world, load_agent(), Bundle()) is not None
    assert as_slots(replace(read, steps=tuple(hidden)), world, load_agent(), Bundle()) is None


def thumbed(count: int, success: float) -> list[Trajectory]:
    runs = (
        Trajectory(task=Task(instruction="?", id=f"{k}"), id=f"run{k}", started=0.0) for k in range(count)
    )
    return [run.scored(Score("success", success)) for run in runs]


def test_thumbs_depend_on_the_question_the_agent_and_the_seed_alone() -> None:
    rated = [Users(seed=3).thumb(one) for one in thumbed(200, 1.0)]
    again = [Users(seed=3).thumb(replace(one, id=f"another {one.id}")) for one in thumbed(200, 1.0)]
    assert [thumb and thumb.value for thumb in rated] == [thumb and thumb.value for thumb in again]
    other = [Users(seed=3).thumb(replace(one, versions={"rule": "another"})) for one in thumbed(200, 1.0)]
    assert [thumb and thumb.value for thumb in rated] != [thumb and thumb.value for thumb in other]
    assert rated == [Users(seed=3).thumb(one) for one in thumbed(200, 1.0)]
    assert rated != [Users(seed=4).thumb(one) for one in thumbed(200, 1.0)]


def test_users_rate_some_runs_and_are_sometimes_wrong() -> None:
    for success, right in ((1.0, 1.0), (0.0, -1.0)):
        thumbs = [thumb for one in thumbed(4000, success) if (thumb := Users().thumb(one))]
        assert len(thumbs) / 4000 == pytest.approx(0.4, abs=0.03)
        assert sum(thumb.value == right for thumb in thumbs) / len(thumbs) == pytest.approx(0.85, abs=0.03)


def test_coin_flips_say_nothing_of_success_and_come_on_the_same_runs() -> None:
    right, wrong = thumbed(3000, 1.0), thumbed(3000, 0.0)
    flipped = [Users(coin=True).thumb(one) for one in right]
    assert flipped == [Users(coin=True).thumb(one) for one in wrong]
    assert [bool(thumb) for thumb in flipped] == [bool(Users().thumb(one)) for one in right]
    values = [thumb.value for thumb in flipped if thumb]
    assert abs(sum(values) / len(values)) < 0.08


def test_a_run_that_was_not_judged_gets_no_thumb() -> None:
    users, task = Users(rate=1.0), Task(instruction="?")
    assert users.thumb(Trajectory(task=task, id="run").scored(Score("success", 1.0)))
    assert not users.thumb(Trajectory(task=task, id="run"))
    assert not users.thumb(Trajectory(task=task, id="run").scored(Score("success", None)))


HOSTILE = '<script>alert(1)</script> & <img src=x onerror=alert(2)> "quoted"'


def test_markup_in_a_mail_is_text_in_the_report() -> None:
    mails = generate(4, mailboxes=3, mails=40)
    first = mails[0]
    mails[0] = replace(first, subject=HOSTILE)
    world = MailWorld(mails)
    agents = MailAgents(world)
    sender = first.sender
    task = Task(
        instruction=f'What was the subject of the mail from {sender} about "{HOSTILE}"?',
        initial_state={"mailboxes": [first.mailbox]},
        meta={"kind": "subject", "tier": "exact"},
    )
    always = Bundle([Version(resource="rule", content={**load_agent().RULE, "lacks": 0.9})])
    run = asyncio.run(rollout(MailEnv(world), agents(always, 0), task, seed=0))
    assert run.error is None
    figures = {"success": 1.0, "hallucination": 0.0, "idk_answerable": None, "idk_unanswerable": None}
    tiers = {
        name: {**figures, "turns": 2.0, "n": 1, "interval": [0.0, 1.0]}
        for name in ("mix", "exact", "vague", "hard")
    }
    line = {
        "name": HOSTILE,
        "learns_from": HOSTILE,
        "figures": tiers,
        "rollouts": 0,
        "lift": None,
        "seconds": 0.0,
    }
    verdict = {
        "promote": False,
        "effect": 0.0,
        "interval": [0, 0],
        "e_value": 1.0,
        "n": 1,
        "against": HOSTILE,
    }
    page = html(
        {
            "seed": 0,
            "seconds": 1.0,
            "cpu_seconds": 1.0,
            "verdict": {**verdict, "reasons": [HOSTILE]},
            "released": HOSTILE,
            "judged": HOSTILE,
            "stages": {"weak": tiers, "released": tiers},
            "about": HOSTILE,
            "held_out": HOSTILE,
            "learners": [line],
            "composition": [HOSTILE],
            "owners": {"agents": [HOSTILE], "rows": [[HOSTILE, "1", "0"]]},
            "curves": {HOSTILE: {HOSTILE: [(1.0, 0.5), (2.0, 0.6)], "other": [(1.0, 0.1)]}},
            "diffs": {HOSTILE: f"+{HOSTILE}\n {HOSTILE}\n"},
            "importances": [(HOSTILE, 1.0)],
            "route": HOSTILE,
            "examples": [
                {"question": task.instruction, "truth": HOSTILE, "before": as_text(run), "after": HOSTILE}
            ],
            "timings": [{"stage": HOSTILE, "seconds": 1.0, "cpu_seconds": 1.0, "rollouts": 0}],
            "notes": [HOSTILE],
        }
    )
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page
    assert "<img" not in page
    assert not re.search(r"aria-label=\"[^\"]*<", page)
