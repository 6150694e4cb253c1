"""The tools: importing this registers them all."""

from works.tools import bills, energy, town
from works.tools.registry import TOOLS, call

__all__ = ["TOOLS", "bills", "call", "energy", "town"]
