"""The addresses at which candidates ask their models: past the record of a gateway, and of nothing else."""

from __future__ import annotations

import pytest

from whet.models.trial import trial_address, trial_environment

GATEWAY = "http://127.0.0.1:4777"


@pytest.mark.parametrize(
    ("address", "asked"),
    [
        (f"{GATEWAY}/run/a/b/v1", f"{GATEWAY}/run/a/b/trial/v1"),
        (f"{GATEWAY}/run/a/v1/", f"{GATEWAY}/run/a/trial/v1"),
        (f"{GATEWAY}/run/a/b", f"{GATEWAY}/run/a/b/trial"),
        (f"{GATEWAY}/v1", f"{GATEWAY}/trial/v1"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
        ("https://api.openai.com/v1", "https://api.openai.com/v1"),
        ("https://models.example/run/of/the/mill/v1", "https://models.example/run/of/the/mill/v1"),
    ],
)
def test_only_a_gateways_address_changes_and_that_once(address: str, asked: str) -> None:
    assert trial_address(address, GATEWAY) == asked
    assert trial_address(asked, GATEWAY) == asked


def test_a_candidates_spans_do_not_reach_the_record_and_those_to_other_collectors_go_on() -> None:
    ours = {
        "WHET_URL": GATEWAY,
        "WHET_RUN": "a",
        "OPENAI_BASE_URL": f"{GATEWAY}/run/a/b/v1",
        "ANTHROPIC_BASE_URL": f"{GATEWAY}/run/a/b",
        "OTEL_EXPORTER_OTLP_ENDPOINT": GATEWAY,
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{GATEWAY}/v1/traces",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-whet-token=b",
    }
    assert trial_environment(ours) == {
        "WHET_URL": GATEWAY,
        "OPENAI_BASE_URL": f"{GATEWAY}/run/a/b/trial/v1",
        "ANTHROPIC_BASE_URL": f"{GATEWAY}/run/a/b/trial",
        "OTEL_SDK_DISABLED": "true",
    }
    other = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OPENAI_BASE_URL": "http://gpu:8000/v1"}
    assert trial_environment(other) == other
