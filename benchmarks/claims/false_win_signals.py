"""Signs that users give without being asked, on moves that nobody wrote for the extractors.

- *asked again* and *went on*: real people's questions about databases.  Spider has most queries asked twice by two
  people: the second wording after the first is the same question again, another query's question about the same
  database is something new, in much the same words.  Two bars were chosen on every second database; the others are held
  out.
- *went on*: real questions about one conversation, one after another.
- *said so*, *left*: sentences written for this measurement by somebody else than the extractors' author, after a real
  question and its real answer, or after a refusal.

The control gives every answer the next move of another one: what is read then says nothing of the answer.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_rows import AbsentData, json_rows, lacks
from newcomers_shell import Noted

from whet.record.tracing.signals import Turn, signals

RIGHT, BY_CHANCE = 0.9, 0.6
LONG_AGO = 1.0
PRAISE = (
    "Thanks a lot, that solved it!",
    "thank you so much",
    "Perfect, exactly what I was after.",
    "Great answer.",
    "ok that works, cheers",
    "Brilliant, I can send this to my boss now",
    "yes!! that's it",
    "Wonderful, you saved my afternoon.",
    "That makes sense now, thanks.",
    "You're right, I checked and it is so.",
    "Excellent. Very clear.",
    "awesome, appreciate it",
    "This helped me a great deal",
    "Love it, going to use this.",
    "good, that was quick and correct",
    "Spot on.",
    "That was helpful, I'll pass it on.",
    "Very nice, thank you for looking that up",
    "Super, that answers my question.",
    "Sounds right to me, thanks again",
    "Lovely. You have been a great help.",
    "Fantastic, many thanks",
    "Right, this is the number I was missing!",
    "Nice work",
    "Oh good, I had forgotten that. Thanks!",
)
BLAME = (
    "That is not correct.",
    "No, that's wrong, she moved in May",
    "This isn't what I asked for.",
    "you didn't answer my question",
    "Are you sure? My calendar says something else",
    "That doesn't work, I still get an error",
    "Completely useless.",
    "Wrong person. I asked about her brother.",
    "I already told you it is not in that folder",
    "You misunderstood me, I want the date and not the place",
    "This makes no sense at all",
    "that answer is made up, there is no such street",
    "Still not right.",
    "Try again please, this is incorrect",
    "How disappointing, the link is dead",
    "nope",
    "You keep giving me the same thing",
    "It did not help, the page says 404",
    "Sorry but this is nonsense",
    "The total is off by a hundred, that can't be true",
    "You ignored the second half of what I wrote",
    "I don't think that's right, he was never there",
    "That was not the question",
    "This is terrible, I asked for three and got one",
    "Not helpful.",
)
REFUSALS = (
    "I'm sorry, I could not find anything about that.",
    "Unfortunately I don't have access to this calendar.",
    "An error occurred while reading the mailbox.",
    "I am not able to answer that. Could you tell me which year you mean?",
    "No results were found.",
    "Which of the two accounts do you mean?",
)


@dataclass(frozen=True)
class Move:
    """What a user did after an answer, and whether it speaks for the answer; None: it says nothing."""

    question: str
    answer: str
    after: str | None
    """None: nothing came."""
    speaks_for: bool | None
    source: str


def asked_twice(data: Path, *, held_out: bool, seed: int = 0) -> Iterator[Move]:
    """The second person's wording of a query, and another query of the same database, after the first one's."""
    try:
        rows = json.loads((data / "intercode_sql" / "ic_spider_dev.json").read_bytes())
    except (OSError, ValueError) as error:
        raise AbsentData(f"the questions about databases: {error}") from error
    rows = [
        row
        for row in rows
        if isinstance(row, dict)
        and all(row.get(name) and isinstance(row[name], str) for name in ("db", "gold", "query"))
    ]
    wordings: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        wordings[row["db"], " ".join(row["gold"].casefold().split())].append(row["query"])
    by_database: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for (database, gold), texts in wordings.items():
        by_database[database] += [(gold, text) for text in texts]
    rng = random.Random(f"twice:{seed}")
    chosen = set(sorted(by_database)[1::2] if held_out else sorted(by_database)[::2])
    for (database, gold), texts in wordings.items():
        if database not in chosen or len(set(texts)) < 2:
            continue
        first, second = rng.sample(texts[:2], 2)
        others = [text for query, text in by_database[database] if query != gold]
        if not others:
            continue
        other = rng.choice(others)
        yield Move(first, gold, second, False, "asked again")
        yield Move(first, gold, other, True, "went on, same database")


def conversation_questions(data: Path) -> Iterator[tuple[str, str, str]]:
    """A question about a conversation, its answer, and another question about the same."""
    for path in sorted((data / "conversations").glob("*.questions.jsonl")):
        read = json_rows(path, lacks("question"))
        rows = [
            row
            for row in read
            if row is not None and row.get("answer") is not None and isinstance(row["question"], str)
        ]
        for row, after in zip(rows[::2], rows[1::2], strict=False):
            yield row["question"], str(row["answer"]), after["question"]


def moves(data: Path, seed: int = 0) -> list[Move]:
    """All that were not used to choose anything."""
    triples = list(conversation_questions(data))
    if not triples:
        raise AbsentData(f"{data / 'conversations'} holds no two answered questions about one conversation")
    rng = random.Random(f"moves:{seed}")
    listed = [*asked_twice(data, held_out=True, seed=seed)]
    listed += [
        Move(*triple, True, "went on, another question")
        for triple in rng.sample(triples, min(100, len(triples)))
    ]
    for sentences, speaks_for, source in ((PRAISE, True, "praise"), (BLAME, False, "blame")):
        for sentence in sentences:
            question, answer, _ = rng.choice(triples)
            listed.append(Move(question, answer, sentence, speaks_for, source))
    for number in range(60):
        question, answer, _ = rng.choice(triples)
        refused = number % 2 == 0
        listed.append(
            Move(
                question,
                REFUSALS[number // 2 % len(REFUSALS)] if refused else answer,
                None,
                False if refused else None,
                "left",
            )
        )
    return listed


def read(move: Move) -> bool | None:
    """Which way the sign speaks that was read of it; None where none was."""
    turns = [Turn("user", move.question, LONG_AGO), Turn("assistant", move.answer, LONG_AGO)]
    if move.after is not None:
        turns.append(Turn("user", move.after, LONG_AGO))
    heard = [signal for signal in signals(turns) if signal.turn == 1]
    return heard[0].value > 0 if heard else None


def permuted(listed: Sequence[Move], seed: int) -> list[Move]:
    """Each answer with the next move of another, and its own truth."""
    rng = random.Random(f"permuted:{seed}")
    afters = rng.sample([move.after for move in listed], len(listed))
    return [
        Move(move.question, move.answer, after, move.speaks_for, move.source)
        for move, after in zip(listed, afters, strict=True)
    ]


def balanced(listed: Sequence[Move], heard: Sequence[bool | None]) -> float:
    """Of those that a sign was read of: the mean of the share that is right among signs for and among signs against."""
    shares = []
    for way in (True, False):
        own = [move.speaks_for is way for move, sign in zip(listed, heard, strict=True) if sign is way]
        shares.append(sum(own) / max(1, len(own)))
    return sum(shares) / 2


def measure(data: Path, folder: Path) -> list[Noted]:
    """By source; and all together, with the control."""
    listed = moves(data)
    heard = [read(move) for move in listed]
    noted = []
    for source in sorted({move.source for move in listed}):
        own = [(move, sign) for move, sign in zip(listed, heard, strict=True) if move.source == source]
        counts = Counter("unread" if sign is None else "for" if sign else "against" for _, sign in own)
        spoken = [(move, sign) for move, sign in own if sign is not None]
        right = sum(move.speaks_for is sign for move, sign in spoken) / max(1, len(spoken))
        figures = {
            "moves": str(len(own)),
            **{name: str(counts[name]) for name in ("for", "against", "unread")},
        }
        noted.append(Noted(f"signs: {source}", figures={**figures, "right of those read": f"{right:.3f}"}))
    whole = balanced(listed, heard)
    shuffled = [permuted(listed, seed) for seed in range(5)]
    chance = [balanced(own, [read(move) for move in own]) for own in shuffled]
    read_share = sum(sign is not None for sign in heard) / len(listed)
    noted.append(
        Noted(
            "signs: all that were held out",
            figures={
                "moves": str(len(listed)),
                "right, for and against": f"{whole:.3f}",
                "read": f"{read_share:.2f}",
                "next moves of other answers": ", ".join(f"{value:.3f}" for value in chance),
            },
            lines={
                f"signs are right {RIGHT:.0%} of the time": whole >= RIGHT,
                f"those of other answers {BY_CHANCE:.0%} at most": max(chance) <= BY_CHANCE,
            },
        )
    )
    return noted
