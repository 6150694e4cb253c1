"""`whet release` and `whet rollback`: what is live."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from ..errors import NotFoundError
from .root import ADVANCED, Print, Record, command, content_of, existing, named_store, print_json
from .shadow import planned

_PULL = Parameter(group=Group("Pull request", sort_key=2))
BUNDLE_IN_BRANCH = "bundle.json"

if TYPE_CHECKING:
    from ..record.store import BundleFile, Release, Store
    from ..ship.delivery import Delivery, DeliveryOptions
    from ..types import Bundle, Json


@command("release")
def release(
    what: str,
    file: Path | None = None,
    /,
    *,
    store: Annotated[Path | None, Parameter(env_var="WHET_STORE")] = None,
    to: Literal["shadow", "canary", "live"] = "live",
    share: float | None = None,
    unit: Literal["session", "subject", "run"] = "session",
    harm: Annotated[float | None, ADVANCED] = None,
    margin: Annotated[float | None, ADVANCED] = None,
    settle: Annotated[float | None, ADVANCED] = None,
    unproven: bool = False,
    new_name: bool = False,
    reason: str = "",
    pull_request: bool = False,
    repository: Annotated[Path, _PULL] = Path(),
    remote: Annotated[str, _PULL] = "origin",
    base: Annotated[str, _PULL] = "",
    branch: Annotated[str, _PULL] = "",
    offline: Annotated[bool, _PULL] = False,
    github: Annotated[str, _PULL] = "",
    api_url: Annotated[str, _PULL] = "",
    examples: Annotated[int, _PULL] = 3,
    outcomes: Annotated[tuple[Path, Path] | None, _PULL] = None,
    json: Print = False,
) -> int:
    """Make a result live, or try it: whet release FOLDER, whet release ID, or whet release NAME FILE.

    Workers, traced programs, the gateway and whet serve-policy switch to it without a restart; other live resources
    stay live. whet rollback takes it back. The result needs a Verdict of the gate that promotes it (whet gate,
    Experiment.gate); if something forbids it, the error says what would clear that.

    Parameters
    ----------
    what
        The output folder of a learner, its bundle.json, or the id of a Bundle, Version, Verdict, release or improvement
        in the store; or, with FILE, the name of a resource, such as gateway.system_prompt.
    file
        Content of that resource: JSON if the name ends in .json, else text.
    store
        The record, created if it does not exist. If omitted, the one that the learner's output names.
    to
        shadow runs it beside what is live, where nobody is served by it; canary serves a share of those who come; live
        serves all. What goes live ends the trials that were made from what it replaces.
    share
        Share of a canary (0.1 if omitted) or of a shadow (1). A larger one widens a canary that stands.
    unit
        What a canary is drawn by. A conversation, person or run that is drawn keeps it.
    harm
        Of a canary: the loss in success, as people's words show it, that must be found in time and excluded before the
        share rises; 0.15 if omitted. Printed is within how many requests it is taken back.
    margin
        Of a canary: 0 asks for a proof that it is better, 0.05 that it is not worse by more than that. If omitted, 0.05
        of what the gate has proven, else 0.
    settle
        Of a canary: seconds from a unit's first run for which words on it count; 3600 if omitted.
    unproven
        Release without a Verdict that promotes it; the log says so, and what would have forbidden it. An open finding
        (whet findings) forbids it all the same.
    new_name
        Allow a resource name that is new to the record and the gateway, for code that will read it.
    reason
        A note for the log that whet log prints.
    pull_request
        Release nothing, and open a pull request: the change in your source, as a commit on a branch of its own, with
        the proof and the command that repeats it. What is checked out is not touched.
    repository
        A folder in the git repository.
    remote
        The one remote that is pushed to.
    base
        The branch that the pull request is against. If omitted, the remote's default branch.
    branch
        Name of the new branch. If omitted, whet/ and the Bundle's id.
    offline
        Make the branch here; push and open nothing.
    github
        OWNER/NAME on GitHub. If omitted, GITHUB_REPOSITORY, or what the remote's address says.
    api_url
        Address of GitHub's API, where GITHUB_TOKEN is sent. If omitted, GITHUB_API_URL, or that of the remote's host.
    examples
        Won and lost examples that are shown with their text, of each so many. 0 shows none.
    outcomes
        Two files of results, of the baseline and of the candidate, instead of those that the gate recorded.
    """
    from ..record.store import BundleFile, Stage, Store, release_of
    from ..record.store.bundles import refuse_secrets
    from ..record.store.redaction.current import redaction
    from ..record.store.releases import PROGRAM
    from ..ship.delivery import DeliveryOptions

    content = None if file is None else content_of(file)
    written = _written(Path(what)) if file is None else None
    path = named_store(store or (written.store if written is not None else None))
    if written is not None:
        _refuse_findings(Path(what), written, path)
    with Store(path) as opened:
        if file is not None:
            written = BundleFile(_as_declared(opened, what, content))
        elif written is None:
            written = BundleFile(release_of(opened, what))
        if pull_request:
            options = DeliveryOptions(
                repository=repository,
                remote=remote,
                base=base,
                branch=branch,
                offline=offline,
                github=github,
                api_url=api_url,
                examples=examples,
            )
            folder = Path(what) if file is None else None
            delivery = _delivered(opened, written, folder, options, outcomes, unproven=unproven)
            return _say_delivery(delivery, json)
        refuse_secrets(written.bundle, redaction())
        if written.baseline is not None:
            refuse_secrets(written.baseline, redaction())
            opened.put_bundle(written.baseline)  # what a policy server goes back to
        done = opened.release(
            written.bundle,
            written.verdict,
            stage=Stage(to),
            share=share,
            unit=unit,
            unproven=unproven,
            new_names=new_name,
            reason=reason or f"from {file or what}",
        )
        plan = planned(opened, done, harm=harm, margin=margin, settle=settle)
    if plan and not json:
        print(plan)
    if not json and done.unproven and done.stage is not Stage.SHADOW:
        print("released unproven: no Verdict promotes it")
    _say(path, done, json)
    files = [name for name, version in written.bundle.items() if version.kind == PROGRAM]
    if files and not json:
        patch = Path(what) / "evolution.patch"
        how = f"git apply {patch}" if patch.is_file() else "apply the patch of its run"
        print(f"{', '.join(files)}: a file, which no code reads from the record. To run it: {how}")
    return 0


@command("rollback")
def rollback(
    trial: str | None = None, /, *, store: Record, reason: str | None = None, json: Print = False
) -> int:
    """Take the last release back: make live what was live before it. With TRIAL: end that shadow or canary.

    Repeated, it goes further back, finally to the agent without any release.

    Parameters
    ----------
    trial
        Id of the release or of its Bundle, as whet log prints it.
    reason
        A note for the log that whet log prints.
    """
    from ..record.store import Store

    with Store(existing(store)) as opened:
        if trial is not None:
            ended = opened.retire(trial, reason=reason or "taken back")
            if json:
                print_json(ended)
            else:
                print(f"{store}: retired {ended.candidate}, which nobody is served by any more")
            return 0
        opened.rollback(reason=reason or "rollback")
        (live,) = opened.history(last=1)
    return _say(store, live, json)


def _delivered(
    store: Store,
    written: BundleFile,
    folder: Path | None,
    options: DeliveryOptions,
    outcomes: tuple[Path, Path] | None,
    *,
    unproven: bool,
) -> Delivery:
    """The Bundle as a pull request: by the patch that its learner wrote, or put into the source anew."""
    from ..learn.evolution.delivering import deliver_bundle, source_patch

    patches = [] if folder is None else [folder / name for name in ("agent.patch", "evolution.patch")]
    patch = next((file.read_bytes().decode() for file in patches if file.is_file()), None)
    if patch is None:
        source = source_patch(options.repository, written.bundle)
        patch = source.text
        if source.unplaced:
            print(
                f"in no file, so in {BUNDLE_IN_BRANCH} alone: {', '.join(source.unplaced)}", file=sys.stderr
            )
    return deliver_bundle(
        store,
        written.bundle,
        options,
        patch=patch,
        verdict=written.verdict,
        baseline=written.baseline,
        outcomes=outcomes,
        unproven=unproven,
    )


def _say_delivery(delivery: Delivery, json: bool) -> int:
    branch, opened = delivery.branch, delivery.pull_request
    if json:
        print_json(
            {
                "branch": branch.name,
                "commit": branch.commit,
                "base": delivery.base,
                "files": branch.files,
                "pull_request": None if opened is None else opened.url,
                "command": delivery.evidence.command,
            }
        )
        return 0
    print(f"branch {branch.name} on {delivery.base}: {len(branch.files)} files, {branch.commit[:12]}")
    for path in branch.files:
        print(f"  {path}")
    where = (
        f"pull request {opened.url}" if opened is not None else f"to push it: git push origin {branch.name}"
    )
    print(f"{where}\nto repeat its verdict in a clone: {delivery.evidence.command}")
    return 0


def _as_declared(store: Store, name: str, content: Json) -> Bundle:
    """The content of a file as a Version, of the kind that the program declared: a function's text is a function."""
    from dataclasses import replace

    from ..record.store.bundles import EMPTY, version_of
    from ..record.store.releases import DECLARED
    from ..types import Bundle

    version = replace(version_of(name, content), parent=(store.live() or EMPTY).ids.get(name))
    for came in store.versions(ids=[store.state(f"{DECLARED}{name}", "")]):
        if isinstance(came.content, str) == isinstance(content, str):
            # An empty id is computed anew; the one that it had is of another kind.
            version = replace(version, kind=came.kind, id="")
    return Bundle([version])


