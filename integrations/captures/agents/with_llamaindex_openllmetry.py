# /// script
# dependencies = [
#     "llama-index-core==0.14.25",
#     "llama-index-llms-openai-like==0.8.1",
#     "opentelemetry-instrumentation-llamaindex==0.62.4",
#     "opentelemetry-exporter-otlp-proto-http==1.45.2",
# ]
# ///
"""LlamaIndex under OpenLLMetry."""

from desk_tools import provider
from opentelemetry.instrumentation.llamaindex import LlamaIndexInstrumentor

LlamaIndexInstrumentor().instrument(tracer_provider=provider())
from llamaindex_desk import run

run()
