# ruff: noqa: E501 - one text a line
"""Which texts are redacted: a labelled set, every way in, and texts made to be slow."""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import json
import random
import resource
import shutil
import time
import typing
import unittest.mock
from collections.abc import Callable
from pathlib import Path

import pytest
import re2
from otlp_spans import decoded, one, protobuf_request, protobuf_span
from secrets_corpus import CAPITAL, SMALL, WORD, harmless, labelled, tuned
from secrets_families import FAMILY_SETS
from secrets_fresh import FRESH_SETS
from secrets_sessions import SESSION_SETS
from secrets_settings import SETTING_SETS
from secrets_surroundings import SURROUNDING_SETS
from secrets_tools import TOOL_SETS
from secrets_vendors import VENDOR_SETS

import whet
from whet.record.store.redaction.letters import drawn
from whet.record.store.redaction.redact import BYTES, RULES, Redactor
from whet.record.tracing.content import content
from whet.record.tracing.otlp import decode
from whet.types import Task, Trajectory

LEAST = 0.97


@pytest.mark.parametrize("half", [True, False], ids=["tuned", "unseen"])
def test_secrets_are_found_and_harmless_texts_left(half: bool) -> None:
    redactor = Redactor()
    rows = [row for row in labelled() if tuned(row.shape) == half]
    lookalikes = [row for row in harmless() if tuned(row.shape) == half]
    missed = {row.shape for row in rows if row.secret in redactor.text(row.text)}
    false = [row.text for row in lookalikes if redactor.text(row.text) != row.text]
    found = sum(row.secret not in redactor.text(row.text) for row in rows)
    assert len({row.shape for row in rows}) > 100
    assert len(lookalikes) > 250
    assert found / len(rows) >= LEAST, missed
    assert found / (found + len(false)) >= LEAST, false


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("first", 0.99),
        ("second", 0.87),
        ("developed", 0.94),
        ("held_out", 0.96),
        ("last", 0.75),
        ("shown", 0.96),
        ("held_back", 0.87),
        ("tools_shown", 0.98),
        ("tools_held_back", 0.97),
        ("vendors_shown", 0.98),
        ("vendors_held_back", 0.98),
        ("settings", 0.97),
        ("sessions", 0.95),
    ],
)
def test_texts_that_the_rules_had_not_seen_are_told_apart(name: str, least: float) -> None:
    redactor = Redactor()
    sets = FRESH_SETS | FAMILY_SETS | SURROUNDING_SETS | TOOL_SETS | VENDOR_SETS | SETTING_SETS | SESSION_SETS
    secrets, lookalikes = sets[name]
    missed = [row.text for row in secrets if row.secret in redactor.text(row.text)]
    false = [row.text for row in lookalikes if redactor.text(row.text) != row.text]
    found = len(secrets) - len(missed)
    assert found / len(secrets) >= least, missed
    assert found / (found + len(false)) >= LEAST, false


@pytest.mark.parametrize(
    "text",
    [
        'api_key <- "{}"',
        'const key = process.env.API_KEY || "{}"',
        'token = SecretStr("{}")',
        "api_keys:\n  - first-name\n  - {}",
        'tokens: ["{}"]',
        "auth_token ........ {}",
        "SECRET_TOKEN_PROD\n{}",
        "bot_token != '{}'",
    ],
)
@pytest.mark.parametrize("drawn", ["kQrTmVxLpsZbNwYcHdRf", "QYXKgRZJSemKxaxMLZjSlWohjcgpeQBCxTG"])
def test_letters_that_were_drawn_are_a_secret_behind_its_name_and_words_are_none(
    text: str, drawn: str
) -> None:
    # No digit among them: the pairs of letters alone say that nobody wrote them.
    assert drawn not in Redactor().text(text.format(drawn))
    words = text.format("getElementsByTagNameOrId")
    assert Redactor().text(words) == words


