"""The command line: parse, call, print.

One module per family of commands, which adds its commands to `app` when it is imported: the command line imports
those of the command that is given (`root.HOMES`), and who asks for `whet.cli.app` gets it with all commands.
Nothing heavy is imported until a command needs it.  An error that the user can fix is one line on standard
error and an exit code of its own (`errors.py`); any other is a bug and keeps its traceback.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..errors import InputError, WhetError
from . import root, terminal

if TYPE_CHECKING:
    from .root import app

__all__ = ["app", "main"]


def load(words: Sequence[str]) -> None:
    """Import the modules of the command that stands first, or all of them where none stands there."""
    known = root.HOMES.get(words[0], "").split() if words else []
    for name in known or [module.name for module in pkgutil.iter_modules(__path__)]:
        import_module(f".{name}", __name__)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """`app`, with all commands."""
        if name != "app":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        load(())
        return root.app


def main(argv: Annotated[Sequence[str] | None, Parameter(parse=False)] = None) -> None:
    """Entry point of the `whet` command; exits with the command's code."""
    terminal.prepare()
    load(sys.argv[1:] if argv is None else argv)
    try:
        code = root.app(argv, result_action="return_value")
        sys.stdout.flush()  # here, where an error of it can still be reported
    except WhetError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except UnicodeEncodeError as error:
        if not terminal.undecoded(sys.argv[1:] if argv is None else argv):
            raise
        print(f"error: {error.object!a} is not text in this locale. Set PYTHONUTF8=1", file=sys.stderr)
        sys.exit(InputError.exit_code)
    except BrokenPipeError:
        # A broken pipe to a child or socket is a bug, and keeps its traceback.
        if not terminal.unread():
            raise
        terminal.leave_unread()
        sys.exit(terminal.NOBODY_READS)
    except OSError as error:
        if error.errno not in terminal.MENDABLE:
            raise
        print(f"error: {terminal.message(error)}", file=sys.stderr)
        terminal.leave_unread()
        sys.exit(WhetError.exit_code)
    except KeyboardInterrupt:
        print(f"stopped; acknowledged work is kept.{_how_to_resume(argv)}", file=sys.stderr)
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


def _how_to_resume(argv: Sequence[str] | None) -> str:
    """How to resume the interrupted command, if it can be resumed."""
    command, _, _ = root.app.parse_args(argv)
    if "resume" in inspect.signature(command).parameters:
        return " To resume, add --resume to the same command"
    return " To resume, run the same command" if command.__name__ in ("evolve", "improve") else ""
