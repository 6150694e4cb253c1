"""A small agent that answers questions about a mailbox: parse, search, read, decide."""

import math
import re

from .parsing import PARSER, parse
from .tools import extract

RULE = {
    "match": "all",  # all | any: must a result hold all the words, or is any enough
    "use_sender": True,  # search only the sender's mails when the question names one
    "use_month": True,  # likewise for the month
    "relax": True,  # search again with any word and no filter when nothing is found
    "order": "relevance",  # relevance | rarity | clues: in which order results are read
    "read": 1,  # 1..5: how many results to read
    "max_missing": 4,  # 0..5: how many clue words an accepted mail may lack
    "max_rarity": 1.0,  # 0.0..1.0: how much of the clue words' weight it may lack, rare words weighing more
    "one_value": False,  # accept only a mail that holds exactly one value of the kind asked for
    "same_sender": False,  # accept only mail of the named sender
    "settle": True,  # take the best mail seen when the results are used up, if it is acceptable
}


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
    sender = clues["sender"] if RULE["use_sender"] else None
    month = clues["month"] if RULE["use_month"] else None
    hits = inbox.search(clues["words"], match=RULE["match"], sender=sender, month=month)
    if not hits and RULE["relax"]:
        hits = inbox.search(clues["words"], match="any")
    return hits


def rarity(word, inbox):
    return 1.0 / (1.0 + math.log1p(inbox.frequency(word)))


def sent_by(clues, sender, name=""):
    return clues["sender"] is not None and clues["sender"].lower() in (sender + " " + name).lower()


def rank(clues, hits, inbox):
    """Results in the order in which they will be read."""
    if RULE["order"] == "relevance":
        return hits

    def weight(hit):
        found = sum(rarity(word, inbox) for word in hit.matched) + 0.1 * hit.in_subject
        if RULE["order"] == "clues":
            found += 0.3 * sent_by(clues, hit.sender)
            found += 0.3 * (hit.date is not None and hit.date.month == clues["month"])
        return -found

    return sorted(hits, key=weight)


def weigh(clues, mail, inbox, place, results):
    """What speaks for and against a mail that has been read, as numbers."""
    text = set(re.findall(r"[a-z0-9]+", (mail.subject + " " + mail.own).lower()))
    words = [(word, set(re.findall(r"[a-z0-9]+", word)) <= text) for word in clues["words"]]
    total = sum(rarity(word, inbox) for word, _ in words) or 1.0
    subject = mail.subject.lower()
    return {
        "words": len(words),
        "missing": sum(not there for _, there in words),
        "missing_weight": sum(rarity(word, inbox) for word, there in words if not there) / total,
        "rarest_missing": max((rarity(word, inbox) for word, there in words if not there), default=0.0),
        "in_subject": sum(word in subject for word, _ in words),
        "values": len(extract(clues["kind"], mail)),
        "sender": -1 if clues["sender"] is None else int(sent_by(clues, mail.sender, mail.sender_name)),
        "month": -1 if clues["month"] is None else int(mail.date is not None and mail.date.month == clues["month"]),
        "kind": ["phone", "amount", "date", "date_sent", "sender", "subject"].index(clues["kind"]),
        "place": place,
        "remaining": len(results) - place - 1,
        "rivals": sum(len(hit.matched) >= len(results[place].matched) for hit in results) - 1,
    }


def decide(seen):
    """What to do after reading: the index of the mail to accept, "more" to read on, or "unknown"."""
    fits = [
        mail["values"] >= 1
        and (mail["values"] == 1 or not RULE["one_value"])
        and mail["missing"] <= RULE["max_missing"]
        and mail["missing_weight"] <= RULE["max_rarity"]
        and (mail["sender"] != 0 or not RULE["same_sender"])
        for mail in seen
    ]
    if not RULE["settle"] and fits[-1]:
        return len(seen) - 1
    if seen[-1]["remaining"]:
        return len(seen) - 1 if fits[-1] and seen[-1]["missing"] == 0 else "more"
    if not any(fits):
        return "unknown"
    return min((index for index, fit in enumerate(fits) if fit), key=lambda index: seen[index]["missing_weight"])

