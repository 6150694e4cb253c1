"""Turns a question in plain English into clues: what is asked, which words, who sent it, and when."""

import re

MONTHS = (
    "january february march april may june july august september october november december"
).split()

SHORT_STOP = set("the a an of in on at to for from by with and or is was were did does do what when who which".split())
LONG_STOP = SHORT_STOP | set(
    """
    about above after again ago all also any anyone anything around asked back be been before being below between
    bring can come comes concerning could day during each ever find found gave get gets give gives given go got had
    has have he her hers him his how i if into it its just know let like look looking mail mails email emails e-mail
    mention mentioned mentions mentioning message messages me my name named need no not note now our out over own
    person please recall regarding remember said say says see send sender sends sent she should show so some somebody
    someone something specify specified state stated tell than that their them then there these they thing this those
    told until up us use wants we went whom whose will wrote write written would you your where why subject line
    title titled called headed number phone telephone call reach dial fax much dollar dollars amount sum cost price
    figure value money date dates deadline dated author wondering quoted listed include included includes contain
    contained contains refer refers referred referring came reached word words put inbox there's that's what's i'm
    here more one full exact exactly month year sometime early late mid
    """.split()
)

KINDS = (
    ("phone", r"\bphone|\btelephone|\bfax\b|\bdial\b|\bnumber (to|can|do|should|would|could|did)\b|\bcontact number|\bcall\b.*\bnumber|\breach\b"),
    ("amount", r"\bhow much\b|\bdollar|\bamount\b|\$|\bprice\b|\bcost\b|\bsum\b|\bmoney\b"),
    ("subject", r"\bsubject\b|\btitle\b|\bheading\b|\bheaded\b"),
    ("sender", r"^(and |so )?who\b|\bwho (was|is|sent|wrote|mailed)\b|\bfrom whom\b|\bwhose\b|\bsender\b|\bauthor\b|\bwhich person\b"),
    ("date_sent", r"\b(when|date|day)\b.*\b(send|sent|write|wrote|written|e?mailed|arrive|arrived|go out|went out|dated|received)\b|\bdated\b"),
    ("date", r"\bwhen\b|\bdate\b|\bday\b|\bdeadline\b"),
)

PARSER = {
    "min_length": 2,  # 2..6: shorter words are dropped
    "stop_words": "short",  # short | long
    "sender": "address",  # address | phrase | name: where a sender is looked for
    "month": False,  # read month names as a filter, not as words
    "quotes": True,  # what stands in quotation marks is the subject, and all that matters
}


def parse(question, options):
    """Clues of a question.

    Returns a dict: `kind` (phone, amount, date, date_sent, sender, subject), `words` (list), `sender` (part of
    a name or address, or None) and `month` (1 to 12, or None).
    """
    quoted = re.findall(r"[\"“]([^\"”]+)[\"”]", question)
    bare = re.sub(r"[\"“][^\"”]*[\"”]", " ", question)
    kind = next((name for name, pattern in KINDS if re.search(pattern, bare, re.I)), "date")
    sender = find_sender(bare, options["sender"])
    month = None
    if options["month"]:
        named = re.search(r"\b(?:in|during|around|of|from|that|some time in|back in)\s+(%s)\b" % "|".join(MONTHS), bare, re.I)
        month = MONTHS.index(named.group(1).lower()) + 1 if named else None
    text = " ".join(quoted) if quoted and options["quotes"] else question
    stop = LONG_STOP if options["stop_words"] == "long" else SHORT_STOP
    words = []
    for word in re.findall(r"[a-z0-9][a-z0-9'&.-]*[a-z0-9]|[a-z0-9]", re.sub(r"\S+@\S+", " ", text.lower())):
        word = word.removesuffix("'s")
        if len(word) < options["min_length"] or word in stop or word in words:
            continue
        if (options["month"] and not quoted and word in MONTHS) or (sender and word in sender.lower().split()):
            continue
        words.append(word)
    return {"kind": kind, "words": words, "sender": sender, "month": month}


def find_sender(text, where):
    """Part of the sender's name or address, or None."""
    address = re.search(r"[\w.'+-]+@[\w.-]+\w", text)
    if address:
        return address.group(0)
    if where == "address":
        return None
    phrase = re.search(
        r"\b(?:from|by|someone at|somebody at|anyone at|person at|people at|did|does|has|had)\s+([\w'-]+(?:\.\w+)*)", text, re.I
    )
    if phrase and phrase.group(1).lower() not in LONG_STOP and phrase.group(1).lower() not in MONTHS:
        return phrase.group(1).removesuffix("'s")
    if where == "name":
        owner = re.search(r"\b([A-Z][a-z]+)(?:'s\b|\s+(?:wrote|sent|said|gave|give|mentioned|mailed))", text)
        if owner and owner.group(1).lower() not in LONG_STOP:
            return owner.group(1)
    return None
