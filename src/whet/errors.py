"""Every error that whet raises on purpose.

    WhetError
    ├── InputError (ValueError)          a file, option or argument that cannot be used
    │   └── NotFoundError (LookupError)  a name or id that nothing is stored under
    ├── MissingExtra (ImportError)       an optional dependency is not installed
    ├── StoreError (OSError)             the record could not be written or read
    │   ├── StoreVersionError            written by a newer whet
    │   ├── StoreBusyError               a second server on the same store
    │   ├── StaleLeaseError              the rollout was taken from this worker
    │   └── ConflictError                the record has something else under this id
    ├── ModelError (RuntimeError)        a model endpoint failed, after retries
    ├── BudgetExceeded (RuntimeError)    the next spend would overshoot a Budget
    ├── SandboxError (RuntimeError)      untrusted code cannot be shut in on this machine
    ├── EnvError (RuntimeError)          an environment broke its contract or failed
    ├── ContractError (AssertionError)   check_env, check_reward, check_optimizer
    ├── TrainingRefused (RuntimeError)   nothing to learn from, no baseline, base too weak
    └── GateError (RuntimeError)         leaked or unpaired evaluation

A message says what failed, what was given and what to do.  Each class also
inherits the built-in that a caller would have caught without knowing whet.
"""

from __future__ import annotations


class WhetError(Exception):
    """Base of all errors raised on purpose; the command line prints it without a traceback."""

    exit_code = 1


class InputError(WhetError, ValueError):
    """A file, option or argument cannot be used as given."""

    exit_code = 2


class NotFoundError(InputError, LookupError):
    """Nothing is stored under the given name or id."""


class MissingExtra(WhetError, ImportError):
    """An optional dependency is not installed.

    Args:
        package: the module that could not be imported, or several with `and` between.
        extra: the extra of whet that brings it, or several with commas between.
    """

    exit_code = 3

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} {'are' if ' and ' in package else 'is'} not installed. Run: pip install 'whet[{extra}]'"
        )
        self.package = package
        self.extra = extra


class StoreError(WhetError, OSError):
    """The record could not be written or read; nothing was acknowledged."""

    exit_code = 4


class StoreVersionError(StoreError):
    """The store was written by a newer whet than this one."""


class StoreBusyError(StoreError):
    """Another process already owns the store."""


class StaleLeaseError(StoreError):
    """The lease that a worker writes under is no longer the current one: it ran out, or was cancelled.

    Whoever holds the rollout now, if anyone, is not disturbed; the late result was not recorded.
    """


class ConflictError(StoreError):
    """The record has something else already, under the same id or after what this was decided on; that stays."""


class ModelError(WhetError, RuntimeError):
    """A model endpoint failed for good. `retryable` is what the last answer said."""

    exit_code = 5

    def __init__(self, message: str, *, status: int | None = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable

    @property
    def for_good(self) -> bool:
        """True if the endpoint refused the key or knows no such model: it will refuse every further request, too."""
        return self.status in (401, 403, 404)


class BudgetExceeded(WhetError, RuntimeError):
    """The next spend would overshoot the budget; nothing was spent."""

    exit_code = 6


class EnvError(WhetError, RuntimeError):
    """An environment was used wrongly or failed: an infrastructure error, not the policy's."""


class ContractError(WhetError, AssertionError):
    """A public contract checker found a violation."""


class TrainingRefused(WhetError, RuntimeError):
    """Training would not mean anything: no reward, no baseline, or a base policy that is too weak."""

    exit_code = 7


class GateError(WhetError, RuntimeError):
    """The evaluation cannot prove anything: tasks leaked, or the results are not paired."""

    exit_code = 8


class PermissionDenied(WhetError, PermissionError):
    """The permissions deny a tool call; it was not made. A run that it ends is blocked."""

    exit_code = 10


class SandboxError(WhetError, RuntimeError):
    """Untrusted code cannot be shut in here; the message names the fix. Nothing was run."""

    exit_code = 9


NOT_ON_WINDOWS = (
    "whet runs on Linux and macOS; on Windows, use it in WSL 2 (wsl --install) or in a Linux container"
)
"""Said where nothing else of whet can be imported."""
