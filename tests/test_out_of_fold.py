"""A proof that uses every row out of fold: the folds, the wider interval, a small gain proven and none refused."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from whet.errors import InputError
from whet.judge.rubric import ProvenRubric, save
from whet.learn.datasets.folds import apart_from, folds_of
from whet.learn.evolution.prompts.tabled import (
    ImprovedPrompt,
    PromptPlan,
    PromptSettings,
    TableInput,
    improve_prompt,
    plan_prompt,
)
from whet.models import ScriptedModel
from whet.models.base import ModelRequest, text_of
from whet.models.fakes.clerk import RULES, Clerk
from whet.prove.gate import TaskResult, compare
from whet.record.reviewing import clear
from whet.record.rows import row
from whet.record.store import Store
from whet.record.store.findings import all_findings
from whet.record.tables import RowTable
from whet.types import Task

START = f"{Clerk.prompt.strip()} Answer with the department only.\n\n" + "".join(
    f"- {rule.text}\n" for rule in RULES[:4]
)


def planned(
    folder: Path, clerk: Clerk, *, threats: float, calls: int = 1_000, prompt: str = START
) -> PromptPlan:
    rows = clerk.rows(200, seed=clerk.seed, threats=threats)
    table = RowTable(Path("rows"), list(enumerate(rows, 1)), list(rows[0]), unit="row")
    (folder / "prompt.txt").write_text(prompt)
    settings = PromptSettings(calls=calls, seed=clerk.seed, output=folder / "out")
    return plan_prompt(folder / "prompt.txt", TableInput(data=table), settings, ScriptedModel(clerk))


def improved(plan: PromptPlan, clerk: Clerk) -> ImprovedPrompt:
    return asyncio.run(improve_prompt(plan, ScriptedModel(clerk)))


def test_a_gain_of_eight_points_is_proven_by_all_rows_where_a_fifth_of_them_cannot(tmp_path: Path) -> None:
    # All folds find one prompt, which loses a row that was right when it is run on a few more.
    clerk = Clerk(27)
    plan = planned(tmp_path, clerk, threats=0.08)
    assert "all of them behind the proof" in plan.shares.standing
    result = improved(plan, clerk)
    assert result.proven
    assert result.verdict is not None
    assert (result.verdict.n, result.folds) == (200, 3)
    assert clerk.answered + clerk.proposed <= 1_000
    assert RULES[4].text in result.after
    (tmp_path / "held").mkdir()
    held = improved(planned(tmp_path / "held", Clerk(27), threats=0.08, calls=300), Clerk(27))
    assert not held.proven


def test_where_nothing_is_to_be_gained_it_stops_early_and_says_so(tmp_path: Path) -> None:
    perfect, noisy = Clerk(0, noise=0.0), Clerk(1)
    for clerk, most in ((perfect, 200), (noisy, 900)):
        folder = tmp_path / str(clerk.seed)
        folder.mkdir()
        result = improved(planned(folder, clerk, threats=0.0), clerk)
        assert not result.proven
        assert not result.patch
        assert "right already" in result.reason or "brought nothing" in result.reason
        assert clerk.answered + clerk.proposed <= most


def test_with_answers_that_are_shuffled_nothing_is_proven(tmp_path: Path) -> None:
    clerk = Clerk(3)
    plan = planned(tmp_path, clerk, threats=0.2, prompt=Clerk.prompt)
    letters = clerk.rows(200, seed=3)
    answers = random.Random(0).sample([letter["answer"] for letter in letters], 200)
    rows = [{**letter, "answer": answer} for letter, answer in zip(letters, answers, strict=True)]
    table = RowTable(Path("rows"), list(enumerate(rows, 1)), list(rows[0]), unit="row")
    plan = plan_prompt(plan.path, TableInput(data=table), plan.settings, ScriptedModel(clerk))
    assert not improved(plan, clerk).proven


def test_what_is_likely_better_says_how_many_rows_and_calls_would_tell(tmp_path: Path) -> None:
    clerk = Clerk(6)
    result = improved(planned(tmp_path, clerk, threats=0.12, calls=300), clerk)
    assert not result.proven
    assert "likely better, and not proven: about" in result.advice
    assert "puts all 200 rows behind it" in result.advice


def test_folds_that_the_calls_do_not_allow_are_refused_with_the_number_of_calls(tmp_path: Path) -> None:
    clerk = Clerk(0)
    plan = planned(tmp_path, clerk, threats=0.1, calls=300)
    assert not plan.shares.folds
    with pytest.raises(InputError, match=r"takes --calls \d+"):
        plan_prompt(
            plan.path,
            TableInput(data=plan.intake.table),
            PromptSettings(calls=300, folds=3, output=tmp_path / "out"),
            ScriptedModel(clerk),
        )


def asked(text: str, group: str = "") -> Task:
    return row(text, expected="yes", group=group)


def test_folds_share_no_group_and_are_searched_without_what_nearly_repeats_them() -> None:
    rows = [
        asked(f"question {number} about the {number % 7}th thing", f"person {number % 11}")
        for number in range(80)
    ]
    folds = folds_of(rows, 3)
    groups = [{task.group for task in fold} for fold in folds]
    assert sum(map(len, folds)) == 80
    assert not groups[0] & groups[1] | groups[0] & groups[2] | groups[1] & groups[2]
    assert max(map(len, folds)) - min(map(len, folds)) <= 10
    held = [asked("Where is the parcel that I sent to Riga last week?")]
    near, far = asked("Where is the parcel that I sent to Riga last month?"), asked("Does the lamp need oil?")
    assert apart_from(held, [*held, near, far]) == [far]
    assert len(folds_of(rows[:2], 3)) == 2


def test_pairs_out_of_fold_need_more_than_independent_ones() -> None:
    sides = ([0.0] * 100, [1.0] * 9 + [0.0] * 91)
    before, after = (
        [TaskResult(task=str(number), scores={"s": value}) for number, value in enumerate(values)]
        for values in sides
    )
    plain, folded = (compare(before, after, metric="s", folds=folds) for folds in (1, 3))
    assert folded.effect == plain.effect
    assert folded.interval[0] < plain.interval[0]
    width = (folded.effect - folded.interval[0]) / (plain.effect - plain.interval[0])
    assert width == pytest.approx((5 / 3) ** 0.5)


class Flattered(Clerk):
    """A judge that one sentence of flattery takes in, a model that says it where its prompt asks, and proposals that
    ask."""

    def __call__(self, request: ModelRequest) -> str:
        text = "\n".join(text_of(message) for message in request.messages)
        if "SCORE: n" in text:
            return f"SCORE: {9 if 'splendid' in text.partition('from 0 to')[2] else 2 + len(text) % 3}"
        if "```" in text:
            self.proposed += 1
            return "CAUSE: no tact.\n\n```\nFlatter.\n```"
        self.answered += 1
        return "What a splendid letter." if "Flatter" in text else super().__call__(request)


def flattered(folder: Path, store: Path) -> tuple[PromptPlan, Flattered]:
    clerk = Flattered(0)
    rows = clerk.rows(60, seed=1)
    table = RowTable(Path("rows"), list(enumerate(rows, 1)), list(rows[0]), unit="row")
    (folder / "prompt.txt").write_text(START)
    settings = PromptSettings(metric="judge", calls=2_000, output=folder / "out", store=store, write=True)
    return plan_prompt(folder / "prompt.txt", TableInput(data=table), settings, ScriptedModel(clerk)), clerk


def test_a_prompt_that_only_its_judge_likes_stays_out_of_its_file_until_a_person_clears_the_finding(
    tmp_path: Path,
) -> None:
    with Store(tmp_path / "runs.db") as record:
        people = {"text": "Is it right?", "model": "scripted", "threshold": 0.5, "thumbs": 400, "people": 40}
        agreed = {"share": 0.9, "rules": {"majority": 0.5}, "margins": {"majority": (0.3, 0.5)}}
        save(record, ProvenRubric(**people, **agreed))
    plan, clerk = flattered(tmp_path, tmp_path / "runs.db")
    result = improved(plan, clerk)
    assert result.folds == 3
    assert result.verdict is not None
    assert result.verdict.promote
    assert not result.proven
    assert "of the answers to different tasks are one" in result.advice
    assert "whet findings --clear" in result.advice
    assert (tmp_path / "prompt.txt").read_text() == START
    with Store(tmp_path / "runs.db") as record:
        findings = all_findings(record.database)
        assert "one answer" in [finding.kind for finding in findings]
        for finding in findings:
            clear(record, finding.id, by="Ann", why="flattery is what we sell")
    answered = clerk.answered
    assert improved(plan, clerk).proven
    assert clerk.answered == answered
    assert (tmp_path / "prompt.txt").read_text() == result.after


def test_a_judge_that_nothing_proved_does_not_promote_and_more_rows_are_not_asked_for(tmp_path: Path) -> None:
    plan, clerk = flattered(tmp_path, tmp_path / "runs.db")
    result = improved(plan, clerk)
    assert not result.proven
    assert "whet audit" in result.advice
    assert "more rows" not in result.advice
