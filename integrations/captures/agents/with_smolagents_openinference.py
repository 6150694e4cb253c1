# /// script
# dependencies = [
#     "smolagents[openai]==1.26.0",
#     "openinference-instrumentation-smolagents==0.1.43",
#     "opentelemetry-exporter-otlp-proto-http==1.45.2",
# ]
# ///
"""A smolagents agent under OpenInference; the scripted model never calls `final_answer`, so its last words count."""

import os
import sys

import desk_tools
from desk_tools import MODEL, PROMPT, QUESTION, REFUSED, provider

made = provider()
from openinference.instrumentation.smolagents import SmolagentsInstrumentor
from smolagents import OpenAIModel, ToolCallingAgent, tool

SmolagentsInstrumentor().instrument(tracer_provider=made)
model = OpenAIModel(MODEL, api_base=os.environ["OPENAI_BASE_URL"], api_key="sk-test")
desk = ToolCallingAgent(
    [tool(desk_tools.weather), tool(desk_tools.reserve)],
    model,
    instructions=PROMPT,
    name="desk",
    description="answers",
    max_steps=2,
    verbosity_level=0,
)
try:
    print(desk.run(REFUSED if "refused" in sys.argv else QUESTION))
except Exception as error:
    print(type(error).__name__)
