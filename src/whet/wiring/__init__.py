"""Wiring whet into somebody's repository: read it without running it, propose changes, and name what is missing."""

from .diagnose import Finding, diagnose
from .propose import Proposal, propose
from .scan import FRAMEWORKS, EntryPoint, Prompt, Scan, Tool, scan

__all__ = [
    "FRAMEWORKS",
    "EntryPoint",
    "Finding",
    "Prompt",
    "Proposal",
    "Scan",
    "Tool",
    "diagnose",
    "propose",
    "scan",
]
