"""Settings beside the code: the values around theirs, and what a model makes of a file that those do not reach."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from whet.autopilot.night import NightBudget
from whet.autopilot.pilot import Autopilot, PilotOptions, settings_of
from whet.learn.evolution.agents.agent import RepositoryAgent
from whet.learn.evolution.repair.planning import RatedTraffic, plan_repair
from whet.learn.evolution.repair.suspects import PieceKind, WeakPart, suspects_of, telling_words
from whet.learn.evolution.repair.values import values_near
from whet.models import ScriptedModel
from whet.models.base import ModelRequest
from whet.record.influence import weighed
from whet.record.store import Store
from whet.record.store.issues import AgentIssue, Component
from whet.types import Feedback, Step, Task, Trajectory

AGENT = '''"""The desk of a works."""
import tomllib
from pathlib import Path

RULES = tomllib.loads((Path(__file__).parent / "settings.toml").read_text())["rules"]


def answer(question):
    number = int(question.split()[-1].rstrip("?"))
    if "notice" not in question:
        return f"Counter {number % 7} is open."
    return f"Give notice by day {number + 40 - RULES['notice_days']}, please."
'''
SETTINGS = "[rules]\nnotice_days = 4  # before somebody leaves\ncounters = 7\n"


def notices(store: Store) -> Sequence[AgentIssue]:
    runs = [run.id for run in store.trajectories() if "notice" in run.task.instruction]
    issue = AgentIssue(
        id="issue",
        name="Notices come too late",
        component=Component.MODEL,
        runs=runs,
        affected=60,
        traffic=0.5,
    )
    store.issues.put(issue)
    return [issue]


def test_a_model_mends_a_setting_whose_right_value_is_none_of_those_around(tmp_path: Path) -> None:
    root = tmp_path / "agent"
    root.mkdir()
    (root / "desk.py").write_text(AGENT, encoding="utf-8")
    (root / "settings.toml").write_text(SETTINGS, encoding="utf-8")
    store = Store(tmp_path / "runs.db")
    runs, notes = [], []
    for number in range(120):
        notice = number % 2 == 0
        question = f"{'By when is notice' if notice else 'Which counter is open'} for flat {number}?"
        wrong = number % 6
        text = f"Give notice by day {number + 36}, please." if notice else f"Counter {number % 7} is open."
        if notice and not wrong:
            text = f"Give notice by day {number + 26}, please."
        id = f"run-{number:03}"
        run = Trajectory(
            id=id, task=Task(instruction=question, meta={"source": "gateway"}), output=text,
            subject=f"p{number % 23}", started=1_000.0 + number, meta={"source": "gateway", "run": id},
        )  # fmt: skip
        runs.append(run)
        liked = not notice or not wrong
        notes.append(Feedback(run=id, value=1.0 if liked else -1.0, id=f"thumb-{id}", at=run.started))
    store.put(*runs)
    store.add_feedback(*notes)

    def proposes(request: ModelRequest) -> str:
        text = "\n".join(str(each["content"]) for each in request.messages)
        old = next((line for line in text.splitlines() if line.startswith("notice_days")), "")
        new = old.replace("= 4 ", "= 14 ")
        # What is wrong stands in the record and in no row.
        old = old if "Notices come too late" in text else ""
        return f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE" if old else "I do not know."

    repair = settings_of(
        root / "desk.py", entry="desk:answer", output=tmp_path / "out", regime="exchangeable"
    )
    options = PilotOptions(repair=repair)
    model = ScriptedModel(proposes)
    pilot = Autopilot(store, options, NightBudget(), notices, model=model, clock=lambda: 10_000.0)
    for _ in range(3):
        asyncio.run(pilot.step())
    assert store.count("trajectories") + 120 > 1.25 * 240, (
        "its own runs are no traffic, and nothing to look at anew"
    )
    assert not asyncio.run(pilot.step())
    work = store.state("autopilot/work/issue")
    assert work["stage"] in ("to try", "proposed"), work
    tried = [work["bundle"], *work["others"]]
    texts = [
        str(store.bundle(id)["settings.toml"].content) for id in tried if "settings.toml" in store.bundle(id)
    ]
    assert SETTINGS.replace("= 4 ", "= 14 ") in texts


@pytest.mark.parametrize(
    ("text", "value", "other"),
    [
        ("[a]\nrounds = 4   # of tools\n", "rounds = 4 ", "rounds = 8 "),
        ("a:\n  warm: true\n  rounds: 4\n", "rounds: 4", "rounds: 8"),
        ("[a]\nrounds = 40\n", "rounds = 40", "rounds = 4"),
        ("rate: 0.25", "rate: 0.25", "rate: 0.025"),
        ('{"note": "rounds: 4, or so",\n "rounds": 4}', '"rounds": 4', '"rounds": 8'),
    ],
)
def test_values_of_settings_in_toml_yaml_and_ini_are_turned(text: str, value: str, other: str) -> None:
    changed = values_near(text, ())
    assert text.replace(value, other) in changed
    assert all("rounds: 4, or so" in each for each in changed if "note" in text)


def test_a_private_function_is_suspected_where_a_tool_that_was_called_uses_it(tmp_path: Path) -> None:
    source = (
        "def _total(bill):\n    return bill['amount']\n\n\ndef _unused(bill):\n    return 'a bill, a bill'\n\n\n"
        "@tool\ndef bill_sum(bill):\n    return _total(bill)\n\n\ndef answer(question):\n    return question\n"
    )
    (tmp_path / "desk.py").write_text(source, encoding="utf-8")
    step = Step(kind="tool", name="bill_sum", id="1")
    runs = [
        Trajectory(id=str(n), task=Task(instruction="What is the bill?"), steps=(step,)) for n in range(9)
    ]
    part = WeakPart(issue="i", component="tool", runs=frozenset(run.id for run in runs))
    names = [
        each.name for each in suspects_of(tmp_path, "desk:answer", part, runs, telling_words(part, runs))
    ]
    assert names == ["desk:bill_sum", "desk:_total"]


@pytest.mark.parametrize("searched", [(), ("desk:bill_sum",)])
def test_where_a_tool_fails_it_is_searched_before_what_has_the_agent_say_something_else(
    tmp_path: Path, searched: Sequence[str]
) -> None:
    source = (
        'PROMPT = """You work at the desk of bills. Be kind, and say what a bill is."""\n\n\n'
        "@tool\ndef bill_sum(bill):\n    return bill['amount']\n\n\n"
        "@tool\ndef bill_due(bill):\n    return bill['due']\n\n\ndef answer(question):\n    return PROMPT + question\n"
    )
    (tmp_path / "desk.py").write_text(source, encoding="utf-8")
    steps = [Step(kind="tool", name=name, id=name) for name in ("bill_sum", "bill_due")]
    task = Task(instruction="What is the bill?")
    runs = [Trajectory(id=str(n), task=task, steps=steps) for n in range(9)]
    part = WeakPart(
        issue="i",
        component="tool",
        runs=frozenset(run.id for run in runs),
        failing="bill_sum",
        searched=searched,
    )
    suspects = suspects_of(tmp_path, "desk:answer", part, runs, telling_words(part, runs))
    others = {"desk:PROMPT", "desk:bill_due"} if searched else set()
    assert {suspect.name for suspect in suspects} == {"desk:bill_sum"} | others


def test_examples_in_lines_of_json_may_change_and_logs_are_none(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "desk.py").write_text("def answer(question):\n    return question\n", encoding="utf-8")
    for name in ("prompts/few.jsonl", "seen.jsonl"):
        (tmp_path / name).write_text('{"question": "How much?", "answer": "12 kWh."}\n', encoding="utf-8")
    runs = [Trajectory(id=str(n), task=Task(instruction="How much?")) for n in range(9)]
    part = WeakPart(issue="i", component="data", runs=frozenset(run.id for run in runs))
    suspects = suspects_of(tmp_path, "desk:answer", part, runs, telling_words(part, runs))
    assert [(each.name, each.kind) for each in suspects] == [("prompts/few.jsonl", PieceKind.DATA)]
    agent = RepositoryAgent(tmp_path, ["prompts/few.jsonl"], "desk:answer", network=True)
    before = agent.source
    (tmp_path / "seen.jsonl").write_text('{"question": "Once more?"}\n', encoding="utf-8")
    assert RepositoryAgent(tmp_path, [], "desk:answer", network=True).source == before
    (tmp_path / "prompts/few.jsonl").write_text("{}\n", encoding="utf-8")
    assert RepositoryAgent(tmp_path, [], "desk:answer", network=True).source != before


@pytest.mark.parametrize(
    "source",
    [
        '@tool\ndef price(article):\n    """The price of an article."""\n    return 12 / 10\n',
        "def price(article):\n    return 12 / 10\n\n\n"
        'TOOLS = [{"type": "function", "function": {"name": "price", "description": "The price of an article."}}]\n',
    ],
)
def test_what_a_tool_does_may_change_and_not_only_what_it_says_of_itself(tmp_path: Path, source: str) -> None:
    entry = "\n\ndef answer(question):\n    return question\n"
    (tmp_path / "desk.py").write_text(source + entry, encoding="utf-8")
    [piece] = RepositoryAgent(tmp_path, ["desk:price"], "desk:answer", network=True).pieces
    assert piece.code
    assert "12 / 10" in piece.text
    [said] = RepositoryAgent(tmp_path, ["price"], "desk:answer", network=True).pieces
    assert said.text.strip() == "The price of an article."


ROUTES = """phrase,topic,weight
street lamp,technician,2
my lamp,lamp,2
"lamp, bright",lamp,1
first visit,technician,2
water there,hardness,1
"""
PLANS = """lamp = { do = ["brief", "tell"], tools = ["lamp"] }
cost = { do = ["brief", "gather", "tell"], tools = ["price"] }
"""


def _change(before: str, after: str) -> tuple[str, str]:
    """The one line that differs, before and after."""
    ((old, new),) = [
        pair for pair in zip(before.splitlines(), after.splitlines(), strict=True) if pair[0] != pair[1]
    ]
    return old, new


def test_a_cell_of_a_table_is_exchanged_for_what_its_row_speaks_of() -> None:
    first, *others = values_near(ROUTES, {"street", "lamp"}, table=True)
    assert _change(ROUTES, first) == ("street lamp,technician,2", "street lamp,lamp,2")
    lines = [_change(ROUTES, other)[1] for other in others]
    assert "street lamp,hardness,2" in lines
    assert "street lamp,technician,4" in lines
    assert '"lamp, bright",technician,1' in lines, "a comma between quotes parts no cells"
    assert not any("water there" in line for line in lines)


@pytest.mark.parametrize("text", ["", "phrase,topic\n", "no table\nat all\n\n", 'a,b\n"open,c\nd,e\n'])
def test_what_is_no_table_has_no_other_cells(text: str) -> None:
    assert values_near(text, {"open"}, table=True) == []


def test_numbers_of_a_table_are_those_around_and_a_telephone_number_is_none() -> None:
    prices = "place,price,rate,phone\nhall,0.5,0,0848\nyard,12,-1.25,0849\nroof,007,3,0850\n"
    lines = {_change(prices, each)[1] for each in values_near(prices, {"hall", "yard", "roof"}, table=True)}
    assert {"hall,1.0,0,0848", "yard,24,-1.25,0849", "yard,12,-2.5,0849", "roof,007,6,0850"} <= lines
    assert not [line for line in lines if line.split(",")[3] not in ("0848", "0849", "0850")]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_stands_in_a_file_of_values_no_other_value_is_a_failure(seed: int) -> None:
    chance = random.Random(seed)
    parts = [
        *"0123456789.,;\t|-+=:[]{}()\"'#\n\n ",
        "true",
        "null",
        "name",
        "Zähler",
        "1e9",
        "-0",
        "00",
        ".5",
        "[a]\n",
        '["x", "y"]',
    ]
    text = "".join(chance.choice(parts) for _ in range(400))
    for table in (True, False):
        for each in values_near(text, {"name", "zähler", "x"}, table=table, functions=["x", "step"]):
            assert each != text


def test_a_plan_gets_the_step_back_that_no_list_names_any_more() -> None:
    changed = values_near(PLANS, {"cost"}, functions=["lamp", "price", "yearly_cost"])
    lines = [_change(PLANS, each)[1] for each in changed]
    begin = 'cost = { do = ["brief", "gather", "tell"], tools = '
    assert lines.index(f'{begin}["price", "yearly_cost"] }}') < lines.index(f'{begin}["price", "lamp"] }}')
    assert f"{begin}[] }}" in lines
    unnamed = values_near(PLANS, {"cost"}, functions=["tell_a_joke"])
    assert not any("tell_a_joke" in each for each in unnamed), "`tools` holds no functions of these"


@pytest.mark.parametrize(
    ("row", "lacks"),
    [('cost = {{ do = ["tell"]{} }}', ", finish = {}"), ('"cost": {{"do": ["tell"]{}}},', ', "finish": {}')],
)
def test_a_plan_gets_a_list_that_other_plans_have(row: str, lacks: str) -> None:
    other, local = lacks.format('["round"]'), lacks.format('["local_date"]')
    text = "\n".join(
        row.replace("cost", topic).format(finish)
        for topic, finish in (("cost", ""), ("water", other), ("heat", other), ("due", local))
    )
    lines = [_change(text, each)[1] for each in values_near(text, {"cost"})]
    assert lines.index(row.format(other)) < lines.index(row.format(local)), "what most have comes first"


def test_words_of_other_languages_tell_a_part_of_the_traffic() -> None:
    runs = [Trajectory(id=f"r{n}", task=Task(instruction="Wann wird der Zähler gelesen?")) for n in range(4)]
    runs += [Trajectory(id=f"o{n}", task=Task(instruction="Wann kommt der Strom?")) for n in range(4)]
    part = WeakPart(issue="i", component="tool", runs=frozenset(f"r{n}" for n in range(4)))
    assert "zähler" in telling_words(part, runs)


def test_what_a_variant_does_to_the_rest_is_seen_on_all_that_the_rest_is_answered(tmp_path: Path) -> None:
    """Most people ask the same, and a rule that spoils everything else would hardly be seen there."""
    (tmp_path / "desk.py").write_text(AGENT, encoding="utf-8")
    (tmp_path / "settings.toml").write_text(SETTINGS, encoding="utf-8")
    said = [("By when is notice for flat {}?", "Give notice by day 40, please.", -1.0)] * 30
    said += [("Which counter is open for flat {}?", "Counter 3 is open.", 1.0)] * 300
    said += [(f"What is the price of thing {n} in {{}}?", f"It is {n}.50 francs.", 1.0) for n in range(30)]
    runs = []
    for number, (question, answer, value) in enumerate(said):
        id = f"run-{number}"
        note = Feedback(run=id, value=value, id=f"thumb-{id}", at=float(number))
        task = Task(instruction=question.format(number), meta={"source": "gateway"})
        runs.append(Trajectory(id=id, task=task, output=answer, subject=f"p{number % 31}", feedback=[note]))
    part = WeakPart(issue="i", component="model", runs=frozenset(run.id for run in runs[:30]))
    settings = settings_of(tmp_path / "desk.py", entry="desk:answer", output=tmp_path / "out")
    plan = plan_repair(part, settings, RatedTraffic(weighed(runs)), unseen=())
    answers = [task.meta["liked"] for task in plan.liked]
    assert len({*answers}) == 31
    assert answers.count("Counter 3 is open.") <= 10
