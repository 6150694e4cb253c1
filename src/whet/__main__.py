"""The `whet` command, and `python -m whet`.

Until there is a command that could say what is kept, and once it has said it, Ctrl-C ends the process as it
ends any other program: by the signal, without a traceback.
"""

from __future__ import annotations

import gc
import signal
import sys

from .errors import NOT_ON_WINDOWS


def main() -> None:
    """Entry point of the `whet` command."""
    if sys.platform == "win32":
        sys.exit(f"error: {NOT_ON_WINDOWS}")
    # What a command imports stays to its end: it is not looked through again and again meanwhile, nor later.
    gc.disable()
    # Behind nohup or a shell's & it is ignored, and stays so.
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .cli import load
    from .cli import main as command

    load(sys.argv[1:])
    gc.freeze()
    gc.enable()
    try:
        if heeded:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command()
    finally:
        if heeded:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
