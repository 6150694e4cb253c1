# /// script
# dependencies = [
#     "openai-agents==0.24.0",
#     "logfire==5.2.0",
#     "opentelemetry-exporter-otlp-proto-http==1.45.2",
# ]
# ///
"""openai-agents, its own tracing sent by Logfire."""

import atexit

import desk_tools  # noqa: F401
import logfire
from openai_agents_team import run

logfire.configure(send_to_logfire=False, console=False, service_name="desk")
logfire.instrument_openai_agents()
atexit.register(logfire.shutdown)
run()
