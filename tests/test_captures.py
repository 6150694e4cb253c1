"""What real frameworks sent, read against what their model server saw.

Each capture is one run of `integrations/captures/agents`, and holds the calls of its model beside the spans.  Below
stands the tree that must be read from it: agents in their nesting, model calls, tools with the id of their call and the
type of their error.  `NOT_TOLD` names what an instrumentor leaves out or changes; everything else must equal the wire.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from captures_read import FOLDER, NAMES, Capture, differences, load, shown, tree
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from otlp_fuzzer import accounted
from otlp_spans import decoded, one, pairs

from whet.record.tracing.content import content
from whet.record.tracing.dialects import survey
from whet.record.tracing.dialects.unread import CONTENT, PLUMBING, READ, leaves
from whet.record.tracing.otlp import decode
from whet.types import Span

ANSWER = "It is 22 degrees in Paris, and Chez Paul has no table."
QUESTION = "What is the weather in Paris, and is there a table at Chez Paul?"
REFUSED = "What is the weather in Atlantis?"

TREES = {
    "agno_openinference": """
agent desk
  llm
  tool weather
  tool reserve !_OTHER
  llm
""",
    "agno_openinference__stream": """
agent desk
  llm
  tool weather
  tool reserve !_OTHER
  llm
""",
    "agno_openinference__team": """
agent host
  llm
  tool delegate_task_to_member
  agent guide
    llm
    tool weather
    tool reserve !_OTHER
    llm
  llm
""",
    "autogen_openinference": """
agent desk
  llm
  tool weather call_21
  tool reserve call_22 !LookupError
  llm
""",
    "autogen_openinference__refused": """
agent desk !openai.BadRequestError
  llm !openai.BadRequestError
""",
    "autogen_openinference__stream": """
agent desk
  llm
  tool weather call_21
  tool reserve call_22 !LookupError
  llm
""",
    "autogen_openinference__team": """
agent Swarm.run_stream
  agent host
    llm
    tool transfer_to_guide call_20
  agent guide
    llm
    tool weather call_31
    tool reserve call_32 !LookupError
    llm
""",
    "crewai_openllmetry": """
agent desk
  llm
  llm
""",
    "crewai_openllmetry__team": """
agent crew
  agent desk
    llm
    llm
  agent editor
    llm
""",
    "dspy_openinference": """
agent Desk.forward !dspy.utils.exceptions.AdapterParseError
  llm
  llm
""",
    "google_adk": """
agent desk
  llm
  tool weather call_21
  tool reserve call_22 !TOOL_ERROR
  llm
""",
    "google_adk__refused": """
agent desk !anthropic.BadRequestError
  llm !anthropic.BadRequestError
""",
    "haystack_openinference__pipeline": """
agent Pipeline
""",
    "langchain_openinference": """
agent desk
  llm
  tool reserve call_22 !LookupError
  tool weather call_21
  llm
""",
    "langchain_openllmetry": """
agent desk
  llm
  tool weather call_21
  tool reserve call_22 !LookupError
  llm
""",
    "langfuse": """
agent desk
  llm
  tool weather
  tool reserve !_OTHER
  llm
""",
    "langsmith": """
agent desk
  llm
  tool weather call_21
  tool reserve call_22 !LookupError
  llm
""",
    "langsmith__team": """
agent host
  llm
  tool ask_guide call_20
    agent guide
      llm
      tool weather call_21
      tool reserve call_22 !LookupError
      llm
  llm
""",
    "llamaindex_openinference": """
agent FunctionAgent
  llm
  tool weather call_21
  tool reserve call_22 !LookupError
  llm
""",
    "llamaindex_openinference__team": """
agent AgentWorkflow
  llm
  tool handoff call_20
  llm
  tool weather call_41
  tool reserve call_42 !LookupError
  llm
""",
    "llamaindex_openllmetry": """
agent FunctionAgent.workflow
  llm
  tool weather call_21
  tool reserve call_22 !_OTHER
  llm
