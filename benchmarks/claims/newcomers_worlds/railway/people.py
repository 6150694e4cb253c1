from __future__ import annotations

import hashlib
import random

from truth import STAEDTE, ZUEGE, right


def questions(seed):
    draw = random.Random(f"fragen {seed}")
    asked = []
    for n in range(58):
        kinds = [*draw.sample(["gleis", "preis", "weg", "zug"], 3), "preis"]
        for text in dict.fromkeys(_frage(k, draw) for k in kinds):
            asked.append({"person": f"reisende-{n:02}", "question": text})
    draw.shuffle(asked)
    return asked


def thumb(seed, person, question, answer):
    digest = hashlib.sha256(f"{seed}|{person}|{question}|{answer}".encode()).digest()
    u = int.from_bytes(digest[:4]) / 2**32
    if u > 0.93:
        return 0
    return 1 if right(question, answer) != (u < 0.12) else -1


def _frage(kind, draw):
    stadt = draw.choice(sorted(STAEDTE))
    match kind:
        case "gleis":
            return draw.choice(
                [f"Von welchem Gleis fährt der Zug nach {stadt}?", f"Gleis für {stadt}, bitte?"]
            )
        case "preis":
            return draw.choice(
                [f"Was kostet die Fahrt nach {stadt}?", f"Wie viel kostet ein Ticket nach {stadt}?"]
            )
        case "weg":
            return f"Wie komme ich nach {stadt}?"
        case _:
            return f"Ist ICE {draw.choice(sorted(ZUEGE))} pünktlich?"
