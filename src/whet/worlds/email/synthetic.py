"""A company's mail from a seed, of any size, so that everything runs with no data at hand.

Mailboxes hold threads about projects, with replies that quote what they
answer, near-duplicate subjects, mails that look like the one in question but
give another value, newsletters that all give the same number, and mail about
nothing.  Words follow Zipf's law, a third of them a project's own.  It is made
to be searched, not read: sentences are grammatical by accident.  No real
person, firm or number is in it (phones are in the reserved 555-01xx range).
"""

from __future__ import annotations

import random
import re
from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from itertools import accumulate
from pathlib import Path

from ...errors import InputError
from .entities import MONTHS
from .parse import Mail, own_part
from .vocabulary import ENDS, FIRST_NAMES, MIDDLES, NOUNS, STEMS

_PHONE_LINES = (
    "You can call {x} about this.",
    "My number there is {x}.",
    "For the {n}, dial {x} and ask for the {m}.",
    "The {n} {m} can be reached at {x}.",
    "Please call me at {x} when the {n} is done.",
)
_AMOUNT_LINES = (
    "The {n} comes to {x}.",
    "They are asking {x} for the {m} and the {n}.",
    "We agreed on {x} for the {n}.",
    "Legal put the {m} {n} at {x}.",
    "Please approve {x} for the {n}.",
)
_DATE_LINES = (
    "The {n} is set for {x}.",
    "We need the {m} by {x}.",
    "The {n} {m} moves to {x}.",
    "Mark {x} for the {n}.",
    "The {m} ends on {x} at the latest.",
)
_LINES = {"phone": _PHONE_LINES, "amount": _AMOUNT_LINES, "date": _DATE_LINES}
_PLAIN = (
    "The {0} for the {1} still lacks a {2}.",
    "I talked with the {0} people about {1} and {2}.",
    "After the {0} we have no {1}, and the {2} waits.",
    "Did anyone check the {0} against the {1} {2}?",
    "{0} and {1} go into the next {2}.",
    "Once the {0} {1} is signed, {2} can begin.",
    "Our {0} thinks that the {1} should follow the {2}.",
    "It would help to see the {0}, the {1} and the {2} side by side.",
)
_ZONES = (-8, -7, -6, -5, 0, 1)


@dataclass(frozen=True, slots=True)
class _Person:
    first: str
    last: str
    address: str

    @property
    def name(self) -> str:
        return f"{self.first} {self.last}"


@dataclass(frozen=True, slots=True)
class _Project:
    name: str
    words: list[str]
    people: list[_Person]


@dataclass
class _Company:
    """Everything that the mails of one seed share."""

    rng: random.Random
    people: list[_Person]
    words: list[str]
    cumulative: list[float]
    domains: list[str]
    ids: set[str] = field(default_factory=set)

    def word(self, project: _Project | None = None) -> str:
        """A word by Zipf's law, a third of the time one of the project's own."""
        if project is not None and self.rng.random() < 0.34:
            return self.rng.choice(project.words)
        return self.words[bisect(self.cumulative, self.rng.random() * self.cumulative[-1])]

    def distinct(self, count: int, project: _Project | None) -> list[str]:
        words: dict[str, None] = {}
        while len(words) < count:
            words[self.word(project)] = None
        return list(words)


