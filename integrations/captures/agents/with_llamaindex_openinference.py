# /// script
# dependencies = [
#     "llama-index-core==0.14.25",
#     "llama-index-llms-openai-like==0.8.1",
#     "openinference-instrumentation-llama-index==4.6.1",
#     "opentelemetry-exporter-otlp-proto-http==1.45.2",
# ]
# ///
"""LlamaIndex under OpenInference."""

from desk_tools import provider
from llamaindex_desk import run
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor

LlamaIndexInstrumentor().instrument(tracer_provider=provider())
run()
