"""Bundles as values and as files: the one written form in which they are learned, released or tried.

A file holds `{"bundle": [Version, ...]}` and, where they are known, `"baseline"` (the Versions it was judged against
or learned from), `"verdict"` (of the gate on it) and `"store"` (the record that has both).  A learner calls it
`bundle.json` in its output folder, `whet release FOLDER` reads it, and WHET_BUNDLE may name it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...atomic import write_whole
from ...errors import InputError, NotFoundError, StoreError
from ...escapes import read_json
from ...types import Bundle, Json, Verdict, Version
from .codec import decode, encode_json

if TYPE_CHECKING:
    from .redaction.redact import Redactor

BUNDLE_FILE = "bundle.json"
"""The file's name in a learner's output folder."""
EMPTY = Bundle()
"""The agent as it came."""


@dataclass(frozen=True, slots=True)
class BundleFile:
    """The content of a Bundle file."""

    bundle: Bundle
    baseline: Bundle | None = None
    """The Bundle that it was judged against, or learned from."""
    verdict: Verdict | None = None
    store: Path | None = None
    """The record that has it."""


class _File(msgspec.Struct, omit_defaults=True):
    bundle: list[Version]
    baseline: list[Version] | None = None
    # Not a Verdict: an infinite e-value is written as null, which
    # `codec.decode` takes and this decoder would not.
    verdict: dict[str, Json] | None = None
    store: str | None = None


def version_of(name: str, content: Json) -> Version:
    """The Version of a resource with this content: of kind `prompt` for a text, else `value`.

    Raises:
        InputError: the content has no JSON form.
    """
    try:
        return Version(resource=name, content=content, kind="prompt" if isinstance(content, str) else "value")
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(
            f"resource {name!r} has no JSON form: {error}. Give text, numbers, lists and dicts."
        ) from error


def bundle_of(values: Mapping[str, Json]) -> Bundle:
    """Resource name → content, as a Bundle.

    Raises:
        InputError: a content has no JSON form.
    """
    return Bundle([version_of(name, content) for name, content in values.items()])


def write_bundle(
    path: str | os.PathLike[str],
    bundle: Bundle,
    *,
    baseline: Bundle | None = None,
    verdict: Verdict | None = None,
    store: str | os.PathLike[str] | None = None,
) -> None:
    """Write a Bundle file as the module describes it, whole or not at all."""
    written = _File(
        _sorted(bundle),
        None if baseline is None else _sorted(baseline),
        None if verdict is None else msgspec.to_builtins(verdict),
        None if store is None else os.fspath(store),
    )
    write_whole(Path(path), [msgspec.json.format(msgspec.json.encode(written), indent=2), b"\n"])


def read_bundle(path: str | os.PathLike[str]) -> BundleFile:
    """Read a file that `write_bundle` wrote, or a folder that has one called `bundle.json`.

    Raises:
        NotFoundError: there is no such file.
        InputError: it holds something else, or a Version whose id is not that of its content.
    """
    file = Path(path)
    file = file / BUNDLE_FILE if file.is_dir() else file
    try:
        content = read_json(msgspec.json.Decoder(_File).decode, file.read_bytes())
    except FileNotFoundError:
        raise NotFoundError(
            f"no Bundle at {file}: give the output folder of a learner, which holds a {BUNDLE_FILE}"
        ) from None
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror or error}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise InputError(f'{file} is not a saved Bundle, {{"bundle": [Versions]}}: {error}') from error
    return BundleFile(
        checked(content.bundle, str(file)),
        None if content.baseline is None else checked(content.baseline, str(file)),
        None if content.verdict is None else read_verdict(content.verdict, str(file)),
        # A relative path is relative to the file; pathlib leaves an absolute one as it is.
        None if content.store is None else file.parent / content.store,
    )


def read_verdict(body: dict[str, Json], where: str) -> Verdict:
    """A Verdict from JSON; null is an e-value beyond the range of JSON.

    Raises:
        InputError: it is not a Verdict.
    """
    try:
        return decode(msgspec.json.encode(body), Verdict)
    except StoreError as error:
        raise InputError(f"{where} has no Verdict where one should be: {error}") from error


def checked(versions: Sequence[Version], where: str) -> Bundle:
    """A Bundle of Versions from outside.

    Args:
        where: their source, for the error.

    Raises:
        InputError: one has an id that is not that of its content.
    """
    for version in versions:
        same = _ids_of(version)
        if version.id not in same:
            raise InputError(
                f"{where}: Version {version.id} of {version.resource!r} was changed by hand (its content is "
                f"{same[0]}). Remove its id, or save the Bundle anew."
            )
    return Bundle(versions)


def refuse_secrets(bundle: Bundle, redactor: Redactor | None) -> None:
    """Refuse a Bundle with a secret in it: recorded, everybody who reads the record would have it.

    Nothing is taken out, for a prompt or a program without it would be another one.

    Raises:
        InputError: names the resource and the kind of secret, never the secret.
    """
    if redactor is None:
        return
    for name, version in bundle.items():
        if rules := redactor.within(encode_json(version.content)):
            raise InputError(
                f"{name!r} holds what looks like a secret ({', '.join(sorted(rules))}), which whoever reads the record "
                "would read. Have the program take it from its environment; in a prompt, write it another way."
            )


def _ids_of(version: Version) -> list[str]:
    """The ids that a Version with this content may have: that of weights does not hang on where they lie."""
    contents = [version.content]
    if version.kind in ("weights", "adapter") and isinstance(version.content, dict):
        contents += [{**version.content, "path": ""}, {"sha256": version.content.get("sha256")}]
    return [Version(resource=version.resource, content=content, kind=version.kind).id for content in contents]


def _sorted(bundle: Bundle) -> list[Version]:
    return [bundle[name] for name in sorted(bundle)]
