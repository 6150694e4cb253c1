# /// script
# dependencies = [
#     "opentelemetry-instrumentation-langchain==0.62.4",
#     "opentelemetry-exporter-otlp-proto-http==1.45.2",
#     "langgraph==1.2.22",
#     "langchain==1.4.7",
#     "langchain-openai==1.7.3",
# ]
# ///
"""The LangChain agent under OpenLLMetry."""

from desk_tools import provider

made = provider()
from langchain_desk import run
from opentelemetry.instrumentation.langchain import LangchainInstrumentor

LangchainInstrumentor().instrument(tracer_provider=made)
run()
