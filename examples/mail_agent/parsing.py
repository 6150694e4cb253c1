"""Turns a question in plain English into clues: what is asked, which words, who sent it, and when."""

import re

MONTHS = (
    "january february march april may june july august september october november december"
).split()

SHORT_STOP = set("the a an of in on at to for from by with and or is was were did does do what when who which".split())
LONG_STOP = SHORT_STOP | set(
    """
    about after again ago all also any asked back be been being below between can come concerning could day
    each ever find gave get gets give gives given go got had has have he her hers him his how i if into it
    its just know let like look looking mail mails emails e-mail mention mentioned mentions mentioning
    message messages me my name named need no not now our out over own person please recall regarding
    remember said say says see send sender sends sent she should so some somebody someone something specify
    specified state stated tell than that their them then there these they thing this those until up us use
    we went whom whose will wrote write written would you your where why subject line title titled called
    headed number phone telephone call dial much dollar dollars amount sum cost price figure value money
    date dates deadline author quoted listed include included contain refers referring came reached word
    words put inbox there's that's what's i'm here more one exact exactly month sometime as because heading
    writing vaguely believe believed stood under calling somewhere happen happens according things arrived
    used writes tells prices costs am sure mailed emailed quote calendar inside many long talk it's they're
    author's time arrive down think
    """.split()
)

KINDS = (
    ("phone", r"\bphone|\btelephone|\bdial\b|\bnumber\b|\b(can|could|should) I call\b"),
    ("amount", r"\bhow (much|many)\b|\bdollar|\bamount\b|\$|\bprice\b|\bcost\b|\bsum\b|\bmoney\b"),
    ("subject", r"\bsubject\b|\btitled?\b|\bheading\b|\bheaded\b"),
    ("sender", r"\bwho\b|\bwhom\b|\bwhose\b|\bsender\b|\bauthor\b|\bwhich person\b"),
    ("date", r"\bdate\b|\bdeadline\b|\bwhen (is|are|does|will)\b|\bday is\b|\bday did\b.*\bname\b"),
    ("date_sent", r"\bwhen\b|\bday\b|\bhow long ago\b"),
)

PARSER = {
    "min_length": 2,  # 2 | 3 | 4: shorter words are dropped
    "stop_words": "short",  # short | long
    "sender": "address",  # address | phrase | name: where a sender is looked for
    "month": False,  # read month names as a filter, not as words
    "quotes": False,  # what stands in quotation marks is the whole subject line
}


def parse(question, options):
    """Clues of a question.

    Returns a dict: `kind` (phone, amount, date, date_sent, sender, subject), `words` (list), `sender` (part of
    a name or address, or None), `month` (1 to 12, or None) and `title` (the subject line if it was quoted, or None).
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
    title = quoted[0] if quoted and options["quotes"] else None
    return {"kind": kind, "words": words, "sender": sender, "month": month, "title": title}


NAME = r"[A-Z][\w-]+(?: [A-Z][\w-]+)*"


def find_sender(text, where):
    """Part of the sender's name or address, or None."""
    address = re.search(r"[\w.'+-]*@[\w.-]+\w", text)
    if address:
        return address.group(0)
    if where == "address":
        return None
    place = re.search(r"\b(?:someone|somebody|anyone|person|people) (?:at|from) ([\w.&-]+\w)", text, re.I)
    if place:
        return place.group(1)
    phrases = [r"\b(?:from|by|did|that|recall|the one) (%s)" % NAME]
    if where == "name":
        # Any capitalised word inside a sentence, or one that begins it and then writes or sends.
        phrases += [r"\b(%s)'s\b" % NAME, r"(?<=[a-z,;:] )(%s)" % NAME, r"^(%s) (?:wrote|sent|said|gave|mailed)\b" % NAME]
    for phrase in phrases:
        for found in re.finditer(phrase, text):
            name = re.sub(r"'s$", "", found.group(1))
            if name != "I" and name.lower() not in MONTHS and name.lower() not in LONG_STOP:
                return name
    return None
