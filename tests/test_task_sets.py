"""Recorded runs become a set of tasks: joined, named by their words, chosen to stand for the traffic, and mapped."""

import json
import random
from dataclasses import replace
from statistics import fmean

from commands import answered, command

from whet.learn.datasets.clusters import NOTHING_ALIKE, clustered
from whet.learn.datasets.coverage import chosen, coverage
from whet.learn.datasets.traffic import traffic, went_wrong
from whet.record.store import Store
from whet.record.tasks import from_jsonl
from whet.types import Feedback, Outcome, Score, Split, Step, Task, Trajectory

SUBJECTS = {
    "refund": ["invoice", "refund", "charged", "credit", "payment", "receipt"],
    "parcel": ["parcel", "courier", "tracking", "delivery", "warehouse", "customs"],
    "password": ["password", "login", "username", "profile", "code", "account"],
}
TOOLS = {"refund": "find_invoice", "parcel": "track", "password": "reset"}
FRAMES = [
    "My {} and the {} of it",
    "Where do I see the {} for this {}?",
    "{} gone, {} odd, help",
    "Change {} not {}",
]


def asked(subject: str, rng: random.Random) -> str:
    return rng.choice(FRAMES).format(*rng.sample(SUBJECTS[subject], 2)) + f" {rng.choice('abcdefgh')}."


def run(text: str, outcome: Outcome = Outcome.SUCCESS, tool: str = "", **more: object) -> Trajectory:
    steps = [Step(kind="tool", name=tool, observation={}, action="done")] if tool else []
    feedback = more.pop("feedback", ())
    scores = more.pop("scores", {})
    return Trajectory(
        task=Task(instruction=text, **more),  # type: ignore[arg-type]
        steps=steps,
        outcome=outcome,
        feedback=feedback,  # type: ignore[arg-type]
        scores=scores,  # type: ignore[arg-type]
    )


def day(counts: dict[str, int], failing: str = "", seed: int = 0) -> list[Trajectory]:
    """So many runs about each subject; those about one of them fail four times in five."""
    rng = random.Random(seed)
    runs = []
    for subject, count in counts.items():
        for number in range(count):
            wrong = subject == failing and number % 5 > 0
            outcome = Outcome.FAILURE if wrong else Outcome.SUCCESS
            text = asked(subject, rng)
            runs.append(
                run(text, outcome, TOOLS[subject], group=f"{subject} {number % 9}", answer=text[::-1])
            )
    return runs


def test_clusters_are_the_subjects_and_bear_their_words():
    rng = random.Random(0)
    labels = [subject for subject in SUBJECTS for _ in range(50)]
    found = clustered([asked(subject, rng) for subject in labels])
    right = 0
    for cluster in found.clusters:
        inside = [labels[member] for member in cluster.members]
        most = max(set(inside), key=inside.count)
        right += inside.count(most)
        if cluster.name != NOTHING_ALIKE and len(cluster.members) > 15:
            words = cluster.name.split(", ")
            assert sum(word in SUBJECTS[most] for word in words) >= len(words) - 1
    assert right >= 0.9 * len(labels)
    assert len(found.clusters) <= 8
    shuffled = random.Random(1).sample(labels, len(labels))
    by_chance = sum(
        max(shuffled[m] == subject for subject in [shuffled[c.members[0]]])
        for c in found.clusters
        for m in c.members
    )
    assert by_chance < 0.6 * len(labels)


def test_a_further_text_has_a_home_and_one_without_a_common_word_has_none():
    rng = random.Random(0)
    found = clustered([asked(subject, rng) for subject in SUBJECTS for _ in range(30)])
    home = found.nearest("the courier lost my parcel in the warehouse")
    assert home is not None
    assert any(word in SUBJECTS["parcel"] for word in found.clusters[home].name.split(", "))
    assert found.nearest("zebra xylophone") is None
    assert clustered(["", "  "]).clusters[0].name == NOTHING_ALIKE


def test_texts_without_spaces_are_clustered_too():
    texts = [f"请帮我退款订单{n}号的钱" for n in "甲乙丙丁戊己"] + [
        f"密码忘记了怎么登录{n}" for n in "甲乙丙丁戊己"
    ]
    places = clustered(texts, count=2).places
    assert len(set(places[:6])) == len(set(places[6:])) == 1
    assert places[0] != places[6]


def test_near_duplicates_are_one_task_only_where_nothing_tells_them_apart():
    long = "Please send the signed contract for the new warehouse in Hamburg to our legal department today"
    runs = [
        run(long, Outcome.FAILURE),
        run(long + "!"),
        run(long.upper()),
        run(long + " 12"),  # another number
        run(long + ".", initial_state={"user": "ann"}),  # another start
        run("Is the contract for the warehouse in Hamburg signed by the legal department?", answer="yes"),
        run("Is the contract for the warehouse in Hamburg signed by the legal department", answer="no"),
    ]
    found = traffic(runs)
    assert (found.runs, found.distinct) == (7, 7)
    assert [demand.runs for demand in found.demands] == [3, 1, 1, 1, 1]
    whole = found.demands[0]
    assert (whole.judged, whole.wrong, len(whole.joined), len(whole.task.meta["trajectories"])) == (
        3,
        1,
        2,
        3,
    )


