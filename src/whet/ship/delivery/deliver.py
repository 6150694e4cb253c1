"""A Bundle delivered to its owners' repository: one commit on a branch of its own, and a pull request for it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ...errors import InputError
from ...record.store import Store, write_bundle
from ...record.store.batch import redactor_of
from ...record.store.bundles import refuse_secrets
from ...record.store.findings import refuse_open
from ...record.store.proof import blocks_of, proof_of, refuse_blocked
from ...types import Bundle, Verdict
from .body import EXAMPLES, body_of, picture_of, title_of
from .evidence import BODY, BUNDLE, PICTURE, DeliveredEvidence, hashes
from .git import Branch, GitRepository, checked
from .github import GitHub, PullRequest, github_of
from .markdown import fenced, plain, verbatim

DELIVERIES = "deliveries/"
"""Prefix of the states that say where a Bundle was delivered to, its id after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOptions:
    """How a Bundle is delivered."""

    repository: Path = Path()
    """A folder in the git repository."""
    remote: str = "origin"
    """The one remote that is pushed to."""
    base: str = ""
    """Branch that the pull request is against. If empty, the remote's default branch; offline, what is checked out."""
    branch: str = ""
    """Name of the new branch. If empty, whet/ and the Bundle's id."""
    offline: bool = False
    """Make the branch here, and push and open nothing."""
    github: str = ""
    """OWNER/NAME on GitHub. If empty, GITHUB_REPOSITORY, or what the remote's address says."""
    api_url: str = ""
    """Address of GitHub's API. If empty, GITHUB_API_URL, or that of the remote's host."""
    examples: int = EXAMPLES
    """Won and lost examples, of each so many, that are shown with their text; 0 shows none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What was delivered."""

    branch: Branch
    base: str
    """Name of the branch that it is against."""
    title: str
    body: str
    evidence: DeliveredEvidence
    pull_request: PullRequest | None = None
    """None offline."""


def deliver(
    store: Store,
    bundle: Bundle,
    patch: str,
    options: DeliveryOptions,
    *,
    evidence: Callable[[str], DeliveredEvidence],
    verdict: Verdict | None = None,
    baseline: Bundle | None = None,
    unproven: bool = False,
) -> Delivery:
    """Make the branch, and unless `offline` push it and open a pull request. The working tree is not touched.

    Repeating it gives the same branch and pull request; a branch that holds something else is never overwritten.

    Args:
        patch: of the source, for `git apply`; "" of a Bundle that no file holds.
        verdict: on the Bundle; the newest recorded one if None.
        baseline: what it was judged against.
        evidence: the outcomes that prove the Bundle of an id (`learn.evolution.delivering`).
        unproven: deliver what no Verdict promotes; the body says what it shows. An open finding forbids it still.

    Raises:
        GateError: something forbids it, with what would clear that.
        InputError, NotFoundError: the patch does not apply, the branch is taken, or the remote or API refuses.
    """
    refuse_secrets(bundle, redactor_of(store.database))
    merged = (store.live() or Bundle()).put(*bundle.values())
    refuse_open(store.database, {bundle.id, merged.id})
    proof = proof_of(store.database, bundle, merged, verdict)
    if not unproven:
        refuse_blocked(blocks_of(bundle, proof))
    proven = evidence(bundle.id if proof is None else proof.candidate)
    repository = GitRepository(options.repository)
    name = checked(options.branch or f"whet/{bundle.id}")
    base, commit = _base(repository, options, name)
    title = title_of(bundle, proven)
    files = dict(proven.files)
    files[f"{proven.folder}/{BUNDLE}"] = _bundle_file(bundle, baseline, proof)
    files[f"{proven.folder}/{PICTURE}"] = picture_of(proven).encode()
    # Twice: the body shows the diff of the branch, and lies on the branch.
    bare = repository.diff_of(commit, patch.encode())
    write = partial(body_of, store, bundle, proof, proven, bare, options.examples, hashes=hashes(files))
    body = write()
    files[f"{proven.folder}/{BODY}"] = body.encode(errors="surrogateescape")
    branch = repository.commit(name, commit, patch.encode(), files, f"{title}\n\nProof: {proven.folder}\n")
    pull_request = None
    if not options.offline:
        github = _github(repository, options)
        repository.push(options.remote, branch)
        # A path in a pull request leads nowhere; by the commit, so that it stays when the branch is deleted.
        body = write(picture=github.file(branch.commit, f"{proven.folder}/{PICTURE}"))
        pull_request = github.open(branch=name, base=base, title=title, body=body)
    store.put_state(
        f"{DELIVERIES}{bundle.id}",
        {
            "branch": name,
            "commit": branch.commit,
            "base": base,
            "url": None if pull_request is None else pull_request.url,
            "verdict": None if proof is None else proof.id,
        },
    )
    return Delivery(
        branch=branch, base=base, title=title, body=body, evidence=proven, pull_request=pull_request
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reversal:
    """What takes a delivery back."""

    branch: Branch
    pull_request: PullRequest | None = None
    """None offline."""


def deliver_reversal(patch: str, options: DeliveryOptions, *, title: str, reason: str) -> Reversal:
    """Make a branch, and unless `offline` a pull request, that takes out what was delivered and merged.

    Repeating it gives the same branch and pull request.

    Args:
        patch: of the source, for `git apply`.
        options: `branch` is not empty.
        reason: what speaks against it now, as text.

    Raises:
        InputError, NotFoundError: the patch does not apply, the branch is taken, or the remote or API refuses.
    """
    repository, name = GitRepository(options.repository), checked(options.branch)
    base, commit = _base(repository, options, name)
    title = f"Take back: {plain(title, 100)}"
    body = f"{fenced(reason)}\n\n### The change\n\n{verbatim(repository.diff_of(commit, patch.encode()), 'diff')}\n"
    branch = repository.commit(name, commit, patch.encode(), {}, f"{title}\n")
    if options.offline:
        return Reversal(branch=branch)
    github = _github(repository, options)
    repository.push(options.remote, branch)
    return Reversal(branch=branch, pull_request=github.open(branch=name, base=base, title=title, body=body))


def _github(repository: GitRepository, options: DeliveryOptions) -> GitHub:
    """Where the pull request is opened; looked at before anything is pushed."""
    address = repository.address(options.remote)
    return github_of(address, repository=options.github, api=options.api_url)


def _base(repository: GitRepository, options: DeliveryOptions, name: str) -> tuple[str, str]:
    """Name and commit of the branch that the delivery is against.

    Raises:
        InputError: it is the delivery's own name, or nothing is checked out.
    """
    if options.offline:
        base, commit = repository.head()
        base = options.base or base
        if options.base:
            commit = repository.run("rev-parse", "--verify", f"refs/heads/{checked(base)}^{{commit}}").strip()
    else:
        repository.address(options.remote)
        default = repository.default_branch(options.remote)
        if name == default:
            raise InputError(f"{name} is the default branch of {options.remote}, which is never pushed to")
        base = options.base or default
        commit = repository.fetched(options.remote, base)
    if name == base:
        raise InputError(
            f"{name} is what the pull request is against: give the new branch another name (--branch)"
        )
    return base, commit


def _bundle_file(bundle: Bundle, baseline: Bundle | None, verdict: Verdict | None) -> bytes:
    with tempfile.TemporaryDirectory(prefix="whet-bundle-") as folder:
        path = Path(folder, BUNDLE)
        write_bundle(path, bundle, baseline=baseline, verdict=verdict)
        return path.read_bytes()