def generate(seed: int, *, mailboxes: int = 12, mails: int = 160) -> list[Mail]:
    """The mail of a company.

    Args:
        seed: the same seed and sizes give the same mails.
        mailboxes: number of owners.
        mails: in each mailbox.

    Returns:
        By mailbox, folder and date; ids and (mailbox, sender, date, subject, body) are unique.

    Raises:
        InputError: fewer than one of either.
    """
    if mailboxes < 1 or mails < 1:
        raise InputError(f"mailboxes={mailboxes}, mails={mails}: at least 1 of each is needed")
    rng = random.Random(f"company:{seed}")
    company = _company(rng, mailboxes)
    company_mails: list[Mail] = []
    owners: dict[str, _Person] = {}
    for person in company.people:
        owners.setdefault(f"{person.last.lower()}-{person.first[0].lower()}", person)
    for name, owner in sorted(list(owners.items())[:mailboxes]):
        box: list[Mail] = []
        projects = [_project(company, owner) for _ in range(max(2, mails // 16))]
        while len(box) < mails:
            box += _thread(company, name, owner, projects)
        unique = {(mail.sender, mail.date, mail.subject, mail.body): mail for mail in box[:mails]}
        company_mails += sorted(unique.values(), key=lambda mail: (mail.folder, mail.date, mail.id))
    return company_mails


def write(mails: Iterable[Mail], folder: Path | str) -> int:
    """Write mails as RFC 822 files `folder/mailbox/folder/N.` that `read_mail` reads back equal.

    Attachments are written as names only, and so not written at all.

    Returns:
        The number of files.

    Raises:
        InputError: a mailbox or folder whose name is not a plain file name, or the disk refuses.
    """
    root = Path(folder)
    numbers: dict[Path, int] = {}
    for mail in mails:
        for name in (mail.mailbox, mail.folder):
            if not re.fullmatch(r"\w[\w-]*", name):
                raise InputError(f"{name!r} cannot be a folder's name; use letters, digits, - and _")
        directory = root / mail.mailbox / mail.folder
        numbers[directory] = numbers.get(directory, 0) + 1
        try:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"{numbers[directory]}.").write_bytes(_rfc822(mail))
        except OSError as error:
            raise InputError(f"mail cannot be written to {str(directory)!r}: {error.strerror}") from error
    return sum(numbers.values())


def _rfc822(mail: Mail) -> bytes:
    headers = {
        "Message-ID": f"<{mail.id}>",
        "Date": format_datetime(mail.date) if mail.date else "",
        "From": f'"{mail.sender_name}" <{mail.sender}>' if mail.sender_name else mail.sender,
        "To": ", ".join(mail.to),
        "Subject": mail.subject,
        "MIME-Version": "1.0",
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Transfer-Encoding": "8bit",
    }
    lines = [f"{name}: {' '.join(value.split())}" for name, value in headers.items() if value]
    return ("\n".join(lines) + "\n\n" + mail.body).encode("utf-8", "replace")


def _company(rng: random.Random, mailboxes: int) -> _Company:
    invented: set[str] = set()
    while len(invented) < 900:
        invented.add(
            rng.choice(STEMS)
            + "".join(rng.choice(MIDDLES) for _ in range(rng.randint(0, 2)))
            + rng.choice(ENDS)
        )
    # Sorted before it is shuffled: a set of texts has another order in each process.
    names = sorted(invented)
    rng.shuffle(names)
    domains = [f"{name}.{rng.choice(('com', 'net', 'org'))}" for name in names[:9]]
    people: dict[str, _Person] = {}
    lasts = names[9 : 9 + max(60, mailboxes * 5)]
    for number, last in enumerate(lasts):
        first = rng.choice(FIRST_NAMES)
        inside = number < mailboxes or rng.random() < 0.6
        domain = domains[0] if inside else rng.choice(domains[1:])
        local = rng.choice((f"{first}.{last}", f"{first[0]}{last}")).lower()
        people[last] = _Person(first, last.capitalize(), f"{local}@{domain}")
    # The common words are English; invented ones (products, places, jargon) make up the long tail.
    words = [*rng.sample(NOUNS, len(NOUNS)), *names[400:]]
    cumulative = list(accumulate(1 / (rank + 8) for rank in range(len(words))))
    return _Company(rng, list(people.values()), words, cumulative, domains)


def _project(company: _Company, owner: _Person) -> _Project:
    rng = company.rng
    name = (rng.choice(STEMS) + rng.choice(MIDDLES) + rng.choice(ENDS)).capitalize()
    return _Project(
        name, company.distinct(30, None), [owner, *rng.sample(company.people, min(5, len(company.people)))]
    )


def _thread(company: _Company, mailbox: str, owner: _Person, projects: Sequence[_Project]) -> list[Mail]:
    """One mail and its replies, or one that belongs to nothing."""
    rng = company.rng
    if rng.random() < 0.08:
        return [_newsletter(company, mailbox, owner)]
    project = rng.choice(projects)
    subject = _subject(company, project)
    when = _moment(rng)
    people = rng.sample(project.people, 2)
    kinds = _entities(rng)
    mails: list[Mail] = []
    for depth in range(rng.choices((1, 2, 3), (6, 3, 2))[0]):
        sender, receiver = people[depth % 2], people[(depth + 1) % 2]
        own = _body(company, project, kinds if depth == 0 else _entities(rng), sender)
        quoted = mails[-1] if mails else None
        title = f"Re: {subject}" if depth else subject
        mails.append(
            _mail(
                company,
                mailbox,
                owner,
                sender=sender,
                to=receiver,
                subject=title,
                own=own,
                quoted=quoted,
                when=when,
            )
        )
        when += timedelta(minutes=rng.randint(20, 4000))
    if rng.random() < 0.3 and kinds:
        # A mail that is easily taken for the first one: same project, nearly the same subject, another value.
        near = subject.split(" ")
        near[rng.randrange(len(near))] = company.word(project)
        sender = rng.choice(project.people)
        own = _body(company, project, kinds, sender)
        mails.append(
            _mail(
                company,
                mailbox,
                owner,
                sender=sender,
                to=people[0],
                subject=" ".join(near),
                own=own,
                when=when,
            )
        )
    return mails


def _moment(rng: random.Random) -> datetime:
    zone = timezone(timedelta(hours=rng.choice(_ZONES)))
    return datetime(2023, 1, 2, 8, tzinfo=zone) + timedelta(minutes=rng.randrange(730 * 24 * 60))


def _entities(rng: random.Random) -> list[str]:
    """Kinds of the values that a body gives: none, one, or several (which makes no question)."""
    number = rng.choices((0, 1, 2, 3), (46, 40, 10, 4))[0]
    return [rng.choice(tuple(_LINES)) for _ in range(number)]


def _subject(company: _Company, project: _Project) -> str:
    rng = company.rng
    parts = company.distinct(rng.randint(1, 3), project)
    if rng.random() < 0.6:
        parts.insert(0, project.name)
    parts[0] = parts[0][0].upper() + parts[0][1:]
    return " ".join(parts)


def _body(company: _Company, project: _Project, kinds: Sequence[str], sender: _Person) -> str:
    rng = company.rng
    lines = [_sentence(company, project) for _ in range(rng.randint(2, 9))]
    if rng.random() < 0.5:
        lines.insert(0, f"The {project.name} project, again.")
    for kind in kinds:
        n, m = company.distinct(2, project)
        lines.insert(
            rng.randint(0, len(lines)), rng.choice(_LINES[kind]).format(x=_value(rng, kind), n=n, m=m)
        )
    return "\n".join(lines) + (f"\n\n{sender.first}" if rng.random() < 0.7 else "")


def _sentence(company: _Company, project: _Project | None) -> str:
    text = company.rng.choice(_PLAIN).format(*company.distinct(3, project))
    return text[0].upper() + text[1:]


def _value(rng: random.Random, kind: str) -> str:
    if kind == "phone":
        area, last = rng.randint(201, 989), f"01{rng.randrange(100):02d}"
        return rng.choice(
            (f"{area}-555-{last}", f"({area}) 555-{last}", f"{area}.555.{last}", f"1-{area}-555-{last}")
        )
    if kind == "amount":
        if rng.random() < 0.3:
            return f"${rng.randint(1, 99)}.{rng.randint(1, 9)} million"
        return rng.choice(
            (f"${rng.randrange(1, 999) * 100:,}", f"${rng.randrange(2, 900)}.{rng.randrange(10, 99)}")
        )
    month, day, year = rng.randint(1, 12), rng.randint(1, 28), rng.randint(2023, 2025)
    name = MONTHS[month - 1].capitalize()
    return rng.choice(
        (
            f"{name} {day}, {year}",
            f"{day} {name} {year}",
            f"{month}/{day}/{year}",
            f"{month}/{day}/{year % 100:02d}",
        )
    )


def _newsletter(company: _Company, mailbox: str, owner: _Person) -> Mail:
    rng = company.rng
    sender = _Person(company.domains[1].split(".")[0].capitalize(), "News", f"news@{company.domains[1]}")
    title = f"{sender.first} weekly {company.word()} and {company.word()}"
    own = "\n".join(_sentence(company, None) for _ in range(rng.randint(6, 20)))
    own += "\nTo leave this list call 800-555-0100."
    return _mail(company, mailbox, owner, sender=sender, to=owner, subject=title, own=own, when=_moment(rng))


def _mail(
    company: _Company,
    mailbox: str,
    owner: _Person,
    *,
    sender: _Person,
    to: _Person,
    subject: str,
    own: str,
    when: datetime,
    quoted: Mail | None = None,
) -> Mail:
    body = own
    if quoted is not None and quoted.date is not None:
        body += (
            f"\n\n-----Original Message-----\nFrom: {quoted.sender_name}\n"
            f"Sent: {quoted.date:%m/%d/%Y %H:%M}\nSubject: {quoted.subject}\n\n{quoted.body}"
        )
    while (id := f"{company.rng.getrandbits(48):012x}@{company.domains[0]}") in company.ids:
        pass
    company.ids.add(id)
    return Mail(
        id=id,
        sender=sender.address,
        sender_name=sender.name,
        to=(to.address,),
        date=when,
        subject=subject,
        body=body,
        own=own_part(body),
        mailbox=mailbox,
        folder="sent" if sender is owner else "inbox",
    )
