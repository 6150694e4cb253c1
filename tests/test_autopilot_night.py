"""A night's budget, its part of alpha, its kill switch and its journal, all of it in the record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from whet.autopilot.evidence import LiveArms, TrialSpan
from whet.autopilot.journal import Journal, read
from whet.autopilot.night import Night, NightBudget, alone, start, stop
from whet.autopilot.pilot import find_due
from whet.autopilot.slices import PartOfTraffic
from whet.autopilot.work import beyond_repair
from whet.errors import BudgetExceeded, StoreBusyError
from whet.prove.verdict import verdict
from whet.record.store import Store
from whet.record.store.issues import AgentIssue, Component
from whet.types import Feedback, Task, Trajectory


def test_what_is_spent_is_recorded_before_it_is_spent_and_outlives_the_process(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        night = Night(store, NightBudget(rollouts=3, calls=2))
        night.meter.reserve(rollouts=2)
        # as a process that is killed here has it
        again = Night(store, NightBudget(rollouts=100))
        assert again.number == night.number
        assert again.meter.spent["rollouts"] == 2
        again.meter.reserve(rollouts=1)
        with pytest.raises(BudgetExceeded, match="3 of 3"):
            again.meter.reserve(rollouts=1)
        assert Night(store, NightBudget()).recorded["rollouts"] == 3


def test_all_proofs_of_a_night_share_its_alpha(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        night = Night(store, NightBudget(alpha=0.05, gates=4))
        parts = [night.alpha(f"gate/{number}") for number in range(4)]
        assert sum(parts) == pytest.approx(0.05)
        assert Night(store, NightBudget()).alpha("gate/0") == parts[0]  # asked again, it is not spent again
        with pytest.raises(BudgetExceeded, match="all 4 proofs"):
            night.alpha("gate/4")


def test_the_switch_and_the_clock_forbid_the_next_call(tmp_path: Path) -> None:
    now = [1000.0]
    with Store(tmp_path / "runs.db") as store:
        night = Night(store, NightBudget(hours=1), clock=lambda: now[0])
        stop(store, "the phone rings")
        with pytest.raises(BudgetExceeded, match="the phone rings"):
            night.meter.reserve(calls=1)
        start(store)
        night.meter.reserve(calls=1)
        now[0] += 3601
        with pytest.raises(BudgetExceeded, match="1 hours of the night are over"):
            night.meter.reserve(calls=1)
        assert night.meter.spent["calls"] == 1


def test_a_night_that_has_ended_is_followed_by_one_with_its_own_budget_and_people(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        first = Night(store, NightBudget(calls=1))
        first.meter.reserve(calls=1)
        first.end("over")
        second = Night(store, NightBudget(calls=1))
        assert second.number == 2
        second.meter.reserve(calls=1)
        sides = [(first.unseen(f"p{n}"), second.unseen(f"p{n}")) for n in range(200)]
        assert 50 < sum(one for one, _ in sides) < 110
        assert any(one != other for one, other in sides)


def test_a_row_of_the_journal_and_where_the_work_stands_are_written_together(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        night = Night(store, NightBudget())
        journal = Journal(store, night)
        journal.write("diagnose", "two pieces may change\x1b[31m", issue="i1", work={"stage": "diagnosed"})
        again = Journal(store, night)
        again.write("propose", "nothing better", issue="i1", work={"stage": "waiting"})
        rows = list(read(store))
        assert [row.number for row in rows] == [1, 2]
        assert again.work("i1") == {"stage": "waiting"}
        assert "\x1b" not in rows[0].line()


def test_two_autopilots_on_one_record_are_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.db")
    with store, alone(store), pytest.raises(StoreBusyError, match="another autopilot"), alone(store):
        raise AssertionError("a second one was let in")


def test_a_part_of_the_traffic_is_told_by_the_words_of_its_questions() -> None:
    own = [f"How many litres are {n} gallons?" for n in range(20)]
    others = [f"How many points do I have, I am number {n}?" for n in range(30)]
    others += [f"Is the pump {n} in stock?" for n in range(200)]
    part = PartOfTraffic.of(own, [*own, *others], share=len(own) / len([*own, *others]))
    assert part.holds("How many litres are 99 gallons?")
    assert not part.holds("How many points do I have, I am number 99?")
    assert not part.holds("Is the lamp in stock?")


def test_a_part_that_most_questions_belong_to_is_told_from_the_few_others() -> None:
    many = [f"How long is the warranty of the pump {n}?" for n in range(120)]
    few = [f"How long is the delivery of the pump {n}?" for n in range(40)]
    part = PartOfTraffic.of(many[:20], [*many, *few], share=0.75)
    assert part.holds("How long is the warranty of the pump 999?")
    assert not part.holds("How long is the delivery of the pump 999?")


def test_words_that_stand_in_for_each_other_mark_out_a_part() -> None:
    """Prices of six articles of thirty are wrong: what every question for a price shares is not what marks them out."""
    things = [f"thing{chr(97 + n // 10)}{chr(97 + n % 10)}" for n in range(30)]
    prices = [f"What does the {things[n % 30]} cost?" for n in range(600)]
    wrong = [question for n, question in enumerate(prices) if n % 30 < 6]
    rest = [f"Is the {things[n % 30]} in stock, order {n}?" for n in range(3_000)]
    part = PartOfTraffic.of(wrong[:20], [*prices, *rest], share=len(wrong) / 3_600)
    assert [sum(map(part.holds, each)) for each in (wrong, prices, rest)] == [120, 120, 0]
    misled = PartOfTraffic.of(wrong[:20], [*prices, *rest], share=0.0)
    assert all(map(misled.holds, wrong[:20])), "a share that is wrong leaves the issue its own questions"


def test_issues_are_looked_for_again_by_growth_and_in_a_large_record_by_count() -> None:
    assert find_due(1, 0)
    assert not find_due(124, 100)
    assert find_due(125, 100)
    assert not find_due(104_999, 100_000)
    assert find_due(105_000, 100_000), "a new fault would go on for days"


def test_a_question_with_less_is_another_one() -> None:
    things = ("lamp", "hoe", "saw", "pump", "gate")
    coupons = [f"What does the {things[n % 5]} cost with a {n} percent coupon?" for n in range(60)]
    plain = [f"What does the {things[n % 5]} cost?" for n in range(300)]
    rest = [f"Where is order {n}, and when will it reach me?" for n in range(2_000)]
    part = PartOfTraffic.of(coupons[:20], [*coupons, *plain, *rest], share=60 / 2_360)
    assert [sum(map(part.holds, each)) for each in (coupons, plain, rest)] == [60, 0, 0]


@pytest.mark.parametrize(
    ("component", "where", "beyond"),
    [
        (Component.UPSTREAM, {"tool error": "cancel: KeyError: 'state'"}, False),
        (Component.UPSTREAM, {"tool error": "order: HTTPError: HTTP Error 503: Service Unavailable"}, True),
        (Component.UPSTREAM, {"tool": "search"}, True),
        (Component.TOOL, {"tool error": "order: timed out"}, False),
        (Component.NONE, {"word": "poem"}, True),
    ],
)
def test_a_service_that_answers_in_another_form_is_not_beyond_repair(
    component: Component, where: dict[str, str], beyond: bool
) -> None:
    assert beyond_repair(AgentIssue(id="i", name="n", component=component, where=where)) is beyond


def _run(number: int, liked: bool, version: str) -> Trajectory:
    return Trajectory(
        id=f"run-{number}",
        task=Task(instruction="How long?"),
        versions={"desk.PROMPT": version},
        started=float(number),
        feedback=[Feedback(run=f"run-{number}", value=1.0 if liked else -1.0, id=f"f{number}")],
    )


def test_the_thumbs_of_both_arms_prove_what_people_like_better_and_files_repeat_it(tmp_path: Path) -> None:
    worse = [
        _run(n, liked=(n % 2 == 0 and n % 10 > 1) or n % 16 == 1, version="new" if n % 2 else "old")
        for n in range(120)
    ]
    arms = LiveArms.of(TrialSpan(worse, {"new"}))
    judged = arms.verdict("candidate", 0.01)
    assert judged is not None
    assert not judged.promote
    better = [_run(n, liked=n % 2 == 1, version="new" if n % 2 else "old") for n in range(60)]
    arms = LiveArms.of(TrialSpan(better, {"new"}))
    judged = arms.verdict("candidate", 0.01)
    assert judged is not None
    assert judged.promote
    assert judged.e_value >= 100
    live, candidate = arms.write(tmp_path)
    assert verdict(live, candidate, regime="exchangeable", watched=True).e_value == judged.e_value
    unserved = LiveArms.of(TrialSpan(worse, ()))
    assert unserved.verdict("candidate", 0.01) is None


def test_what_people_said_goes_with_a_repair_to_its_next_trial_and_no_pair_is_of_two() -> None:
    first = [_run(n, liked=n < 6, version="new" if n < 6 else "old") for n in range(20)]
    second = [_run(100 + n, liked=n % 2 == 1, version="newer" if n % 2 else "old") for n in range(20)]
    one, other = TrialSpan(first, {"new"}), TrialSpan(second, {"newer"})
    arms = LiveArms.of(one, other)
    assert (LiveArms.of(one).pairs, LiveArms.of(other).pairs, arms.pairs) == (6, 10, 16)
    sides = [[int(str(row["run"])[4:]) >= 100 for row in arms.rows(side)] for side in ("live", "candidate")]
    assert sides == [[False] * 6 + [True] * 10] * 2
    proven = [each.verdict("candidate", 1e-3) for each in (LiveArms.of(one), LiveArms.of(other), arms)]
    assert [judged is not None and judged.promote for judged in proven] == [False, False, True]


def test_one_person_with_much_traffic_decides_no_trial() -> None:
    def thumb(number: int, person: str, liked: bool, version: str) -> Trajectory:
        feedback = [Feedback(value=1.0 if liked else -1.0, at=float(number))]
        return Trajectory(
            task=Task(instruction=f"q{number}"),
            started=float(number),
            subject=person,
            versions={"prompt": version},
            feedback=feedback,
        )

    honest = [
        thumb(n, f"p{n % 20}", n % 3 > 0 if n % 2 else n % 9 > 0, "new" if n % 2 else "old")
        for n in range(200)
    ]
    hostile = [thumb(200 + n, "troll", bool(n % 2), "new" if n % 2 else "old") for n in range(400)]
    bought = [replace(run, subject=f"troll{n}") for n, run in enumerate(hostile)]
    alone, beside, many = (
        LiveArms.of(TrialSpan(runs, {"new"})) for runs in (honest, honest + hostile, honest + bought)
    )
    assert beside.pairs - alone.pairs == 10
    assert many.pairs - alone.pairs == 200, "the control: the same thumbs of as many people count"
    again = LiveArms.of(TrialSpan(honest + hostile[:300], {"new"}))
    assert again.rows("candidate") == beside.rows("candidate"), "a pair that was looked at stays what it was"
