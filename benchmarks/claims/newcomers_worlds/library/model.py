"""The desk's model, and the one that proposes: both scripted, both fallible.

The desk's model looks a title up before it says where it stands, slips in 5 of 100 answers and in more the longer its
briefing is beyond 130 words, and says what a reader needs only if the briefing asks for it, or now and then by itself.
Told to be brief it leaves shelf marks and dates out, unless the briefing names them; told to send people to the
reference desk without saying which, it sends those away, too, who ask where a book stands.

The adviser knows nothing but the request.  Six in ten of its answers are of no use or do harm.
"""

from __future__ import annotations

import hashlib
import json
import re

from truth import BOOKS, FINES, RENEWED

from whet.models.base import Completion, ModelRequest, ToolCall, text_of

SLIPS = 0.05
OF_USE = 0.4
ADVICE = (
    (
        r"due (?:back )?on \d",
        (
            "When a loan is renewed, name the new due date, with day and month.",
            "For renewals, give the exact date on which the book must be back.",
        ),
    ),
    (
        r"\d+ days (?:late|overdue)",
        (
            "If a book is overdue, work out the fine and give the amount in euros, such as 1.05.",
            "Calculate fines: state the total in euros and cents.",
        ),
    ),
    (
        r"Where do I find|in, and where|looking for",
        (
            "When readers look for a title, give the branch together with the shelf mark.",
            "Always quote the shelf mark from the catalogue next to the branch.",
        ),
    ),
    (
        r"Can you tell me",
        (
            "Questions that are not about loans or the catalogue go to the reference desk; say so, and only then.",
            "Only for topics beyond lending, point the reader to the reference desk.",
        ),
    ),
)
"""What a kind of question looks like, and two ways to say the rule that it needs."""
HARM = (
    "Keep every answer to a few words.",
    "If in doubt, send the reader to the reference desk.",
    "Do not state figures; readers find them confusing.",
    "Begin with a proverb about reading and close with two more, then wish the reader a fine day.",
    "Answer in the style of a pirate.",
)
IDLE = (
    "",
    "To help you, I would need to see more of the conversations.",
    "The answers look fine to me.",
    "[]",
    "Be more helpful.",
    "Think step by step.",
)


def answer(request: ModelRequest, seed: int) -> str | Completion:
    """What the desk's model says, or that it wants a title looked up."""
    briefing = " ".join(text_of(each) for each in request.messages if each["role"] == "system").lower()
    asked = next(text_of(each) for each in request.messages if each["role"] == "user")
    draw = _uniform(seed, "slip", briefing, asked)
    title = next((name for name in BOOKS if name in asked), None)
    looked_up = request.messages[-1]["role"] == "tool" or len(request.messages) > 2
    if title and request.tools and not looked_up:
        return Completion(
            tool_calls=[ToolCall(name="look_up", arguments=json.dumps({"title": title}), id="call_1")]
        )
    if draw < SLIPS + max(0, len(briefing.split()) - 130) / 150:
        return "Thank you for writing to the library. A colleague will look into it."
    said = _reply(asked, title, briefing, _uniform(seed, "by itself", briefing, asked))
    if "do not state figures" in briefing:
        said = re.sub(r"\d[\d.]*", "some", said)
    if "proverb" in briefing:
        said = f"A room without books is a body without a soul. {said} " + "Who reads lives twice. " * 9
    if "pirate" in briefing:
        said = f"Arr! {said}"
    return said


def _reply(asked: str, title: str | None, briefing: str, chance: float) -> str:
    refers = "reference desk" in briefing
    narrow = refers and re.search(r"\bonly\b|not about|beyond", briefing)
    brief = "few words" in briefing or "brief" in briefing
    if due := re.search(r"due (?:back )?on (\d+ \w+)", asked):
        dated = re.search(r"due date|exact date|new date", briefing)
        if (dated and chance < 0.95) or (chance < 0.45 and not brief):
            return f"Done: it is due on {RENEWED[due[1]]} now."
        return "Done, you may keep it for three more weeks."
    if late := re.search(r"(\d+) days", asked):
        counted = re.search(r"\b(amount|total|work out|calculate)", briefing)
        if (counted and chance < 0.93) or (chance < 0.4 and not brief):
            return f"For {late[1]} days that is {FINES[int(late[1])]} euros."
        return "Each day costs a little; please pay at the machine."
    if title:
        if refers and not narrow and chance < 0.6:
            return "Please ask at the reference desk."
        branch, shelf = BOOKS[title]
        marked = "shelf mark" in briefing
        if (marked and chance < 0.95) or (chance < 0.4 and not brief):
            return f"{title} is at the {branch} branch, shelf {shelf}."
        return f"We have {title} at the {branch} branch."
    if (refers and chance < 0.97) or chance < 0.35:
        return "That is a question for our reference desk."
    return "I believe that you had better look for it on the internet, but most likely it is fine."


def advise(request: ModelRequest, seed: int) -> str:
    """What the adviser proposes, from what the request shows."""
    shown = "\n".join(text_of(each) for each in request.messages)
    draw = _uniform(seed, "adviser", shown)
    if draw < (1 - OF_USE) / 2:
        return IDLE[int(_uniform(seed, "idle", shown) * len(IDLE))]
    if draw < 1 - OF_USE:
        rule = HARM[int(_uniform(seed, "harm", shown) * len(HARM))]
    else:
        lacking = [
            says for sign, says in ADVICE if re.search(sign, shown) and not any(one in shown for one in says)
        ]
        if not lacking:
            return IDLE[2]
        says = lacking[int(_uniform(seed, "kind", shown) * len(lacking))]
        rule = says[int(_uniform(seed, "wording", shown) * len(says))]
    return _as_asked(shown, rule)


def _as_asked(shown: str, rule: str) -> str:
    """The rule in the form that the request wants."""
    if "<<<<<<< SEARCH" in shown and (line := re.search(r"^.*sit at the lending desk.*$", shown, re.M)):
        return f"<<<<<<< SEARCH\n{line[0]}\n=======\n{line[0]}\n{rule}\n>>>>>>> REPLACE"
    return json.dumps({"rules": [rule]}) if '"rules"' in shown else rule


def _uniform(seed: int, *parts: str) -> float:
    digest = hashlib.sha256("\n".join((str(seed), *parts)).encode()).digest()
    return int.from_bytes(digest[:4]) / 2**32