def test_words_of_many_languages_and_names_in_programs_are_no_letters_that_were_drawn() -> None:
    words = [
        *(
            "Rechtsschutzversicherung",
            "Hauptbahnhof",
            "wstrzymywanie",
            "szczegolowosc",
            "schrijfwijze",
            "skrzypce",
        ),
        *(
            "desenvolvimento",
            "yhteystiedot",
            "NguyenThanhPhuong",
            "brugervejledning",
            "Wojciechowski",
            "xmlhttprequest",
        ),
    ]
    assert [word for word in words if drawn(word)] == []
    names = {
        name
        for module in (argparse, ast, asyncio, inspect, shutil, typing, unittest.mock, whet)
        for name in dir(module)
        if len(name) >= 12
    }
    assert len(names) > 250
    assert sum(map(drawn, names)) <= 0.01 * len(names)
    chance = random.Random(8)
    for alphabet in (WORD, SMALL, CAPITAL):
        texts = ["".join(chance.choices(alphabet, k=20)) for _ in range(300)]
        assert sum(map(drawn, texts)) >= 297


def test_a_cookie_that_says_nothing_of_who_somebody_is_is_left() -> None:
    for left in ("Set-Cookie: theme=dark; Path=/; Max-Age=31536000", "Cookie: theme=dark; lang=en"):
        assert Redactor().text(left) == left
    for secret in ("Cookie: theme=dark; sid=maple77", "Set-Cookie: seen=kQ8rT2mVx7Lp0sZbN4wY; Path=/"):
        assert "[redacted:cookie]" in Redactor().text(secret)


def test_a_password_in_another_alphabet_is_found_where_its_name_is_escaped() -> None:
    (span,) = decoded(one("a", {"asked": json.dumps({"text": "密码是 Rosebud_8812, Şifre: Rosebud_8812"})}))
    clean = Redactor().span(span)
    assert b"Rosebud_8812" in span.body
    assert b"Rosebud_8812" not in clean.body


def test_every_cell_entry_and_member_of_a_structure_is_found_and_its_neighbours_are_left() -> None:
    table = "user,password,city\nann,Rosebud_8812,Ulm\nbob,Gr33nTea_77,Bonn\n\nname,score\nann,0.9\n"
    assert Redactor().text(table).count("[redacted:password]") == 2
    assert "Ulm" in Redactor().text(table)
    assert "0.9" in Redactor().text(table)
    manifest = "kind: Secret\ndata:\n  colour: Ymx1ZS1ncmVlbg==\n  size: bGFyZ2UtNDI=\n---\nkind: ConfigMap\ndata:\n  a: Ymx1ZS1ncmVlbg=="
    assert Redactor().text(manifest).count("[redacted:kubernetes-secret]") == 2
    assert Redactor().text(manifest).endswith("a: Ymx1ZS1ncmVlbg==")
    key = {
        "kty": "EC",
        "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "d": "jpsQnnGQmL-YBIffH1136cspYG6",
    }
    assert (
        Redactor().json({"kind": "Secret", "data": {"colour": "Ymx1ZQ=="}})["data"]["colour"].startswith("[")
    )
    assert Redactor().json(key)["x"] == key["x"]
    assert Redactor().json(key)["d"] == "[redacted:private-key]"
    assert key["d"] not in Redactor().text(json.dumps(key))
    typed = {"element": "Password textbox", "ref": "e12", "text": "mango+50314"}
    assert Redactor().json(typed)["text"] == "[redacted:password]"
    assert Redactor().json(typed | {"element": "Search box"})["text"] == "mango+50314"


@pytest.mark.parametrize("setting", ["{} = {}", "{}: {}", "export {}={}", "const {} = '{}';"])
def test_what_a_machine_drew_is_a_secret_under_any_name_but_those_that_say_what_it_is(setting: str) -> None:
    drawn = "kQ8rT2mVx7Lp0sZbN4wYc6Hd"
    left = ["nextToken", "page_cursor", "ETag", "commit", "parent", "spreadsheet", "requestId", "image_data"]
    for name in left:
        text = f"a = 1\n{setting.format(name, drawn)}\nb = 2"
        assert Redactor().text(text) == text, name
    for name in ("meili", "pusher_app", "botAuth", "upstream"):
        text = f"a = 1\n{setting.format(name, drawn)}\nb = 2"
        assert drawn not in Redactor().text(text), name
        words = text.replace(drawn, "theQuickBrownFoxJumpsOver2Dogs")
        assert Redactor().text(words) == words, name


