"""One function that is asked for another one of `beside` and `probes`, time after time, in one process.

A pool that imports it (`modules=judging.WARM`) has all of it compiled before the first fork.
"""

from __future__ import annotations

import os
from typing import Any

from . import beside, probes, screen

COMPILED = (screen,)
"""For `screen.handle`, which is opened by its own name: read anew it would cost each screen 10 ms."""
_home = ""


def handle(function: str, args: list[Any]) -> Any:
    """Call one of our functions; paths are relative to the folder that everything is staged in."""
    global _home
    _home = _home or os.getcwd()  # asked for in the evaluation: where this is imported there is none yet
    os.chdir(_home)
    module = beside if function in ("stages", "evaluate") else probes
    return getattr(module, function)(*args)
