# /// script
# dependencies = [
#     "semantic-kernel==1.45.0",
#     "opentelemetry-exporter-otlp-proto-http==1.45.2",
# ]
# ///
"""Semantic Kernel, with the spans of its own and their content."""

import asyncio
import os
import sys

os.environ["SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS"] = "true"
os.environ["SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE"] = "true"

import logging

from desk_tools import MODEL, PROMPT, QUESTION, REFUSED, provider, reserve, weather
from opentelemetry._logs import set_logger_provider
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor

provider()
logs = LoggerProvider()
logs.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter()))
set_logger_provider(logs)
handler = LoggingHandler(logger_provider=logs)
handler.addFilter(logging.Filter("semantic_kernel.utils.telemetry"))
logging.getLogger().addHandler(handler)
logging.getLogger().setLevel(logging.INFO)

from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function


class Town:
    """The two tools as a plugin."""

    weather = staticmethod(kernel_function(name="weather")(weather))
    reserve = staticmethod(kernel_function(name="reserve")(reserve))


async def main():
    client = AsyncOpenAI(max_retries=0)
    model = OpenAIChatCompletion(ai_model_id=MODEL, async_client=client)
    desk = ChatCompletionAgent(service=model, name="desk", instructions=PROMPT, plugins=[Town()])
    try:
        print((await desk.get_response(messages=REFUSED if "refused" in sys.argv else QUESTION)).content)
    except Exception as error:
        print(type(error).__name__)


asyncio.run(main())