def test_the_negative_control_of_the_set_finds_nothing() -> None:
    redactor = Redactor([])
    assert all(row.secret in redactor.text(row.text) for row in labelled(1))


def test_secrets_are_found_on_every_way_in() -> None:
    rows = labelled(1)
    for row in rows:
        redactor = Redactor()
        spans = [
            one(
                "chat",
                {"prompt": row.text, "deep": {"list": [row.text]}, "nested": json.dumps({"a": row.text})},
            )
        ]
        sent = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
        (clean,) = redactor.spans(decode(sent, json=True, logs=False).spans, sent, json=True)
        sent = protobuf_request(
            protobuf_span("chat", {"prompt": row.text, "nested": json.dumps({"a": row.text})})
        )
        (packed,) = redactor.spans(decode(sent, json=False, logs=False).spans, sent, json=False)
        whole = redactor.trajectory(Trajectory(task=Task(instruction=row.text), output={"text": [row.text]}))
        for part in (
            clean.body.decode(),
            packed.body.decode("latin-1"),
            whole.task.instruction,
            json.dumps(whole.output),
        ):
            assert json.dumps(row.secret)[1:-1] not in part, (row.shape, part)
            assert row.secret not in part, row.shape


@pytest.mark.parametrize(
    "name", ["password", "db.password", "clientSecret", "http.request.header.x-api-key", "API_KEY"]
)
def test_a_value_is_a_secret_by_the_name_of_its_attribute(name: str) -> None:
    secret = "Zq7-fjw9-XXhh-2816"
    for held in (secret, [secret]):
        (span,) = decoded(one("a", {name: held, "n": 1}))
        (packed,) = decode(
            protobuf_request(protobuf_span("a", {name: held, "n": 1})), json=False, logs=False
        ).spans
        for given in (span, packed):
            clean = content(Redactor().span(given)).attributes
            assert clean["n"] == 1
            assert "[redacted:" in str(clean[name])
            assert secret not in str(clean[name])


def test_numbers_and_pairs_are_secrets_by_their_names() -> None:
    redactor = Redactor()
    given = {
        "password": 4711_0815, "max_tokens": 512, "usage": {"token": 7}, "password_policy": {"length": 12},
        "headers": [{"name": "X-Api-Key", "value": "k9a8sd7f6k5j4h3g2"}, {"name": "accept", "value": "*/*"}],
        "pairs": [["Authorization", "Token 0a1b2c3d4e5f6a7b8c9d"], ["accept", "*/*"]], "next_page_token": "CAUQAA8sd7f6k5j4",
    }  # fmt: skip
    assert redactor.json(given) == given | {
        "password": "[redacted:password]",
        "headers": [{"name": "X-Api-Key", "value": "[redacted:api-key]"}, {"name": "accept", "value": "*/*"}],
        "pairs": [["Authorization", "[redacted:authorization]"], ["accept", "*/*"]],
    }
    (packed,) = decode(
        protobuf_request(protobuf_span("a", {"password": 4711_0815, "max_tokens": 512})),
        json=False,
        logs=False,
    ).spans
    clean = content(redactor.span(packed)).attributes
    assert clean == {"password": "[redacted:password]", "max_tokens": 512}


def test_what_was_redacted_is_not_redacted_again() -> None:
    redactor = Redactor()
    for row in labelled(1):
        once = redactor.text(row.text)
        assert redactor.text(once) == once, row.shape


