"""From raw mail of any kind to rewarded rollouts: questions, or a sentence that says what is missing."""

from __future__ import annotations

from dataclasses import replace
from email.message import EmailMessage
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mail_fuzzer import COMPANY, WORDS, fuzz, made_up, of_folder, sound

from whet.errors import InputError
from whet.worlds.demo.job import SMALL, JobOptions, prepare
from whet.worlds.email import Mail, MailIndex, MailWorld, derive, generate, tokens, write
from whet.worlds.email.__main__ import main
from whet.worlds.email.parse import parse_mail


def mail(number: int, body: str, **fields: str) -> bytes:
    """The bytes of a mail that a question can be about."""
    message = EmailMessage()
    for name, value in {
        "From": f"sender{number}@example.com",
        "Subject": f"agenda {number}",
        **fields,
    }.items():
        message[name] = value
    message["Message-ID"] = f"<{number}@example.com>"
    message.set_content(body)
    return bytes(message)


def parsed(*contents: bytes) -> MailWorld:
    """The mails as one mailbox."""
    mails = []
    for number, content in enumerate(contents):
        read, _ = parse_mail(content)
        assert read is not None
        mails.append(replace(read, id=str(number), mailbox="jane"))
    return MailWorld(mails)


@pytest.mark.parametrize(
    "text",
    [
        "=20guitars",
        "seehttp://shop.example/drums",
        "guitarswww.drums.example",
        "http://" + "a" * 396 + "guitars",
        "guitars@" + "d" * 99 + "drums",
        "x" * 90 + ".docguitars",
        "<mailto:guitars@drums.example>",
    ],
)
def test_a_word_that_only_a_link_holds_is_no_clue(text: str) -> None:
    world = parsed(*(mail(number, f"violin{'abcd'[number]} {text} harpsichord") for number in range(4)))
    tasks = derive(world, mailboxes=["jane"], seed=0, unanswerable=0)
    sound(world, tasks)
    clues = {word["text"] for task in tasks for word in task.meta["clues"]["words"]}
    assert "harpsichord" in clues
    assert not clues & {"guitars", "drums", "itars", "rums", "see"}


@pytest.mark.parametrize("word", ["\U0001e900\U0001e922", "ΟΔΟΣ", "हिन्दी", "日本語", "\U00016e40", "½", "ﬁn"])
def test_a_word_of_any_alphabet_is_found_where_it_stands(word: str) -> None:
    """FTS5 knows the alphabets of Unicode 6.1 and Python newer ones; the index has to be of one mind."""
    index = MailIndex(
        [Mail(id="1", sender="a@b.c", body=f"x {word} y"), Mail(id="2", sender="a@b.c", body="x y")]
    )
    assert tokens(word)
    assert [hit.id for hit in index.search([word, "x"], match="all")] == ["1"]
    assert [hit.id for hit in index.search([word], match="any")] == ["1"]


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"Content-Type: text/html\n", b"<p>guitars<![if !supportEmptyParas]>&nbsp;<![endif]> and <![drums"),
        (b"Content-Type: text/plain; charset=utf-7\n", b"guitars +2AE- end"),
        (b"Content-Type: text/plain; charset=unicode_escape\n", rb"guitars \ud800 end"),
        (b"Content-Type: text/html\n", b"guitars &#xD800; end"),
    ],
    ids=["conditional comment", "utf-7", "unicode_escape", "reference"],
)
def test_an_odd_body_is_read_as_whole_characters(head: bytes, body: bytes) -> None:
    found, _ = parse_mail(b"From: a@b.c\nSubject: x\n" + head + b"\n" + body)
    assert found is not None
    assert "guitars" in found.body
    found.body.encode()


def test_a_broken_encoded_word_in_a_header_stays_as_it_stands() -> None:
    found, _ = parse_mail(b"From: =?utf-8?B?a?= <u@b.c>\nSubject: =?utf-8?B?a?=\n\nx")
    assert found is not None
    assert (found.sender, found.subject) == ("u@b.c", "=?utf-8?B?a?=")


def test_mail_without_a_question_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(5):
        folder = tmp_path / f"owner{number}" / "inbox"
        folder.mkdir(parents=True)
        (folder / "1.eml").write_bytes(mail(number, "письмо без латиницы", Subject="Повестка дня"))
        (folder / "2.eml").write_bytes(mail(number + 10, "words enough to ask by", From=""))
    assert main([str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "of 10 mails 0 can be asked about" in said.err
    assert "5 without a sender's address" in said.err
    assert "5 without two words to ask by" in said.err
    with pytest.raises(InputError, match=r"only 0 questions for train .* it takes 40: of \d+ mails 0 can be"):
        prepare(JobOptions(mail=tmp_path, sizes=SMALL))


def test_a_refusal_names_a_mailbox_with_a_line_break_on_one_line(tmp_path: Path) -> None:
    for number, owner in enumerate(("two\nlines", "plain")):
        folder = tmp_path / owner / "inbox"
        folder.mkdir(parents=True)
        (folder / "1.eml").write_bytes(mail(number, "words enough to ask by"))
    with pytest.raises(
        InputError, match=r"2 mailbox\(es\) \('two\\nlines', plain\)|2 mailbox\(es\) \(plain, 'two"
    ):
        prepare(JobOptions(mail=tmp_path, sizes=SMALL))


def test_a_job_is_judged_on_colleagues_who_hold_copies_of_the_same_mail(tmp_path: Path) -> None:
    write(generate(1, mailboxes=3, mails=60), tmp_path / "mine")
    for place in (tmp_path / "mine").iterdir():
        copy = tmp_path / "held" / f"colleague of {place.name}"
        for file in place.rglob("*"):
            if file.is_file():
                target = copy / file.relative_to(place)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())
    material = prepare(JobOptions(mail=tmp_path / "mine", held_out=tmp_path / "held", sizes=SMALL))
    assert all(name.startswith("colleague of") for name in material.held_out)
    assert {task.group for task in material.gate} <= set(material.held_out)


TEXTS = st.lists(st.sampled_from(WORDS) | st.text(max_size=12), max_size=6).map(" ".join)


@settings(max_examples=15)
@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=4))
@example([("", "")])
@example([("guitars drums", "=20guitars")] * 2)
def test_questions_about_any_text_are_sound(texts: list[tuple[str, str]]) -> None:
    contents = [
        f"From: s{number}@x.org\nSubject: {' '.join(subject.split())}\n\n{body}".encode(
            "utf-8", "surrogatepass"
        )
        for number, (subject, body) in enumerate(texts)
    ]
    world = parsed(*contents)
    sound(world, derive(world, mailboxes=world.mailboxes, seed=0))


def test_the_fuzzer_finds_nothing() -> None:
    done = fuzz(made_up(), seed=0, rounds=6)
    assert done["rounds"] == 6
    assert done["questions"] > 50


def test_the_fuzzer_finds_nothing_in_real_mail(data: Path) -> None:
    done = fuzz(of_folder(data / "enron_mail" / "packs")[::9], seed=0, rounds=4)
    assert done["questions"] > 20


def test_the_fuzzer_would_find_a_clue_that_the_mail_does_not_hold() -> None:
    world = MailWorld(COMPANY)
    tasks = derive(world, mailboxes=world.mailboxes, seed=0)
    words = [{"text": "guitars", "where": "body", "wrong": False}]
    meta = {**tasks[0].meta, "clues": {**tasks[0].meta["clues"], "words": words}}
    sound(world, tasks[:1])
    with pytest.raises(AssertionError):
        sound(world, [replace(tasks[0], meta=meta)])