def test_whether_a_run_failed_is_said_by_the_score_that_is_named_else_the_outcome_else_people():
    thumb = Feedback(run="x", value=-1.0)
    assert went_wrong(run("a", Outcome.UNKNOWN)) is None
    assert went_wrong(run("a", Outcome.UNKNOWN, feedback=(thumb,))) is True
    assert went_wrong(run("a", Outcome.SUCCESS, feedback=(thumb,))) is False
    assert went_wrong(run("a", Outcome.INFRASTRUCTURE_ERROR)) is None
    low = {"quality": Score("quality", 0.2)}
    assert went_wrong(run("a", Outcome.SUCCESS, scores=low), "quality") is True
    assert went_wrong(run("a", Outcome.SUCCESS), "quality") is None


def test_a_map_names_what_a_set_misses_and_where_the_failures_are():
    found = traffic(day({"refund": 60, "parcel": 25, "password": 15}, failing="parcel"))
    about_refunds = [demand.task for demand in found.demands if "find_invoice" in demand.tools][:10]
    seen = coverage(found, about_refunds)
    assert 0.5 < seen.covered < 0.75
    assert seen.covered_wrong is not None
    assert seen.covered_wrong < 0.4
    missing = {line.name for line in seen.tools if line.state == "missing"}
    assert missing == {"track", "reset"}
    (parcels,) = [line for line in seen.tools if line.name == "track"]
    assert parcels.rate == 0.8
    assert parcels.interval[0] > 0.5
    assert parcels.share == 0.25
    everything = coverage(found, [demand.task for demand in found.demands])
    assert everything.covered == 1.0
    assert everything.likeness > 0.99
    foreign = coverage(found, [Task(instruction="zebra xylophone")])
    assert foreign.outside == 1
    assert foreign.covered == 0.0


def test_a_chosen_set_stands_for_more_of_the_traffic_than_one_drawn_by_chance():
    found = traffic(day({"refund": 150, "parcel": 30, "password": 6}, failing="password"))
    clustering = clustered([demand.text for demand in found.demands])
    picked = [found.demands[place].task for place in chosen(found, 6, clustering)]
    best = coverage(found, picked, clustering)
    assert all(line.state != "missing" for line in best.tools)
    by_chance = []
    for seed in range(10):
        drawn = random.Random(seed).sample([demand.task for demand in found.demands], 6)
        by_chance.append(coverage(found, drawn, clustering))
    assert best.likeness > fmean(one.likeness for one in by_chance) + 0.02
    missed = fmean(sum(line.state == "missing" for line in one.tools) for one in by_chance)
    assert missed > 0.3


def test_from_a_record_to_a_set_that_is_queued_and_a_map_that_says_what_is_missing(tmp_path, capsys):
    record, tasks, output = tmp_path / "runs.db", tmp_path / "some.jsonl", tmp_path / "tasks.jsonl"
    hostile = run("\x1b[31mrefund invoice payment\x1b[0m odd", tool="find_invoice", group="x")
    giveaway = run("Which courier? Answer: ups. Give the parcel tracking", tool="track", answer="ups")
    with Store(record) as store:
        store.put(*day({"refund": 40, "parcel": 20, "password": 20}, failing="parcel"), hostile, giveaway)
    collected = answered(
        capsys, "tasks", "collect", "--store", record, "--output", output, "--number", 9, "--json"
    )
    assert collected["giveaways"]
    assert collected["runs"] == 82
    written = from_jsonl(output)
    assert len(written) == collected["tasks"] <= 9
    assert giveaway.task.instruction not in {task.instruction for task in written}
    assert {task.split for task in written} == set(Split)
    assert all(task.meta["provenance"]["how"] == "recorded" and task.meta["runs"] >= 1 for task in written)
    sides: dict[str, set[object]] = {}
    for task in written:
        sides.setdefault(task.group, set()).add(task.split)
    assert all(len(own) == 1 for own in sides.values())
    shown = command(capsys, "tasks", "cover", output, "--store", record)
    assert shown.returncode == 0
    assert "covered" in shown.stdout
    queued = command(capsys, "tasks", "add", output, "--store", record)
    assert queued.returncode == 0, queued.stderr

    (line,) = [task for task in written if "find_invoice" in task.meta["tools"]][:1]
    tasks.write_text(json.dumps({"id": "a", "instruction": line.instruction}) + "\n")
    lacking = command(capsys, "tasks", "cover", tasks, "--store", record)
    assert lacking.returncode == 1
    assert "missing" in lacking.stdout
    whole = command(capsys, "tasks", "collect", "--store", record, "--output", output)
    assert "\x1b" not in whole.stdout
    assert "says the right answer itself" in whole.stdout


def test_a_set_of_answered_tasks_alone_and_a_record_without_any(tmp_path, capsys):
    record, output = tmp_path / "runs.db", tmp_path / "tasks.jsonl"
    runs = day({"refund": 12})
    with Store(record) as store:
        store.put(*runs[:6], *(replace(one, task=replace(one.task, answer=None, id="")) for one in runs[6:]))
    collected = answered(
        capsys, "tasks", "collect", "--store", record, "--output", output, "--answered", "--json"
    )
    assert collected["tasks"] == 6
    with Store(tmp_path / "none.db") as store:
        store.put(run("what?"))
    refused = command(
        capsys, "tasks", "collect", "--store", tmp_path / "none.db", "--output", output, "--answered"
    )
    assert refused.returncode
    assert "known right answer" in refused.stderr
    with Store(tmp_path / "empty.db"):
        pass
    empty = command(capsys, "tasks", "cover", output, "--store", tmp_path / "empty.db")
    assert empty.returncode
    assert "0 runs" in empty.stderr
