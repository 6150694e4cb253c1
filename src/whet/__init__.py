"""whet: improve LLM agents from what they actually do."""

__version__ = "0.1.0"
