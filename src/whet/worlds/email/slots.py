"""Acting by slot: a small policy's view of a question about mail, and its actions.

A model of a hundred thousand parameters cannot copy free text; it can choose.  So a
question's clues, the results of a search and a mail's content become short sequences of
*features* (how rare a word is, how many clue words a result lacks, whether the sender
fits), and an action is a few tokens that point at slots:

    search any|all [+sender] [+month] w0 w2     read r1     answer phone r1     answer unknown

No token stands for a word, a person or a mail, so a policy works on mailboxes that it
never saw.  An episode's tokens are one growing sequence: each observation is appended to
what came before, which is what lets training merge the turns.  Nothing here needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...types import Json
from .entities import KINDS, Kind, extract, plain_subject
from .index import Inbox, tokens
from .parse import Mail

MAX_WORDS = 8
SHOWN = 5
"""Results of a search that are shown, best first."""

_FREQUENCY = (0, 1, 2, 4, 8, 16, 40, 100)
_WEIGHT = (0.0, 0.08, 0.16, 0.25, 0.35, 0.5, 0.7)


def _bucket(value: float, bounds: Sequence[float]) -> int:
    return next((index for index, bound in enumerate(bounds) if value <= bound + 1e-9), len(bounds))


END = "<end>"
# The order gives the token ids: a policy that was trained knows no other, so new ones go to the end.
TOKENS: tuple[str, ...] = (
    END,
    *(f"?{kind}" for kind in KINDS),
    *(f"w{index}" for index in range(MAX_WORDS)),
    *(f"f{index}" for index in range(len(_FREQUENCY) + 1)),
    *("has-sender", "has-month", "has-title"),
    *("found0", "found1", "found2", "found3", "found4", "found5", "found10"),
    *(f"r{index}" for index in range(SHOWN)),
    *(f"lacks{index}" for index in range(6)),
    *(f"weight{index}" for index in range(len(_WEIGHT) + 1)),
    *(f"subject{index}" for index in range(4)),
    *("title+", "title-"),
    *("sender?", "sender-", "sender+", "month?", "month-", "month+"),
    *("values0", "values1", "values2"),
    *("was-read", "error"),
    *("search", "any", "all", "+sender", "+month", "read", "answer", "unknown"),
    *KINDS,
)


class InvalidSlot(ValueError):
    """An action that names no slot that exists; it costs a turn, like any wrong tool call."""


class SlotView:
    """One episode as a small policy sees it.

    Args:
        clues: `kind`, `words`, `sender` and `month` as parsed from the question.
        inbox: the episode's; of a mail only what a search or a read has shown is used here.
    """

    def __init__(self, clues: Mapping[str, Json], inbox: Inbox) -> None:
        self.kind: Kind = clues["kind"]
        self.inbox = inbox
        # Rare words first: they carry most, and the order itself tells the policy which.
        # A word that no mail holds is not the rarest: it finds nothing, and goes last.
        by_rarity = sorted(
            dict.fromkeys(clues["words"]), key=lambda word: (inbox.frequency(word) or 10_000, word)
        )
        self.words: list[str] = by_rarity[:MAX_WORDS]
        self.sender: str | None = clues["sender"]
        self.month: int | None = clues["month"]
        self.title: str | None = clues.get("title")
        self.rarity = {word: 1.0 / (1.0 + math.log1p(inbox.frequency(word))) for word in self.words}
        self.total = sum(self.rarity.values()) or 1.0
        self.results: list[str] = []
        """Mail ids behind r0, r1, …, filled by searches in the order in which they are first shown."""
        self.read: set[str] = set()

    def opening(self) -> list[str]:
        """Tokens of the question."""
        shown = [f"?{self.kind}"]
        for index, word in enumerate(self.words):
            shown += [f"w{index}", f"f{_bucket(self.inbox.frequency(word), _FREQUENCY)}"]
        traits = {"has-sender": self.sender, "has-month": self.month, "has-title": self.title}
        return shown + [name for name, value in traits.items() if value]

    def _signs(self, mail: Mail) -> list[str]:
        sender_line = f"{mail.sender_name} <{mail.sender}>".lower()
        fits_sender = "?" if self.sender is None else "+" if self.sender.lower() in sender_line else "-"
        month = mail.date.month if mail.date else None
        fits_month = "?" if self.month is None else "+" if month == self.month else "-"
        return [f"sender{fits_sender}", f"month{fits_month}"]

    def _fit(self, mail: str) -> tuple[list[str], float]:
        missing = self.inbox.missing(self.words, mail)
        return missing, sum(self.rarity[word] for word in missing) / self.total

    def _subject(self, mail: Mail) -> str:
        if self.title is not None:
            same = plain_subject(self.title).casefold() == plain_subject(mail.subject).casefold()
            return "title+" if same else "title-"
        held = frozenset(tokens(mail.subject))
        return f"subject{min(3, sum(held.issuperset(tokens(word)) for word in self.words))}"

    def observe_search(self, ids: Sequence[str]) -> list[str]:
        """Tokens of a search's results (mail ids); the best `SHOWN` of them become r0, r1, …"""
        ranked = []
        for id in ids:
            mail = self.inbox.index.read(id)
            (missing, weight), signs, subject = self._fit(id), self._signs(mail), self._subject(mail)
            bonus = 0.15 * (signs[0] == "sender+") + 0.1 * (signs[1] == "month+") + (subject == "title+")
            ranked.append((weight - bonus, id, missing, weight, [subject, *signs]))
        ranked.sort(key=lambda row: row[:2])
        self.results = [row[1] for row in ranked[:SHOWN]]
        shown = [f"found{len(ids) if len(ids) < 5 else 5 if len(ids) < 10 else 10}"]
        for index, (_, id, missing, weight, signs) in enumerate(ranked[:SHOWN]):
            shown += [
                f"r{index}",
                f"lacks{min(len(missing), 5)}",
                f"weight{_bucket(weight, _WEIGHT)}",
                *signs,
            ]
            if id in self.read:
                shown.append("was-read")
        return shown

    def observe_read(self, id: str) -> list[str]:
        """Tokens of a mail that was read."""
        self.read.add(id)
        mail = self.inbox.index.read(id)
        missing, weight = self._fit(id)
        values = len(extract(self.kind, mail))
        shown = [
            f"values{min(values, 2)}",
            f"lacks{min(len(missing), 5)}",
            f"weight{_bucket(weight, _WEIGHT)}",
        ]
        if missing:
            rarest = min(self.inbox.frequency(word) for word in missing)
            shown.append(f"f{_bucket(rarest, _FREQUENCY)}")
        return [*shown, self._subject(mail), *self._signs(mail)]

    def decode(self, chosen: Sequence[str]) -> dict[str, Json]:
        """The tool call that an action's tokens stand for.

        Raises:
            InvalidSlot: they do not form one.
        """
        body = [token for token in chosen if token != END]
        match body:
            case ["answer", "unknown"]:
                return {"tool": "unknown"}
            case ["answer", kind, slot] if kind in KINDS:
                if self._mail(slot) not in self.read:
                    raise InvalidSlot(f"{slot} has not been read")
                return {"tool": "answer", "kind": kind, "id": self._mail(slot)}
            case ["read", slot]:
                return {"tool": "read", "id": self._mail(slot)}
            case ["search", "any" | "all" as match_, *rest]:
                words = [self.words[int(token[1:])] for token in rest if self._is_word(token)]
                if not words or len(words) + rest.count("+sender") + rest.count("+month") != len(rest):
                    raise InvalidSlot(f"not a search: {' '.join(body)}")
                call: dict[str, Json] = {"tool": "search", "words": words, "match": match_}
                if "+sender" in rest and self.sender:
                    call["sender"] = self.sender
                if "+month" in rest and self.month:
                    call["month"] = self.month
                return call
        raise InvalidSlot(f"not an action: {' '.join(body) or '(empty)'}")

    def _is_word(self, token: str) -> bool:
        return token[:1] == "w" and token[1:].isdigit() and int(token[1:]) < len(self.words)

    def _mail(self, slot: str) -> str:
        if slot[:1] == "r" and slot[1:].isdigit() and int(slot[1:]) < len(self.results):
            return self.results[int(slot[1:])]
        raise InvalidSlot(f"no result {slot!r} among {len(self.results)}")

    def encode(self, call: Mapping[str, Json]) -> list[str] | None:
        """The action tokens of a tool call that somebody else made, or None if it has no slots.

        This is how recorded work of any agent becomes something to clone.
        """
        match call["tool"]:
            case "unknown":
                return ["answer", "unknown", END]
            case "read" | "answer" as tool:
                if call["id"] not in self.results:
                    return None
                slot = f"r{self.results.index(call['id'])}"
                return ["read", slot, END] if tool == "read" else ["answer", self.kind, slot, END]
            case "search":
                indices = sorted(self.words.index(word) for word in call["words"] if word in self.words)
                if not indices:
                    return None
                flags = ["+sender"] * bool(call.get("sender")) + ["+month"] * bool(call.get("month"))
                return ["search", call.get("match", "all"), *flags, *(f"w{index}" for index in indices), END]
        return None
