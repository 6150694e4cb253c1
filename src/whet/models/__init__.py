"""Language models behind one Protocol: an endpoint, an ensemble, a script, a recording.

`OpenAIModel` speaks to any OpenAI-compatible endpoint, `Ensemble` shares calls out by
weight, `RecordedModel` never pays twice for one answer, and `ScriptedModel` is the public
fake.  Nothing here trains or samples a model itself, and nothing loads the HTTP client
before the first call.  Read `base.py` first.
"""

from .base import Chunk, Completion, Messages, Model, ModelRequest, ToolCall, as_messages
from .endpoint import Retry
from .ensemble import Ensemble
from .openai import OpenAIModel
from .recorded import RecordedModel
from .scripted import Answer, Script, ScriptedModel
from .spending import Price

__all__ = [
    "Answer",
    "Chunk",
    "Completion",
    "Ensemble",
    "Messages",
    "Model",
    "ModelRequest",
    "OpenAIModel",
    "Price",
    "RecordedModel",
    "Retry",
    "Script",
    "ScriptedModel",
    "ToolCall",
    "as_messages",
]
