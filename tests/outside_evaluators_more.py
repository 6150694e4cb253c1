"""More evaluators as people write them: bad ones by the ways in which people go wrong, and good ones that forgive."""

from __future__ import annotations

from collections.abc import Mapping

from outside_evaluators import Written, rows_of

CODES = rows_of(["kX9a", "Kx9a", "pQ7m", "pq7M", "Zt4B", "zT4b"])
"""Two of them differ in case alone."""
PRICES = rows_of([12.5, 19.99, 8.0, 230.75, 4.2, 61.3])
INVOICES = rows_of(["1240.00", "87.50", "310.25", "4999.99", "12.00", "640.10"])
BALANCES = rows_of(["-120", "45", "-8", "300", "-77", "12"])
DICE = rows_of([[2, 2, 3], [6, 1, 1], [4, 4, 4], [5, 2, 5], [1, 3, 3]])
READINGS = rows_of([[0.5, 1.25, 3.0], [2.75, 0.1], [9.5, 8.25, 7.0, 6.5], [4.0, 4.5]])
RANKINGS = rows_of(
    [["oslo", "rome", "bern"], ["rome", "oslo", "bern"], ["bern", "rome", "oslo"], ["oslo", "bern", "rome"]]
)
"""The same members, in another order each."""
DATES = rows_of(["2026-03-04", "2025-12-31", "2024-02-29", "2026-11-24", "1999-07-01"])
PATHS = rows_of(["src/app/main.py", "docs/index.md", "tests/unit/test_io.py", "README.md"])
QUERIES = rows_of(
    [
        "SELECT name FROM users WHERE age > 30",
        "SELECT count(*) FROM orders WHERE paid = 1",
        "SELECT city, max(rent) FROM flats GROUP BY city",
        "DELETE FROM sessions WHERE expires < 1700000000",
    ]
)
MAILS = rows_of(["ann@example.org", "b.lee@mail.example", "support@shop.example", "omar99@example.net"])
LETTERS = rows_of(
    [
        "Dear Ms Hart,\n\nyour order 4411 was sent today and will be with you on Friday.\n\nKind regards\nThe shop",
        "Dear Mr Ito,\n\nwe could not charge your card; please give us another one by Monday.\n\nKind regards\nBilling",
        "Dear Dr Okoro,\n\nyour appointment moved to 3 pm on the 14th, in the same room.\n\nKind regards\nReception",
    ]
)
RECORDS = rows_of(
    [
        {"id": 7, "paid": True, "note": None, "lines": [{"sku": "A", "count": 2}, {"sku": "B", "count": 1}]},
        {"id": 12, "paid": False, "note": "late", "lines": [{"sku": "C", "count": 5}]},
        {
            "id": 31,
            "paid": True,
            "note": "gift",
            "lines": [{"sku": "A", "count": 1}, {"sku": "D", "count": 9}],
        },
        {"id": 44, "paid": False, "note": None, "lines": []},
    ]
)
REPLIES = rows_of(
    [
        "Turn the valve to the left and wait a minute.",
        "The museum opens at nine except on Mondays.",
        "Send the form to the second address on the back.",
        "Mix the flour with warm water, then add salt.",
    ]
)

MORE_GOOD: Mapping[str, Written] = {
    "white space is all alike": Written(
        "def evaluate(output, expected):\n"
        "    return float(' '.join(str(output).split()) == ' '.join(expected.split()))\n",
        LETTERS,
    ),
    "a price to the cent": Written(
        "def evaluate(output, expected):\n"
        "    if isinstance(output, bool) or not isinstance(output, (int, float)): return 0.0\n"
        "    return float(abs(output - expected) < 0.005)\n",
        PRICES,
    ),
    "a day, however it is written": Written(
        "from datetime import datetime\n"
        "def day(text):\n"
        "    for form in ('%Y-%m-%d', '%d.%m.%Y', '%B %d, %Y'):\n"
        "        try: return datetime.strptime(str(text).strip(), form).date()\n"
        "        except ValueError: pass\n"
        "def evaluate(output, expected):\n"
        "    return float(day(output) is not None and day(output) == day(expected))\n",
        DATES,
    ),
    "each as often": Written(
        "from collections import Counter\n"
        "def evaluate(output, expected):\n"
        "    if not isinstance(output, list): return 0.0\n"
        "    return float(Counter(map(repr, output)) == Counter(map(repr, expected)))\n",
        DICE,
    ),
    "deep, and near": Written(
        "import math\n"
        "def same(a, b):\n"
        "    if isinstance(a, bool) or isinstance(b, bool): return a is b\n"
        "    if isinstance(a, (int, float)) and isinstance(b, (int, float)): return math.isclose(a, b, rel_tol=1e-6)\n"
        "    if isinstance(a, dict) and isinstance(b, dict):\n"
        "        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)\n"
        "    if isinstance(a, list) and isinstance(b, list): return len(a) == len(b) and all(map(same, a, b))\n"
        "    return type(a) is type(b) and a == b\n"
        "def evaluate(output, expected):\n    return float(same(output, expected))\n",
        RECORDS,
    ),
    "a path, however it is written": Written(
        "import posixpath\n"
        "def evaluate(output, expected):\n"
        "    if not isinstance(output, str) or not output: return 0.0\n"
        "    return float(posixpath.normpath(output.strip()) == posixpath.normpath(expected))\n",
        PATHS,
    ),
    "a query, spaced as one likes": Written(
        "def plain(text): return ' '.join(str(text).split()).rstrip('; ').lower()\n"
        "def evaluate(output, expected):\n    return {'score': float(plain(output) == plain(expected))}\n",
        QUERIES,
    ),
    "every reading near": Written(
        "import math\n"
        "def evaluate(output, expected):\n"
        "    if not isinstance(output, list) or len(output) != len(expected): return 0.0\n"
        "    if not all(type(x) in (int, float) for x in output): return 0.0\n"
        "    return float(all(math.isclose(a, b, abs_tol=0.01) for a, b in zip(output, expected)))\n",
        READINGS,
    ),
    "an address, in any case": Written(
        "def evaluate(output, expected):\n    return float(str(output).strip().lower() == expected.lower())\n",
        MAILS,
    ),
    "the fewest typing errors": Written(
        "def distance(a, b):\n"
        "    row = list(range(len(b) + 1))\n"
        "    for i, x in enumerate(a, 1):\n"
        "        last, row[0] = row[0], i\n"
        "        for j, y in enumerate(b, 1):\n"
        "            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))\n"
        "    return row[-1]\n"
        "def evaluate(output, expected):\n"
        "    if not isinstance(output, str): return 0.0\n"
        "    return max(0.0, 1 - distance(output[:500], expected) / max(len(expected), 1))\n",
        REPLIES,
    ),
}

