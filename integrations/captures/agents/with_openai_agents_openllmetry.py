# /// script
# dependencies = [
#     "openai-agents==0.24.0",
#     "opentelemetry-instrumentation-openai-agents==0.62.4",
#     "opentelemetry-exporter-otlp-proto-http==1.45.2",
# ]
# ///
"""openai-agents under OpenLLMetry."""

from desk_tools import provider
from openai_agents_team import run
from opentelemetry.instrumentation.openai_agents import OpenAIAgentsInstrumentor

OpenAIAgentsInstrumentor().instrument(tracer_provider=provider())
run()
