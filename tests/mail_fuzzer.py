"""A fuzzer from raw mail to rewarded rollouts: python tests/mail_fuzzer.py SECONDS [SEED] [FOLDER OF MAIL]

It damages mails (made up, or real ones from a folder) in bytes, headers, character sets, parts and
words, and lays them out as a maildir, an mbox, a folder tree or single files of oddly named owners.
What must hold: reading ends in mails or in an InputError; every true clue word is in the mail that the
question is about, as the index knows it; every rollout ends with a finite reward and can be stored; and
the main job finds its questions or says in one sentence what is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import json
import math
import os
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whet.errors import InputError
from whet.record.env import rollout
from whet.record.policy import Action
from whet.record.store.codec import encode
from whet.types import Bundle, Outcome, Task, Version
from whet.worlds.demo.agents import MailAgents
from whet.worlds.demo.job import SMALL, JobOptions, prepare
from whet.worlds.email import MailEnv, MailWorld, derive, generate, read_mail, tokens, write
from whet.worlds.email.__main__ import main

CHARSETS = (
    "us-ascii", "utf-8", "iso-8859-1", "iso-8859-15", "cp1252", "koi8-r", "shift_jis", "gb18030",
    "big5", "iso-2022-jp", "utf-16", "utf-7", "unicode_escape", "raw_unicode_escape", "rot13", "idna",
    "punycode", "undefined", "hex", "cp437", "x-unknown", '"', "", "\0", "utf-8\"; x=y",
    "ansi_x3.4-1968", "utf-8-sig",
)  # fmt: skip
WORDS = (
    "guitars=20music", "=20guitars", "=3Dguitars=0A", "http://shop.example/guitars?x=drums",
    "seehttp://a.b/c", "guitarswww.drums.example", "mail.guitars@drums.example", "<<guitars.doc>>",
    "x" * 90 + ".docguitars", "http://" + "a" * 396 + "guitars", "guitars@" + "d" * 99 + "drums",
    "<mailto:guitars@x>", "<<" + "a " * 99 + "b>>", "Ünïcödé", "ΟΔΟΣ", "ΟΔΟΣ.Α", "straße", "İstanbul",
    "\u212aelvin", "ﬁnance", "①②", "½", "日本語", "한국어", "中文信件", "हिन्दी", "العربية", "עברית", "ไทย",
    "\U0001e900\U0001e922", "\U00010428", "\U00016e40x", "𝐦𝐚𝐭𝐡", "🎸", "e\u0301te\u0301", "\u0301",
    "a\u200bb", "a\u00adb", "\ufeff", "\ud7ff", "\U0010ffff", "under_score", "it's", "l’été",
    "A" * 5_000, "ab" * 20_000, "-" * 2_000, "{subject}", "{0}", "%s", '"', "“quoted”", "\\", "\x85",
    "\x0c", "\x1b[31m", "\x00", "\x7f", "NULL", "<script>guitars</script>", "&nbsp;guitars&#55357;",
    "&#xD800;", "713-853-1234", "+49 (0)30 1234-5678", "$1,000.00", "$" + "9" * 60, "$.5 million",
    "$1e9", "$5.17 mm", "March 5, 2001", "2/30/2001", "31.12.1999", "01/02/00", "5 March 1900",
    "2100-12-31", "13/13/13", "٠٣/٠٣/٢٠٠١", "On Monday someone wrote:", "\n> quoted guitars\n",
    "\n-----Original Message-----\nFrom: a@b.c\nSent: x\n", "\n-- \nJane\n713-853-1234\n",
    "\nTo: a\ncc: b\nSubject: c\n", "unknown", "march", "subject", "may",
)  # fmt: skip
FIELDS = (
    "From", "from", "Sender", "Return-Path", "To", "Cc", "Subject", "Date", "Message-ID", "X-From",
    "Content-Type", "Content-Transfer-Encoding", "Content-Disposition", "MIME-Version", "Received",
    "Xÿ",
)  # fmt: skip
VALUES = (
    "", " ", "a@b.c", "<>", "<a@b.c>", "@", "a@", "Jane Doe <jane@example.com>",
    '"Doe, Jane" <jane@example.com>', "jane@example.com, bob@example.com",
    "=?utf-8?B?w7xiZXI=?= <u@example.com>", "=?utf-8?B?w7xiZX?=", "=?utf-8?B?!?=",
    "=?utf-8?Q?=ED=A0=80?=", "=?utf-7?Q?+2AE-?=", "=?x-no?Q?a?=", "=?unicode_escape?Q?=5Cud800?=",
    "=?utf-8?X?a?=", "=?utf-8?B?a?= =?utf-8?B?====?=", "=??Q??=", "Re: Re: fw:", "Re[2]: AW: guitars",
    "Re: ", "x" * 3_000, "Mon, 05 Mar 2001 10:00:00 -0600", "Mon, 05 Mar 2001 10:00:00", "5 Mar 01",
    "Thu, 1 Jan 1900 00:00:00 +0000", "Fri, 31 Dec 2100 23:59:59 -0000",
    "Mon, 1 Jan 0001 00:00:00 +1400", "Fri, 31 Dec 9999 23:59:59 -1200",
    "Mon, 99 Foo 2001 99:99:99 +9999", "Mon, 5 Mar 99999 10:00:00 +0000", "1", "now",
    "Mon, 5 Mar 2001 10:00:00 +99999999", "same@id", "<same@id>", "<same@id#bob>", "<a b@c>", "<\x00>",
    "<../../x>", "text/plain", "text/html", "text/html; charset=utf-7", "multipart/mixed; boundary=b",
    "multipart/mixed", "multipart/alternative; boundary=", "message/rfc822",
    "text/plain; charset*=utf-8''%ff", "text/plain; name*0*=x'y'%e4; name*1=z",
    "message/delivery-status", "application/octet-stream; name=\"=?utf-8?B?!?=\"",
    "attachment; filename*=utf-8''%ed%a0%80", "attachment; filename=\xff", "image/png; name=\"\xe4\"",
    "text/calendar", "base64", "quoted-printable", "x-uuencode", "uuencode", "8bit", "7BIT ", "yenc",
)  # fmt: skip
HTML = (
    "<p>guitars</p><a href='http://x/drums'>here</a>", "<![if !supportEmptyParas]>&nbsp;<![endif]>",
    "<![guitars", "<!", "<![", "<!DOCTYPE [<!ENTITY", "<!-- guitars", "<script>drums", "</",
    "&#99999999999;", "<a href=\"", "<?xml", "<![CDATA[x", "<!>",
)  # fmt: skip
OWNERS = (
    "jane", "Jörg", "名前", "a b", "x__y", "inbox", "bob", "..a", "'", "{0}", "%s", "a\nb",
    os.fsdecode(b"\xff\xfe"), "sent", "cur",
)  # fmt: skip
LAYOUTS = ("maildir", "mbox", "folder", "file", "flat")
QUESTIONS = 12
"""Of one case are asked of the agents."""
COMPANY = generate(3, mailboxes=3, mails=60)


def made_up() -> list[bytes]:
    """Mails of a synthetic company, as bytes."""
    with tempfile.TemporaryDirectory() as folder:
        write(COMPANY, Path(folder))
        return [path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()]


def of_folder(folder: Path) -> list[bytes]:
    """All mails under a folder, as bytes."""
    return [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]


def damaged(mail: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    """A mail with up to six things wrong in it."""
    for _ in range(chance.choice((0, 1, 1, 2, 3, 6))):
        head, _, body = mail.partition(b"\n\n")
        match chance.randrange(10):
            case 0:
                mail = _bytes(mail, chance, others)
            case 1 | 2:
                field, value = chance.choice(FIELDS), chance.choice(VALUES)
                mail = f"{field}: {value}\n".encode("utf-8", "surrogatepass") + mail
            case 3:
                lines = head.split(b"\n")
                del lines[chance.randrange(len(lines))]
                mail = b"\n".join(lines) + b"\n\n" + body
            case 4 | 5 | 6:
                words = body.decode("utf-8", "replace").split(" ")
                for _ in range(chance.randint(1, 5)):
                    words.insert(chance.randint(0, len(words)), chance.choice(WORDS))
                mail = head + b"\n\n" + " ".join(words).encode("utf-8", "surrogatepass")
            case 7:
                charset = chance.choice(CHARSETS)
                kind = chance.choice(("plain", "html", "html", "x"))
                with contextlib.suppress(LookupError, ValueError):
                    body = body.decode("utf-8", "replace").encode(charset, "replace")
                mail = f"Content-Type: text/{kind}; charset={charset}\n".encode() + head + b"\n\n" + body
            case 8:
                mail = b"Content-Type: text/html\n" + head + b"\n\n" + chance.choice(HTML).encode() + body
            case _:
                mail = _in_parts(head, body, chance)
    return mail


def _bytes(mail: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    data = bytearray(mail or b"x")
    place = chance.randrange(len(data))
    match chance.randrange(5):
        case 0:
            data[place] = chance.randrange(256)
        case 1:
            del data[place:]
        case 2:
            data[place:place] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 40)))
        case 3:
            other = chance.choice(others)
            data[place:] = other[chance.randrange(len(other)) :]
        case _:
            return mail.replace(b"\n", chance.choice((b"\r\n", b"\r", b"\n\n")))
    return bytes(data)


def _in_parts(head: bytes, body: bytes, chance: random.Random) -> bytes:
    parts = [b"Content-Type: multipart/mixed; boundary=b\n" + head + b"\n"]
    for _ in range(chance.randint(0, 4)):
        fields = [
            f"{chance.choice(FIELDS[10:13])}: {chance.choice(VALUES)}" for _ in range(chance.randint(0, 2))
        ]
        parts.append(
            "\n".join(["", *fields]).encode() + b"\n\n" + chance.choice((body, b"", body[:99])) + b"\n"
        )
    return b"--b".join(parts) + chance.choice((b"--b--", b"", b"--b"))


def lay_out(folder: Path, seeds: Sequence[bytes], chance: random.Random) -> Path:
    """Write a case and say where it is: up to five owners with none to 25 mails each."""
    counter = itertools.count()
    for owner in chance.sample(OWNERS, chance.choice((0, 1, 1, 3, 4, 5))):
        mails = [damaged(chance.choice(seeds), chance, seeds) for _ in range(chance.choice((0, 1, 2, 8, 25)))]
        if mails and chance.random() < 0.2:
            mails += chance.sample(mails, 1)
        layout = chance.choice(LAYOUTS)
        if layout == "mbox":
            line = b"From jane@x.org Mon Mar  5 10:00:00 2001\n"
            (folder / f"{owner}.mbox").write_bytes(b"\n\n".join(line + mail for mail in mails))
            continue
        place = {"maildir": folder / owner / "cur", "folder": folder / owner / "inbox", "flat": folder}.get(
            layout, folder / owner
        )
        place.mkdir(parents=True, exist_ok=True)
        if layout == "maildir":
            for name in ("new", "tmp"):
                (place.parent / name).mkdir(exist_ok=True)
        for mail in mails:
            (place / f"{next(counter)}.eml").write_bytes(mail)
    files = [path for path in folder.rglob("*") if path.is_file()]
    return chance.choice(files) if files and chance.random() < 0.1 else folder


class Reckless:
    """A policy that calls tools as it likes, well and badly formed."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    async def act(self, observation: Any, /) -> Action:
        chance = self.chance
        ids = [hit["id"] for hit in observation.get("results", ())] or ["none"]
        words = chance.choices([*WORDS[:60], "the", "", " "], k=chance.randint(0, 3))
        calls = [
            {"tool": "search", "words": words, "match": match} for match in ("any", "all", "any", "all", "x")
        ]
        calls += [{"tool": "read", "id": chance.choice(ids)}] * 3
        calls += [
            {"tool": "search", "words": words, "month": 13},
            {"tool": "unknown"},
            {"tool": "answer", "text": words},
        ]
        calls += [
            {"tool": "answer", "text": " ".join(words), "sources": ids},
            {"tool": "search", "words": words, "since": "x"},
        ]
        return Action(chance.choice([*calls, "{", None, 7]))


