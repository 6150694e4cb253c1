"""Wiring whet into somebody's repository: read it without running it, propose, and say what is missing."""

from .diagnose import Finding, diagnose
from .propose import Proposal, propose
from .scan import FRAMEWORKS, EntryPoint, Prompt, Repository, Tool, scan

__all__ = [
    "FRAMEWORKS",
    "EntryPoint",
    "Finding",
    "Prompt",
    "Proposal",
    "Repository",
    "Tool",
    "diagnose",
    "propose",
    "scan",
]
