"""Derived questions: their tiers, their clues, and that the unanswerable ones are."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pytest

from whet.errors import InputError, NotFoundError
from whet.types import Task, canonical
from whet.worlds.email import (
    BODY_KINDS,
    KINDS,
    TEMPLATE_WORDS,
    TIERS,
    Clues,
    ClueWord,
    MailWorld,
    derive,
    extract,
    find,
    generate,
    plain_subject,
    read_mail,
    tokens,
    write,
)
from whet.worlds.email.__main__ import main
from whet.worlds.email.phrasing import phrase


@pytest.fixture(scope="module")
def world() -> MailWorld:
    return MailWorld(generate(5, mailboxes=4, mails=120))


@pytest.fixture(scope="module")
def tasks(world: MailWorld) -> list[Task]:
    return derive(world, mailboxes=world.mailboxes, seed=0)


def clues(task: Task) -> Clues:
    return Clues.from_json(task.meta["clues"])


def test_same_seed_gives_the_same_questions_and_another_seed_others(
    world: MailWorld, tasks: list[Task]
) -> None:
    again = derive(MailWorld(generate(5, mailboxes=4, mails=120)), mailboxes=world.mailboxes, seed=0)
    assert [canonical(task.meta) for task in again] == [canonical(task.meta) for task in tasks]
    assert [task.id for task in again] == [task.id for task in tasks]
    other = {task.instruction for task in derive(world, mailboxes=world.mailboxes, seed=1)}
    assert len(other & {task.instruction for task in tasks}) < len(other) / 4


def test_every_kind_and_tier_is_asked_and_a_third_cannot_be_answered(tasks: list[Task]) -> None:
    assert {(task.meta["tier"], task.meta["kind"]) for task in tasks} == {
        (t, k) for t in TIERS for k in KINDS
    }
    share = sum(task.answer is None for task in tasks) / len(tasks)
    assert 0.30 <= share <= 0.40
    assert {task.meta["unanswerable"] for task in tasks} == {None, "withheld", "absent"}
    assert len({task.id for task in tasks}) == len(tasks)


def test_answers_stand_in_their_evidence(world: MailWorld, tasks: list[Task]) -> None:
    whole = world.index(world.mailboxes)
    for task in tasks:
        mail = whole.read(task.meta["mail"])
        assert task.group == mail.mailbox
        assert set(task.initial_state["mailboxes"]) == (
            set(world.mailboxes) if task.meta["tier"] == "hard" else {mail.mailbox}
        )
        if task.answer is not None:
            assert extract(task.meta["kind"], mail) == [task.answer]
            assert task.meta["evidence"] == mail.id
            assert mail.id not in task.initial_state["without"]
        else:
            assert task.meta["evidence"] is None


def test_true_clues_are_true_and_wrong_ones_wrong(world: MailWorld, tasks: list[Task]) -> None:
    whole = world.index(world.mailboxes)
    for task in tasks:
        gold, mail = clues(task), whole.read(task.meta["mail"])
        held = whole.tokens[whole.rows[mail.id]]
        for word in gold.words:
            assert held.issuperset(tokens(word.text)) is not word.wrong
            assert task.meta["tier"] == "exact" or word.text not in TEMPLATE_WORDS
        if gold.sender:
            named = gold.sender in f"{mail.sender_name} <{mail.sender}>".lower()
            assert named is not gold.sender_wrong
        if gold.month:
            assert mail.date is not None
            assert mail.date.month == gold.month


def test_true_clues_of_identified_questions_leave_one_value(world: MailWorld, tasks: list[Task]) -> None:
    """Judged by reading every mail, not by the index that chose the clues."""
    for task in random.Random(0).sample(tasks, 150):
        gold = clues(task)
        seen: set[str] = set()
        for name in task.initial_state["mailboxes"]:
            for mail in world.mailboxes[name]:
                words = set(tokens(mail.subject)) | set(tokens(mail.body))
                whole = f"{mail.sender_name} <{mail.sender}>".lower()
                fits = all(word.text in words for word in gold.words if not word.wrong)
                fits &= not gold.sender or gold.sender_wrong or gold.sender in whole
                fits &= not gold.month or (mail.date is not None and mail.date.month == gold.month)
                quoted = None if gold.subject is None else plain_subject(gold.subject).lower()
                fits &= quoted in (None, plain_subject(mail.subject).lower())
                if fits and mail.id not in task.initial_state["without"]:
                    seen.update(extract(gold.kind, mail))
        assert task.meta["identified"] is False or seen == (
            {task.answer} if task.answer is not None else set()
        )
        assert task.meta["identified"] or task.meta["tier"] == "vague"


def test_withheld_evidence_is_not_found_and_no_fitting_mail_gives_its_value(
    world: MailWorld, tasks: list[Task]
) -> None:
    for task in tasks:
        if task.meta["unanswerable"] != "withheld":
            continue
        assert task.meta["mail"] in task.initial_state["without"]
        inbox = world.inbox(task)
        gold = clues(task)
        found = inbox.search([word.text for word in gold.words if not word.wrong])
        assert task.meta["mail"] not in {hit.id for hit in found}


def test_absent_attributes_are_nowhere_in_the_mail(world: MailWorld, tasks: list[Task]) -> None:
    whole = world.index(world.mailboxes)
    absent = [task for task in tasks if task.meta["unanswerable"] == "absent"]
    assert absent
    for task in absent:
        assert task.meta["kind"] in BODY_KINDS
        assert find(task.meta["kind"], whole.read(task.meta["mail"]).body) == []


def test_tiers_have_the_shares_that_they_promise(world: MailWorld) -> None:
    many = derive(world, mailboxes=world.mailboxes, seed=2, variants=3)
    vague = [clues(task) for task in many if task.meta["tier"] == "vague"]
    hard = [clues(task) for task in many if task.meta["tier"] == "hard"]

    def share(gold: list[Clues], what: object) -> float:
        return sum(map(what, gold)) / len(gold)  # type: ignore[call-overload]

    assert 0.24 <= share(vague, lambda c: c.month is not None) <= 0.36
    assert 0.27 <= share(vague, lambda c: any(w.wrong for w in c.words)) <= 0.40
    assert all(sum(w.wrong for w in c.words) <= 1 for c in vague)
    assert 0.14 <= share(hard, lambda c: c.month is not None) <= 0.28
    assert 0.11 <= share(hard, lambda c: c.sender_wrong) <= 0.19
    assert Counter(sum(w.wrong for w in c.words) for c in hard).keys() == {0, 1, 2}
    true_words = [w for c in hard for w in c.words if not w.wrong]
    assert sum(w.where == "body" for w in true_words) > 0.6 * len(true_words)


def test_questions_show_every_clue_and_give_nothing_away(tasks: list[Task]) -> None:
    for task in tasks:
        gold, text = clues(task), task.instruction.lower()
        if task.meta["tier"] == "exact":
            assert gold.kind == "subject" or f'"{gold.subject}"'.lower() in text
        else:
            assert gold.subject is None
            assert all(re.search(rf"\b{re.escape(word.text)}\b", text) for word in gold.words)
        assert gold.sender is None or gold.sender in text
        assert gold.kind != "sender" or gold.sender is None
        assert gold.kind != "subject" or not any(word.where == "subject" for word in gold.words)
        assert task.answer is None or task.answer.lower() not in text
        assert "{" not in text
        assert "  " not in text


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_tier_of_each_kind_has_at_least_eight_wordings(tier: str, kind: str) -> None:
    gold = Clues(
        kind=kind,  # type: ignore[arg-type]
        words=(ClueWord("lunch", "subject"), ClueWord("contract", "body")),
        sender=None if kind == "sender" else "jane@x.org" if tier == "exact" else "jane",
        sender_form=None if kind == "sender" else "first",
        subject="Lunch" if tier == "exact" else None,
    )
    shapes = set()
    for seed in range(400):
        text = phrase(gold, tier, random.Random(seed)).lower()  # type: ignore[arg-type]
        shapes.add(
            re.sub(
                r"\b(about|on|regarding|concerning|the|lunch|contract|and|mentioning|with|words|that|mentioned|where|it|says)\b",
                "",
                text,
            )
        )
    assert len(shapes) >= 8


def test_a_past_date_is_not_asked_for_as_if_it_were_to_come() -> None:
    gold = Clues(kind="date", words=(ClueWord("lunch", "subject"),))
    for seed in range(200):
        for tier in ("vague", "hard"):
            assert not re.search(
                "^when|happen", phrase(gold, tier, random.Random(seed), coming=False), re.IGNORECASE
            )  # type: ignore[arg-type]


def test_unusable_arguments_are_input_errors(world: MailWorld) -> None:
    for wrong in ({"unanswerable": 1.5}, {"variants": 0}, {"tiers": ["odd"]}):
        with pytest.raises(InputError):
            derive(world, mailboxes=world.mailboxes, seed=0, **wrong)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError):
        derive(world, mailboxes=["nobody"], seed=0)
    with pytest.raises(InputError):
        Clues.from_json({"kind": 3})


def test_clues_survive_json(tasks: list[Task]) -> None:
    gold = clues(tasks[0])
    assert Clues.from_json(gold.to_json()) == gold


def test_generated_mail_written_and_read_is_equal(tmp_path: Path) -> None:
    mails = generate(9, mailboxes=3, mails=40)
    assert mails == generate(9, mailboxes=3, mails=40)
    assert mails != generate(10, mailboxes=3, mails=40)
    assert write(mails, tmp_path / "mail") == len(mails) == 120
    reading = read_mail(tmp_path / "mail")
    assert list(reading.mails) == mails
    assert not reading.problems
    assert not reading.duplicates


def test_the_sample_command_prints_questions_and_refuses_what_is_no_mailbox(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(generate(9, mailboxes=2, mails=40), tmp_path / "mail")
    assert main([str(tmp_path / "mail"), "--sample", "5"]) == 0
    assert capsys.readouterr().out.count("answer:") == 5
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "there is no mailbox" in capsys.readouterr().err