def test_real_text_is_left_alone(data: Path) -> None:
    redactor = Redactor()
    folders = ("conversations", "bfcl", "tau/retail", "judge")
    texts = [
        path.read_text(errors="replace") for name in folders for path in sorted((data / name).rglob("*.json"))
    ]
    assert sum(map(len, texts)) > 2_000_000
    assert [text for text in texts if redactor.text(text) != text] == []


SLOW = [
    "pw:", "password='", "-----BEGIN PRIVATE KEY", "QUJDREVG" * 9 + "\n", "QUJD-----END PRIVATE KEY-----", "eyJaaaaaaaa.",
    "://a:b@", "mysql -u x ", "curl -u ", "secret is aaaaa", "cookie: a=b;", "authorization: a ", "password ",
    "password = " + "a" * 190 + "secretly ", "token=" + "ab_" * 60, "MNO.", "password" + "\\" * 9, "sk-", "$6$a",
    "Passwort für den ", "密码是 a1", " -u a -p ", "insert into t (password, a", "connect('a', ", "pass: a1", "echo abcd | ", "admin:a", "auth=('a', ",
    "_live_", ":5432:a:b:", "sms code 1", "seed phrase: word ", "typed 'a' in pass", "openssl -k ", "-p a1b2 -u ", "password value: a ", "password<value>",
]  # fmt: skip


@pytest.mark.parametrize("unit", SLOW)
def test_no_text_costs_more_than_its_length(unit: str) -> None:
    redactor = Redactor()

    def steps(length: int) -> float:
        text = unit * (length // len(unit))
        began = resource.getrusage(resource.RUSAGE_THREAD).ru_utime
        redactor.text(text)
        return resource.getrusage(resource.RUSAGE_THREAD).ru_utime - began

    # Quadratic, the second would take 64 times as long as the first; in all it may take what no honest machine needs.
    steps(10_000)
    assert steps(80_000) < 24 * max(steps(10_000), 0.02)


def test_every_rule_has_a_screen() -> None:
    assert all(rule.screening for rule in RULES)


def test_text_of_every_kind_is_walked_over_at_the_speed_of_what_was_seen_before() -> None:
    """An automaton of all screens would be full of states and walk ten times slower."""
    texts = [path.read_bytes() for path in sorted(Path(whet.__file__).parent.rglob("*.py"))][:300]
    redactor = Redactor()
    screens = {pattern.screening for pattern in redactor._compiled.patterns if pattern.screening}
    one = re2.compile(b"|".join(b"(?:%b)" % screen for screen in screens), BYTES)

    def seconds(look: Callable[[bytes], object]) -> float:
        began = time.thread_time()
        for text in texts:
            for start in range(0, len(text), 4096):
                look(text[start : start + 4096])
        return time.thread_time() - began

    for look in (one.search, redactor._compiled.stopped):
        seconds(look)
    assert seconds(one.search) > 2 * seconds(redactor._compiled.stopped)


def test_a_value_is_found_whatever_a_language_puts_between_it_and_its_name() -> None:
    secret = "fSWtg1k4A3czhUGm6dNmAHeu4QI9vpi8"
    for text in (
        f'mapOf("host" to "db1", "deployKey" to "{secret}")',
        f'config.setDeployKey("{secret}");',
        f'Config {{ master_key: Some("{secret}"), n: 3 }}',
        f"<key>DeployKey</key>\n<string>{secret}</string>",
        f"<dt>Shared key:</dt> <dd><code>{secret}</code></dd>",
        f"host,deploy_key,city\ndb1,{secret},Ulm",
        f'{{"value": "{secret}", "name": "DEPLOY_KEY"}}',
    ):
        assert secret not in Redactor().text(text), text
    for text in (
        f'mapOf("host" to "db1", "keyName" to "{secret}")',
        "token_count: 123456789012345",
        'password: os.environ["FIRST_PASSWORD_OF_2"]',
        'secret to "a good soup of 12 vegetables"',
        "heroku config:set MODEL=gpt-4o-2024-11-26 -a web",
        "Pat: see INV-2026-1234567",
    ):
        assert Redactor().text(text) == text
