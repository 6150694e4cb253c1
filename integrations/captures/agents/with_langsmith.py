# /// script
# dependencies = [
#     "langsmith[otel]==0.14.17",
#     "langgraph==1.2.22",
#     "langchain==1.4.7",
#     "langchain-openai==1.7.3",
# ]
# ///
"""A LangChain agent whose LangSmith tracing goes out as OpenTelemetry."""

import os

os.environ |= {"LANGSMITH_TRACING": "true", "LANGSMITH_OTEL_ENABLED": "true", "LANGSMITH_OTEL_ONLY": "true"}
os.environ["LANGSMITH_API_KEY"] = "none"
os.environ["LANGSMITH_ENDPOINT"] = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]

from desk_tools import provider

made = provider()
from langchain_core.tracers.langchain import wait_for_all_tracers
from langchain_desk import run

run()
wait_for_all_tracers()
