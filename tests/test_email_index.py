"""Search, worlds and inboxes."""

from __future__ import annotations

import random
import re
import sqlite3
import threading
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import InputError, NotFoundError
from whet.types import Task
from whet.worlds.email import Inbox, Mail, MailIndex, MailWorld, generate, tokens


def mail(
    id: str, subject: str, body: str, *, sender: str = "jane@x.org", day: int = 5, month: int = 3
) -> Mail:
    return Mail(
        id=id,
        sender=sender,
        sender_name="Jane Doe",
        date=datetime(2001, month, day, tzinfo=UTC),
        subject=subject,
        body=body,
        own=body,
        mailbox="jane",
    )


MAILS = [
    mail("1", "Lunch on Friday", "bring the contract to lunch"),
    mail("2", "Contract", "the contract was signed after lunch", sender="bob@earthlink.net", month=4),
    mail("3", "Café", "PG&E says: budget 12,000", day=7),
    mail("4", "Noise", "nothing of note"),
]


@pytest.fixture
def index() -> MailIndex:
    return MailIndex(MAILS)


def ids(found: list[Any]) -> list[str]:
    return [hit.id for hit in found]


def test_all_needs_every_word_and_any_needs_one(index: MailIndex) -> None:
    assert set(ids(index.search(["lunch", "contract"]))) == {"1", "2"}
    assert ids(index.search(["lunch", "signed"])) == ["2"]
    assert set(ids(index.search(["budget", "signed"], match="any"))) == {"2", "3"}
    assert index.search(["lunch", "absentword"]) == []


def test_hits_say_how_many_words_occur_and_how_many_in_the_subject(index: MailIndex) -> None:
    first = index.search(["lunch", "friday", "signed"], match="any")[0]
    assert (first.id, first.hits, first.in_subject) == ("1", 2, 2)
    assert first.rank < 0


def test_rank_prefers_the_mail_about_it(index: MailIndex) -> None:
    many = MailIndex(
        [
            *(mail(str(n), "noise", "contract " + "filler " * 40) for n in range(20)),
            mail("x", "contract", "contract"),
        ]
    )
    assert ids(many.search(["contract"]))[0] == "x"
    assert index.search(["contract"])[0].id == "2"


def test_accents_case_and_punctuation_do_not_matter(index: MailIndex) -> None:
    assert ids(index.search(["CAFE"])) == ["3"]
    assert ids(index.search(["pg&e"])) == ["3"]
    assert ids(index.search(["12,000"])) == ["3"]


@pytest.mark.parametrize(
    "word",
    [
        '"',
        '" OR "lunch',
        "lunch*",
        "subject:lunch",
        "NOT",
        "AND OR",
        "(lunch",
        "-lunch",
        "lunch;DROP TABLE mail",
        "^lunch",
    ],
)
def test_words_are_data_and_never_syntax(index: MailIndex, word: str) -> None:
    expected = {"1", "2"} if word in ("lunch*", "(lunch", "-lunch", "^lunch") else set()
    assert set(ids(index.search([word]))) == expected
    assert index.size == 4


@given(st.lists(st.text(max_size=12), max_size=4), st.sampled_from(["all", "any"]))
def test_any_text_can_be_searched(words: list[str], match: Any) -> None:
    INDEX.search(words, match=match)


INDEX = MailIndex(MAILS)


def test_filters_narrow_by_sender_month_and_day(index: MailIndex) -> None:
    assert ids(index.search(["lunch"], sender="EARTHLINK")) == ["2"]
    assert set(ids(index.search(["lunch"], sender="jane doe"))) == {"1", "2"}
    assert ids(index.search(["lunch"], month=4)) == ["2"]
    assert ids(index.search(["lunch"], year=1999)) == []
    assert ids(index.search([], since=date(2001, 3, 7), until=date(2001, 3, 7))) == ["3"]
    assert ids(index.search([]))[0] == "2", "without words the newest comes first"


def test_out_of_range_arguments_are_input_errors(index: MailIndex) -> None:
    for wrong in ({"month": 13}, {"limit": 0}, {"match": "some"}):
        with pytest.raises(InputError):
            index.search(["lunch"], **wrong)  # type: ignore[arg-type]


