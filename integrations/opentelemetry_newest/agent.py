"""An agent that tells OpenTelemetry what it does, by the GenAI conventions.  It knows nothing of whet.

It is set up as the SDK's documentation does it; where the spans go stands in the environment.
"""

import json

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("travel")


def part(role, **fields):
    return {"role": role, "parts": [fields]}


system = [{"type": "text", "content": "You are a kind assistant. Be brief."}]
messages = [part("user", type="text", content="What is the weather in Paris?")]


def model(answer, reason, given, made):
    """A call of a model that answers what it is told to."""
    with tracer.start_as_current_span("chat scripted") as span:
        span.set_attribute("gen_ai.operation.name", "chat")
        span.set_attribute("gen_ai.provider.name", "openai")
        span.set_attribute("gen_ai.request.model", "scripted")
        span.set_attribute("gen_ai.system_instructions", json.dumps(system))
        span.set_attribute("gen_ai.input.messages", json.dumps(messages))
        span.set_attribute("gen_ai.output.messages", json.dumps([answer | {"finish_reason": reason}]))
        span.set_attribute("gen_ai.response.finish_reasons", [reason])
        span.set_attribute("gen_ai.usage.input_tokens", given)
        span.set_attribute("gen_ai.usage.output_tokens", made)
    messages.append(answer)


def weather(call, city):
    with tracer.start_as_current_span("execute_tool weather") as span:
        result = f"22 degrees in {city}"
        span.set_attribute("gen_ai.operation.name", "execute_tool")
        span.set_attribute("gen_ai.tool.name", "weather")
        span.set_attribute("gen_ai.tool.call.id", call)
        span.set_attribute("gen_ai.tool.call.arguments", json.dumps({"city": city}))
        span.set_attribute("gen_ai.tool.call.result", result)
    messages.append(part("tool", type="tool_call_response", id=call, response=result))
    return result


with tracer.start_as_current_span("invoke_agent guide") as span:
    span.set_attribute("gen_ai.operation.name", "invoke_agent")
    span.set_attribute("gen_ai.agent.name", "guide")
    wanted = {"city": "Paris"}
    model(
        part("assistant", type="tool_call", id="call_1", name="weather", arguments=wanted), "tool_call", 21, 5
    )
    answer = f"It is {weather('call_1', **wanted)}."
    model(part("assistant", type="text", content=answer), "stop", 34, 6)
provider.shutdown()
print(answer)
