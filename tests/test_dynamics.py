"""Training leaves in the record how each example was learned; `whet refine` reads it: train, refine, train again."""

import asyncio
import csv
import json
import random
import re
from dataclasses import replace
from statistics import fmean

import pytest
from test_refining import questions, spoiled

import whet
from whet.cli import app
from whet.errors import InputError
from whet.learn.datasets.dynamics import (
    History,
    doubtful,
    example_of,
    example_of_judged,
    example_of_pair,
    recorded,
)
from whet.learn.datasets.refining import refine
from whet.learn.loop import Update
from whet.record.env import StepResult
from whet.record.policy import Action
from whet.record.rows import row
from whet.record.store import Store
from whet.stats import auc
from whet.types import Bundle, Outcome, Split, Step, Tokens, Trajectory, Version


def told(refined, kind):
    return {doubt.row for doubt in refined.doubts if doubt.kind == kind}


def run(*words):
    return app([str(word) for word in words], result_action="return_value")


def demonstrations(rows):
    """Each row as a run of somebody's, in words of a vocabulary."""
    words = {}

    def ids(text):
        plain = ("#" if word[0].isdigit() else word for word in text.lower().split())
        return tuple(words.setdefault(word, 2 + len(words)) for word in plain)

    return [
        Trajectory(
            task=whet.Task(instruction=task.initial_state["input"], group=str(place)),
            steps=[Step(tokens=Tokens((1, *ids(task.initial_state["input"])), ids(task.answer), (0.0,)))],
            output=task.answer,
            outcome=Outcome.SUCCESS,
        )
        for place, task in enumerate(rows)
    ]


def written(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["question", "team"])
        writer.writerows([task.initial_state["input"], task.answer] for task in rows)
    return path


def test_what_cloning_learned_late_is_doubted_left_out_and_no_longer_learned(tmp_path, capsys):
    rows, wrong = spoiled(questions(300, 5), 0.2, 5)
    table = written(tmp_path / "table.csv", rows)
    with Store(tmp_path / "demos.db") as store:
        store.put(*demonstrations(rows))
    train = ["--model", "tiny", "--epochs", 6, "--batch", 32, "--validation-share", 0]
    run("train", "sft", "--store", tmp_path / "demos.db", "--output", tmp_path / "out", *train)
    capsys.readouterr()
    refined = ["--input", "question", "--expected", "team", "--output", tmp_path / "left.csv"]
    run("refine", table, "--store", tmp_path / "out", *refined, "--leave-out", "doubtful", "--json")
    summary = json.loads(capsys.readouterr().out)
    findings = [json.loads(line) for line in (tmp_path / "left.csv.report.jsonl").read_text().splitlines()]
    gone = {finding["line"] - 2: finding for finding in findings if finding["kind"] == "doubtful"}
    assert len(gone) >= 15
    assert len(set(gone) & wrong) >= 0.5 * len(gone), "a fifth would be by chance"
    assert all("confidence" in finding["because"] for finding in gone.values())
    with (tmp_path / "left.csv").open(newline="") as file:
        left = [(cells["question"], cells["team"]) for cells in csv.DictReader(file)]
    assert len(left) == summary["left"] < 300
    # Again, on what is left: nothing that was left out is learned, and what is left is learned better.
    kept = [row(text, expected=label) for text, label in left]
    with Store(tmp_path / "again.db") as store:
        store.put(*demonstrations(kept))
    run("train", "sft", "--store", tmp_path / "again.db", "--output", tmp_path / "second", *train)
    with Store(tmp_path / "out" / "runs.db") as first, Store(tmp_path / "second" / "runs.db") as second:
        before, after = recorded(first), recorded(second)
    assert len(before) == 300
    assert set(after) == {example_of(text, label) for text, label in left}
    assert fmean(one.confidence for one in after.values()) > fmean(one.confidence for one in before.values())


def histories(seed, wrong, count=400):
    """Fitted examples, a fifth of which is learned when the rest has been."""
    rng = random.Random(seed)
    made, late = [], set()
    for place in range(count):
        slow = rng.random() < wrong
        late |= {place} if slow else set()
        epochs = [
            min(0.98, max(0.02, rng.gauss(0.1 * e if slow else 0.3 + 0.15 * e, 0.08))) for e in range(5)
        ]
        made.append(History(epochs, [value > 0.5 for value in epochs], fitted=True))
    return made, late


@pytest.mark.parametrize("seed", range(3))
def test_the_late_ones_are_called_and_none_where_all_are_learned_alike(seed):
    made, late = histories(seed, 0.2)
    called = set(doubtful(made))
    assert len(called & late) >= 0.9 * len(called)
    assert len(called & late) >= 0.8 * len(late)
    assert not doubtful(histories(seed, 0.0)[0])
    # Histories that belong to other rows find no more wrong ones than there are.
    moved = random.Random(seed).sample(made, len(made))
    assert len(set(doubtful(moved)) & late) <= 0.4 * len(called)