def sound(world: MailWorld, tasks: Sequence[Task]) -> None:
    """The questions are what they say they are."""
    assert len({task.id for task in tasks}) == len(tasks)
    for task in tasks:
        encode(task)
        index = world.index(task.initial_state["mailboxes"])
        row = index.rows[task.meta["mail"]]
        for word in task.meta["clues"]["words"]:
            there = index.tokens[row].issuperset(tokens(word["text"]))
            assert there is not word["wrong"], (word, task.instruction)
        assert (task.answer is None) == (task.meta["unanswerable"] is not None)
        true = [word["text"] for word in task.meta["clues"]["words"] if not word["wrong"]]
        hits = index.search(true, match="all", limit=index.size)
        assert task.meta["mail"] in {hit.id for hit in hits}, (true, task.instruction)


async def rolled_out(world: MailWorld, task: Task, chance: random.Random, agents: MailAgents) -> None:
    """The task ends with each of the agents, and what they did can be stored."""
    arm = chance.choice(("rule", "naive"))
    rule = {"order": "clues", "rarity": 0.5, "read": 3, "title": chance.choice((0.0, 1.0))}
    parser = {"sender": chance.choice(("name", "phrase")), "quotes": True, "month": True}
    knobs = [Version(resource="rule", content=dict(agents.agent.RULE) | rule)]
    knobs += [Version(resource="parser", content=dict(agents.agent.PARSER) | parser)]
    bundle = Bundle([*(knobs if chance.random() < 0.5 else []), Version(resource="arm", content=arm)])
    for policy in (agents(bundle, 0), Reckless(chance)):
        run = await rollout(MailEnv(world, max_turns=4), policy, task, seed=0)
        assert run.error is None, run.error
        assert run.outcome in (Outcome.SUCCESS, Outcome.FAILURE, Outcome.TRUNCATED)
        assert math.isfinite(run.reward or 0.0)
        encode(run)


