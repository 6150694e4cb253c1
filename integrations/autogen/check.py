"""An AutoGen repository is wired by `whet init` and recorded.

    python -m integrations.autogen.check PYTHON

PYTHON is that of the environment with AutoGen and whet.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from integrations.recorded import DID, did, wire, wired_as_usual


def main(python: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        wired = wire(Path(__file__).with_name("repo"), python, Path(folder))
    wired_as_usual(wired, "AutoGen")
    assert did(wired.trajectory) == DID, wired.trajectory
    print("autogen: a repository wired by whet init")


if __name__ == "__main__":
    main(sys.argv[1])
