"""A small agent that answers questions about a mailbox: parse, search, read, decide."""

import functools
import re

from .parsing import PARSER, parse
from .tools import extract

RULE = {
    "match": "all",  # all | any: must a result hold all the words, or is any enough
    "use_sender": True,  # search only the sender's mails when the question names one
    "use_month": True,  # likewise for the month
    "relax": True,  # search again with any word and no filter when nothing is found
    "order": "relevance",  # relevance | words | clues: in which order results are read
    "rarity": 0.0,  # 0.0 | 0.25 | 0.5 | 1.0: how much more a rare word weighs than a common one
    "sender_weight": 0.2,  # 0.0 | 0.1 | 0.2 | 0.4: weight of the right sender, beside the words' 1
    "month_weight": 0.2,  # 0.0 | 0.1 | 0.2 | 0.4: likewise for the month
    "read": 1,  # 1 | 2 | 3: how many results to read
    "sure": 0.0,  # 0.0 | 0.1 | 0.2 | 0.3: a mail that lacks no more of the words' weight is taken without reading on
    "lacks": 0.9,  # 0.1 | 0.2 | 0.3 | 0.4 | 0.5 | 0.6 | 0.9: how much of the words' weight an accepted mail may lack
    "title": 0.0,  # 0.0 | 1.0: how alike its subject must be to one that the question quotes
    "one_value": False,  # accept only a mail that holds exactly one value of the kind asked for
    "same_sender": False,  # accept only mail of the named sender
}
KINDS = ["phone", "amount", "date", "date_sent", "sender", "subject"]


def answer(question, inbox):
    """The answer in plain text, with the id of the mail it comes from on a second line; or that it is not known."""
    clues = parse(question, PARSER)
    results = rank(clues, look(clues, inbox), inbox)[: RULE["read"]]
    seen = []
    for place, hit in enumerate(results):
        mail = inbox.read(hit.id)
        seen.append(weigh(clues, mail, inbox, place, results))
        choice = decide(seen)
        if choice == "unknown":
            break
        if choice != "more":
            chosen = inbox.read(results[choice].id) if choice != place else mail
            return "%s\nSource: %s" % (extract(clues["kind"], chosen)[0], chosen.id)
    return "I don't know."


def look(clues, inbox):
    """Search with the clues; once more with fewer of them when nothing is found."""
    if clues["title"]:
        hits = inbox.search(sorted(tokens(clues["title"])), match="all")
        if hits:
            return hits
    sender = clues["sender"] if RULE["use_sender"] else None
    month = clues["month"] if RULE["use_month"] else None
    hits = inbox.search(clues["words"], match=RULE["match"], sender=sender, month=month)
    if not hits and RULE["relax"]:
        hits = inbox.search(clues["words"], match="any")
    return hits


def weights(words, inbox):
    """How much each word counts, together 1: rare words more, by the rule."""
    raw = {word: (1 + inbox.frequency(word)) ** -RULE["rarity"] for word in words}
    total = sum(raw.values()) or 1.0
    return {word: weight / total for word, weight in raw.items()}


def sent_by(clues, sender, name=""):
    return clues["sender"] is not None and clues["sender"].lower() in (sender + " " + name).lower()


def sent_in(clues, date):
    return clues["month"] is not None and date is not None and date.month == clues["month"]


def likeness(title, subject):
    """How alike two subject lines are: 1 if they say the same, else half the share of words in common."""
    one, other = (tokens(re.sub(r"(?i)^((re|fw|fwd):\s*)+", "", text)) for text in (title, subject))
    return 1.0 if one == other else 0.5 * len(one & other) / len(one | other)


@functools.lru_cache(100_000)
def tokens(text):
    return frozenset(re.findall(r"[a-z0-9]+", text.lower()))


def rank(clues, hits, inbox):
    """Results in the order in which they will be read."""
    if RULE["order"] == "relevance":
        return hits
    worth = weights(clues["words"], inbox)

    def score(hit):
        found = sum(weight for word, weight in worth.items() if tokens(word) <= hit.matched)
        if RULE["order"] == "clues":
            found += RULE["sender_weight"] * sent_by(clues, hit.sender, hit.sender_name)
            found += RULE["month_weight"] * sent_in(clues, hit.date)
            if clues["title"]:
                found += 2 * likeness(clues["title"], hit.subject)
        return -found

    return sorted(hits, key=score)


def weigh(clues, mail, inbox, place, results):
    """What speaks for and against a mail that has been read, as numbers; None for what the question does not give."""
    worth = weights(clues["words"], inbox)
    there = [word for word in worth if tokens(word) <= tokens(mail.subject) | tokens(mail.body)]
    own = [word for word in worth if tokens(word) <= tokens(mail.subject) | tokens(mail.own)]
    missing = [word for word in worth if word not in there]
    return {
        "kind": KINDS.index(clues["kind"]),
        "words": len(worth),
        "missing": len(missing),
        "lacks": 1 - sum(worth[word] for word in there) if worth else 0.0,
        "lacks_own": 1 - sum(worth[word] for word in own) if worth else 0.0,  # without the mail that it quotes
        "rarest_missing": min((inbox.frequency(word) for word in missing), default=None),
        "rarest_there": min((inbox.frequency(word) for word in there), default=None),
        "in_subject": sum(tokens(word) <= tokens(mail.subject) for word in worth),
        "title": 1.0 if clues["title"] is None else likeness(clues["title"], mail.subject),
        "quoted": int(clues["title"] is not None),
        "values": len(extract(clues["kind"], mail)),
        "sender": None if clues["sender"] is None else int(sent_by(clues, mail.sender, mail.sender_name)),
        "month": None if clues["month"] is None else int(sent_in(clues, mail.date)),
        "place": place,
        "remaining": len(results) - place - 1,
        "rivals": sum(len(hit.matched) >= len(results[place].matched) for hit in results) - 1,
    }


def decide(seen):
    """What to do after reading: the index of the mail to accept, "more" to read on, or "unknown"."""
    fits = [acceptable(mail) for mail in seen]
    if fits[-1] and seen[-1]["lacks"] <= RULE["sure"]:
        return len(seen) - 1
    if seen[-1]["remaining"]:
        return "more"
    if not any(fits):
        return "unknown"
    return min((index for index, fit in enumerate(fits) if fit), key=lambda index: seen[index]["lacks"])


def acceptable(mail):
    """Whether a mail may be accepted at all, by the rule."""
    return (
        mail["values"] >= 1
        and (mail["values"] == 1 or not RULE["one_value"])
        and mail["lacks"] <= RULE["lacks"]
        and mail["title"] >= RULE["title"]
        and (mail["sender"] != 0 or not RULE["same_sender"])
    )