""",
    "openai_agents_logfire": """
agent desk
  llm
  tool weather
  tool reserve !_OTHER
  llm
""",
    "openai_agents_logfire__refused": """
agent desk !_OTHER
  llm !openai.BadRequestError
""",
    "openai_agents_logfire__team": """
agent Agent workflow
  agent host
    llm
  agent guide
    llm
    tool weather
    tool reserve !_OTHER
    llm
""",
    "openai_agents_openinference__refused": """
agent desk !_OTHER
  llm !_OTHER
""",
    "openai_agents_openinference__team": """
agent Agent workflow
  agent host
    llm
    tool handoff to guide
  agent guide
    llm
    tool weather
    tool reserve !_OTHER
    llm
""",
    "openai_agents_openllmetry__team": """
agent Agent Workflow
  agent host
    llm
  agent guide
    llm
    tool weather
    tool reserve !_OTHER
    llm
""",
    "openlit": """
agent desk
  llm
  tool reserve 01a2099f-3151-718b-a37d-028e5f740eef !LookupError
  tool weather call_21
  llm
""",
    "openlit__team": """
agent host
  llm
  tool ask_guide call_20
    llm
    tool weather call_21
    tool reserve 01a209a0-ccbd-7389-bd74-0e7f674cd88e !LookupError
    llm
  llm
""",
    "pydantic_ai_logfire": """
agent desk !LookupError
  llm
  tool weather call_21
  tool reserve call_22 !LookupError
""",
    "pydantic_ai_logfire__team": """
agent host
  llm
  tool ask_guide call_20
    agent guide !LookupError
      llm
      tool weather call_21
      tool reserve call_22 !LookupError
  llm
""",
    "semantic_kernel": """
agent desk
  llm
  tool Town-weather call_21
  tool Town-reserve call_22 !LookupError
  llm
""",
    "semantic_kernel__refused": """
agent desk !semantic_kernel.exceptions.service_exceptions.ServiceResponseException
  llm !semantic_kernel.exceptions.service_exceptions.ServiceResponseException
""",
    "smolagents_openinference": """
agent desk
  llm
  tool weather
  tool reserve !LookupError
  llm
  tool weather
  tool reserve !LookupError
  llm
""",
    "smolagents_openinference__refused": """
agent Step 1 !smolagents.utils.AgentGenerationError
  llm !openai.BadRequestError
""",
    "strands": """
agent desk
  llm
  tool weather call_21
  tool reserve call_22 !LookupError
  llm
""",
    "strands__refused": """
agent desk !openai.BadRequestError
  llm !openai.BadRequestError
""",
    "strands__team": """
agent host
  llm
  tool ask_guide call_20
    agent desk
      llm
      tool weather call_21
      tool reserve call_22 !LookupError
      llm
  llm
""",
    "traceloop": """
agent desk
  llm
  tool weather
  tool reserve !LookupError
  llm