def refused(error: InputError) -> None:
    """It is one line that can be printed anywhere."""
    text = str(error)
    assert text.isprintable(), text
    assert len(text) > 30, text


def whole(place: Path, chance: random.Random, tally: Counter[str]) -> None:
    """From the mail at `place` to questions, rollouts and the main job's material."""
    reading = None
    try:
        reading = read_mail(place)
    except InputError as error:
        refused(error)
        tally["refused"] += 1
    expected = 2
    if reading is not None:
        world = MailWorld(reading.mails)
        tasks = derive(world, mailboxes=world.mailboxes, seed=chance.randrange(9))
        sound(world, tasks)
        tally["mails"] += len(reading.mails)
        tally["questions"] += len(tasks)
        agents = MailAgents(world)
        for task in chance.sample(tasks, min(len(tasks), QUESTIONS)):
            asyncio.run(rolled_out(world, task, chance, agents))
        for word in WORDS:
            for match in ("any", "all"):
                world.index(world.mailboxes).search([word], match=match)  # type: ignore[arg-type]
        expected = 0 if tasks else 2
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert main([str(place), "--sample", "3"]) == expected
    for stream in (out, err):
        stream.seek(0)
    assert bool(err.read()) is (expected == 2)
    assert bool(out.read()) is (expected == 0)
    _prepared(JobOptions(mail=place, sizes=SMALL, fold=chance.choice((None, 0, 1))), tally)
    if chance.random() < 0.1:
        # Two folders of one company: both hold some of the same mails.
        with tempfile.TemporaryDirectory() as folder:
            write(COMPANY, Path(folder))
            _prepared(JobOptions(mail=Path(folder), held_out=place, sizes=SMALL), tally)


