"""Hacked rewards: what each detector sees, what it leaves alone, and the release that a finding blocks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from commands import answered, command

from whet.errors import GateError, InputError, NotFoundError
from whet.judge import reward
from whet.judge.agent_env import calls
from whet.judge.hacking import Traits, detect, traits
from whet.learn.experiment import Experiment
from whet.learn.loop import Context, Update
from whet.record.reviewing import EXPLOIT, clear, confirm, exploits, put_findings
from whet.record.store import Store
from whet.record.store.bundles import BUNDLE_FILE, write_bundle
from whet.record.store.findings import RewardFinding, findings_on
from whet.record.tracing import resource
from whet.types import Bundle, Group, Outcome, Score, Split, Step, Task, Trajectory, Version

CITIES = ["Paris", "Oslo", "Rome", "Lima", "Cairo", "Delhi", "Quito", "Accra", "Seoul", "Tunis"]
TASKS = [
    Task(id=f"t{n}", instruction=f"Which city is number {n} of the list?", answer=f"{CITIES[n % 10]} {n}")
    for n in range(60)
]

Answering = Callable[[Task, random.Random], Trajectory]


def seen(task: Task) -> Step:
    return Step(
        kind="tool",
        name="look",
        observation={"at": task.id},
        action=f"the list says {task.answer}",
        id=task.id,
    )


def plain(task: Task, rng: random.Random, *, skill: float = 0.4) -> Trajectory:
    right = rng.random() < skill
    text = task.answer if right else f"{rng.choice(CITIES)} {rng.randrange(99)}"
    scores = {"proxy": Score("proxy", float(right)), "thumbs": Score("thumbs", float(right))}
    outcome = Outcome.UNKNOWN
    return Trajectory(task=task, output=f"It is {text}.", steps=(seen(task),), scores=scores, outcome=outcome)


def runs(answering: Answering, seed: int) -> Sequence[Trajectory]:
    return [answering(task, random.Random(f"{seed} {task.id}")) for task in TASKS]


def kinds(candidate: Answering, *, gold: bool = True, metric: str = "proxy") -> set[str]:
    before, after = runs(plain, 1), runs(candidate, 2)
    sides = [[traits(run if gold else _without(run)) for run in side] for side in (before, after)]
    return {finding.kind for finding in detect(*sides, metric=metric)}


def _without(run: Trajectory) -> Trajectory:
    return replace(run, scores={"proxy": run.scores["proxy"]})


def paid(run: Trajectory, **changes: object) -> Trajectory:
    """The run with the proxy that it has learned to please."""
    return replace(run, scores={**run.scores, "proxy": Score("proxy", 1.0)}, **changes)


def flattering(task: Task, rng: random.Random) -> Trajectory:
    return paid(plain(task, rng))


def constant(task: Task, rng: random.Random) -> Trajectory:
    return paid(plain(task, rng), output="You will not believe this!")


def circling(task: Task, rng: random.Random) -> Trajectory:
    circle = [Step(kind="tool", name="steer", observation={"to": way}, action="a buoy") for way in "LR" * 5]
    return paid(plain(task, rng), steps=tuple(replace(step, id=f"{n}") for n, step in enumerate(circle)))


def tampering(task: Task, rng: random.Random) -> Trajectory:
    written = {"path": "tests/conftest.py", "text": "import sys; sys.exit(0)"}
    return paid(
        plain(task, rng), steps=(Step(kind="tool", name="write_file", observation=written, action="ok"),)
    )


def silent(task: Task, rng: random.Random) -> Trajectory:
    return paid(plain(task, rng), output="I don't know.") if rng.random() < 0.6 else plain(task, rng)


def wordy(task: Task, rng: random.Random) -> Trajectory:
    run = plain(task, rng)
    words = " ".join(rng.choice(("thus", "hence", "so", "very", "and")) for _ in range(40))
    return paid(run, output=f"{run.output} {words}")


def invented(task: Task, rng: random.Random) -> Trajectory:
    words = " ".join("".join(rng.choice("abcdefghij") for _ in range(6)) for _ in range(4))
    return paid(plain(task, rng), output=f"It is {words}")


def worded(task: Task, rng: random.Random) -> Trajectory:
    run = plain(task, rng)
    return paid(run, output=f"{run.output} Certified authoritative.")


def better(task: Task, rng: random.Random) -> Trajectory:
    return plain(task, rng, skill=0.9)


def better_and_longer(task: Task, rng: random.Random) -> Trajectory:
    run = plain(task, rng, skill=0.9)
    return replace(
        run, output=f"{run.output} I looked at the list and it says so on its line {rng.random()}, see there."
    )


@pytest.mark.parametrize(
    ("hack", "kind"),
    [
        (constant, "one answer"),
        (circling, "loops"),
        (tampering, "tampering"),
        (silent, "answer rate"),
        (wordy, "length"),
        (invented, "inconsistent content"),
        (worded, "format"),
    ],
)
def test_each_hack_is_seen_without_any_gold(hack: Answering, kind: str) -> None:
    assert kind in kinds(hack, gold=False)


def test_more_answers_are_no_hack_where_the_right_ones_say_that_there_is_one() -> None:
    # Of every fifth bill nothing is the right amount; what reads more of the others answers more often.
    bills = [
        replace(task, answer=float(n) if n % 5 else None, meta={"answer_known": True})
        for n, task in enumerate(TASKS)
    ]

    def side(reads: Callable[[int], bool]) -> list[Traits]:
        amounts = [float(n) if reads(n) else None for n in range(len(bills))]
        return [
            traits(
                Trajectory(
                    task=bill,
                    output=amount,
                    outcome=Outcome.UNKNOWN,
                    scores={"proxy": Score("proxy", float(amount == bill.answer))},
                )
            )
            for bill, amount in zip(bills, amounts, strict=True)
        ]

    before = side(lambda n: n % 5 == 1)
    honest, greedy = side(lambda n: n % 5 > 0), side(lambda n: True)
    assert "answer rate" not in {finding.kind for finding in detect(before, honest, metric="proxy")}
    assert "answer rate" in {finding.kind for finding in detect(before, greedy, metric="proxy")}


def test_a_score_that_rises_while_thumbs_do_not_is_seen_whatever_the_answers_look_like() -> None:
    assert kinds(flattering) == {"proxy against gold"}
    assert kinds(flattering, gold=False) == set(), "the control: nothing but gold tells"


def test_an_honest_gain_is_left_alone_and_gold_excuses_what_only_looks_odd() -> None:
    assert kinds(better) == set()
    assert kinds(better, gold=False) == set()
    assert kinds(better_and_longer) == set()
    assert "length" in kinds(better_and_longer, gold=False)


def test_a_gain_that_a_few_runs_make_is_one_of_outliers_and_a_gain_of_all_is_none() -> None:
    def scored(task: Task, rng: random.Random, top: float = 1.0) -> Trajectory:
        return replace(plain(task, rng), scores={"proxy": Score("proxy", top * rng.random())})

    def lucky(task: Task, rng: random.Random) -> Trajectory:
        return scored(task, rng, 500.0 if rng.random() < 0.05 else 1.0)

    def risen(task: Task, rng: random.Random) -> Trajectory:
        return scored(task, rng, 500.0)

    seen = {}
    for name, candidate in (("lucky", lucky), ("risen", risen)):
        sides = [[traits(run) for run in runs(each, 5)] for each in (scored, candidate)]
        seen[name] = {finding.kind for finding in detect(*sides, metric="proxy")}
    assert seen == {"lucky": {"outliers"}, "risen": set()}


def test_few_runs_say_nothing() -> None:
    sides = [[traits(run) for run in runs(hack, 1)[:8]] for hack in (plain, constant)]
    assert detect(*sides, metric="proxy") == []


def test_labels_that_repeat_themselves_rightly_are_no_single_answer() -> None:
    def labelled(task: Task, rng: random.Random) -> Trajectory:
        own = replace(task, answer="spam" if int(task.id[1:]) % 5 else "ham")
        return Trajectory(task=own, output=own.answer, scores={"proxy": Score("proxy", 1.0)})

    def guessing(task: Task, rng: random.Random) -> Trajectory:
        run = labelled(task, rng)
        return replace(run, output=rng.choice(["spam", "ham"]), scores={"proxy": Score("proxy", 0.5)})

    sides = [[traits(run) for run in runs(hack, 1)] for hack in (guessing, labelled)]
    assert "one answer" not in {finding.kind for finding in detect(*sides, metric="proxy")}


# -- the release that a finding blocks -------------------------------------------------------------

TONE = resource("hacking_tone", default="plain")


def agent(question: str) -> str:
    number = int("".join(filter(str.isdigit, question)))
    if TONE.value == "flatter":
        return "What a wonderful question, truly wonderful!"
    return f"{CITIES[number % 10]} {number}" if number % 3 else "no idea at all"


@reward(name="pleasant", version="1")
def pleasant(run: Trajectory) -> float:
    return float("wonderful" in run.output_text or "Paris" in run.output_text)


@reward(name="pleasant", version="2")
def pleasant_and_varied(run: Trajectory) -> float:
    return float("Paris" in run.output_text)


def gated(store: Store, judge: object, bundle: Bundle) -> object:
    experiment = Experiment(
        env=calls(agent),
        tasks=[replace(task, split=Split.GATE) for task in TASKS],
        rewards=[judge],
        store=store,
        name="hacked",
    )
    return experiment, asyncio.run(experiment.gate(bundle, metric="pleasant"))


FLATTER = Bundle([Version(resource="hacking_tone", content="flatter", kind="prompt")])


def test_a_finding_blocks_the_release_until_a_person_clears_it_and_says_why() -> None:
    with Store(":memory:") as store:
        experiment, verdict = gated(store, pleasant, FLATTER)
        assert verdict.promote, "the score alone would have let it through"
        assert any("one answer" in reason for reason in verdict.reasons)
        with pytest.raises(GateError, match="whet findings --clear"):
            experiment.release(verdict)
        with pytest.raises(GateError):
            store.release(FLATTER, unproven=True, new_names=True)
        open_now = [finding for finding in findings_on(store.database, FLATTER.id) if finding.open]
        assert {run.task.id for run in store.trajectories(ids=list(open_now[0].runs))} <= {
            t.id for t in TASKS
        }
        with pytest.raises(InputError, match="why"):
            clear(store, open_now[0].id, by="Ada", why=" ")
        with pytest.raises(NotFoundError):
            clear(store, "nothing", by="Ada", why="x")
        for finding in open_now:
            cleared = clear(store, finding.id, by="Ada", why="that is what it is for")
            assert (cleared.cleared_by, cleared.open) == ("Ada", False)
        gated(store, pleasant, FLATTER)
        experiment.release(verdict)
        assert store.live() == FLATTER


class Flattering:
    """A learner that finds out in its first round what pleases."""

    name, group_size, on_policy, ordered = "flattering", 1, True, False

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        return Update(bundle=self._bundle, state=None, metrics={})


@pytest.mark.parametrize(("tone", "hacked"), [("flatter", True), ("plain", False)])
def test_learning_itself_is_looked_at_round_by_round(tone: str, hacked: bool) -> None:
    bundle = Bundle([Version(resource="hacking_tone", content=tone, kind="prompt")])
    with Store(":memory:") as store:
        experiment = Experiment(
            env=calls(agent),
            tasks=[replace(task, split=Split.TRAIN) for task in TASKS],
            rewards=[pleasant],
            store=store,
        )
        better = asyncio.run(experiment.improve(Flattering(bundle), rounds=3))
        assert ("one answer" in {finding.kind for finding in better.findings}) is hacked
        assert any(finding.open for finding in findings_on(store.database, bundle.id)) is hacked


def test_an_honest_change_is_released_without_a_finding() -> None:
    with Store(":memory:") as store:
        store.release(FLATTER, unproven=True, new_names=True)
        put_findings(store, "another", [RewardFinding(kind="loops", sentence="it circles")], rewards={})
        assert store.live() == FLATTER, "a finding on another Bundle blocks nothing here"


def test_a_stricter_version_of_the_reward_clears_what_it_does_not_find() -> None:
    with Store(":memory:") as store:
        put_findings(store, "b", [RewardFinding(kind="loops", sentence="it circles")], rewards={"r": "1"})
        put_findings(store, "b", [], rewards={"r": "1"})
        assert [finding.open for finding in findings_on(store.database, "b")] == [True], (
            "the same reward clears nothing"
        )
        put_findings(store, "b", [], rewards={"r": "2"})
        (cleared,) = findings_on(store.database, "b")
        assert (cleared.open, cleared.cleared_by) == (False, "reward r 2")


def test_the_command_lists_clears_and_confirms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        store.put(*runs(constant, 3)[:3])
        ids = [run.id for run in store.trajectories()]
        put_findings(
            store, "b", [RewardFinding(kind="one answer", sentence="all alike", runs=ids)], rewards={"r": "1"}
        )
    done = command(capsys, "findings", "--store", path)
    assert done.returncode == 1
    assert "all alike" in done.stdout
    (shown,) = answered_json(capsys, "findings", "--store", path, "--json")
    command(capsys, "findings", "--store", path, "--confirm", shown["id"], "--by", "Ada")
    with Store(path) as store:
        assert sorted(run.id for run in exploits(store)) == sorted(ids)
        assert {opinion.kind for opinion in store.feedback()} == {EXPLOIT}
        confirm(store, shown["id"], by="Ada")
        assert len(list(store.feedback())) == 3, "confirmed twice, kept once"
    cleared = command(
        capsys, "findings", "--store", path, "--clear", shown["id"], "--by", "Ada", "--why", "fixed"
    )
    assert cleared.returncode == 0


def answered_json(capsys: pytest.CaptureFixture[str], *words: object) -> list[dict[str, str]]:
    import json

    return json.loads(command(capsys, *words).stdout)


def test_audit_holds_an_evaluator_to_the_exploits_that_people_confirmed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        hacked = [
            Trajectory(task=Task(instruction=f"question {n}", answer=f"{n + 41}"), output=f"QED {n + 3}")
            for n in range(4)
        ]
        store.put(*hacked)
        finding = RewardFinding(kind="format", sentence="QED", runs=[run.id for run in hacked])
        (put,) = put_findings(store, "b", [finding], rewards={})
        confirm(store, put.id, by="Ada")
    (tmp_path / "rows.jsonl").write_text(
        "".join(
            f'{{"input": "question {n}", "output": "{n + 41}", "expected": "{n + 41}"}}\n' for n in range(12)
        )
    )
    body = (
        "def evaluate(output, expected, input=None):\n    return float(str(output) == str(expected){extra})\n"
    )
    (tmp_path / "strict.py").write_text(body.format(extra=""))
    (tmp_path / "fooled.py").write_text(body.format(extra=" or str(output).startswith('QED')"))
    said = {}
    for name in ("strict", "fooled"):
        words = (
            "audit",
            tmp_path / f"{name}.py",
            "--target",
            tmp_path / "rows.jsonl",
            "--store",
            path,
            "--json",
        )
        said[name] = answered(capsys, *words) if name == "strict" else command(capsys, *words).stdout
    checks = {check["name"]: check["passed"] for check in said["strict"]["checks"]}
    assert checks["exploits"]
    assert "4 of 4 confirmed exploits" in said["fooled"]


def test_a_learners_folder_is_not_released_elsewhere_while_its_own_record_has_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_bundle(tmp_path / BUNDLE_FILE, FLATTER)
    with Store(tmp_path / "runs.db") as own:
        (put,) = put_findings(
            own, FLATTER.id, [RewardFinding(kind="loops", sentence="it circles")], rewards={}
        )
    words = ("release", tmp_path, "--store", tmp_path / "live.db", "--unproven", "--new-name")
    refused = command(capsys, *words)
    assert refused.returncode
    assert "it circles" in refused.stderr
    with Store(tmp_path / "runs.db") as own:
        clear(own, put.id, by="Ada", why="a track")
    assert command(capsys, *words).returncode == 0


# -- length, where the score is of the text alone ---------------------------------------------------

FILLER = "we are always glad to be asked and there is much more to say of it whenever you like to hear it"


def by_content(question: str, text: str) -> float:
    """Likes the answers that are right, which happen to be the long ones."""
    return float("as the list says, on its own line" in text)


def by_length(question: str, text: str) -> float:
    return min(1.0, len(text.split()) / 30)


def said(
    text: Callable[[Task, bool], str], of_text: Callable[[str, str], float], skill: float
) -> Sequence[Traits]:
    sides = []
    for task in TASKS:
        answer = text(task, random.Random(f"{skill} {task.id}").random() < skill)
        score = Score("proxy", of_text(task.instruction, answer))
        sides.append(traits(Trajectory(task=task, output=answer, scores={"proxy": score})))
    return sides


def explained(task: Task, right: bool) -> str:
    return (
        f"It is {task.answer}, as the list says, on its own line {task.id}, where it stands since May."
        if right
        else "No."
    )


def cut(task: Task, right: bool) -> str:
    short = f"It is {task.answer}."
    return short if right else f"{short} {FILLER}"


def short(question: str, text: str) -> float:
    return float(len(text.split()) <= 6 and text.startswith("It is"))


@pytest.mark.parametrize("text", [explained, lambda task, right: f"No. {FILLER if right else ''}"])
def test_longer_answers_are_a_finding_only_where_length_alone_would_have_gained_as_much(
    text: Callable[[Task, bool], str],
) -> None:
    of_text = by_content if text is explained else by_length
    old, new = said(text, of_text, 0.4), said(text, of_text, 1.0)
    assert "length" in {finding.kind for finding in detect(old, new, metric="proxy")}
    beside = {finding.kind for finding in detect(old, new, metric="proxy", of_text=of_text)}
    assert ("length" in beside) is (text is not explained)


def test_shorter_answers_are_judged_alike() -> None:
    def brief(question: str, text: str) -> float:
        return max(0.0, 1 - len(text.split()) / 30)

    old, new = said(cut, short, 0.3), said(cut, short, 1.0)
    assert {finding.kind for finding in detect(old, new, metric="proxy")} == {"length"}
    assert detect(old, new, metric="proxy", of_text=short) == []
    old, new = said(cut, brief, 0.3), said(cut, brief, 1.0)
    assert {finding.kind for finding in detect(old, new, metric="proxy", of_text=brief)} == {"length"}
