"""The embedded example: the main job on a mailbox, its report, and questions to the released agent."""

from .main import ask, run_demo

__all__ = ["ask", "run_demo"]
