from __future__ import annotations

import hashlib
import json
import random

from truth import AMOUNTS, BAKES, SWAPS, right


def questions(seed):
    draw = random.Random(f"cooks {seed}")
    asked = []
    for n in range(62):
        kinds = ["amount", "bake", "swap", draw.choice(["swap", "bake", "amount"])]
        for text in dict.fromkeys(_q(k, draw) for k in kinds):
            asked.append({"person": f"cook-{n:02}", "question": text})
    draw.shuffle(asked)
    return asked


def thumb(seed, person, question, answer):
    said = answer if isinstance(answer, str) else json.dumps(answer, sort_keys=True)
    u = int.from_bytes(hashlib.sha256(f"{seed}|{person}|{question}|{said}".encode()).digest()[:4]) / 2**32
    return 1 if right(question, answer) != (u < 0.13) else -1


def _q(kind, draw):
    match kind:
        case "amount":
            name = draw.choice(sorted(AMOUNTS))
            return f"How much {AMOUNTS[name][0]} goes into {name}?"
        case "bake":
            return draw.choice(["How do I bake {}?", "What about the oven for {}?"]).format(
                draw.choice(sorted(BAKES))
            )
        case _:
            return draw.choice(["What can I take for {}?", "I have run out of {}, what now?"]).format(
                draw.choice(sorted(SWAPS))
            )
