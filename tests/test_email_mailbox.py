"""Reading mail from disk: what is kept, what is reported, and whose it is."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email.message import EmailMessage
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import InputError
from whet.worlds.email import BODY_KINDS, KINDS, find, read_mail, same
from whet.worlds.email.parse import own_part, parse_mail

PLAIN = (
    b"Message-ID: <%d@x.org>\nDate: Mon, 5 Mar 2001 10:00:00 -0800\nFrom: Jane Doe <jane@x.org>\n"
    b"Subject: s%d\n\nbody %d\n"
)


def mail(number: int) -> bytes:
    return PLAIN % (number, number, number)


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_fields_of_a_plain_mail_are_decoded(tmp_path: Path) -> None:
    put(
        tmp_path / "1.",
        b"Message-ID: <a@b>\nDate: Mon, 5 Mar 2001 10:00:00 -0800\nFrom: =?utf-8?q?J=C3=BCrgen?= <J@X.org>\n"
        b"To: a@b.c,\n\td@e.f\nCc: g@h.i\nSubject: =?iso-8859-1?q?caf=E9?= at\n noon\n"
        b"Content-Type: text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: quoted-printable\n\n"
        b"na=EFve =\nline\n",
    )
    (only,) = read_mail(tmp_path).mails
    assert (only.id, only.sender, only.sender_name) == ("a@b", "j@x.org", "Jürgen")
    assert only.to == ("a@b.c", "d@e.f", "g@h.i")
    assert (only.subject, only.body) == ("café at noon", "naïve line\n")
    assert only.date == datetime(2001, 3, 5, 18, tzinfo=UTC)


@pytest.mark.parametrize("markup", [False, True])
def test_parts_give_text_and_attachment_names(tmp_path: Path, markup: bool) -> None:
    message = EmailMessage()
    message["From"], message["Subject"] = "a@b.c", "parts"
    if markup:
        message.set_content("<html><style>p{}</style><p>Hello &amp; <b>bye</b></p></html>", subtype="html")
    else:
        message.set_content("Hello & bye")
    message.add_attachment(b"\x00\x01", maintype="application", subtype="pdf", filename="../../etc/plan.pdf")
    put(tmp_path / "1.", message.as_bytes())
    (only,) = read_mail(tmp_path).mails
    assert only.body.strip() == "Hello & bye"
    assert only.attachments == ("../../etc/plan.pdf",)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["1."]


def test_what_is_wrong_is_reported_with_its_path_and_nothing_is_lost(tmp_path: Path) -> None:
    put(tmp_path / "good", mail(1))
    put(tmp_path / "empty", b"")
    put(tmp_path / "picture", b"\x89PNG\r\n\x1a\n\x00\x00")
    put(
        tmp_path / "bytes",
        b"From: a@b.c\nSubject: x\nDate: never\nContent-Type: text/plain; charset=ascii\n\ncaf\xe9 \x81\xff",
    )
    put(tmp_path / "headers", b"From: a@b.c\nno field name here\nSubject: y\n\nbody")
    put(tmp_path / "base64", b"From: a@b.c\nSubject: z\nContent-Transfer-Encoding: base64\n\nabcde")
    put(tmp_path / "charset", b"From: a@b.c\nSubject: w\nContent-Type: text/plain; charset=martian\n\nhi")
    (tmp_path / "link").symlink_to(tmp_path / "good")
    reading = read_mail(tmp_path)
    assert sorted(found.subject for found in reading.mails) == ["s1", "w", "x", "y", "z"]
    reasons: dict[str, str] = {}
    for problem in reading.problems:
        name = Path(problem.path).name
        reasons[name] = reasons.get(name, "") + problem.reason
    assert "empty" in reasons["empty"]
    assert "no mail" in reasons["picture"]
    assert "bytes" in reasons["bytes"]
    assert "never" in reasons["bytes"]
    assert "broken headers" in reasons["headers"]
    assert "base64" in reasons["base64"]
    assert "martian" in reasons["charset"]
    assert "link" in reasons["link"]
    assert "good" not in reasons


def test_duplicates_within_a_mailbox_are_left_out_and_named(tmp_path: Path) -> None:
    put(tmp_path / "jane/inbox/1.", mail(1))
    put(tmp_path / "jane/sent/1.", mail(1))
    put(tmp_path / "jane/sent/2.", mail(1).replace(b"<1@", b"<other@"))
    put(tmp_path / "jane/sent/3.", mail(2))
    put(tmp_path / "bob/inbox/1.", mail(1))
    reading = read_mail(tmp_path)
    assert reading.mailboxes == {"bob": 1, "jane": 2}
    assert {duplicate.reason for duplicate in reading.duplicates} == {
        "same Message-ID",
        "same sender, date, subject and body",
    }
    assert len({found.id for found in reading.mails}) == 3, "another mailbox's copy gets an id of its own"


@given(st.binary(max_size=400))
def test_no_bytes_crash_the_parser(content: bytes) -> None:
    parse_mail(content)
    parse_mail(b"From: a@b.c\nContent-Type: " + content)
    parse_mail(b"From: " + content + b"\nContent-Type: multipart/mixed; boundary=x\n\n--x\n" + content)


@pytest.mark.parametrize("charset", ["us-ascii", "utf-8", "iso-8859-1"])
@pytest.mark.parametrize("encoding", ["7bit", "quoted-printable", "base64"])
def test_the_light_parser_reads_what_the_standard_library_reads(charset: str, encoding: str) -> None:
    message = EmailMessage()
    message["From"], message["Subject"] = "Jane Doe <jane@x.org>", "Re: plans"
    text = "line one = two\n.dots\n" + ("" if charset == "us-ascii" or encoding == "7bit" else "é à\n")
    message.set_content(text, charset=charset, cte=encoding)
    parsed, problems = parse_mail(message.as_bytes())
    assert parsed is not None
    assert parsed.body == message.get_content()
    assert (parsed.sender, parsed.sender_name, parsed.subject) == ("jane@x.org", "Jane Doe", "Re: plans")
    assert not [problem for problem in problems if "date" not in problem]


@pytest.mark.parametrize(
    "below",
    [
        "-----Original Message-----\nFrom: Bob\nSent: today\n\nold",
        "---------------------- Forwarded by Bob Roe/HOU/ECT on 04/25/2001 10:30 AM ---\n\nold",
        "> old\n> older",
        "On Monday, Bob Roe wrote:\nold",
        "Bob Roe\n10/25/2000 08:42 AM\nTo: Jane Doe/HOU/ECT@ECT\ncc: x@y\nSubject: Re: s\n\nold",
        "From: Bob Roe\nSent: Monday\nTo: Jane\n\nold",
    ],
)
def test_own_text_ends_where_another_mail_begins(below: str) -> None:
    assert own_part(f"My own words.\nTo: be or not.\n\n{below}") == "My own words.\nTo: be or not."


def test_own_text_of_a_mail_that_quotes_nothing_is_all_of_it() -> None:
    assert own_part("All of it.\nFrom here - to there.\n") == "All of it.\nFrom here - to there."


def test_owner_by_double_underscore_standard_folder_and_grandparent(tmp_path: Path) -> None:
    put(tmp_path / "all/packs/kean-s__ferc/1.", mail(1))
    put(tmp_path / "all/packs/kean-s__rto/1.", mail(2))
    put(tmp_path / "all/full/south-s/sent/1.", mail(3))
    put(tmp_path / "all/full/south-s/projects/deep/1.", mail(4))
    put(tmp_path / "all/full/roe-b/misc/1.", mail(5))
    assert read_mail(tmp_path / "all").mailboxes == {"kean-s": 2, "roe-b": 1, "south-s": 2}
    assert read_mail(tmp_path / "all/full/south-s").mailboxes == {"south-s": 2}
    assert read_mail(tmp_path / "all/full/south-s/sent").mailboxes == {"south-s": 1}
    assert read_mail(tmp_path / "all/full/roe-b").mailboxes == {"roe-b": 1}
    assert read_mail(tmp_path / "all/packs/kean-s__ferc").mailboxes == {"kean-s": 1}


def test_maildir_belongs_to_its_own_name_and_leaves_out_what_is_half_delivered(tmp_path: Path) -> None:
    for number, place in enumerate(("cur", "new", "tmp", ".Sent/cur"), 1):
        put(tmp_path / "jane" / place / f"{number}.host:2,S", mail(number))
    (tmp_path / "jane/.Sent/new").mkdir()
    reading = read_mail(tmp_path / "jane")
    assert reading.mailboxes == {"jane": 3}
    assert {found.folder for found in reading.mails} == {"inbox", "Sent"}
    assert read_mail(tmp_path).mailboxes == {"jane": 3}


def test_mbox_is_split_and_unquoted(tmp_path: Path) -> None:
    line = b"From jane@x.org Mon Mar  5 10:00:00 2001\n"
    put(tmp_path / "jane.mbox", line + mail(1) + b">From here on\n\n" + line + mail(2) + b"\n")
    reading = read_mail(tmp_path / "jane.mbox")
    assert [found.subject for found in reading.mails] == ["s1", "s2"]
    assert "\nFrom here on" in reading.mails[0].body
    put(tmp_path / "bob" / "Inbox.mbox", line + mail(3))
    assert read_mail(tmp_path).mailboxes == {"bob": 1, "jane": 2}


def test_unusable_folders_are_input_errors_that_say_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no mailbox at .*Give a maildir"):
        read_mail(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no files"):
        read_mail(tmp_path / "empty")
    put(tmp_path / "papers/a.pdf", b"%PDF-1.4")
    with pytest.raises(InputError, match=r"nothing in .* is mail"):
        read_mail(tmp_path / "papers")
    with pytest.raises(InputError, match="is not mail"):
        read_mail(tmp_path / "papers/a.pdf")


@pytest.mark.parametrize(
    "text",
    [
        "-" * 300_000,
        "From: " * 50_000,
        "a" * 300_000 + " @",
        "May" + " " * 300_000,
        "To: x\n" * 50_000,
        ("1" * 50 + "-") * 6_000,
        "< <" * 100_000,
        "$" + "1," * 150_000,
        "On " + "x " * 150_000,
    ],
    ids=["dashes", "from", "address", "month", "to", "digits", "angles", "amount", "wrote"],
)
def test_hostile_text_is_read_in_time(text: str) -> None:
    """A pattern of quadratic cost would take minutes on these, not the second allowed here."""
    started = time.process_time()
    parse_mail(b"From: " + text[:20_000].encode().replace(b"\n", b" ") + b"\nSubject: x\n\n" + text.encode())
    for kind in BODY_KINDS:
        find(kind, text)
    for kind in KINDS:
        same(kind, text[:20_000], "1")
    assert time.process_time() - started < 3
