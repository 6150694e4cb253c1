"""The e-mail world on real mail: nine owners, and enough facts of each."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from whet.worlds.email import BODY_KINDS, MailWorld, derive, read_mail


@pytest.fixture
def data() -> Path:
    folder = Path(os.environ.get("WHET_DATA", Path(__file__).parents[1] / "../shared/data")) / "enron_mail"
    if not folder.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"the real mail is absent: {folder}. Set WHET_DATA.")
        pytest.skip(f"the real mail is absent: {folder}. Set WHET_DATA to run this test.")
    return folder


def test_real_mail_has_nine_owners_wherever_one_points(data: Path) -> None:
    reading = read_mail(data)
    owners = "dasovich-j dickson-s germany-c kean-s scott-s south-s steffes-j symes-k williams-w3"
    assert list(reading.mailboxes) == owners.split(" ")
    assert len(reading.mails) + len(reading.duplicates) == 2143
    assert all(re.search("utf-8", problem.reason, re.IGNORECASE) for problem in reading.problems)
    assert list(read_mail(data / "packs/kean-s__ferc").mailboxes) == ["kean-s"]
    assert list(read_mail(data / "full_mailboxes").mailboxes) == ["dickson-s", "south-s"]
    assert list(read_mail(data / "full_mailboxes/south-s").mailboxes) == ["south-s"]


def test_real_mail_gives_facts_of_every_owner(data: Path) -> None:
    real = MailWorld(read_mail(data).mails)
    questions = derive(real, mailboxes=real.mailboxes, seed=0)
    facts = {task.meta["fact"]: task for task in questions if task.meta["unanswerable"] != "absent"}
    assert len(facts) >= 600
    assert {task.group for task in facts.values()} == set(real.mailboxes)
    assert 300 <= sum(task.meta["kind"] in BODY_KINDS for task in facts.values()) <= 450
