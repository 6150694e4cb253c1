"""The `whet` command that every family of commands adds itself to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import cyclopts
from cyclopts import Parameter, validators

if TYPE_CHECKING:
    from ..types import Json


def _version() -> str:
    from importlib.metadata import version  # which reads mail: a tenth of a second for every command

    return version("whet")


app = cyclopts.App(
    name="whet",
    help="Improve LLM agents from what they actually do: observe, evaluate, learn, prove, deploy.",
    version=_version,
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
    suppress_keyboard_interrupt=False,
)


AtLeastOne = Annotated[int, Parameter(validator=validators.Number(gte=1))]
"""Of what there is no use in having none: less is refused with the option's name."""


Record = Annotated[Path, Parameter(env_var="WHET_STORE")]
"""A store that the environment may name, as it does for `whet.trace`: set once, it need not be given again."""


def counted(number: int, noun: str) -> str:
    """`1 file`, `1,200 files`, `2 trajectories`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1]}ies" if noun.endswith("y") else f"{number:,} {noun}s"


def existing(store: Path) -> Path:
    """The store to read, which opening would make where there is none.

    Raises:
        NotFoundError: there is no file, or nothing in it.
    """
    from ..errors import NotFoundError

    if not store.exists():
        raise NotFoundError(f"there is no store at {store}")
    if store.is_file() and store.stat().st_size == 0:
        raise NotFoundError(f"{store} is an empty file, not a store; it was left as it is")
    return store


def content_of(file: Path) -> Json:
    """What a file says a resource is: JSON if its name ends in .json, else text.

    Raises:
        InputError: it cannot be read, or is neither.
    """
    from msgspec import DecodeError
    from msgspec.json import decode

    from ..errors import InputError

    try:
        body = file.read_bytes()
        return decode(body) if file.suffix == ".json" else body.decode()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror or error}") from error
    except (DecodeError, UnicodeDecodeError) as error:
        kind = "JSON" if file.suffix == ".json" else "UTF-8 text"
        raise InputError(f"{file} is not {kind}: {error}") from error