""",
}

NOT_TOLD = {
    # The usage of a stream is 0 in the spans; DSPy's model spans have none.
    "autogen_openinference__stream": ("usage",),
    "dspy_openinference": ("usage",),
    # Results come wrapped, as the framework's tools return them.
    "google_adk": ("input",),
    # A request that was refused is not in its span.
    "openai_agents_logfire__refused": ("input",),
    "openai_agents_openinference__refused": ("input",),
    # The calls of earlier answers are left out of the prompt.
    "openlit": ("input",),
    "openlit__team": ("input",),
    # Turns of one role in a row, which the framework joins before it sends them, stand apart.
    "smolagents_openinference": ("input",),
    # No model call at all: the conversation stands in the output of the pipeline.
    "haystack_openinference__pipeline": ("calls",),
}
SESSIONS = {
    "agno": "monday",
    "google": "monday",
    "langchain": "monday",
    "langfuse": "monday",
    "langsmith": "monday",
    "openlit": "monday",
}
SESSIONS |= {"strands": "monday", "traceloop": "monday"}
SUBJECTS = {"langfuse": "ada", "traceloop": "ada"}
NO_QUESTION = ("openai_agents_logfire__refused", "openai_agents_openinference__refused")
"""Captures in which the question is nowhere."""


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@functools.cache
def captured(name: str) -> Capture:
    return load(FOLDER / f"{name}.json")


@functools.cache
def read(name: str) -> list[dict[str, Any]]:
    """Its trajectories as they are shown; no test changes them."""
    return shown(captured(name).spans)


def test_every_capture_has_its_tree_and_each_is_read_as_it_stands() -> None:
    assert sorted(TREES) == NAMES
    assert len({name.partition("__")[0] for name in NAMES}) >= 15
    for name in NAMES:
        lines = [line for trajectory in read(name) for line in tree(trajectory)]
        assert lines == TREES[name].strip().splitlines(), name


def test_the_model_calls_that_are_read_are_those_that_the_model_server_saw(name: str) -> None:
    capture = captured(name)
    untold = NOT_TOLD.get(name, ())
    found = [line for line in differences(capture, read(name)) if "calls" not in untold]
    assert [line for line in found if not any(f" {part}:" in line for part in untold)] == []
    # What is left out today and told tomorrow is to be taken off the list.
    assert all(
        any(f" {part}:" in line for line in differences(capture, read(name)))
        for part in untold
        if part != "calls"
    )


def test_tools_have_their_arguments_and_what_came_of_them(name: str) -> None:
    tools = [step for run in read(name) for step in run["steps"] if step["kind"] == "tool"]
    for step in tools:
        ended = step["name"].rpartition("-")[2]
        if ended == "weather":
            assert step["arguments"] == {"city": "Paris"}
            assert "22 degrees in Paris" in step["output"]["text"]
            assert step["error"] is None
        elif ended == "reserve":
            assert step["arguments"] == {"place": "Chez Paul"}
            told = f"{step['error'] and step['error']['message']} {step['output'] and step['output']['text']}"
            assert "no table at Chez Paul" in told or "redacted" in told


def test_a_run_has_its_question_its_answer_and_its_owner(name: str) -> None:
    (run,) = read(name)
    refused = name.endswith("__refused")
    if name not in NO_QUESTION:
        assert (REFUSED if refused else QUESTION) in run["instruction"]
    if captured(name).printed == [ANSWER]:
        assert run["output"].strip() == ANSWER
        assert run["error"] is None
    else:
        assert run["error"] is not None
    framework = name.partition("_")[0]
    if framework != "pydantic":  # gives every run a conversation of its own
        assert (run["session"], run["subject"]) == (SESSIONS.get(framework), SUBJECTS.get(framework))


def test_a_pipeline_without_model_calls_keeps_its_conversation() -> None:
    (run,) = read("haystack_openinference__pipeline")
    calls = captured("haystack_openinference__pipeline").calls
    assert run["steps"][0]["transcript"] == [*calls[-1]["input_messages"], calls[-1]["output"]]


def test_an_agent_between_its_instrumentor_and_its_framework_is_one_with_what_was_said() -> None:
    (crew,) = read("crewai_openllmetry__team")
    agents = [step for step in crew["steps"] if step["kind"] == "agent"]
    assert [step["input_messages"][0]["text"] for step in agents[1:]] == [QUESTION, "Shorten the answer"]
    assert [step["output"]["text"] for step in agents] == [ANSWER] * 3
    (swarm,) = read("autogen_openinference__team")
    assert swarm["steps"][0]["output"] == {"role": "assistant", "text": ANSWER}
    guide = next(step for step in swarm["steps"] if step["name"] == "guide")
    assert QUESTION in [turn["text"] for turn in guide["input_messages"]]


def test_an_error_whose_type_nothing_states_has_none_made_up() -> None:
    (run,) = read("openai_agents_openinference__refused")
    assert {step["error"]["type"] for step in run["steps"]} == {"_OTHER"}
    assert "no such place: Atlantis" in run["error"]["message"]


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("__refused")])
def test_a_refused_request_is_the_agent_s_fault_however_the_refusal_is_wrapped(name: str) -> None:
    (trajectory,) = survey(captured(name).spans).trajectories
    calls = [step for step in trajectory.steps if step.kind == "llm"]
    assert [step.error and str(step.error.fault) for step in calls] == ["agent"]


def sentences(spans: Sequence[Span]) -> set[str]:
    """The texts with a space in them that stand in attributes of what was said."""
    found: set[str] = set()
    for span in spans:
        for key, value in content(span).attributes.items():
            if key not in READ and not key.startswith(PLUMBING) and key.startswith(CONTENT):
                found.update(leaf for leaf in leaves(value) if " " in leaf.strip())
    return found


def told(spans: list[Span]) -> str:
    return "\0".join(leaves(shown(spans)))


def of_steps(spans: list[Span]) -> list[Span]:
    """The spans that are steps or part of one: a graph's nodes repeat what their steps say."""
    ids = {id for run in shown(spans) for step in run["steps"] for id in step["span_ids"]}
    return [span for span in spans if span.id.hex() in ids]


