"""Several repairs of one piece: each goes live beside the others, merged or not, and comes back alone."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from delivery_world import git

from whet.autopilot.lasting import LiveRepair
from whet.autopilot.night import Night, NightBudget
from whet.autopilot.pilot import settings_of
from whet.autopilot.shipping import delivery_of, ship, take_back
from whet.autopilot.trial import board
from whet.autopilot.trying import LiveTrials
from whet.autopilot.work import Workshop
from whet.models.fakes import ScriptedGitHub
from whet.prove.verdict import verdict
from whet.record.store import Store
from whet.record.store.issues import AgentIssue, Component
from whet.record.store.releases import PROGRAM, Stage
from whet.types import Bundle, Feedback, Task, Trajectory, Version

ROUTES = {"soil": "orders", "cancel": "sales", "hours": "sales", "warranty": "service"}
PROMPT = 'PROMPT = """Be kind.\nUse the tools."""\n'


def routes(**changed: str) -> str:
    return json.dumps({**ROUTES, **changed}, indent=2) + "\n"


@pytest.fixture
def bench(tmp_path: Path) -> Workshop:
    agent = tmp_path / "agent"
    agent.mkdir()
    (agent / "routes.json").write_text(routes(), encoding="utf-8")
    (agent / "desk.py").write_text(
        f"{PROMPT}\n\ndef answer(question):\n    return PROMPT\n", encoding="utf-8"
    )
    store = Store(tmp_path / "runs.db")
    settings = settings_of(agent / "desk.py", entry="desk:answer", output=tmp_path / "out")
    return Workshop(store, Night(store, NightBudget(share=0.5)), settings, None)


def repair(
    bench: Workshop, id: str, resource: str, path: str, name: str, before: str, after: str
) -> AgentIssue:
    """An issue with a repair of a piece that people have proven."""
    old = Version(resource=resource, content=before, kind=PROGRAM)
    start, changed = (
        Bundle([old]),
        Bundle([Version(resource=resource, content=after, kind=PROGRAM, parent=old.id)]),
    )
    rows = [[{"task": f"t{n}", "success": good} for n in range(60)] for good in (False, True)]
    judged = verdict(*rows, regime="exchangeable")
    with bench.store.batch() as batch:
        batch.put_bundle(start)
        batch.put_bundle(changed)
        batch.put_verdict(replace(judged, candidate=changed.id, baseline=start.id))
    issue = AgentIssue(id=id, name=id, component=Component.ROUTE, affected=9)
    bench.store.issues.put(issue)
    stand(
        bench, issue,
        stage="to try", attempt=0, start=start.id, bundle=changed.id, learner="data",
        pieces=[[resource, path, name, "comment" if name else "skill"]], shown=[], traffic=0.1, as_of=0.0,
    )  # fmt: skip
    return issue


def route(bench: Workshop, word: str) -> AgentIssue:
    return repair(bench, word, "routes.json", "routes.json", "", routes(), routes(**{word: "service"}))


def work(bench: Workshop, issue: AgentIssue) -> dict[str, Any]:
    return dict(bench.store.state(f"autopilot/work/{issue.id}") or {})


def stand(bench: Workshop, issue: AgentIssue, **work: Any) -> None:
    bench.store.put_state(f"autopilot/work/{issue.id}", work)


def begin(bench: Workshop, *issues: AgentIssue) -> Path:
    """A trial of these repairs; the folder that it serves."""
    root, works = bench.settings.agent.parent, {issue.id: work(bench, issue) for issue in issues}
    boarded = board(bench.store, root, bench.settings.output / "shadow", works, bench.shipped())
    shadow = bench.store.release(boarded.bundle, stage=Stage.SHADOW, new_names=True)
    begun = LiveTrials(bench, root).begin(works, 0.5, shadow=shadow.trial)
    for id, step in begun.stepped.items():
        bench.store.put_state(f"autopilot/work/{id}", step.work)
    for key, state in begun.states.items():
        bench.store.put_state(key, state)
    return Path(str(begun.facts["folder"]))


def shipped(bench: Workshop, issue: AgentIssue) -> None:
    step = ship(bench, issue, work(bench, issue), None)
    assert step.work["stage"] == "shipped", step.sentence
    stand(bench, issue, **step.work)


def live(bench: Workshop) -> Mapping[str, str]:
    bundle = bench.store.live()
    return json.loads(str(bundle["routes.json"].content)) if bundle else {}


def test_one_of_two_repairs_of_a_file_goes_live_and_its_trial_goes_on_with_the_other(bench: Workshop) -> None:
    soil, cancel = route(bench, "soil"), route(bench, "cancel")
    begin(bench, soil, cancel)
    (trial,) = bench.store.on_trial()
    shipped(bench, soil)
    assert live(bench) == {**ROUTES, "soil": "service"}
    assert [each.trial for each in bench.store.on_trial()] == [trial.trial]
    shipped(bench, cancel)
    assert live(bench) == {**ROUTES, "soil": "service", "cancel": "service"}, "the first one stays live"


def test_something_else_that_goes_live_ends_the_trial(bench: Workshop) -> None:
    soil, cancel = route(bench, "soil"), route(bench, "cancel")
    begin(bench, cancel)
    shipped(bench, soil)  # of no trial
    assert bench.store.on_trial() == []


def test_the_next_trial_has_what_is_live_though_nobody_has_merged_it(bench: Workshop) -> None:
    soil, cancel = route(bench, "soil"), route(bench, "cancel")
    begin(bench, soil)
    shipped(bench, soil)
    folder = begin(bench, cancel)
    served = json.loads((folder / "routes.json").read_text(encoding="utf-8"))
    assert served == {**ROUTES, "soil": "service", "cancel": "service"}
    assert json.loads((bench.settings.agent.parent / "routes.json").read_text(encoding="utf-8")) == ROUTES


@pytest.mark.parametrize("merged", [False, True])
def test_one_of_several_is_taken_back_alone(bench: Workshop, merged: bool) -> None:
    issues = [route(bench, word) for word in ("soil", "cancel", "hours")]
    begin(bench, *issues)
    for issue in issues:
        shipped(bench, issue)
    if merged:
        everything = routes(soil="service", cancel="service", hours="service")
        (bench.settings.agent.parent / "routes.json").write_text(everything, encoding="utf-8")
    take_back(bench, issues[1], work(bench, issues[1]), None)
    assert live(bench) == {**ROUTES, "soil": "service", "hours": "service"}


@pytest.mark.parametrize("since", ["merged", "not merged", "changed by others"])
def test_what_was_merged_is_taken_out_of_the_source_by_a_pull_request(
    bench: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: str
) -> None:
    root, table = bench.settings.agent.parent, bench.settings.agent.parent / "routes.json"
    for words in (
        ["init", "-q", "--bare", "-b", "main", "remote.git"],
        ["init", "-q", "-b", "main", str(root)],
    ):
        git(tmp_path, *words)
    for key, value in (("user.name", "Ann"), ("user.email", "ann@example.org")):
        git(root, "config", key, value)
    git(root, "remote", "add", "origin", str(tmp_path / "remote.git"))

    def pushed(text: str) -> None:
        table.write_text(text, encoding="utf-8")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", "A change")
        git(root, "push", "-q", "origin", "main")

    pushed(routes())
    soil, cancel = route(bench, "soil"), route(bench, "cancel")
    begin(bench, soil, cancel)
    shipped(bench, soil)
    shipped(bench, cancel)
    if since != "not merged":
        pushed(routes(soil="service", cancel="service"))
    if since == "changed by others":
        pushed(routes(soil="garden", cancel="service"))
    monkeypatch.setenv("GITHUB_TOKEN", "secret-token")
    with ScriptedGitHub("ann/desk", token="secret-token") as github:
        monkeypatch.setenv("GITHUB_API_URL", github.url)
        monkeypatch.setenv("GITHUB_REPOSITORY", "ann/desk")
        deliver = delivery_of(bench.store, root, offline=False)
        named = replace(soil, name="soil <!-- @everybody -->", reason="12 of 20 disliked again")
        steps = [take_back(bench, named, work(bench, soil), deliver) for _ in range(2)]
    if since == "changed by others":
        assert "what is live stays as it is" in steps[0].sentence
        assert live(bench) == {**ROUTES, "soil": "service", "cancel": "service"}
        assert not github.pulls
        return
    assert live(bench) == {**ROUTES, "cancel": "service"}
    if since == "not merged":
        assert not github.pulls
        assert "taken back" in steps[0].sentence
        return
    (pull,) = github.pulls
    assert pull["html_url"] in steps[0].sentence
    assert "12 of 20 disliked again" in pull["body"]
    assert "<!--" not in pull["title"]
    git(root, "fetch", "-q", "origin")
    assert git(root, "show", f"origin/{pull['head']['ref']}:routes.json") == routes(cancel="service")


def test_one_of_several_rules_of_a_prompt_is_taken_back_alone(bench: Workshop) -> None:
    ruled = [
        PROMPT.replace('tools."""', f'tools.\n\n- {rule}"""') for rule in ("Name the month.", "Give euros.")
    ]
    issues = [
        repair(bench, f"rule-{n}", "desk.PROMPT", "desk.py", "PROMPT", PROMPT, text)
        for n, text in enumerate(ruled)
    ]
    begin(bench, *issues)
    for issue in issues:
        shipped(bench, issue)
    both = str((bench.store.live() or Bundle())["desk.PROMPT"].content)
    assert "Name the month." in both
    assert "Give euros." in both
    take_back(bench, issues[0], work(bench, issues[0]), None)
    left = str((bench.store.live() or Bundle())["desk.PROMPT"].content)
    assert "Name the month." not in left
    assert "Give euros." in left


def test_a_refusal_of_the_same_change_for_another_issue_does_not_hold_it_back(bench: Workshop) -> None:
    soil = route(bench, "soil")
    rows = [[{"task": f"t{n}", "success": n % 2 == side} for n in range(60)] for side in (0, 1)]
    standing = work(bench, soil)
    judged = verdict(*rows, regime="exchangeable")
    assert not judged.promote
    bench.store.put_verdict(replace(judged, candidate=standing["bundle"], baseline=standing["start"]))
    begin(bench, soil)
    shipped(bench, soil)


def test_a_process_that_was_killed_behind_its_release_makes_no_second_one(bench: Workshop) -> None:
    soil = route(bench, "soil")
    begin(bench, soil)
    before = work(bench, soil)
    shipped(bench, soil)
    stand(bench, soil, **before)
    shipped(bench, soil)
    assert len(bench.store.history()) == 1


def test_a_repair_that_nobody_judges_does_not_keep_others_from_their_trial(bench: Workshop) -> None:
    soil, cancel = route(bench, "soil"), route(bench, "cancel")
    begin(bench, soil, cancel)
    trials = LiveTrials(bench, bench.settings.agent.parent)
    trial = trials.standing()
    assert trial is not None
    bench.store.put_state("autopilot/trial", {**trial, "decided_after": [40, 40, 90], "share": 0.25})
    asked = [
        Trajectory(
            id=f"run-{n}",
            task=Task(instruction="Where?", meta={"source": "gateway"}),
            output="Here.",
            started=trial["began"],
        )
        for n in range(60)
    ]
    stand(bench, soil, **{**work(bench, soil), "stage": "shipped"})

    def works(id: str) -> dict[str, Any]:
        return dict(bench.store.state(f"autopilot/work/{id}") or {})

    def full(waiting: int, *, at_once: bool = False) -> str:
        return trials.full(waiting, works, at_once=at_once)

    bench.store.put(*asked[:59])
    assert not full(3), "it has not had half as much traffic again as decided the other"
    bench.store.put(asked[59])
    assert not full(1), "no more wait than are left"
    assert full(2)
    assert not full(1, at_once=True), "harm is not excluded yet: nobody waits for a trial of a few"
    bench.store.put_state("autopilot/trial", {**trial, "share": 0.5})
    assert full(1, at_once=True)
    assert not full(0, at_once=True)

    time.sleep(0.01)  # what it was served until then began before
    stepped = trials.make_room("they do", 1, works).stepped
    assert [*stepped] == [cancel.id]
    stand(bench, cancel, **stepped[cancel.id].work)
    assert trials.close(works)
    begin(bench, cancel)
    second = trials.standing()
    assert second is not None
    thumbs = [
        Trajectory(
            id=f"thumb-{number}-{side}",
            task=Task(instruction="Can I cancel my order?", meta={"source": "gateway"}),
            output="Yes.",
            started=each["began"],
            versions={**bench.store.bundle(each["bundle"]).ids} if side else {},
            feedback=[Feedback(value=1.0, at=each["began"])],
        )
        for number, each in enumerate((trial, second))
        for side in (False, True)
    ]
    bench.store.put(*thumbs)
    assert trials.arms(works(cancel.id), second).pairs == 2, "one of each trial"


@pytest.mark.parametrize(("late", "lasts"), [(0, True), (40, False)])
def test_a_repair_lasts_while_its_own_part_of_the_traffic_is_well(
    bench: Workshop, late: int, lasts: bool
) -> None:
    """Its issue may be several faults; one that comes back late is seen among all that went well before."""
    issue = route(bench, "soil")
    began = 1_000.0

    def asked(number: int, question: str, at: float, liked: bool) -> Trajectory:
        id = f"{question[:9]}-{number}-{at:.0f}"
        note = Feedback(run=id, value=1.0 if liked else -1.0, id=f"thumb-{id}", at=at)
        return Trajectory(
            id=id, task=Task(instruction=question), started=at, subject=f"p{number % 20}", feedback=(note,)
        )

    before = [asked(n, f"Which soil does plant {n} like?", began + n, n % 10 == 0) for n in range(40)]
    before += [asked(n, f"Where is order {n}?", began + n, n % 10 > 0) for n in range(200)]
    bench.store.put(*before)
    stand(
        bench,
        issue,
        **{
            **work(bench, issue),
            "shown": [run.id for run in before[:20]],
            "traffic": 1 / 6,
            "as_of": began + 300,
        },
    )
    begin(bench, issue)
    shipped(bench, issue)
    stand(bench, issue, **{**work(bench, issue), "effect": 0.7, "before": 0.9, "serves": time.time()})
    (at,) = [each.at for each in bench.store.release_log() if each.id == work(bench, issue)["release"]]
    since = [asked(n, f"Which soil does plant {n} like?", at + 1 + n, n % 10 > 0) for n in range(160)]
    since += [asked(n, f"Where is order {n}?", at + 1 + n, False) for n in range(160)]
    since += [asked(n, f"Which soil does plant {n} like?", at + 500 + n, False) for n in range(late)]
    bench.store.put(*since)
    later = replace(bench, night=Night(bench.store, NightBudget(share=0.5), clock=lambda: at + 1_000))
    told = later.since_live(work(bench, issue))
    assert told is not None
    assert bool(told.lasts) is lasts, told.lasts
    assert bool(told.relapse) is not lasts


def test_a_repair_that_the_source_has_lost_is_missed_though_a_later_trial_still_has_it(
    bench: Workshop,
) -> None:
    soil, cancel = route(bench, "soil"), route(bench, "cancel")
    began = 1_000.0

    def asked(number: int, question: str, at: float, liked: bool, **versions: str) -> Trajectory:
        id = f"{question[:9]}-{number}-{at:.0f}"
        note = Feedback(run=id, value=1.0 if liked else -1.0, id=f"thumb-{id}", at=at)
        task = Task(instruction=question)
        return Trajectory(id=id, task=task, started=at, versions=versions, feedback=(note,))

    before = [asked(n, f"Which soil does plant {n} like?", began + n, False) for n in range(40)]
    before += [asked(n, f"Where is order {n}?", began + n, True) for n in range(200)]
    bench.store.put(*before)
    shown = {"shown": [run.id for run in before[:20]], "traffic": 1 / 6, "as_of": began + 300}
    stand(bench, soil, **{**work(bench, soil), **shown})
    begin(bench, soil)
    shipped(bench, soil)
    stand(bench, soil, **{**work(bench, soil), "effect": 0.8, "before": 0.9, "serves": time.time()})
    bench.store.put_state("autopilot/trial", {**(bench.store.state("autopilot/trial") or {}), "ended": True})
    begin(bench, cancel)
    trial = bench.store.bundle(dict(bench.store.state("autopilot/trial") or {})["bundle"]).ids
    (at,) = [each.at for each in bench.store.release_log() if each.id == work(bench, soil)["release"]]
    since = [
        asked(n, f"Which soil does plant {n} like?", at + 1 + n, n % 2 == 0, **(trial if n % 2 == 0 else {}))
        for n in range(120)
    ]
    bench.store.put(*since)
    later = replace(bench, night=Night(bench.store, NightBudget(share=0.5), clock=lambda: at + 1_000))
    told = later.since_live(work(bench, soil))
    assert told is not None
    assert "100% of the newest" in told.relapse
    both = LiveRepair(told.before, told.effect, [n % 2 == 0 for n in range(120)])
    assert not both.relapse, "the control: with the trial's thumbs half of its effect is there"


def test_a_repair_that_has_been_live_for_long_keeps_its_part_and_stays(
    bench: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its runs have left the newest ones that are read: of none of them its part would hold every question."""
    monkeypatch.setattr("whet.autopilot.work.NEWEST", 600)
    issue = route(bench, "soil")

    def asked(place: int, count: int, began: float = 0.0) -> list[Trajectory]:
        runs = []
        for n in range(count):
            question = f"Which soil does plant {n} like?" if n % 5 == 0 else f"Where is order {n}?"
            id = f"run-{place + n}"
            # Nobody likes what is said of orders; nine in ten what is said of soil since it was repaired.
            value = 1.0 if began and n % 5 == 0 and n % 50 else -1.0
            note = Feedback(run=id, value=value, id=f"thumb-{id}", at=began + place + n)
            task = Task(instruction=question)
            runs.append(Trajectory(id=id, task=task, started=began + place + n, feedback=(note,)))
        return runs

    bench.store.put(*asked(0, 300))
    of_issue = {"shown": ["run-0", "run-5", "run-10"], "traffic": 0.2, "as_of": 299.0}
    stand(bench, issue, **{**work(bench, issue), **of_issue})
    begin(bench, issue)
    shipped(bench, issue)
    stand(bench, issue, **{**work(bench, issue), "effect": 0.7, "before": 0.9, "serves": time.time()})
    (at,) = [each.at for each in bench.store.release_log() if each.id == work(bench, issue)["release"]]
    for place in (300, 1_000):
        bench.store.put(*asked(place, 700, at))
        # As a process that begins now reads it.
        later = replace(bench, night=Night(bench.store, NightBudget(share=0.5), clock=lambda: at + 2_000))
        part = later.part_of(work(bench, issue))
        assert part.holds("Which soil does plant 9 like?")
        assert not part.holds("Where is order 9?")
        live = later.since_live(work(bench, issue))
        assert live is not None
        assert live.lasts.startswith("10% of")
        assert not live.relapse
    assert not later.runs(299.0)


def test_an_effect_that_was_proven_too_large_is_no_relapse_by_itself() -> None:
    liked = LiveRepair(before=0.3, effect=0.7, liked=[True] * 60)
    assert liked.lasts
    assert not liked.relapse
    assert LiveRepair(before=0.3, effect=0.7, liked=[True] * 30 + [False] * 30).relapse
