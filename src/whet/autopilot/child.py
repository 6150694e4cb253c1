"""A command of whet in a process that does not outlive the one that starts it.

python -m whet.autopilot.child PARENT WORD...
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from ..sandbox.inside.kernel import die_with_parent


def main() -> None:
    """Become `whet WORD...`."""
    parent, *words = sys.argv[1:]
    with suppress(OSError, AttributeError):  # not on every system; the steps of the autopilot end it then
        die_with_parent()
    if os.getppid() != int(parent):
        sys.exit(1)  # it was gone before the request
    os.execv(sys.executable, [sys.executable, "-m", "whet", *words])


if __name__ == "__main__":
    main()
