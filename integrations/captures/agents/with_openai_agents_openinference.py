# /// script
# dependencies = [
#     "openai-agents==0.24.0",
#     "openinference-instrumentation-openai-agents==2.6.0",
#     "opentelemetry-exporter-otlp-proto-http==1.45.2",
# ]
# ///
"""openai-agents under OpenInference."""

from desk_tools import provider
from openai_agents_team import run
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

OpenAIAgentsInstrumentor().instrument(tracer_provider=provider())
run()