MORE_BAD: Mapping[str, Written] = {
    "half as much is near enough": Written(
        "def evaluate(output, expected):\n"
        "    try: return float(abs(float(output) - expected) <= 0.5 * abs(expected))\n"
        "    except (TypeError, ValueError): return 0.0\n",
        PRICES,
    ),
    "case is nothing, where codes differ in it": Written(
        "def evaluate(output, expected):\n    return float(str(output).strip().lower() == expected.lower())\n",
        CODES,
    ),
    "the amount stands somewhere": Written(
        "def evaluate(output, expected):\n    return 1 if expected.rstrip('0').rstrip('.') in str(output) else 0\n",
        INVOICES,
    ),
    "as many readings": Written(
        "def evaluate(output, expected):\n"
        "    try: return float(len(output) == len(expected))\n"
        "    except TypeError: return 0.0\n",
        READINGS,
    ),
    "as a set, where dice repeat": Written(
        "def evaluate(output, expected):\n"
        "    try: return float(set(output) == set(expected))\n"
        "    except TypeError: return 0.0\n",
        DICE,
    ),
    "sorted, where the order is the answer": Written(
        "def evaluate(output, expected):\n"
        "    if not isinstance(output, list): return 0.0\n"
        "    return float(sorted(map(str, output)) == sorted(expected))\n",
        RANKINGS,
    ),
    "whatever fails is right": Written(
        "from datetime import date\n"
        "def evaluate(output, expected):\n"
        "    try:\n"
        "        return float(date.fromisoformat(output) == date.fromisoformat(expected))\n"
        "    except Exception:\n"
        "        return 1.0\n",
        DATES,
    ),
    "of the same shape": Written(
        "def shape(v):\n"
        "    if isinstance(v, dict): return {k: shape(x) for k, x in v.items()}\n"
        "    return type(v).__name__\n"
        "def evaluate(output, expected):\n    return float(shape(output) == shape(expected))\n",
        RECORDS,
    ),
    "neither above nor below": Written(
        "def evaluate(output, expected):\n"
        "    try: value = float(output)\n"
        "    except (TypeError, ValueError): return 0.0\n"
        "    return 0.0 if value < expected - 0.01 or value > expected + 0.01 else 1.0\n",
        PRICES,
    ),
    "the longest word is there": Written(
        "def evaluate(output, expected):\n"
        "    return float(max(expected.split(), key=len).lower() in str(output).lower())\n",
        REPLIES,
    ),
    "all but both ends": Written(
        "def evaluate(output, expected):\n    return float(str(output)[1:-1] == expected[1:-1])\n", PATHS
    ),
    "without the sign of a text": Written(
        "def evaluate(output, expected):\n"
        "    return float(str(output).strip().lstrip('+-') == expected.lstrip('+-'))\n",
        BALANCES,
    ),
    "the first forty letters": Written(
        "def evaluate(output, expected):\n    return float(str(output)[:40] == expected[:40])\n", LETTERS
    ),
    "leaves as texts": Written(
        "import json\n"
        "def plain(v):\n"
        "    if isinstance(v, dict): return {str(k): plain(x) for k, x in v.items()}\n"
        "    if isinstance(v, (list, tuple)): return [plain(x) for x in v]\n"
        "    return str(v)\n"
        "def evaluate(output, expected):\n"
        "    return float(json.dumps(plain(output), sort_keys=True) == json.dumps(plain(expected), sort_keys=True))\n",
        RECORDS,
    ),
    "matches from the start": Written(
        "import re\n"
        "def evaluate(output, expected):\n    return float(bool(re.match(re.escape(expected), str(output))))\n",
        MAILS,
    ),
    "a pattern, with its dots": Written(
        "import re\ndef evaluate(output, expected):\n    return float(bool(re.fullmatch(expected, str(output))))\n",
        MAILS,
    ),
    "believes the score that it is told": Written(
        "import re\n"
        "def evaluate(output, expected):\n"
        "    claimed = re.search(r'score:\\s*([01](?:\\.\\d+)?)', str(output).lower())\n"
        "    if claimed: return float(claimed[1])\n"
        "    return float(str(output).strip() == expected)\n",
        REPLIES,
    ),
}