def _refuse_findings(what: Path, written: BundleFile, path: Path) -> None:
    """Refuse what the learner's own record has an open finding on; the record that it goes to looks for itself.

    Raises:
        GateError: with what would clear it.
    """
    from ..record.store import Store
    from ..record.store.findings import refuse_open

    own = written.store or (what if what.is_dir() else what.parent) / "runs.db"
    if own.is_file() and own.resolve() != path.resolve():
        with Store(own) as opened:
            refuse_open(opened.database, {written.bundle.id})


def _written(path: Path) -> BundleFile | None:
    """A learner's output at this path; None if there is nothing: then it may be an id.

    Raises:
        NotFoundError: the folder has no Bundle in it.
        InputError: the file holds something else.
    """
    from ..record.store import read_bundle
    from ..record.store.bundles import BUNDLE_FILE

    if path.is_dir() and not (path / BUNDLE_FILE).is_file():
        raise NotFoundError(
            f"no {BUNDLE_FILE} in {path}: give the output folder of a learner (whet train, whet evolve), the id "
            "of a recorded Bundle, or a name and a file: whet release NAME FILE"
        )
    return read_bundle(path) if path.exists() else None


def _say(store: Path, release: Release, json: bool) -> int:
    ids = release.bundle.ids
    if json:
        print_json(ids)
    elif release.stage == "live":
        print(f"{store}: {'live now' if ids else 'nothing is live now: the agent is as it came'}")
        for name, id in ids.items():
            print(f"live {name:27} {id}")
    else:
        whom = (
            f"{release.share:g} of all, by {release.unit}"
            if release.stage == "canary"
            else "nobody is served"
        )
        print(f"{store}: {release.stage} {release.id} of Bundle {release.candidate}: {whom}")
        print(
            f"to widen or end it: whet release {release.candidate} --to canary|live, whet rollback {release.id}"
        )
    return 0