def test_no_sentence_of_a_step_s_spans_is_lost(name: str) -> None:
    spans = captured(name).spans
    text = told(spans)
    assert [leaf for leaf in sentences(of_steps(spans)) if leaf not in text] == []


CONVENTIONAL = sorted(
    value
    for key, value in vars(gen_ai_attributes).items()
    if key.startswith("GEN_AI_") and isinstance(value, str)
)


@pytest.mark.parametrize(
    "operation", ["chat", "execute_tool", "invoke_agent", "embeddings", "invoke_workflow"]
)
def test_every_attribute_of_the_conventions_is_read_or_kept(operation: str) -> None:
    told_by = {name: f"a sentence in {name}" for name in CONVENTIONAL if name not in READ}
    assert len(told_by) > 30
    spans = decoded(one("a", {**told_by, "gen_ai.operation.name": operation}))
    text = told(spans)
    assert [name for name, sentence in told_by.items() if sentence not in text] == []


def test_an_evaluation_in_a_span_s_event_is_kept() -> None:
    evaluation = {"gen_ai.evaluation.name": "relevance", "gen_ai.evaluation.score.value": 0.5}
    event = {"name": "gen_ai.evaluation.result", "timeUnixNano": "1", "attributes": pairs(evaluation)}
    (run,) = shown(decoded(one("chat m", {"gen_ai.operation.name": "chat"}, events=[event])))
    assert run["steps"][0]["evaluations"] == [evaluation]


def damaged(chance: random.Random, value: Any) -> Any:
    """A value of OTLP/JSON with members left out, doubled, or of another kind."""
    if isinstance(value, dict):
        return {key: damaged(chance, inner) for key, inner in value.items() if chance.random() > 0.01}
    if isinstance(value, list):
        return [damaged(chance, inner) for inner in value for _ in range(chance.choice([1] * 40 + [0, 2]))]
    if isinstance(value, str) and chance.random() < 0.03:
        return chance.choice(
            [value[: len(value) // 2], "", value * 2, "{}", "[1]", '[{"role":"user"}]', "null"]
        )
    return value


def test_damaged_captures_are_read_and_lose_no_sentence() -> None:
    for number in range(70):
        chance = random.Random(number)
        path = FOLDER / f"{NAMES[number % len(NAMES)]}.json"
        request = json.loads(path.read_text(encoding="utf-8"))["requests"][-1]
        whole = decode(json.dumps(request["body"]).encode(), json=True, logs=request["logs"]).spans
        spans = []
        for span in whole:
            body = json.dumps(damaged(chance, json.loads(span.body))).encode()
            spans.append(span._replace(body=body))
        accounted(spans)
        text = told(spans)
        lost = [leaf for leaf in sentences(of_steps(spans)) if leaf not in text]
        assert lost == [], (number, path.name, lost[:2])