def test_withheld_mails_are_replaced_by_the_next_best() -> None:
    index = MailIndex([mail(str(n), "plan", f"plan {'x ' * n}") for n in range(60)])
    everything = ids(index.search(["plan"], limit=60))
    assert len(everything) == 60
    hidden = frozenset(everything[:45])
    assert ids(index.search(["plan"], without=hidden)) == everything[45:55]
    assert ids(index.search(["plan"])) == everything[:10], "the memory is shared, and unharmed"


def test_search_agrees_with_reading_every_mail() -> None:
    mails = generate(3, mailboxes=1, mails=80)
    index = MailIndex(mails)
    for word in ("budget", "meter", "pipeline", "invoice"):
        direct = {
            found.id
            for found in mails
            if re.search(rf"\b{word}\b", f"{found.subject} {found.body}", re.IGNORECASE)
        }
        assert {hit.id for hit in index.search([word], limit=80)} == direct
        assert index.document_frequency(word) == len(direct)


def test_missing_words_and_reading(index: MailIndex) -> None:
    assert index.missing(["lunch", "pg&e", "friday"], "2") == ["pg&e", "friday"]
    assert index.read("3").subject == "Café"
    with pytest.raises(NotFoundError, match="search returned"):
        index.read("none")
    with pytest.raises(InputError, match="same id"):
        MailIndex([MAILS[0], MAILS[0]])


def test_threads_may_share_an_index() -> None:
    index = MailIndex(generate(1, mailboxes=1, mails=60))
    words = sorted(index.postings)[:200]
    expected = [ids(MailIndex(index.mails).search([word])) for word in words[:5]]
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for word in words:
                index.search([word], match="any")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert [ids(index.search([word])) for word in words[:5]] == expected


def test_inbox_withholds_counts_and_records() -> None:
    world = MailWorld(MAILS)
    task = Task(initial_state={"mailboxes": ["jane"], "without": ["1"]})
    inbox = world.inbox(task)
    assert ids(inbox.search("lunch contract", month=4)) == ["2"]
    assert inbox.read("2").id == "2"
    with pytest.raises(NotFoundError):
        inbox.read("1")
    assert [(call.tool, call.found and list(call.found)) for call in inbox.log] == [
        ("search", ["2"]),
        ("read", ["2"]),
        ("read", None),
    ]
    assert [call.arguments for call in inbox.log] == [
        {"words": ["lunch", "contract"], "match": "all", "month": 4},
        {"id": "2"},
        {"id": "1"},
    ]


def test_world_makes_one_index_per_set_of_mailboxes() -> None:
    world = MailWorld(generate(0, mailboxes=3, mails=20))
    names = list(world.mailboxes)
    assert world.index(names) is world.index(reversed(names))
    assert world.index(names[:1]).size == 20
    assert world.index(names).size == 60
    assert isinstance(world.inbox(Task(initial_state={"mailboxes": names})), Inbox)
    with pytest.raises(NotFoundError, match="no mailbox 'nobody' here"):
        world.index(["nobody"])
    with pytest.raises(InputError, match="names no mailboxes"):
        world.inbox(Task())


def test_ranking_is_that_of_fts5_for_the_whole_query() -> None:
    index = MailIndex(generate(2, mailboxes=1, mails=120))
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE mail USING fts5(subject, body)")
    for row, found in enumerate(index.mails):
        texts = [" ".join(tokens(text)) for text in (found.subject, found.body)]
        database.execute("INSERT INTO mail(rowid, subject, body) VALUES (?, ?, ?)", (row, *texts))
    rng = random.Random(0)
    for match, operator in (("all", " AND "), ("any", " OR ")):
        for _ in range(40):
            words = rng.sample(sorted(index.tokens[rng.randrange(index.size)]), 3)
            query = operator.join(f'"{word}"' for word in words)
            expected = database.execute(
                "SELECT rowid, bm25(mail, 8.0, 1.0) FROM mail WHERE mail MATCH ? ORDER BY 2, 1", (query,)
            ).fetchall()
            given = index.search(words, match=match, limit=index.size)  # type: ignore[arg-type]
            assert [hit.rank for hit in given] == pytest.approx([rank for _, rank in expected])
            assert {hit.id for hit in given} == {index.mails[row].id for row, _ in expected}
    database.close()