def test_an_example_that_was_forgotten_says_so_and_few_epochs_say_nothing():
    history = History([0.2, 0.7, 0.4, 0.9], [False, True, False, True], fitted=True)
    assert history.forgettings == 1
    assert history.confidence == pytest.approx(0.55)
    assert history.variability == pytest.approx(0.2693, abs=1e-3)
    assert not doubtful([History([0.01, 0.02], [False, False], fitted=True)] * 100)


class Learns:
    """A learner that knows a tenth more of the answers after each round."""

    name, group_size, on_policy, ordered = "learns", 2, True, False

    async def step(self, bundle, groups, context):
        known = bundle["known"].content + 1 if "known" in bundle else 1
        return Update(
            bundle=Bundle([Version(resource="known", content=known, kind="knobs")]), done=known >= 9
        )


def improved(rows, truth, store, seed=0):
    """Let it learn on these rows as an agent does that answers what is true, where it knows it."""

    class Asked:
        def reset(self, task, seed):
            self.answer = task.answer
            return task.initial_state["input"]

        def step(self, action):
            return StepResult(
                None, float(action == self.answer), True, False, {"success": action == self.answer}
            )

    class Agent:
        def __init__(self, bundle, seed):
            self.known, self.seed = bundle["known"].content if "known" in bundle else 0, seed

        async def act(self, text):
            if text.startswith("Easy"):
                return Action(truth[text])
            if text.startswith("Hard"):
                return Action(f"a guess, number {random.Random(self.seed).random()}")
            hard = random.Random(text).random() * 4
            return Action(
                truth[text] if self.known > hard else f"perhaps {random.Random(self.seed).random()}"
            )

    tasks = [replace(task, split=Split.TRAIN) for task in rows]
    experiment = whet.Experiment(
        env=Asked, tasks=tasks, rewards=[], policy=Agent, store=store, seed=seed, name="asked"
    )
    return asyncio.run(experiment.improve(Learns()))


def test_what_was_tried_round_after_round_is_trivial_unsolvable_or_doubted(tmp_path, capsys):
    truth = {
        f"{kind} question {number}": f"answer {kind} {number}"
        for kind in ("Easy", "Hard", "Plain")
        for number in range(20)
    }
    mistaken = {f"Plain question {number}" for number in range(5)}
    rows = [
        row(text, expected="something else" if text in mistaken else answer) for text, answer in truth.items()
    ]
    with Store(tmp_path / "runs.db") as store:
        improved(rows, truth, store)
    table = tmp_path / "rows.jsonl"
    lines = [{"input": task.initial_state["input"], "expected": task.answer} for task in rows]
    table.write_text("".join(json.dumps(line) + "\n" for line in lines))
    output = tmp_path / "left.jsonl"
    words = ["refine", table, "--store", tmp_path / "runs.db", "--output", output]
    run(*words)
    said = capsys.readouterr().out
    assert "60 of 60 rows have training dynamics" in said
    findings = [json.loads(line) for line in (tmp_path / "left.jsonl.report.jsonl").read_text().splitlines()]
    of = {
        kind: {lines[f["line"] - 1]["input"] for f in findings if f["kind"] == kind}
        for kind in ("trivial", "unsolvable", "doubtful")
    }
    assert of["trivial"] == {text for text in truth if text.startswith("Easy")}
    assert of["unsolvable"] == {text for text in truth if text.startswith("Hard")}
    assert of["doubtful"] == mistaken
    assert all(
        f["instead"] == truth[lines[f["line"] - 1]["input"]] for f in findings if f["kind"] == "doubtful"
    )
    # One learner is one source, however many Versions it tried: it alone calls no label wrong.
    assert not [f for f in findings if f["kind"] == "mislabelled"]
    assert len(output.read_text().splitlines()) == 60, "they are told, and stay"
    run(*words, "--leave-out", "doubtful", "--leave-out", "trivial", "--leave-out", "unsolvable")
    left = [
        row(line["input"], expected=line["expected"])
        for line in map(json.loads, output.read_text().splitlines())
    ]
    assert {task.initial_state["input"] for task in left} == {
        t for t in truth if t.startswith("Plain")
    } - mistaken
    # Again, with a quarter of the tasks: every one of them can teach.
    with Store(tmp_path / "second.db") as store:
        done = improved(left, truth, store)
        after = recorded(store)
    assert done.rollouts == 9 * 2 * 15
    assert all(any(history.right) and history.variability > 0 for history in after.values())
    # Of rows whose answers were changed since nothing is known.
    other = [replace(task, answer="changed", id="") for task in left]
    assert "none of these rows" in refine(other, histories=after).notes[0]


def test_a_way_of_giving_up_is_no_better_answer():
    never = History([0.0] * 4, [False] * 4, fitted=False, tries=12, instead="I do not know")
    rows = [row(f"question {number}", expected=f"answer {number}") for number in range(5)]
    known = {example_of(task.initial_state["input"], task.answer): never for task in rows}
    refined = refine(rows, histories=known)
    assert told(refined, "unsolvable") == {0, 1, 2, 3, 4}
    assert not told(refined, "doubtful")


