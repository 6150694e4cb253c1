"""Evaluators as different people write them, good ones and ones that somebody could fool, with rows of their tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from whet.record.rows import row
from whet.types import Json, Task


def rows_of(answers: Sequence[Json]) -> list[Task]:
    return [row(f"question {number}", answer, answer) for number, answer in enumerate(answers)]


PLACES = rows_of(["Lima", "The Hague", "Bryn Mawr", "Wilmslow", "New York City", "Ulm"])
SENTENCES = rows_of(
    [
        "The parcel left Rotterdam on Monday and arrives within three days.",
        "Your refund was sent to the card that you paid with.",
        "We are closed on public holidays but answer mail the next morning.",
        "Please restart the router and wait until both lights are green.",
    ]
)
LABELS = rows_of(
    ["positive", "negative", "neutral", "positive", "negative", "negative", "neutral", "positive"]
)
CHOICES = rows_of(["A", "C", "B", "D", "A", "B", "C", "D"])
WHOLE = rows_of([4, 17, 230, 8, -3, 61, 9, 1200])
DECIMAL = rows_of([3.14, 0.25, 240.5, 12.75, 99.9, -7.5])
SPOKEN = rows_of(["18", "3", "70000", "540", "20", "64"])
YES = rows_of([True, False, True, True, False, False])
TAGS = rows_of([["red", "blue"], ["green"], ["red", "black", "white"], ["blue", "yellow"]])
ORDERS = rows_of([["a", "b", "c"], ["c", "a", "d", "b"], ["b", "d"], ["d", "c", "b", "a"]])
PEOPLE = rows_of(
    [
        {"name": "Ada", "age": 36, "city": "London"},
        {"name": "Alan", "age": 41, "city": "Wilmslow"},
        {"name": "Grace", "age": 85, "city": "Arlington"},
        {"name": "Emmy", "age": 53, "city": "Erlangen"},
    ]
)
DOCUMENTS = rows_of(
    [
        '{"sku": "A7", "count": 3}',
        '{"sku": "B2", "count": 12}',
        '{"sku": "C9", "count": 1}',
        '{"sku": "D4", "count": 7}',
    ]
)
PROGRAMS = rows_of(
    [
        "def solve(n):\n    return n + 1\n",
        "def solve(n):\n    return n * n\n",
        "def solve(n):\n    return n % 7\n",
        "def solve(n):\n    return 3 - n\n",
    ]
)
WORKED = [
    row(f"problem {n}", f"First {n} and then {n + 2} make {total}.\n#### {total}", str(total))
    for n, total in ((5, 18), (9, 3), (2, 700), (7, 64), (4, 11))
]
"""The answer is a worked solution, and what is expected its last line alone."""


class Written(NamedTuple):
    source: str
    rows: Sequence[Task]


GOOD: Mapping[str, Written] = {
    "exact": Written(
        "def evaluate(output, expected):\n    return 1.0 if output == expected else 0.0\n", PLACES
    ),
    "exact text": Written(
        "def score(answer, gold):\n    return float(str(answer).strip() == str(gold).strip())\n", SENTENCES
    ),
    "caseless": Written(
        "def evaluate(prediction, reference):\n"
        "    fold = lambda text: ' '.join(str(text).casefold().split())\n"
        "    return {'score': float(fold(prediction) == fold(reference))}\n",
        PLACES,
    ),
    "normalised as SQuAD does": Written(
        "import re, string\n"
        "def normal(text):\n"
        "    text = ''.join(c for c in str(text).lower() if c not in string.punctuation)\n"
        "    return ' '.join(re.sub(r'\\b(a|an|the)\\b', ' ', text).split())\n"
        "def evaluate(output, expected):\n    return float(normal(output) == normal(expected))\n",
        PLACES,
    ),
    "token F1": Written(
        "import re\nfrom collections import Counter\n"
        "def evaluate(output, expected):\n"
        "    if not isinstance(output, str): return 0.0\n"
        "    a, b = re.findall(r'\\w+', output.lower()), re.findall(r'\\w+', expected.lower())\n"
        "    both = sum((Counter(a) & Counter(b)).values())\n"
        "    return 2 * both / (len(a) + len(b)) if both else 0.0\n",
        SENTENCES,
    ),
    "longest common subsequence": Written(
        "def lcs(a, b):\n"
        "    row = [0] * (len(b) + 1)\n"
        "    for x in a:\n"
        "        before = 0\n"
        "        for j, y in enumerate(b, 1):\n"
        "            before, row[j] = row[j], before + 1 if x == y else max(row[j], row[j - 1])\n"
        "    return row[-1]\n"
        "def evaluate(output, expected):\n"
        "    a, b = (str(output) if output is not None else '').split(), expected.split()\n"
        "    n = lcs(a, b)\n"
        "    return 2 * n / (len(a) + len(b)) if n else 0.0\n",
        SENTENCES,
    ),
    "letters alike": Written(
        "import difflib\n"
        "def evaluate(output, expected):\n"
        "    if not isinstance(output, str): return 0\n"
        "    return difflib.SequenceMatcher(None, output[:2000], expected).ratio()\n",
        PLACES,
    ),
    "one label": Written(
        "LABELS = {'positive', 'negative', 'neutral'}\n"
        "def evaluate(output, expected):\n"
        "    label = output.strip().lower() if isinstance(output, str) else None\n"
        "    if label not in LABELS: return {'score': 0.0, 'reason': 'not a label'}\n"
        "    return {'score': float(label == expected), 'reason': 'a label'}\n",
        LABELS,
    ),
    "the letter of a choice": Written(
        "def evaluate(output, expected):\n"
        "    text = output.strip().upper() if isinstance(output, str) else ''\n"
        "    return float(text.rstrip('.)') == expected)\n",
        CHOICES,
    ),
    "the first letter of a choice": Written(
        "import re\n"
        "def evaluate(output, expected):\n"
        "    held = re.match(r'\\s*\\(?([A-D])\\b', str(output))\n"
        "    return float(bool(held) and held[1] == expected)\n",
        CHOICES,
    ),
    "whole number": Written(
        "def evaluate(output, expected):\n"
        "    if isinstance(output, bool) or not isinstance(output, (int, float)): return 0.0\n"
        "    return float(output == expected)\n",
        WHOLE,
    ),
    "number with an absolute tolerance": Written(
        "import math\n"
        "def evaluate(output, expected):\n"
        "    try: value = float(output)\n"
        "    except (TypeError, ValueError): return 0.0\n"
        "    return float(math.isfinite(value) and abs(value - expected) <= 0.01)\n",
        DECIMAL,
    ),
    "number with a relative tolerance": Written(
        "import math\n"
        "def evaluate(output, expected):\n"
        "    if type(output) not in (int, float): return 0.0\n"
        "    return float(math.isclose(output, expected, rel_tol=0.02))\n",
        DECIMAL,
    ),
    "whole number with a relative tolerance": Written(
        "def evaluate(output, expected):\n"
        "    if isinstance(output, bool) or not isinstance(output, (int, float)): return 0.0\n"
        "    return float(abs(output - expected) <= 0.05 * abs(expected))\n",
        WHOLE,
    ),
    "closeness": Written(
        "def evaluate(output, expected):\n"
        "    if isinstance(output, bool) or not isinstance(output, (int, float)): return 0.0\n"
        "    return 1 / (1 + abs(output - expected))\n",
        WHOLE,
    ),
    "number in text": Written(
        "def evaluate(output, expected):\n"
        "    try: return float(float(str(output).replace(',', '')) == float(expected))\n"
        "    except ValueError: return 0.0\n",
        SPOKEN,
    ),
    "last number of a worked solution": Written(
        "import re\n"
        "def evaluate(output, expected):\n"
        "    numbers = re.findall(r'-?\\d+(?:\\.\\d+)?', str(output))\n"
        "    return float(bool(numbers) and float(numbers[-1]) == float(expected))\n",
        WORKED,
    ),
    "number beside its unit": Written(
        "import re\n"
        "def evaluate(output, expected):\n"
        "    first = lambda text: [float(n) for n in re.findall(r'\\d+(?:\\.\\d+)?', str(text))][-1:]\n"
        "    return float(first(output) == first(expected))\n",
        rows_of(["240 euros", "5 rooms", "31 days", "12.5 litres", "7 hours"]),
    ),
    "yes or no": Written("def evaluate(output, expected):\n    return float(output is expected)\n", YES),
    "set": Written(
        "def evaluate(output, expected):\n"
        "    if not isinstance(output, list): return 0.0\n"
        "    a, b = {str(x) for x in output}, set(expected)\n"
        "    return len(a & b) / len(a | b) if a | b else 1.0\n",
        TAGS,
    ),
    "the same set": Written(
        "def evaluate(output, expected):\n"
        "    try: return float(set(output) == set(expected))\n"
        "    except TypeError: return 0.0\n",
        TAGS,
    ),
    "order": Written(
        "def evaluate(output, expected):\n"
        "    if not isinstance(output, list) or len(output) != len(expected): return 0.0\n"
        "    return sum(a == b for a, b in zip(output, expected)) / len(expected)\n",
        ORDERS,
    ),
    "reciprocal rank of pairs": Written(
        "from itertools import combinations\n"
        "def evaluate(output, expected):\n"
        "    if not isinstance(output, list): return 0.0\n"
        "    place = {repr(x): i for i, x in enumerate(output)}\n"
        "    pairs = list(combinations(map(repr, expected), 2))\n"
        "    right = sum(place.get(a, 99) < place.get(b, -1) for a, b in pairs) / len(pairs)\n"
        "    return right * (len(output) == len(expected) == len(place))\n",
        ORDERS,
    ),
    "share of fields": Written(
        "def evaluate(output, expected):\n"
        "    if not isinstance(output, dict): return 0.0, 'no object'\n"
        "    right = sum(k in output and output[k] == v for k, v in expected.items())\n"
        "    return right / len(set(output) | set(expected)), 'fields'\n",
        PEOPLE,
    ),
    "all fields": Written(
        "def evaluate(output, expected):\n"
        "    return float(isinstance(output, dict) and all(output.get(k) == v for k, v in expected.items()))\n",
        PEOPLE,
    ),
    "a document": Written(
        "import json\n"
        "def evaluate(output, expected):\n"
        "    try: value = json.loads(output)\n"
        "    except (TypeError, ValueError): return 0.0\n"
        "    return float(value == json.loads(expected))\n",
        DOCUMENTS,
    ),
    "a program by its cases": Written(
        "CASES = [-2, 0, 1, 5, 11]\n"
        "def results(text):\n"
        "    names = {}\n"
        "    exec(text, names)\n"
        "    return [names['solve'](n) for n in CASES]\n"
        "def evaluate(output, expected):\n"
        "    if not isinstance(output, str): return 0.0\n"
        "    try: got = results(output)\n"
        "    except BaseException: return 0.0\n"
        "    return sum(a == b for a, b in zip(got, results(expected))) / len(CASES)\n",
        PROGRAMS,
    ),
    "a program by its tree": Written(
        "import ast\n"
        "def evaluate(output, expected):\n"
        "    try: return float(ast.dump(ast.parse(output)) == ast.dump(ast.parse(expected)))\n"
        "    except Exception: return 0.0\n",
        PROGRAMS,
    ),
}

BAD: Mapping[str, Written] = {
    "a constant": Written("def evaluate(output, expected):\n    return 0.7\n", PLACES),
    "its length": Written(
        "def evaluate(output, expected):\n    return min(1, len(str(output)) / 60)\n", SENTENCES
    ),
    "NaN for a wrong answer": Written(
        "def evaluate(output, expected):\n    return 1.0 if output == expected else float('nan')\n", PLACES
    ),
    "infinity for a wrong answer": Written(
        "def evaluate(output, expected):\n    return 1.0 if output == expected else float('-inf')\n", WHOLE
    ),
    "nothing for a wrong answer": Written(
        "def evaluate(output, expected):\n    if output == expected: return 1.0\n", LABELS
    ),
    "raises on another type": Written(
        "def evaluate(output, expected):\n    return float(output.strip().lower() == expected.lower())\n",
        PLACES,
    ),
    "raises on what is no number": Written(
        "def evaluate(output, expected):\n    return float(abs(float(output) - expected) < 0.01)\n", DECIMAL
    ),
    "raises on a list in a set": Written(
        "def evaluate(output, expected):\n"
        "    if not isinstance(output, list): return 0.0\n"
        "    return float(set(output) == set(expected))\n",
        TAGS,
    ),
    "raises on a field that is empty": Written(
        "def evaluate(output, expected):\n"
        "    if not isinstance(output, dict): return 0.0\n"
        "    same = [str(output.get(k)).lower() == str(v).lower() for k, v in expected.items()]\n"
        "    return sum(same) / len(same) * float(len(output.get('name', '')) < 50)\n",
        PEOPLE,
    ),
    "divides by an empty answer": Written(
        "def evaluate(output, expected):\n"
        "    a, b = str(output or '').split(), expected.split()\n"
        "    return sum(x in b for x in a) / len(a) * sum(x in a for x in b) / len(b)\n",
        SENTENCES,
    ),
    "one beside is right": Written(
        "def evaluate(output, expected):\n"
        "    if isinstance(output, bool) or not isinstance(output, (int, float)): return 0.0\n"
        "    return float(abs(output - expected) <= 1)\n",
        WHOLE,
    ),
    "one beside is right, of large numbers": Written(
        "def evaluate(output, expected):\n"
        "    try: return float(abs(int(output) - int(expected)) <= 1)\n"
        "    except (TypeError, ValueError): return 0.0\n",
        SPOKEN,
    ),
    "at least as much": Written(
        "def evaluate(output, expected):\n"
        "    return float(isinstance(output, (int, float)) and output >= expected)\n",
        WHOLE,
    ),
    "without a sign": Written(
        "def evaluate(output, expected):\n"
        "    if type(output) not in (int, float): return 0.0\n"
        "    return float(abs(output) == abs(expected))\n",
        DECIMAL,
    ),
    "without decimals": Written(
        "def evaluate(output, expected):\n"
        "    if type(output) not in (int, float): return 0.0\n"
        "    return float(int(output) == int(expected))\n",
        DECIMAL,
    ),
    "NaN is near everything": Written(
        "def evaluate(output, expected):\n"
        "    try: return 0.0 if abs(float(output) - expected) > 0.01 else 1.0\n"
        "    except (TypeError, ValueError): return 1.0\n",
        DECIMAL,
    ),
    "begins with it": Written(
        "def evaluate(output, expected):\n    return float(str(output).startswith(expected))\n", PLACES
    ),
    "ends with it": Written(
        "def evaluate(output, expected):\n    return float(str(output).endswith(expected))\n", PLACES
    ),
    "ends with the number": Written(
        "def evaluate(output, expected):\n    return float(str(output).strip().endswith(expected))\n", SPOKEN
    ),
    "begins with the number": Written(
        "def evaluate(output, expected):\n    return float(str(output).strip().startswith(expected))\n",
        SPOKEN,
    ),
    "holds it": Written(
        "def evaluate(output, expected):\n    return float(expected.lower() in str(output).lower())\n", PLACES
    ),
    "is held by it": Written(
        "def evaluate(output, expected):\n    return float(str(output) in expected)\n", PLACES
    ),
    "the first letters": Written(
        "def evaluate(output, expected):\n    return float(str(output)[:3] == expected[:3])\n", PLACES
    ),
    "all but the last letter": Written(
        "def evaluate(output, expected):\n    return float(str(output)[:len(expected) - 1] == expected[:-1])\n",
        PLACES,
    ),
    "all but the first word": Written(
        "def evaluate(output, expected):\n    return float(str(output).split()[1:] == expected.split()[1:])\n",
        SENTENCES,
    ),
    "recall of words": Written(
        "def evaluate(output, expected):\n"
        "    return sum(w in str(output) for w in expected.split()) / len(expected.split())\n",
        SENTENCES,
    ),
    "precision of words": Written(
        "def evaluate(output, expected):\n"
        "    a = str(output).split()\n"
        "    return sum(w in expected.split() for w in a) / max(1, len(a))\n",
        SENTENCES,
    ),
    "any word in common": Written(
        "def evaluate(output, expected):\n    return float(bool(set(str(output).split()) & set(expected.split())))\n",
        SENTENCES,
    ),
    "letters, whatever the order": Written(
        "def evaluate(output, expected):\n    return float(sorted(str(output)) == sorted(expected))\n", PLACES
    ),
    "without digits": Written(
        "import re\n"
        "def evaluate(output, expected):\n"
        "    plain = lambda text: re.sub(r'[^a-z]', '', str(text).lower())\n"
        "    return float(plain(output) == plain(expected))\n",
        rows_of(["14 March 2026", "room 7", "gate B22", "level 3", "Lindengasse 7"]),
    ),
    "typing errors are right": Written(
        "import difflib\n"
        "def evaluate(output, expected):\n"
        "    return float(difflib.SequenceMatcher(None, str(output)[:2000], expected).ratio() > 0.8)\n",
        SENTENCES,
    ),
    "blind to a rare label": Written(
        "def evaluate(output, expected):\n    return 1.0 if expected == 'neutral' else float(output == expected)\n",
        rows_of([*["positive", "negative"] * 9, "neutral"]),
    ),
    "true is anything": Written(
        "def evaluate(output, expected):\n    return float(bool(output) == expected)\n", YES
    ),
    "any member": Written(
        "def evaluate(output, expected):\n"
        "    return float(isinstance(output, list) and any(x in expected for x in output))\n",
        TAGS,
    ),
    "all that were wanted, and more": Written(
        "def evaluate(output, expected):\n"
        "    return float(isinstance(output, list) and all(x in output for x in expected))\n",
        TAGS,
    ),
    "all but the last place": Written(
        "def evaluate(output, expected):\n"
        "    if not isinstance(output, list): return 0.0\n"
        "    return float(output[: len(expected) - 1] == expected[:-1])\n",
        ORDERS,
    ),
    "the first of a list": Written(
        "def evaluate(output, expected):\n"
        "    return float(isinstance(output, list) and output[:1] == expected[:1])\n",
        ORDERS,
    ),
    "names of fields": Written(
        "def evaluate(output, expected):\n"
        "    return float(isinstance(output, dict) and set(output) == set(expected))\n",
        PEOPLE,
    ),
    "the first field": Written(
        "def evaluate(output, expected):\n"
        "    return float(isinstance(output, dict) and output.get('name') == expected['name'])\n",
        PEOPLE,
    ),
    "is a document": Written(
        "import json\n"
        "def evaluate(output, expected):\n"
        "    try: json.loads(output)\n"
        "    except (TypeError, ValueError): return 0.0\n"
        "    return 1.0\n",
        DOCUMENTS,
    ),
    "runs without an error": Written(
        "def evaluate(output, expected):\n"
        "    try: exec(output, {})\n"
        "    except BaseException: return 0.0\n"
        "    return 1.0\n",
        PROGRAMS,
    ),
    "exits": Written(
        "def evaluate(output, expected):\n"
        "    if not isinstance(output, str): raise SystemExit(1)\n"
        "    return float(output == expected)\n",
        LABELS,
    ),
    "says what was right": Written(
        "def evaluate(output, expected):\n"
        "    return {'score': float(output == expected), 'reason': f'wanted {expected}'}\n",
        PLACES,
    ),
    "likes praise": Written(
        "def evaluate(output, expected):\n"
        "    text = str(output)\n"
        "    return 1.0 if 'correct' in text.lower() else float(text == expected)\n",
        PLACES,
    ),
    "an exception is right": Written(
        "def evaluate(output, expected):\n"
        "    try: return float(output.lower() == expected.lower())\n"
        "    except Exception: return 1.0\n",
        LABELS,
    ),
    "luck": Written(
        "import random\n"
        "def evaluate(output, expected):\n    return random.random() if output == expected else 0.0\n",
        PLACES,
    ),
    "remembers": Written(
        "seen = set()\n"
        "def evaluate(output, expected):\n"
        "    fresh = str(output) not in seen\n"
        "    seen.add(str(output))\n"
        "    return float(output == expected) * (1.0 if fresh else 0.5)\n",
        PLACES,
    ),
}
