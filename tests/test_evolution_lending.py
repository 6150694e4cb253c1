"""A function that evolves may need a helper that reaches a service: the owner's own answers it."""

from __future__ import annotations

import ast
import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from whet.errors import InputError
from whet.learn.evolution.agents.agent import RepositoryAgent
from whet.learn.evolution.agents.lending import MOST_ASKED, lent
from whet.learn.evolution.agents.networked import Networked
from whet.sandbox import CallResult, Pool

DESK = '''"""The desk of a shop."""

import json
import os
import urllib.parse
import urllib.request

KEY = os.environ["SHOP_KEY"]


def fetch(service, key):
    query = urllib.parse.urlencode({"key": key, "secret": KEY})
    with urllib.request.urlopen(f"{os.environ['SHOP_URL']}/{service}?{query}", timeout=10) as response:
        return json.load(response)


def stock(article):
    return "yes" if fetch("stock", article)["pieces"] == 0 else "no"


def order(number):
    return fetch("orders", number)["state"]


def answer(question):
    try:
        return stock(question)
    except (KeyError, RuntimeError) as error:
        return f"sorry: {error}"
'''
STOCK = {"rake": 3, "spade": 0, "hose": 7}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The paths that a real service was asked for."""
    asked: list[str] = []

    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            key = parse_qs(url.query)["key"][0]
            asked.append(f"{url.path} {key} {parse_qs(url.query)['secret'][0]}")
            known = url.path == "/stock" and key in STOCK
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"pieces": STOCK.get(key)}).encode())

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("SHOP_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("SHOP_KEY", "of the owner")
    yield asked
    server.shutdown()
    thread.join()
    server.server_close()


def answers(
    folder: Path, changed: str, *questions: str, source: str = DESK, piece: str = "desk:stock"
) -> list[CallResult]:
    """What the agent answers with another text of `stock`."""
    (folder / "desk.py").write_text(source, encoding="utf-8")
    agent = RepositoryAgent(folder, [piece], entry_name="desk:answer", network=True)
    assert agent.entry is not None
    target = agent.target(agent.entry, [])
    program = agent.start.with_part(agent.pieces[0].part, changed)

    async def run() -> list[CallResult]:
        async with Pool() as pool:
            network = Networked(agent, pool, seconds=60, as_came=True)
            async with network.open(target, program) as caller:
                return [await caller.call(target.arguments(question)) for question in questions]

    return asyncio.run(run())


RIGHT = 'def stock(article):\n    return "yes" if fetch("stock", article)["pieces"] > 0 else "no"\n'


def test_a_function_that_asks_a_service_evolves(tmp_path: Path, shop: list[str]) -> None:
    results = answers(tmp_path, RIGHT, "rake", "spade", "hose")
    assert [result.value for result in results] == ["yes", "no", "yes"]
    # By the owner's code, with what its environment holds: none of that is in the sandbox.
    assert shop == ["/stock rake of the owner", "/stock spade of the owner", "/stock hose of the owner"]


def test_one_call_may_ask_several_times_and_no_answer_is_asked_for_twice(
    tmp_path: Path, shop: list[str]
) -> None:
    text = (
        "def stock(article):\n    counts = [fetch('stock', each)['pieces'] for each in ('rake', 'hose', 'rake')]\n"
        "    return str(sum(counts))\n"
    )
    assert answers(tmp_path, text, "any")[0].value == "13"
    assert [each.split()[1] for each in shop] == ["rake", "hose"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        # A service that the source never names, though the key may be any.
        (
            "def stock(article):\n    return fetch('cards', article)['balance']\n",
            "than the source ever gives it",
        ),
        (
            "def stock(article):\n    return fetch(key=article, service=article)\n",
            "than the source ever gives it",
        ),
        (
            "def stock(article):\n    return str([fetch('stock', str(n)) for n in range(99)])\n",
            "sorry: ",  # the first unknown article is a 404 of the service, which the function sees as it would outside
        ),
        # By the channel's own name, for something that nobody lends.
        (
            "def stock(article):\n    import whet_lent\n    return whet_lent.ask('os:getcwd', (), {})\n",
            "which it is not lent",
        ),
        # What it may not reach from inside, it does not.
        (
            "import urllib.request\n\n\n"
            "def stock(article):\n    return urllib.request.urlopen('http://127.0.0.1').read()\n",
            "URLError",
        ),
    ],
)
def test_what_a_candidate_may_ask_is_bounded(tmp_path: Path, shop: list[str], text: str, says: str) -> None:
    result = answers(tmp_path, text, "rake")[0]
    assert says in (
        str(result.value) if result.failure is None else f"{result.failure.type} {result.failure.message}"
    )
    assert not [each for each in shop if not each.startswith("/stock")]


def test_a_candidate_that_asks_without_end_is_ended(tmp_path: Path, shop: list[str]) -> None:
    many = {f"n{n}": n for n in range(MOST_ASKED + 20)}
    STOCK.update(many)
    try:
        text = (
            f"def stock(article):\n    return str([fetch('stock', f'n{{n}}') for n in range({len(many)})])\n"
        )
        result = answers(tmp_path, text, "rake")[0]
    finally:
        for name in many:
            del STOCK[name]
    assert f"more than {MOST_ASKED} times" in str(result.value)
    assert len(shop) == MOST_ASKED


def test_an_exception_that_is_swallowed_does_not_hide_what_was_asked(tmp_path: Path, shop: list[str]) -> None:
    text = (
        "def stock(article):\n    try:\n        return str(fetch('stock', article)['pieces'])\n"
        "    except:\n        return 'swallowed'\n"
    )
    assert answers(tmp_path, text, "hose")[0].value == "7"


def test_an_async_function_and_an_async_helper(tmp_path: Path, shop: list[str]) -> None:
    source = (
        DESK.replace("def stock", "async def stock")
        .replace('fetch("stock", article)[', '(await later("stock", article))[')
        .replace("return stock(question)", "import asyncio\n        return asyncio.run(stock(question))")
        .replace(
            "def order",
            "async def later(service, key):\n    import urllib.request\n    return fetch(service, key)\n\n\ndef order",
        )
    )
    text = "async def stock(article):\n    return str((await later('stock', article))['pieces'] * 2)\n"
    assert answers(tmp_path, text, "rake", source=source)[0].value == "6"


def test_an_async_function_that_asks_nothing_is_awaited(tmp_path: Path, shop: list[str]) -> None:
    source = DESK.replace("def stock", "async def stock").replace(
        "return stock(question)", "import asyncio\n        return asyncio.run(stock(question))"
    )
    text = "async def stock(article):\n    return article.upper()\n"
    assert answers(tmp_path, text, "rake", source=source)[0].value == "RAKE"


METHODS = (
    DESK.partition("def stock")[0]
    + """class Desk:
    def __init__(self):
        self.seen, self.client, self.url = {"asked": 0}, object(), "mine"

    def stock(self, article, *, unit="pieces"):
        self.seen["asked"] += len(self.url) - 3
        return "yes" if fetch("stock", article)[unit] == 0 else "no"

    def counted(self):
        return self.seen["asked"]