def _prepared(options: JobOptions, tally: Counter[str]) -> None:
    try:
        prepare(options)
        tally["jobs"] += 1
    except InputError as error:
        refused(error)
        tally["jobs refused"] += 1


def fuzz(seeds: Sequence[bytes], *, seed: int, rounds: int, seconds: float = 1e9) -> Counter[str]:
    """What was done until `rounds` or `seconds` are over.

    Raises:
        AssertionError: names the seed and the round that fails.
    """
    end = time.monotonic() + seconds
    tally: Counter[str] = Counter()
    for number in range(rounds):
        chance = random.Random(f"{seed}:{number}")
        tally["rounds"] += 1
        with tempfile.TemporaryDirectory(prefix="mail fuzz ") as folder, warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                whole(lay_out(Path(folder), seeds, chance), chance, tally)
            except Exception as exception:
                raise AssertionError(f"seed {seed}, round {number}: {exception!r}") from exception
        if time.monotonic() > end:
            break
    return tally


if __name__ == "__main__":
    chosen = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    mails = of_folder(Path(sys.argv[3])) if len(sys.argv) > 3 else made_up()
    done = fuzz(mails, seed=chosen, rounds=sys.maxsize, seconds=float(sys.argv[1]))
    print(f"seed {chosen}, nothing raised: {json.dumps(done)}")
