"""Thirty sums of fifteen shops, and a clerk at `$OPENAI_BASE_URL` to ask; the standard library alone."""

import json
import os
import random
import urllib.request

PLAIN, CAREFUL = "Add the numbers.", "Add the numbers and check the sum."
SIDES = {"baseline": PLAIN, "candidate": CAREFUL}
_chance = random.Random(0)
SUMS = []
for _number in range(30):
    _left, _right = _chance.randrange(10, 90), _chance.randrange(10, 90)
    SUMS.append(
        {
            "id": f"sum-{_number:02}",
            "question": f"What is {_left} + {_right}?",
            "expected": str(_left + _right),
            "group": f"shop-{_number // 2}",
        }
    )


def ask(prompt, question):
    """The clerk's answer."""
    turns = [{"role": "system", "content": prompt}, {"role": "user", "content": question}]
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "clerk", "messages": turns}).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer none"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)["choices"][0]["message"]["content"]
