"""`whet token`: the tokens of a server, and a token for one run."""

from __future__ import annotations

from typing import Literal

from cyclopts.types import PositiveFloat

from ..errors import InputError, NotFoundError
from .root import Record, command, existing

YEAR = 366 * 24.0
"""Hours that a run's token is good for at most."""


@command("token")
def token(
    role: Literal["read", "write", "admin"] | None = None,
    /,
    *,
    store: Record,
    run: str | None = None,
    hours: PositiveFloat = 24.0,
    rotate: bool = False,
) -> int:
    """Print a token of the server that serves a store: whet token write --store runs.db

    The tokens are kept beside the store, in a file that only you can read. With --run, make one for a single run: it
    records that run's model calls, traces and feedback, and nothing else.

    Parameters
    ----------
    role
        The token to print.
    run
        Make a token for the run with this id, and for runs named RUN.NAME.
    hours
        Time that a run's token is good for.
    rotate
        Replace the server's tokens, which ends those of runs too. A server that is running takes the new ones when it
        is started again.
    """
    from ..serve.auth import make_tokens, token_file, tokens_of
    from ..serve.run_tokens import RunTokens

    if [role is not None, run is not None, rotate].count(True) != 1:
        raise InputError("give one of: a role (read, write or admin), --run ID, --rotate")
    existing(store)
    if rotate:
        make_tokens(store)
        print(f"new tokens are in {token_file(store)}; start the server again to have it accept them")
        return 0
    tokens = tokens_of(store)
    if not tokens:
        raise NotFoundError(f"there are no tokens for {store} yet: whet serve makes them at its first start")
    named = {held.name.lower(): secret for held, secret in tokens.items()}
    if run is not None:
        if hours > YEAR:
            raise InputError(f"--hours is {hours:g}; a run's token is good for {YEAR:g} hours at most")
        print(RunTokens(tokens[max(tokens)]).mint(run, hours * 3_600))
    elif role in named:
        print(named[role])
    else:
        raise NotFoundError(
            f"{token_file(store)} has no token for {role}: whet token --rotate makes all of them"
        )
    return 0
