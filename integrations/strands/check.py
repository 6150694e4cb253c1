"""Strands' optimizer rewrites a system prompt, and `whet verdict` says whether it is better on tasks it never saw.

    python -m integrations.strands.check PYTHON

PYTHON is that of the environment with `strands-harness-optimizer` and `strands-agents-evals`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from integrations.optimizers import check

if __name__ == "__main__":
    script = Path(__file__).with_name("optimize.py")
    # The optimizer's agent writes its prompt in a shell, which would ask whether it may.
    check(
        script,
        sys.argv[1],
        "before.json",
        "after.json",
        BYPASS_TOOL_CONSENT="true",
        STRANDS_NON_INTERACTIVE="true",
    )
