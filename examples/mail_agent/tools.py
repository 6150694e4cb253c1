"""The agent's tools: an inbox that can be searched and read, and extraction of values from a mail."""

import email
import email.policy
import email.utils
import re
import sqlite3
from pathlib import Path
from types import SimpleNamespace

MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
PATTERNS = {
    "phone": r"(?<![\d/.-])(?:\+?1[-. ])?(?:\(\d{3}\)\s*|\d{3}[-. /])\d{3}[-. ]\d{4}(?!\d)",
    "amount": r"\$\s?\d[\d,]*(?:\.\d+)?(?:\s?(?:million|billion|thousand|MM|mm|M|K|k)\b)?",
    "date": r"\b(?:%s)[a-z]*\.?\s+\d{1,2}(?:st|nd|rd|th)?,?\s+\d{4}\b|\b\d{1,2}/\d{1,2}/(?:\d{4}|\d{2})\b|\b\d{1,2}(?:st|nd|rd|th)?\s+(?:%s)[a-z]*\.?,?\s+\d{4}\b"
    % ("|".join(MONTHS), "|".join(MONTHS)),
}


class Inbox:
    """A folder of mails, indexed in memory.  Anything with the same three methods will do in its place."""

    def __init__(self, folder):
        self.mails = {}
        self.db = sqlite3.connect(":memory:")
        self.db.execute("create virtual table mail using fts5(id unindexed, sender, subject, body, tokenize='porter')")
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                self.add(path)

    def add(self, path):
        message = email.message_from_bytes(path.read_bytes(), policy=email.policy.compat32)
        if not message["From"]:
            return
        payload = message.get_payload(decode=True) or b""
        mail = SimpleNamespace(
            id=message["Message-ID"] or str(path),
            sender=str(message["From"]),
            sender_name=str(message["X-From"] or ""),
            subject=str(message["Subject"] or ""),
            date=email.utils.parsedate_to_datetime(message["Date"]) if message["Date"] else None,
            body=payload.decode("latin-1"),
            own=re.split(r"-{3,} ?(?:Original Message|Forwarded by)", payload.decode("latin-1"))[0],
        )
        self.mails[mail.id] = mail
        self.db.execute("insert into mail values (?,?,?,?)", (mail.id, mail.sender, mail.subject, mail.body))

    def search(self, words, match="all", sender=None, month=None, limit=10):
        """Up to `limit` mails, best first; each with `hits`, how many of the words it holds."""
        if not words:
            return []
        query = (" AND " if match == "all" else " OR ").join('"%s"' % word.replace('"', "") for word in words)
        found = []
        for (id,) in self.db.execute("select id from mail where mail match ? order by rank limit 200", (query,)):
            mail = self.mails[id]
            if sender and sender.lower() not in (mail.sender + " " + mail.sender_name).lower():
                continue
            if month and (mail.date is None or mail.date.month != month):
                continue
            matched = {word for word in words if word in (mail.subject + " " + mail.body).lower()}
            subject = sum(word in mail.subject.lower() for word in words)
            found.append(
                SimpleNamespace(
                    id=id,
                    sender=mail.sender,
                    sender_name=mail.sender_name,
                    date=mail.date,
                    subject=mail.subject,
                    matched=matched,
                    in_subject=subject,
                )
            )
        return found[:limit]

    def read(self, id):
        return self.mails[id]

    def frequency(self, word):
        """In how many mails a word occurs."""
        return self.db.execute("select count(*) from mail where mail match ?", ('"%s"' % word.replace('"', ""),)).fetchone()[0]


def extract(kind, mail):
    """All different values of a kind that a mail holds, in order."""
    if kind == "sender":
        return [mail.sender]
    if kind == "subject":
        return [mail.subject]
    if kind == "date_sent":
        return [mail.date.strftime("%Y-%m-%d")] if mail.date else []
    return list(dict.fromkeys(" ".join(value.split()) for value in re.findall(PATTERNS[kind], mail.own, re.I)))
