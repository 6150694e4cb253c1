# /// script
# dependencies = [
#     "openinference-instrumentation-langchain==0.1.80",
#     "opentelemetry-exporter-otlp-proto-http==1.45.2",
#     "langgraph==1.2.22",
#     "langchain==1.4.7",
#     "langchain-openai==1.7.3",
# ]
# ///
"""The LangChain agent under OpenInference."""

from desk_tools import provider

made = provider()
from langchain_desk import run
from openinference.instrumentation.langchain import LangChainInstrumentor

LangChainInstrumentor().instrument(tracer_provider=made)
run()
