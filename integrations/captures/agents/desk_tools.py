"""The parts that every agent here has: its words, its two tools, and where its spans go."""

import atexit

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

PROMPT = "You are the desk of a hotel. Be brief."
QUESTION = "What is the weather in Paris, and is there a table at Chez Paul?"
REFUSED = "What is the weather in Atlantis?"
MODEL = "gpt-4o-mini"


def weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: its name.
    """
    return f"22 degrees in {city}"


def reserve(place: str) -> str:
    """Reserve a table at a place.

    Args:
        place: the restaurant.
    """
    raise LookupError(f"no table at {place}")


def provider():
    """A TracerProvider, set as the global one, that sends its spans where the environment says."""
    made = TracerProvider(resource=Resource({"service.name": "desk"}))
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(made)
    atexit.register(made.shutdown)
    return made
