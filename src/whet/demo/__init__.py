"""The embedded example: the main job on a mailbox, its report, and asking what was released."""

from .main import ask, run_demo

__all__ = ["ask", "run_demo"]
