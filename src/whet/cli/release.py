"""`whet release`, `whet rollback`, `whet show versions` and `whet show verdicts`: what is live, and what proves it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from . import record  # noqa: F401 - `whet show`, which a command here is a part of
from .app import Record, app, content_of, existing

if TYPE_CHECKING:
    from ..store import Store, Written
    from ..types import Bundle, Json


@app.command
def release(
    what: str,
    file: Path | None = None,
    /,
    *,
    store: Annotated[Path | None, Parameter(env_var="WHET_STORE")] = None,
    unproven: bool = False,
    new_name: bool = False,
    reason: str = "",
    json: bool = False,
) -> int:
    """Make something live: whet release FOLDER, whet release ID, or whet release NAME FILE

    Workers, traced programs, the gateway and whet serve-policy take it up without a restart. The rest of what is live
    stays, and whet rollback goes back, at last to the agent as it came. It asks for the gate's Verdict on what is
    released (Experiment.gate records it).

    Parameters
    ----------
    what
        The output folder of a learner, its bundle.json, or the id of a Bundle, Version, Verdict or improvement in the
        store; or, with FILE, the name of a resource, gateway.system_prompt for example.
    file
        Its content: JSON if the name ends in .json, else text.
    store
        The record; made if it does not exist. By default the one that the learner names in its output.
    unproven
        Release without a Verdict that promotes it; the log says so.
    new_name
        Allow a name that neither the record nor the gateway has: for code that is to read it.
    reason
        Why, in the history that whet show prints.
    json
        Print one JSON object: what is live now, name by name.
    """
    from ..errors import InputError
    from ..store import Store, Written, release_of
    from ..store.releases import PROGRAM

    content = None if file is None else content_of(file)
    written = _written(Path(what)) if file is None else None
    path = store or (written.store if written is not None else None)
    if path is None:
        raise InputError("no store was named: give --store FILE, or set WHET_STORE")
    with Store(path) as opened:
        if file is not None:
            written = Written(_as_declared(opened, what, content))
        elif written is None:
            written = Written(release_of(opened, what))
        if written.baseline is not None:
            opened.put_bundle(written.baseline)  # what a policy server goes back to
        done = opened.release(
            written.bundle,
            written.verdict,
            unproven=unproven,
            new_names=new_name,
            reason=reason or f"from {file or what}",
        )
    if not json and done.unproven:
        print("released unproven: no Verdict promotes it")
    _say(path, done.bundle, json)
    files = [name for name, version in written.bundle.items() if version.kind == PROGRAM]
    if files and not json:
        patch = Path(what) / "evolution.patch"
        how = f"git apply {patch}" if patch.is_file() else "apply the patch of the run that made it"
        print(f"{', '.join(files)}: a file, which no code reads from the record; {how}, to run it")
    return 0


@app.command
def rollback(*, store: Record, reason: str = "rollback", json: bool = False) -> int:
    """Make live what was live before; repeated, it goes further back, at last to the agent as it came.

    Parameters
    ----------
    store
        The file.
    reason
        Why, in the history that whet show prints.
    json
        Print one JSON object: what is live now, name by name.
    """
    from ..store import Store

    existing(store)
    with Store(store) as opened:
        live = opened.rollback(reason=reason)
    return _say(store, live, json)


def _as_declared(store: Store, name: str, content: Json) -> Bundle:
    """The content of a file as a Version of the kind that the program declared: the text of a function is one."""
    from dataclasses import replace

    from ..store.bundles import version_of
    from ..store.releases import DECLARED
    from ..types import Bundle

    version = version_of(name, content)
    for came in store.versions(ids=[store.state(f"{DECLARED}{name}", "")]):
        if isinstance(came.content, str) == isinstance(content, str):
            version = replace(version, kind=came.kind, id="")
    return Bundle([version])


def _written(path: Path) -> Written | None:
    """What a learner wrote; None of what is no folder and no file, but may be an id.

    Raises:
        NotFoundError: the folder has no Bundle in it.
        InputError: the file holds something else.
    """
    from ..errors import NotFoundError
    from ..store import read_bundle
    from ..store.bundles import BUNDLE_FILE

    if path.is_dir() and not (path / BUNDLE_FILE).is_file():
        raise NotFoundError(
            f"there is no {path / BUNDLE_FILE}: give the output folder of a learner (whet train, whet evolve), the id "
            "of a recorded Bundle, or a name and a file: whet release NAME FILE"
        )
    return read_bundle(path) if path.exists() else None


def _say(store: Path, live: Bundle, json: bool) -> int:
    if json:
        print(msgspec.json.encode(live.ids).decode())
        return 0
    print(f"{store}: {'live now' if live.ids else 'nothing is live now: the agent is as it came'}")
    for name, id in live.ids.items():
        print(f"live {name:27} {id}")
    return 0


@app["show"].command
def verdicts(*, store: Record, candidate: str | None = None, json: bool = False) -> int:
    """List what the gate decided, the newest last.

    Parameters
    ----------
    store
        The file.
    candidate
        Only on the Bundle with this id.
    json
        Print one JSON object for each.
    """
    from ..store import Store

    existing(store)
    with Store(store) as opened:
        for verdict in opened.verdicts(candidate=candidate):
            if json:
                print(msgspec.json.encode({"id": verdict.id, **msgspec.to_builtins(verdict)}).decode())
                continue
            low, high = verdict.interval
            print(
                f"{verdict.id} {'promote' if verdict.promote else 'keep   '} Bundle {verdict.candidate} over "
                f"{verdict.baseline or verdict.against}: {verdict.effect:+.3f} [{low:+.3f}, {high:+.3f}], "
                f"e-value {verdict.e_value:.3g}, {verdict.n} pairs"
            )
    return 0


@app["show"].command
def versions(
    version: str | None = None, /, *, store: Record, resource: str | None = None, json: bool = False
) -> int:
    """List the Versions of a store in the order in which they were recorded, or print one as a diff to its parent.

    Parameters
    ----------
    version
        The id of one.
    store
        The file.
    resource
        Only those of this name.
    json
        Print one JSON object for each, with its content.
    """
    from ..errors import InputError
    from ..improvement import diff
    from ..store import Store
    from ..types import Bundle

    existing(store)
    if version is not None and resource is not None:
        raise InputError("an id names one Version: leave out --resource")
    with Store(store) as opened:
        listed = [opened.version(version)] if version is not None else opened.versions(resource)
        live = opened.live()
        ids = set(live.ids.values()) if live is not None else set()
        for found in listed:
            if json:
                print(msgspec.json.encode({**msgspec.to_builtins(found), "live": found.id in ids}).decode())
                continue
            mark = "live" if found.id in ids else ""
            above = f"from {found.parent}" if found.parent else ""
            print(f"{found.id} {mark:4} {found.kind:8} {found.resource:27} {above}".rstrip())
            if version is not None:
                print(
                    diff(
                        Bundle(opened.versions(ids=[found.parent])) if found.parent else Bundle(),
                        Bundle([found]),
                    )
                )
    return 0
