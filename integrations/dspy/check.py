"""DSPy optimises an instruction, and `whet verdict` says whether it is better on tasks that DSPy never saw.

    python -m integrations.dspy.check PYTHON

PYTHON is that of the environment with DSPy.
"""

from __future__ import annotations

import sys
from pathlib import Path

from integrations.optimizers import check

if __name__ == "__main__":
    check(Path(__file__).with_name("optimize.py"), sys.argv[1], "before.json", "after.json")