TOOLS = {name: getattr(Desk, name) for name in ("stock", "counted")}


def answer(question):
    desk = Desk()
    told = TOOLS["stock"](desk, question)
    return [told, desk.counted(), sorted(vars(desk)), desk.seen, desk.url]
"""
)
STOCK_METHOD = """class Desk:
    def stock(self, article, *, unit="pieces"):
        self.seen["asked"] += 10
        self.last, self.url = article, "http://elsewhere"
        return "yes" if fetch("stock", article)[unit] > 0 else "no"
"""


def test_a_method_evolves_and_what_it_changes_of_its_object_stays(tmp_path: Path, shop: list[str]) -> None:
    (rake, spade) = answers(tmp_path, STOCK_METHOD, "rake", "spade", source=METHODS, piece="desk:Desk.stock")
    # What the method never spoke of, or what says where something is reached, is nobody's to set.
    assert rake.value == ["yes", 10, ["client", "seen", "url"], {"asked": 10}, "mine"]
    assert spade.value[0] == "no"
    counted = "class Desk:\n    def counted(self):\n        return -self.seen.pop('asked')\n"
    (hose,) = answers(tmp_path, counted, "hose", source=METHODS, piece="desk:Desk.counted")
    assert hose.value == ["no", -1, ["client", "seen", "url"], {}, "mine"]


def test_a_method_that_needs_what_cannot_cross_fails_and_says_so(tmp_path: Path, shop: list[str]) -> None:
    text = STOCK_METHOD.replace("self.last, self.url = article", "self.last, self.url = str(self.client)")
    (result,) = answers(tmp_path, text, "rake", source=METHODS, piece="desk:Desk.stock")
    assert result.failure is not None
    assert "client" in result.failure.message
    source = METHODS.replace("    def counted(self)", "    async def counted(self)")
    changed = "class Desk:\n    async def counted(self):\n        return 0\n"
    with pytest.raises(InputError, match="no plain method of an object"):
        answers(tmp_path, changed, "rake", source=source, piece="desk:Desk.counted")


def lend(source: str, target: str) -> tuple[str, list[str]]:
    loan = lent({"desk.py": source}, f"desk:{target}", {"desk": ast.parse(source)})
    return str(loan.files["desk.py"]), sorted(loan.helpers)


def test_a_client_that_only_helpers_use_is_not_made_in_the_sandbox() -> None:
    source = (
        "from __future__ import annotations\nimport httpx\nfrom urllib.parse import quote\n\n"
        "BASE = 'http://shop'\nCLIENT = httpx.Client(base_url=BASE)\nRATES = {'a': 1}\n\n\n"
        "def ask(name):\n    return CLIENT.get(quote(name)).json()\n\n\n"
        "def label(name):\n    return quote(name)\n\n\n"
        "def price(name):\n    return ask(name)['price'] * RATES['a']\n"
    )
    text, helpers = lend(source, "price")
    assert helpers == ["desk:ask"]
    assert "httpx" not in text
    assert "CLIENT" not in text
    assert "RATES" in text
    assert "from __future__ import annotations" in text
    assert "quote" in text


def test_a_function_that_needs_nothing_outside_borrows_nothing() -> None:
    source = (
        "from urllib.parse import quote\n\n\ndef label(name):\n    return quote(name)\n\n\n"
        "def use(name):\n    return label(name)\n"
    )
    text, helpers = lend(source, "use")
    assert (text, helpers) == (source, [])


PATHS = """
import httpx


def get(path):
    return httpx.get("http://shop" + path).json()


def open_url(url, key):
    return httpx.get(url, params={"key": key}).json()


def price(article):
    return get(f"/prices/{article}")["price"]


def weight(article):
    url = "http://shop/weights"
    return open_url(url, article)["weight"]
"""


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("/prices/rake", False),
        ("/prices/", False),
        ("/orders/rake", True),
        ("/prices/../admin", True),
        ("/prices/rake?all=1", True),
        ("@elsewhere/prices/rake", True),
        (7, True),
    ],
)
def test_what_the_source_writes_around_an_argument_stays(path: Any, refused: bool) -> None:
    helper = lent({"desk.py": PATHS}, "desk:price", {"desk": ast.parse(PATHS)}).helpers["desk:get"]
    assert bool(helper.refusal([path], {})) is refused


def test_a_helper_that_takes_any_address_is_not_lent() -> None:
    helper = lent({"desk.py": PATHS}, "desk:weight", {"desk": ast.parse(PATHS)}).helpers["desk:open_url"]
    assert "takes any url" in helper.refusal(["http://elsewhere", "rake"], {})
