"""Variants of a repair that people are asked about: they answer differently, and likelier ones come first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whet.autopilot.trial import AgentSource, entries_merged, lines_merged, mark_of
from whet.judge.fitted import Rated
from whet.learn.evolution.agents.agent import RepositoryAgent
from whet.learn.evolution.repair.steering import AnswersElsewhere, Steer
from whet.learn.evolution.repair.suspects import PieceKind, WeakPart, suspects_of, telling_words
from whet.learn.evolution.repair.variants import VariantPool
from whet.types import Bundle, Group, Score, Step, Task, Trajectory, Version

START = Bundle([Version(resource="route", content="orders"), Version(resource="convert", content="a / b")])


def variant(**changed: str) -> Bundle:
    return START.put(*(Version(resource=name, content=text) for name, text in changed.items()))


def answered(pool: VariantPool, bundle: Bundle, answers: list[tuple[str, float]]) -> None:
    groups = []
    for number, (answer, value) in enumerate(answers):
        task = Task(id=f"row-{number}", instruction=f"question {number}")
        run = Trajectory(
            id=f"{bundle.id}-{number}", task=task, output=answer, scores={"liked": Score("liked", value)}
        )
        groups.append(Group(task, (run,)))
    pool.note(bundle, groups)


def test_variants_are_kept_once_for_each_way_of_answering_and_of_every_piece_the_best_first() -> None:
    pool = VariantPool(START, "liked", [f"row-{number}" for number in range(4)], ())
    answered(pool, START, [("sorry", 0.0)] * 4)
    sales, advice, same = variant(route="sales"), variant(route="advice"), variant(route="service")
    mended, worse, hasty = variant(convert="b / a"), variant(convert="a"), variant(convert="b")
    answered(pool, sales, [("fifty", 0.6)] * 4)
    answered(pool, advice, [("loamy", 0.7)] * 4)
    answered(pool, same, [("fifty", 0.6)] * 4)
    answered(pool, mended, [("3 litres", 0.65)] * 4)
    answered(pool, worse, [("sorry", 0.0)] * 4)
    answered(pool, hasty, [("9 litres", 1.0)] * 2)
    assert pool.best() == [advice, mended, sales], "`hasty` was run on too few rows to say anything"


def test_a_variant_that_leaves_most_disliked_answers_is_no_repair() -> None:
    """A model slips on other rows under any other prompt; on a trial beside others it would get what they earn."""
    pool = VariantPool(START, "liked", [f"row-{number}" for number in range(10)], ())
    answered(pool, START, [("sorry", 0.0)] * 10)
    answered(pool, variant(route="sales"), [("fifty", 0.9)] * 2 + [("sorry", 0.0)] * 8)
    assert pool.best() == []
    answered(pool, variant(convert="b / a"), [("3 litres", 0.5)] * 3 + [("sorry", 0.0)] * 7)
    assert pool.best() == [variant(convert="b / a")]


@pytest.mark.parametrize(("prompts", "kept"), [((), False), (("convert",), True)])
def test_a_tool_that_gives_nothing_any_more_is_no_repair(prompts: tuple[str, ...], kept: bool) -> None:
    """It changes every disliked answer, as its repair does; a prompt may rightly have nothing known."""
    pool = VariantPool(START, "liked", [f"row-{number}" for number in range(20)], prompts)
    elsewhere = [(f"It is open on day {number}.", 0.9) for number in range(12)]
    answered(pool, START, [*((f"{number} litres", 0.1) for number in range(8)), *elsewhere])
    nothing, mended = variant(convert="{}"), variant(convert="b / a")
    answered(pool, nothing, [*[("I do not know this.", 0.6), ("About twenty.", 0.6)] * 4, *elsewhere])
    assert list(pool.mended()) == []
    assert pool.best() == [nothing] * kept
    answered(pool, mended, [*((f"{number + 1} litres", 0.5) for number in range(8)), *elsewhere])
    assert list(pool.mended()) == [mended]
    assert mended in pool.best()


def test_of_variants_that_gain_the_same_the_one_that_others_agree_with_goes_first() -> None:
    """A limit of words: one more word changes every answer, and from some limit on none changes any more."""
    pool = VariantPool(START, "liked", [f"row-{number}" for number in range(4)], ())
    answered(pool, START, [("Take the", 0.0)] * 4)
    one, enough, more = variant(convert="11"), variant(convert="40"), variant(convert="100")
    answered(pool, one, [("Take the ladder", 0.52)] * 4)
    answered(pool, enough, [("Take the ladder and climb.", 0.5)] * 4)
    answered(pool, more, [("Take the ladder and climb.", 0.5)] * 4)
    assert pool.best() == [enough, one]


def test_facts_that_two_repairs_take_out_of_the_same_lists_are_both_gone() -> None:
    old = {"anna": ["size: 7", "points: 30", "size: tiny", "points: 7"], "ben": ["points: 4", "points: 7"]}
    less = {name: [fact for fact in facts if fact != "size: tiny"] for name, facts in old.items()}
    fewer = {name: [fact for fact in facts if fact != "points: 7"] for name, facts in old.items()}
    now, before, after = (json.dumps(each, indent=1) + "\n" for each in (less, old, fewer))
    both = {"anna": ["size: 7", "points: 30"], "ben": ["points: 4"]}
    assert entries_merged(now, before, after) == json.dumps(both, indent=1) + "\n"
    more = (
        json.dumps({**old, "ben": ["points: 4", "points: 7", "size: 9"], "cleo": ["size: 8"]}, indent=1)
        + "\n"
    )
    assert json.loads(entries_merged(now, before, more) or "") == {
        **less, "ben": ["points: 4", "points: 7", "size: 9"], "cleo": ["size: 8"],
    }  # fmt: skip
    other = json.dumps({**old, "ben": "nobody"}, indent=1) + "\n"
    assert entries_merged(json.dumps({**old, "ben": []}, indent=1) + "\n", before, other) is None


def test_rows_beside_each_other_that_two_repairs_change_stand_as_changed_and_once() -> None:
    old = "article,price,weight\nhose,1605,7\ntrimmer,103,\npump,113,2\nauger,2145,7\n"
    prices = old.replace("1605", "160").replace("2145", "214")
    weights = old.replace("103,\n", "103,5\n")
    both = "article,price,weight\nhose,160,7\ntrimmer,103,5\npump,113,2\nauger,214,7\n"
    assert lines_merged(prices, old, weights) == lines_merged(weights, old, prices) == both
    assert lines_merged(both, old, weights) == both, "what stands already is not put in again"
    assert lines_merged(prices, old, old.replace("1605", "16")) is None
    prompt = "Be kind.\nUse the tools."
    assert lines_merged(f"{prompt}\nName the month.", prompt, f"{prompt}\nName the animal.") == (
        f"{prompt}\nName the month.\nName the animal."
    )
    assert lines_merged(f"{prompt}\nName it.", prompt, f"{prompt}\nName it.") == f"{prompt}\nName it."
    two = f"{prompt}\nName it.\nGive euros."
    assert lines_merged(two, prompt, f"{prompt}\nGive euros.") == two, (
        "a rule that stands already comes in once"
    )


def run_of(answer: str) -> Trajectory:
    task = Task(id="row", instruction="Is ivy poisonous?", initial_state={"input": "Is ivy poisonous?"})
    return Trajectory(id="run", task=task, output=answer, steps=(Step(action=answer),))


@pytest.mark.parametrize("shuffled", [False, True])
def test_an_answer_that_people_dislike_elsewhere_is_no_repair_here(shuffled: bool) -> None:
    elsewhere = [(f"It costs {price} euros.", True) for price in range(20)]
    elsewhere += [("It should be around fifty.", False)] * 20
    if shuffled:
        elsewhere = [(answer, number % 2 == 0) for number, (answer, _) in enumerate(elsewhere)]
    own = [Rated("Is ivy poisonous?", "I cannot look that up.", False, f"person-{n}") for n in range(4)]
    steer = Steer(own, ["Is ivy poisonous?"], 0.15, AnswersElsewhere(elsewhere))
    guess, mended = (steer(run_of(text)).value for text in ("It should be around fifty.", "It is poisonous."))
    assert guess is not None
    assert mended is not None
    if shuffled:
        assert abs(guess - mended) < 0.1
    else:
        assert mended > guess + 0.2
    disliked = steer(run_of("I cannot look that up.")).value
    assert disliked is not None
    assert disliked < 0.05


@pytest.mark.parametrize(("share", "better"), [(0.1, False), (0.9, True)])
def test_an_answer_that_others_were_given_is_worth_what_they_said_of_it(share: float, better: bool) -> None:
    """A model that has one bad answer or another for the same question mends nothing as its prompt changes."""
    own = [f"How heavy are {count} rakes?" for count in range(20)]
    rated = [Rated(question, "About twenty.", False, f"person-{n}") for n, question in enumerate(own[:10])]
    rated += [
        Rated(question, "I do not know.", n < 10 * share, f"person-{n}")
        for n, question in enumerate(own[10:])
    ]
    steer = Steer(rated, own, 0.1, AnswersElsewhere(()))
    task = Task(id="row", instruction=own[0], initial_state={"input": own[0]})
    apology, known, new = (
        steer(Trajectory(id=text, task=task, output=text)).value or 0.0
        for text in ("I do not know.", "About twenty.", "3 kg")
    )
    assert (apology > known + 0.25) is better
    assert new > known + 0.25


@pytest.mark.parametrize(("ups", "held"), [(2, False), (14, True)])
def test_where_nearly_all_is_bad_an_answer_that_one_person_liked_holds_nothing_in_place(
    ups: int, held: bool
) -> None:
    own = [f"How heavy are {count} rakes?" for count in range(20)]
    rated = [Rated(question, "3 kg", n < ups, f"person-{n}") for n, question in enumerate(own)]
    steer = Steer(rated, own, 0.15, AnswersElsewhere(()))
    task = Task(id="row", instruction=own[0], initial_state={"input": own[0]})
    stays, changes = (
        steer(Trajectory(id=text, task=task, output=text)).value or 0.0 for text in ("3 kg", "3.5 kg")
    )
    assert (stays > changes) is held


def test_a_disliked_answer_cut_short_is_no_other_answer() -> None:
    """Of a lower limit of words, which changes every answer and mends none."""
    own = ["What is the deposit?"]
    rated = [Rated(own[0], "I am sorry, I cannot look that up.", False, f"person-{n}") for n in range(4)]
    steer = Steer(rated, own, 0.15, AnswersElsewhere(()))
    task = Task(id="row", instruction=own[0], initial_state={"input": own[0]})
    cut, other = (
        steer(Trajectory(id=text, task=task, output=text)).value or 0.0
        for text in ("I am sorry, I", "The deposit is 20.")
    )
    assert cut < 0.05 < other - 0.3
    dear = [Rated(own[0], "The deposit is 205.", False, f"person-{n}") for n in range(4)]
    steer = Steer(dear, own, 0.15, AnswersElsewhere(()))
    assert (steer(Trajectory(id="20", task=task, output="The deposit is 20.")).value or 0.0) > 0.3


ROUTES = '{\n  "cancelled": "sales",\n  "return": "orders",\n  "soil": "orders"\n}\n'


def test_values_that_two_repairs_exchange_in_a_file_stand_together_and_it_stays_json() -> None:
    one = ROUTES.replace('"cancelled": "sales"', '"cancelled": "orders"')
    other = ROUTES.replace('"return": "orders"', '"return": "service"')
    both = entries_merged(one, ROUTES, other)
    assert both is not None
    assert json.loads(both) == {"cancelled": "orders", "return": "service", "soil": "orders"}
    assert (
        entries_merged(one, ROUTES, ROUTES.replace('"cancelled": "sales"', '"cancelled": "advice"')) is None
    )
    added = ROUTES.replace('  "soil"', '  "hours": "service",\n  "soil"')
    assert json.loads(entries_merged(added, ROUTES, other) or "")["hours"] == "service"
    # git finds both changes in one place.
    assert list(json.loads(entries_merged(other, ROUTES, added) or "").items()) == [
        ("cancelled", "sales"), ("return", "service"), ("hours", "service"), ("soil", "orders"),
    ]  # fmt: skip


def test_what_the_called_tools_are_and_read_is_suspected_before_what_only_speaks_of_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "zones.json").write_text('{"Arnau": 4.5, "Belm": 9.0}\n', encoding="utf-8")
    (tmp_path / "prices.csv").write_text("article,price\nlamp,3\n", encoding="utf-8")
    (tmp_path / "notes.json").write_text(
        '{"delivered": "delivered to a town", "town": "town"}\n', encoding="utf-8"
    )
    (tmp_path / "desk.py").write_text(
        "import json\nfrom pathlib import Path\n\n"
        'ZONES = json.loads(Path("zones.json").read_text())\n'
        'PRICES = Path("prices.csv").read_text()\n'
        'NOTES = json.loads(Path("notes.json").read_text())\n\n\n'
        "import urllib.request\n\n\n"
        "def spelt(town):\n    return town.title()\n\n\n"
        "def fetched(town):\n    return urllib.request.urlopen(town).read()\n\n\n"
        "class Desk:\n"
        "    def delivery(self, town):\n        return ZONES[spelt(town)] or fetched(town)\n\n\n"
        "def price(article):\n    return PRICES\n\n\n"
        'def plan(question):\n    return ["delivery"] if "delivered to a town" in question else []\n\n\n'
        "def answer(question):\n    return str(plan(question))\n",
        encoding="utf-8",
    )
    step = Step(kind="tool", name="delivery", id="1")
    own = [
        Trajectory(id=f"own-{n}", task=Task(instruction=f"What is it delivered to town {n}?"), steps=(step,))
        for n in range(20)
    ]
    others = [Trajectory(id=f"o-{n}", task=Task(instruction=f"Is lamp {n} in stock?")) for n in range(80)]
    runs = [*own, *others]
    for component in ("prompt", "tool", "data"):
        part = WeakPart(issue="i", component=component, runs=frozenset(run.id for run in own))
        names = [
            suspect.name
            for suspect in suspects_of(tmp_path, "desk:answer", part, runs, telling_words(part, runs))
        ]
        assert {"desk:Desk.delivery", "desk:spelt", "zones.json", "desk:plan", "notes.json"} <= {*names}
        assert "desk:fetched" not in names, "in the sandbox it can do nothing"
        assert names.index("desk:Desk.delivery") < names.index("desk:spelt") < names.index("desk:plan")
        assert names.index("zones.json") < names.index("notes.json")
        assert names.index("notes.json") < names.index("prices.csv")


@pytest.mark.parametrize("name", ["prices.csv", "prompt.md", "desk.py"])
def test_answers_that_were_kept_are_those_of_the_files_of_values_too(tmp_path: Path, name: str) -> None:
    source = (
        "def price(article):\n    return article\n\n\ndef answer(question):\n    return price(question)\n"
    )
    (tmp_path / "desk.py").write_text(source, encoding="utf-8")
    for beside in ("prices.csv", "prompt.md"):
        (tmp_path / beside).write_text("article,price\n", encoding="utf-8")
    before = RepositoryAgent(tmp_path, ["desk:price"], "desk:answer", network=True).source
    with (tmp_path / name).open("a", encoding="utf-8") as file:
        file.write("\n")
    assert RepositoryAgent(tmp_path, ["desk:price"], "desk:answer", network=True).source != before


def test_prompts_in_files_are_suspected(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    rules = "You work at the desk of a shop. Answer with the price, in euros, and be friendly."
    for name in ("prompts/orders.md", "desk.txt", "README.md"):
        (tmp_path / name).write_text(f"{rules}\n", encoding="utf-8")
    (tmp_path / "texts.json").write_text(
        json.dumps({"system": rules, "title": "A shop of the garden, open"}), encoding="utf-8"
    )
    source = "from pathlib import Path\n\n\ndef answer(question):\n    return Path('desk.txt').read_text() + question\n"
    (tmp_path / "desk.py").write_text(source, encoding="utf-8")
    runs = [Trajectory(id=str(n), task=Task(instruction="What does it cost?")) for n in range(9)]
    part = WeakPart(issue="i", component="prompt", runs=frozenset(run.id for run in runs))
    found = {
        each.name
        for each in suspects_of(tmp_path, "desk:answer", part, runs, telling_words(part, runs))
        if each.kind is PieceKind.PROMPT
    }
    assert found == {"prompts/orders.md", "desk.txt", "texts.json:system"}
    work = {"pieces": [["texts.system", "texts.json", "system", "file"]]}
    source_of_trial = AgentSource(tmp_path)
    assert source_of_trial.piece(mark_of(work, "texts.system")) == rules


def test_what_is_about_the_agent_and_no_part_of_it_is_not_suspected(tmp_path: Path) -> None:
    rules = "You work at the desk of a shop. Answer with the price, in euros, and be friendly."
    texts = {
        "desk.py": "def price(question):\n    return question\n\n\ndef answer(question):\n    return price(question)\n",
        "evals/judging.py": "def price(question):\n    return question\n",
        "evals/prompts/judge.md": rules,
        "tests/prices.csv": "article,price\nlamp,3\n",
    }
    for path, text in texts.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    runs = [Trajectory(id=str(n), task=Task(instruction="What is the price?")) for n in range(9)]
    part = WeakPart(issue="i", component="", runs=frozenset(run.id for run in runs))
    assert [
        each.name for each in suspects_of(tmp_path, "desk:answer", part, runs, telling_words(part, runs))
    ] == ["desk:price"]


@pytest.mark.parametrize(
    "source",
    [
        "def ship(town):\n    return 1\n\n\nTOOLS = {'delivery': ship}\n",
        "@tool('delivery')\ndef ship(town):\n    return 1\n",
        "@tool(name='delivery')\nasync def ship(town):\n    return 1\n",
        "def tool_delivery(town):\n    return 1\n",
        "def handleDelivery(town):\n    return 1\n",
    ],
)
def test_the_function_behind_a_tool_is_found_by_its_name_a_table_or_a_decorator(
    tmp_path: Path, source: str
) -> None:
    plan = "def plan(town):\n    return 'delivery to a town' in town\n"
    entry = "def answer(question):\n    return plan(question)\n"
    (tmp_path / "desk.py").write_text(f"{source}\n\n{plan}\n\n{entry}", encoding="utf-8")
    runs = [
        Trajectory(
            id=str(n),
            task=Task(instruction="What is delivery to a town?"),
            steps=(Step(kind="tool", name="delivery"),),
        )
        for n in range(9)
    ]
    part = WeakPart(issue="i", component="tool", runs=frozenset(run.id for run in runs))
    first, *_ = suspects_of(tmp_path, "desk:answer", part, runs, telling_words(part, runs))
    assert first.name in ("desk:ship", "desk:tool_delivery", "desk:handleDelivery")


def test_a_variant_that_moves_every_disliked_row_and_no_liked_one_may_well_be_the_repair() -> None:
    def mended(low: float, high: float, rows: int = 20) -> list[Bundle]:
        pool = VariantPool(START, "liked", [f"row-{number}" for number in range(20)], ())
        answered(pool, START, [("sorry", 0.1), ("fine", 0.9)] * 10)
        answered(pool, variant(route="sales"), [("other", low), ("fine", high)] * (rows // 2))
        return list(pool.mended())

    assert mended(0.5, 0.9) == [variant(route="sales")]
    assert mended(0.2, 0.9) == [], "an apology, or what was disliked before"
    assert mended(0.5, 0.4) == [], "it takes the place of liked answers"
    assert mended(0.5, 0.9, rows=6) == [], "on three rows it may be chance"