def judgements(pairs, share, seed, method):
    """A table of pairs or judged answers, a share of which is the wrong way round, and the runs that are judged so."""
    rng = random.Random(f"{seed}/{method}")
    teams, words, table, wrong, runs = sorted({team for _, team in pairs}), {}, [], set(), []

    def ids(text):
        plain = ("#" if word[0].isdigit() else word for word in text.lower().split())
        return tuple(words.setdefault(word, 2 + len(words)) for word in plain)

    for place, (text, team) in enumerate(pairs):
        other = rng.choice([name for name in teams if name != team])
        turned = rng.random() < share
        wrong |= {place} if turned else set()
        task = whet.Task(instruction=text, group=str(place))
        if method == "kto":
            good = rng.random() < 0.5
            answer, label = team if good else other, good != turned
            table.append({"prompt": text, "completion": answer, "label": label})
            given = [(answer, label)]
        else:
            chosen, rejected = (other, team) if turned else (team, other)
            table.append({"prompt": text, "chosen": chosen, "rejected": rejected})
            given = [(chosen, True), (rejected, False)]
        for answer, good in given:
            step = Step(tokens=Tokens((1, *ids(text)), ids(answer), (0.0,)))
            outcome = Outcome.SUCCESS if good else Outcome.FAILURE
            runs.append(Trajectory(task=task, steps=[step], output=answer, outcome=outcome))
    return table, wrong, runs


@pytest.mark.parametrize("method", ["reward-model", "dpo", "kto"])
def test_a_judgement_the_wrong_way_round_is_learned_late(method, tmp_path, capsys):
    table, wrong, runs = judgements(questions(240, 7), 0.2, 7, method)
    data = tmp_path / "judged.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in table))
    with Store(tmp_path / "runs.db") as store:
        store.put(*runs)
    words = ["--model", "tiny", "--epochs", 6, "--batch", 32, "--validation-share", 0]
    run("train", method, "--store", tmp_path / "runs.db", "--output", tmp_path / "out", *words)
    capsys.readouterr()
    left = tmp_path / "left.jsonl"
    run("refine", data, "--store", tmp_path / "out", "--output", left, "--leave-out", "doubtful")
    said = capsys.readouterr().out
    assert re.search(r"2[0-9]{2} of 240 rows have training dynamics", said), said
    with Store(tmp_path / "out" / "runs.db") as store:
        histories = recorded(store)
    if method == "kto":
        names = [example_of_judged(*line.values()) for line in table]
    else:
        names = [example_of_pair(*line.values()) for line in table]
    own = [histories[name] for name in names]
    lost = [1 - history.values[-1] for history in own]
    is_wrong = [float(place in wrong) for place in range(len(table))]
    assert auc(lost, is_wrong) > 0.62
    assert not any(all(history.right) for history in own), "nothing is known at first sight"
    called = set(doubtful(own))
    assert len(called & wrong) > 1.5 * len(called) * len(wrong) / len(table)
    if method == "reward-model":
        assert len(called) >= 10
    # Histories of other rows call no more of the wrong ones than there are.
    moved = set(doubtful(random.Random(0).sample(own, len(own))))
    assert len(moved & wrong) < max(1, 0.4 * len(moved))


def test_pairs_are_refined_as_pairs(tmp_path, capsys):
    lines = [
        {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"},
        {"prompt": "2 + 2?", "chosen": "4", "rejected": "fish"},
        {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"},
        {"prompt": "Capital of Peru?", "chosen": "Lima", "rejected": "Cusco"},
        {"prompt": "Capital of Peru?", "chosen": "Cusco", "rejected": "Lima"},
        {"prompt": "Capital of Chile?", "chosen": "Santiago"},
    ]
    data = tmp_path / "pairs.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run("refine", data, "--output", tmp_path / "left.jsonl")
    said = capsys.readouterr().out
    assert "1 of 6 rows lack one of prompt, chosen, rejected" in said
    left = [json.loads(line) for line in (tmp_path / "left.jsonl").read_text().splitlines()]
    assert left == lines[:2]
    found = [json.loads(line) for line in (tmp_path / "left.jsonl.report.jsonl").read_text().splitlines()]
    assert [(finding["line"], finding["kind"]) for finding in found] == [
        (3, "duplicate"),
        (4, "contradiction"),
        (5, "contradiction"),
    ]
    with pytest.raises(InputError, match="not repaired"):
        app(
            ["refine", str(data), "--output", str(tmp_path / "x.jsonl"), "--repair"],
            result_action="return_value",
            exit_on_error=False,
        )


def test_a_chat_is_known_by_what_was_asked_first():
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
    assert example_of(chat, "I") == example_of("Who?", "I")
    answer = [{"role": "assistant", "content": "I"}]
    assert example_of_pair(chat, answer, "you") == example_of_pair("Who?", "I", "you")
    assert example_of_pair("Who?", "I", "you") != example_of_pair("Who?", "you", "I")
    assert example_of_judged("Who?", "I", True) != example_of_judged("Who?", "I", False)
