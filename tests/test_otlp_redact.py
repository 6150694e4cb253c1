"""Secrets are taken out before anything is stored, with every length put right and the tokens gone."""

from __future__ import annotations

import base64
import json
import random
import string
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from otlp_spans import call, decoded, named, one, pairs, protobuf_request, protobuf_span

from whet.errors import InputError
from whet.record.store.codec import encode
from whet.record.store.redaction.redact import CARD, EMAIL, RULES, Redactor, Rule, luhn
from whet.record.tracing.content import content
from whet.record.tracing.dialects import survey
from whet.record.tracing.otlp import decode
from whet.types import Failure, Fault, Feedback, Span, Step, Task, Tokens, Trajectory


def letters(count: int, alphabet: str = string.ascii_letters + string.digits, seed: int = 0) -> str:
    """Random, with a digit in it; made here so that no file holds what looks like a key."""
    chosen = random.Random(seed).choices(alphabet, k=count - 1)
    return "".join([*chosen[: count // 2], "7", *chosen[count // 2 :]])


def web(part: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


SECRETS = {
    "whet-token": f"whet-run-{letters(43)}",
    "private-key": f"-----BEGIN RSA PRIVATE KEY-----\n{letters(64)}\n-----END RSA PRIVATE KEY-----",
    "jwt": f"{web({'alg': 'HS256', 'typ': 'JWT'})}.{web({'sub': 'someone'})}.{letters(43)}",
    "anthropic-key": f"sk-ant-api03-{letters(80)}",
    "openai-key": f"sk-proj-{letters(48)}",
    "aws-key": f"AKIA{letters(16, string.ascii_uppercase + string.digits)}",
    "secret": letters(40),
    "google-key": f"AIza{letters(35)}",
    "github-token": f"ghp_{letters(36)}",
    "gitlab-token": f"glpat-{letters(20)}",
    "slack-token": f"xoxb-{letters(12, string.digits)}-{letters(24)}",
    "stripe-key": f"sk_live_{letters(24)}",
    "huggingface-token": f"hf_{letters(34)}",
    "groq-key": f"gsk_{letters(52)}",
    "xai-key": f"xai-{letters(80)}",
    "npm-token": f"npm_{letters(36)}",
    "pypi-token": f"pypi-AgEIcHlwaS5vcmc{letters(60)}",
    "sendgrid-key": f"SG.{letters(22)}.{letters(43)}",
    "bearer-token": letters(32),
    "basic-auth": base64.b64encode(b"aladdin:open sesame").decode(),
    "url-key": letters(24),
    "url-password": "s3cr3t-word",
}
AROUND = {
    "secret": 'AWS_SECRET_ACCESS_KEY="{}"',
    "bearer-token": "Authorization: Bearer {}",
    "basic-auth": "Authorization: Basic {}",
    "url-key": "GET https://example.org/v1?q=x&api_key={}&page=2",
    "url-password": "postgres://user:{}@db:5432/x",
}
HARMLESS = [
    "ask-me-anything-about-the-weather-in-paris",
    "the bearer of good tidings came to town",
    "task-force-of-three, risk-averse",
    "see https://example.org:8080/a@b and http://127.0.0.1:43039/v1/",
    "chatcmpl-ABCDEFGHIJKLMNOPQRSTUVWXYZ123 call_abcdefghijklmnopqrstuvwx",
    "basic training, BASIC programs and Basic understanding",
    "see https://example.org/?monkey=bananasarefruit&key=short",
    "eyJ is how a JWT begins; sk- how a key does",
]


def sentence(rule: str) -> str:
    return AROUND.get(rule, "use {} please").format(SECRETS[rule])


@pytest.mark.parametrize("rule", SECRETS)
def test_each_kind_of_secret_is_found_and_only_it_is_replaced(rule: str) -> None:
    redactor = Redactor()
    assert redactor.text(sentence(rule)) == AROUND.get(rule, "use {} please").format(f"[redacted:{rule}]")
    assert redactor.counts == {rule: 1}


@pytest.mark.parametrize("rule", SECRETS)
def test_a_redacted_span_says_the_same_without_the_secret(rule: str) -> None:
    text = sentence(rule)
    held = {"plain": "x" * 300, "prompt": text, "deep": {"list": ["a", {"inner": text}]}, "n": 12}
    nested = json.dumps([{"role": "user", "content": text}])
    as_json = one(
        "chat",
        held | {"messages": nested},
        events=[{"name": "e", "timeUnixNano": "1", "attributes": pairs({"exception.message": text})}],
        status={"code": 2, "message": text},
    )
    (from_json,) = decoded(as_json, resource={"token": text})
    body = protobuf_request(
        protobuf_span("chat", held | {"messages": nested}, parent=named("p")), resource={"token": text}
    )
    (from_protobuf,) = decode(body, json=False, logs=False).spans
    secret = SECRETS[rule].encode()
    for span in (from_json, from_protobuf):
        redactor = Redactor()
        clean = redactor.span(span)
        for part in (clean.body, clean.context):
            assert secret not in part
            assert json.dumps(SECRETS[rule])[1:-1].encode() not in part
        before, after = content(span), content(clean)
        assert after.attributes["plain"] == before.attributes["plain"]
        assert after.attributes["n"] == 12
        mark = Redactor().text(text)
        assert after.attributes["prompt"] == mark
        assert after.attributes["deep"] == {"list": ["a", {"inner": mark}]}
        assert json.loads(after.attributes["messages"])[0]["content"] == mark
        assert after.resource["token"] == mark
        assert redactor.counts[rule] >= 4
        assert clean[:6] == span[:6]
        assert redactor.span(clean) is clean, "what was redacted once is not redacted again"


@pytest.mark.parametrize("rule", SECRETS)
def test_one_span_with_a_secret_is_found_among_the_others_of_its_request(rule: str) -> None:
    texts = ["nothing here", sentence(rule), "nor here"]
    plain = [protobuf_span(f"chat {n}", {"prompt": text}) for n, text in enumerate(texts)]
    escaped = json.dumps(sentence(rule)).encode().replace(b"-", b"\\u002d").replace(b"/", b"\\/")
    spans = json.dumps([one(f"chat {n}", {"prompt": text}) for n, text in enumerate(texts)]).encode()
    as_json = b'{"resourceSpans":[{"scopeSpans":[{"spans":%b}]}]}' % spans.replace(
        json.dumps(sentence(rule)).encode(), escaped
    )
    for body, is_json in ((b"".join(map(protobuf_request, plain)), False), (as_json, True)):
        found = decode(body, json=is_json, logs=False).spans
        clean = Redactor().spans(found, body, json=is_json)
        assert [content(each).attributes["prompt"] for each in clean] == [
            "nothing here",
            Redactor().text(sentence(rule)),
            "nor here",
        ]
        assert clean[0] is found[0]
        assert clean[2] is found[2]


def test_a_span_without_secrets_is_the_same_object(data: Path) -> None:
    redactor = Redactor()
    for path in sorted((data / "otel").glob("*.pb")):
        for span in decode(path.read_bytes(), json=False, logs="logs" in path.name).spans:
            assert redactor.span(span) is span
    for text in HARMLESS:
        assert redactor.text(text) == text
    assert redactor.counts == {}


def test_a_name_and_an_escaped_letter_hide_nothing() -> None:
    secret = SECRETS["openai-key"]
    (span,) = decoded(one(f"GET {secret}"))
    clean = Redactor().span(span)
    assert "[redacted:openai-key]" in clean.name
    assert secret.encode() not in clean.body
    (span,) = decoded(one("a", {"text": secret}))
    escaped = span._replace(body=span.body.replace(b"sk-", b"\\u0073k-"))
    assert content(Redactor().span(escaped)).attributes["text"] == "[redacted:openai-key]"
    slashed = span._replace(
        body=span.body.replace(secret.encode(), b"http:\\/\\/u:" + SECRETS["url-password"].encode() + b"@h")
    )
    assert content(Redactor().span(slashed)).attributes["text"] == "http://u:[redacted:url-password]@h"


def test_a_span_that_cannot_be_taken_apart_is_masked() -> None:
    secret = SECRETS["google-key"]
    (span,) = decode(protobuf_request(protobuf_span("a", {"t": secret})), json=False, logs=False).spans
    broken = span._replace(body=span.body + b"\x4a\xff")
    redactor = Redactor()
    clean = redactor.span(broken)
    assert secret.encode() not in clean.body
    assert len(clean.body) == len(broken.body)
    assert redactor.counts == {"google-key": 1}


def test_log_records_are_redacted() -> None:
    text = sentence("github-token")
    record = {
        "timeUnixNano": "1",
        "traceId": "ab" * 16,
        "body": {"kvlistValue": {"values": pairs({"content": text})}},
    }
    (log,) = decoded(record, logs=True)
    assert content(Redactor().span(log)).body == {"content": "use [redacted:github-token] please"}


def with_tokens(**body: Any) -> Span:
    told = [{"prompt_ids": [1], "output_ids": [2], "logprobs": [-0.5]}]
    answer = {
        "id": "r",
        "prompt_token_ids": [1],
        "choices": [
            {
                "message": {"role": "assistant", "content": "ok"},
                "logprobs": {"content": [{"token": "ok"}]},
                "token_ids": [2],
            }
        ],
    }
    return call(**{"choices": told, "response": answer, **body})


def test_a_redacted_call_loses_its_tokens_and_marks_its_trajectory() -> None:
    kept = Redactor().span(with_tokens())
    assert survey([kept]).trajectories[0].steps[0].tokens is not None
    asked = {"model": "m", "messages": [{"role": "user", "content": sentence("anthropic-key")}]}
    clean = Redactor().span(with_tokens(request=asked))
    body = json.loads(clean.body)
    assert body["choices"] is None
    assert body["redacted"] == {"anthropic-key": 1}
    assert "token_ids" not in clean.body.decode()
    assert "logprobs" not in body["response"]["choices"][0]
    (whole,) = survey([clean]).trajectories
    assert whole.steps[0].tokens is None
    assert whole.steps[0].action == {"role": "assistant", "text": "ok"}
    assert whole.meta["redacted"] == {"anthropic-key": 1}
    assert "anthropic-key" in whole.meta["untrainable"]


def test_a_trajectory_loses_its_secrets_and_the_tokens_of_those_steps() -> None:
    text = sentence("stripe-key")
    tokens = Tokens((1,), (2,), (-0.5,))
    whole = Trajectory(
        task=Task(instruction=text, meta={"m": [text]}),
        steps=(
            Step(
                observation="clean", action="clean", tokens=tokens, info={"choices": [{"tokens": {"a": 1}}]}
            ),
            Step(observation={"deep": [text]}, tokens=tokens, info={"choices": [{"tokens": {"a": 1}}]}),
            Step(error=Failure(Fault.TOOL, "E", text), tokens=tokens),
        ),
        output=[text],
        error=Failure(Fault.AGENT, "E", text),
        feedback=(Feedback(run="r", comment=text, correction={"c": text}),),
        meta={"note": text},
    )
    redactor = Redactor()
    clean = redactor.trajectory(whole)
    assert SECRETS["stripe-key"] not in repr(clean)
    assert [step.tokens for step in clean.steps] == [tokens, None, None]
    assert clean.steps[0] == whole.steps[0]
    assert clean.steps[1].info == {"choices": [{}]}
    assert clean.meta["untrainable"] == "text was redacted: stripe-key"
    assert clean.meta["redacted"] == redactor.counts == {"stripe-key": 9}
    assert clean.id == whole.id
    harmless = replace(
        whole, task=Task(), steps=whole.steps[:1], output=None, error=None, feedback=(), meta={}
    )
    assert redactor.trajectory(harmless) is harmless


def test_addresses_and_cards_are_redacted_when_asked() -> None:
    card = "4111 1111 1111 1111"
    text = f"write to a.b+c@example.co.uk, card {card}, order 4111 1111 1111 1112"
    assert Redactor().text(text) == text
    redactor = Redactor([*RULES, EMAIL, CARD])
    assert redactor.text(text) == "write to [redacted:email], card [redacted:card], order 4111 1111 1111 1112"
    (span,) = decoded(one("a", {"text": text}))
    assert content(redactor.span(span)).attributes["text"] == redactor.text(text)
    assert luhn(card)
    assert not luhn("0" * 16)


def test_a_rule_of_one_s_own_needs_no_hints() -> None:
    redactor = Redactor([Rule("ticket", r"T-[0-9]{4}")])
    (span,) = decoded(one("a", {"text": "see T-1234"}))
    assert content(redactor.span(span)).attributes["text"] == "see [redacted:ticket]"
    assert Redactor([]).span(span) is span


@pytest.mark.parametrize(("name", "pattern"), [("Two Words", "x"), ("", "x"), ("open", "(")])
def test_a_rule_that_cannot_be_used_is_refused(name: str, pattern: str) -> None:
    with pytest.raises(InputError, match="rule"):
        Redactor([Rule(name, pattern)])


@settings(max_examples=150)
@given(
    st.sampled_from(sorted(SECRETS)),
    st.dictionaries(
        st.text(max_size=8), st.one_of(st.text(max_size=40), st.integers(0, 2**63 - 1)), max_size=5
    ),
    st.text(max_size=60),
    st.text(max_size=60),
)
def test_no_surroundings_hide_a_secret(
    rule: str, others: dict[str, str | int], before: str, after: str
) -> None:
    text = f"{before} {sentence(rule)} {after}"
    held = others | {"prompt": text}
    (span,) = decode(protobuf_request(protobuf_span("a", held)), json=False, logs=False).spans
    clean = content(Redactor().span(span)).attributes
    assert SECRETS[rule] not in clean["prompt"]
    for key, value in others.items():
        if key != "prompt":
            assert clean[key] == Redactor().json({key: value})[key]


@pytest.mark.parametrize("apart", [0, 30, 5_000])
def test_letters_that_are_frequent_or_rare_before_a_secret_do_not_hide_it(apart: int) -> None:
    letters = sorted({letter for each in RULES for hint in each.hints for letter in hint})
    before = "".join(f"{letter} {'.' * apart} " for letter in letters * 5)
    for text in ("", *map(sentence, SECRETS)):
        body = protobuf_request(protobuf_span("a", {"prompt": f"{before} {text}"}))
        found = decode(body, json=False, logs=False).spans
        assert (Redactor().spans(found, body, json=False)[0] is found[0]) == (not text), text


WORD = 'Tr0ub4dor & "3"/+x'
"""A secret that JSON and URLs have to escape."""


@pytest.mark.parametrize("json_body", [True, False])
@pytest.mark.parametrize("before", ["", "ab"])
@pytest.mark.parametrize(
    "spell",
    [
        str,
        lambda secret: quote(secret, safe=""),
        lambda secret: quote(secret).replace("%20", "+"),
        lambda secret: base64.b64encode(secret.encode()).decode(),
        lambda secret: base64.urlsafe_b64encode(f"user:{secret}!".encode()).decode(),
        lambda secret: json.dumps({"key": secret}),
        lambda secret: json.dumps({"arguments": json.dumps({"key": secret})}),
    ],
    ids=["plain", "url", "form", "base64", "basic", "json", "json-in-json"],
)
def test_a_known_secret_is_found_in_every_spelling(spell: Any, before: str, json_body: bool) -> None:
    redactor = Redactor()
    texts = ["nothing", before + spell(before + WORD)]
    bodies = [one(f"chat {n}", {"prompt": text}) for n, text in enumerate(texts)]
    sent = (
        json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": bodies}]}]}).encode()
        if json_body
        else b"".join(
            protobuf_request(protobuf_span(f"chat {n}", {"prompt": t})) for n, t in enumerate(texts)
        )
    )
    spans = decode(sent, json=json_body, logs=False).spans
    assert redactor.spans(spans, sent, json=json_body) == spans, "unknown yet"
    assert redactor.know(WORD)
    clean = redactor.spans(spans, sent, json=json_body)
    assert clean[0] is spans[0]
    assert redactor.counts == {"known-secret": 1}
    assert "[redacted:known-secret]" in content(clean[1]).attributes["prompt"]
    whole = Trajectory(task=Task(instruction=texts[1]))
    assert "[redacted:known-secret]" in redactor.trajectory(whole).task.instruction
    redactor.forget(WORD)
    redactor.forget(WORD)
    assert redactor.spans(spans, sent, json=json_body) == spans


def test_a_short_secret_would_take_words_out_and_is_not_taken() -> None:
    redactor = Redactor()
    for short in ("", "abc", "EMPTY", "7 chars"):
        assert not redactor.know(short)
    assert redactor.text("EMPTY, 7 chars, abc") == "EMPTY, 7 chars, abc"
    assert not redactor.knows_of(b"EMPTY abc", json=True)
    assert redactor.know("8 chars!")
    assert redactor.text("it has 8 chars!") == "it has [redacted:known-secret]"


def test_secrets_are_learned_by_many_threads_at_once_while_others_redact() -> None:
    redactor = Redactor([])
    words = [letters(24, seed=seed) for seed in range(40)]

    def learn(part: list[str]) -> None:
        for word in part:
            assert redactor.know(word)
            assert redactor.text(f"key {word}") == "key [redacted:known-secret]"

    threads = [threading.Thread(target=learn, args=(words[start::4],)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert redactor.counts == {"known-secret": len(words)}
    assert redactor.text(" ".join(words)) == " ".join(["[redacted:known-secret]"] * len(words))


def looked_at(run: Trajectory) -> int:
    """How many Python functions a Redactor calls for a run."""
    redactor, calls = Redactor(), 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    redactor.trajectory(run)  # what is made once
    sys.setprofile(count)
    try:
        redactor.trajectory(run)
    finally:
        sys.setprofile(None)
    return calls


def test_texts_are_looked_through_where_a_part_is_suspicious_and_for_no_seed_of_whets_own() -> None:
    """Every run of an experiment has one of fourteen digits, and all their texts were looked through."""
    steps = [
        Step(observation={f"mail {n}": f"from a to b, number {n}" for n in range(40)}, action=f"open {n}")
        for n in range(20)
    ]
    plain = Trajectory(task=Task(instruction="Which mail?"), steps=steps)
    seeded = replace(plain, seed=70_706_575_536_521)
    assert looked_at(seeded) <= looked_at(plain)
    redactor = Redactor()
    assert redactor.suspects(encode(seeded))
    assert not redactor.suspects_runs(encode(plain), encode(seeded))
    theirs = replace(seeded, meta={"a": 1, "seed": 12_345_678_901_234, "started": 5})
    assert redactor.suspects_runs(encode(plain), encode(theirs))
    secret = replace(steps[7], action=f"api_key={letters(40)}")
    one_step = replace(seeded, steps=[*steps[:7], secret, *steps[8:]])
    clean = Redactor().trajectory(one_step)
    assert "[redacted:" in str(clean.steps[7].action)
    assert clean.steps[:7] + clean.steps[8:] == tuple(steps[:7] + steps[8:])
    assert looked_at(one_step) < looked_at(seeded) + looked_at(replace(plain, steps=[secret])) + 20
