"""A proven change as a pull request: a real remote, a fake GitHub, a stranger who repeats the verdict in a clone."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from delivery_world import AGENT, BETTER, HOSTILE, blocks, git, outside, proven, repository

from whet.errors import GateError, InputError, NotFoundError
from whet.learn.evolution.delivering import deliver_bundle, evidence_in, source_patch
from whet.models.fakes import ScriptedGitHub
from whet.prove.guardrails import Guardrail
from whet.record.store import Store
from whet.ship.delivery import Delivery, DeliveryOptions
from whet.ship.delivery.git import checked
from whet.ship.delivery.github import github_of
from whet.ship.delivery.markdown import fenced, plain, span
from whet.types import Bundle, Version

SLUG = "ann/desk"


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_REPOSITORY", "GITHUB_API_URL", "GH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GITHUB_TOKEN", "secret-token")


def delivered(store: Store, clone: Path, api_url: str, bundle: Bundle) -> Delivery:
    options = DeliveryOptions(repository=clone, github=SLUG, api_url=api_url)
    return deliver_bundle(store, bundle, options)


def test_a_pull_request_holds_its_diff_and_proof_and_a_stranger_repeats_the_verdict_to_the_byte(
    tmp_path: Path,
) -> None:
    clone = repository(tmp_path)
    (clone / "agent.py").write_text(AGENT.replace("An agent.", "Work that nobody has committed."))
    before = git(clone, "status", "--porcelain")
    main = git(clone, "rev-parse", "origin/main")
    with Store(tmp_path / "runs.db") as store, ScriptedGitHub(SLUG, token="secret-token") as github:
        bundle, verdict = proven(store)
        patch = source_patch(clone, bundle).text
        options = DeliveryOptions(repository=clone, github=SLUG, api_url=github.url)
        with pytest.raises(InputError, match="does not apply"):
            deliver_bundle(store, bundle, options, patch=patch.replace("Be kind", "Be other"))
        assert not github.received
        delivery = delivered(store, clone, github.url, bundle)
        again = delivered(store, clone, github.url, bundle)
        state = store.state(f"deliveries/{bundle.id}")
    assert again.branch == delivery.branch
    (pull,) = github.pulls
    assert (pull["head"]["ref"], pull["base"]["ref"]) == (f"whet/{bundle.id}", "main")
    assert state["url"] == pull["html_url"]
    assert {request.headers["authorization"] for request in github.received} == {"Bearer secret-token"}
    assert [request.method for request in github.received] == ["GET", "POST", "GET", "PATCH"]
    # Nothing here was touched, and no hook ran.
    assert git(clone, "status", "--porcelain") == before
    assert git(clone, "rev-parse", "--abbrev-ref", "HEAD").strip() == "main"
    assert not (tmp_path / "hooks.txt").exists()
    assert git(clone, "ls-remote", "origin", "refs/heads/main").split()[0] == main.strip()

    stranger = tmp_path / "stranger"
    git(tmp_path, "clone", "-q", "-b", f"whet/{bundle.id}", str(tmp_path / "remote.git"), str(stranger))
    proof = stranger / ".whet-proofs" / bundle.id
    (command,) = blocks(pull["body"], "sh")
    repeated = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=stranger, capture_output=True, check=True
    )
    assert repeated.stdout == (proof / "verdict.json").read_bytes()
    assert f'"effect":{verdict.effect!r}' in repeated.stdout.decode(), "the record's own"
    for line in blocks(pull["body"], "text")[-1].splitlines():
        sha, path = line.split("  ")
        assert hashlib.sha256((stranger / path).read_bytes()).hexdigest() == sha
    (diff,) = blocks(pull["body"], "diff")
    git(stranger, "checkout", "-q", "origin/main")
    git(stranger, "apply", "--index", "-", stdin=diff)
    assert git(stranger, "diff", "--cached", f"origin/whet/{bundle.id}", "--", ":!.whet-proofs") == ""
    assert (stranger / "agent.py").read_text() == AGENT.replace("Be kind.", BETTER)


def test_guardrails_picture_and_small_kinds_are_delivered_and_the_command_repeats_the_guardrails(
    tmp_path: Path,
) -> None:
    clone = repository(tmp_path)
    rails = [Guardrail("brief", 0.05)]
    with Store(tmp_path / "runs.db") as store, ScriptedGitHub(SLUG, token="secret-token") as github:
        bundle, verdict = proven(store, guardrails=rails)
        assert verdict.guardrails == {"brief": True}
        delivered(store, clone, github.url, bundle)
    (pull,) = github.pulls
    stranger = tmp_path / "stranger"
    git(tmp_path, "clone", "-q", "-b", f"whet/{bundle.id}", str(tmp_path / "remote.git"), str(stranger))
    proof = stranger / ".whet-proofs" / bundle.id
    (command,) = blocks(pull["body"], "sh")
    assert "--not-lower brief:0.05" in command
    repeated = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=stranger, capture_output=True, check=True
    )
    assert repeated.stdout == (proof / "verdict.json").read_bytes()
    assert b'"guardrails":{"brief":true}' in repeated.stdout
    assert "| `brief` | holds | these files |" in pull["body"]
    # The picture is a file of the branch, which the body shows by its commit.
    head = git(stranger, "rev-parse", "HEAD").strip()
    assert f"/{SLUG}/blob/{head}/.whet-proofs/{bundle.id}/effect.svg?raw=true)" in pull["body"]
    assert "](effect.svg)" in (proof / "README.md").read_text()
    drawn = ElementTree.fromstring((proof / "effect.svg").read_text())
    texts = [element.text or "" for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert f"{verdict.effect:+.3f}, n = {verdict.n}" in texts
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}circle"))) == 4
    assert not [element for element in drawn.iter() if element.tag.endswith(("script", "image", "a"))]
    sums = [line.split("  ") for line in blocks(pull["body"], "text")[-1].splitlines()]
    assert {path.rpartition("/")[2] for _, path in sums} == {
        "baseline.jsonl", "candidate.jsonl", "verdict.json", "bundle.json", "effect.svg",
    }  # fmt: skip
    for sha, path in sums:
        assert hashlib.sha256((stranger / path).read_bytes()).hexdigest() == sha
    rows = (proof / "baseline.jsonl").read_text()
    assert 0 < (rare := rows.count('"slice":"rare"')) < 8
    assert (
        f"of fewer than 8 tasks, too few to say anything: `rare` ({rare}); {rare} tasks together"
        in pull["body"]
    )


def test_a_guardrail_that_fails_is_repeated_as_one(tmp_path: Path) -> None:
    clone = repository(tmp_path)
    with Store(tmp_path / "runs.db") as store:
        bundle, verdict = proven(store, guardrails=[Guardrail("brief", 1e-9)])
        assert not verdict.promote
        options = DeliveryOptions(repository=clone, offline=True)
        body = deliver_bundle(store, bundle, options, unproven=True).body
    assert "| `brief` | fails | these files |" in body
    assert "is **not** shown to be better" in body


def test_hostile_text_of_a_run_stays_text_in_body_title_and_commit(tmp_path: Path) -> None:
    clone = repository(tmp_path)
    with Store(tmp_path / "runs.db") as store, ScriptedGitHub(SLUG, token="secret-token") as github:
        bundle, _ = proven(store)
        delivery = delivered(store, clone, github.url, bundle)
    assert "@everyone" in delivery.body, "the examples are there"
    assert "alert(1)" in delivery.body
    rendered = outside(delivery.body)
    for sign in ("<script", "@", "fixes #1", "alert(1)", "evil.example", "~~~", "::error", "\u202e", "\x1b"):
        assert sign not in rendered, sign
    assert not re.search(r"^::", delivery.body, re.MULTILINE)
    message = git(clone, "log", "-1", "--format=%B", delivery.branch.name)
    assert not set("@#`<\x1b") & set(message + delivery.title)
    assert not any("\u202e" in block or "\x1b" in block for block in blocks(delivery.body, "text"))


@pytest.mark.parametrize(
    "text", [HOSTILE, "`", "``````", "```\n", "a\n```text\nb", "\n\n", "|", "x`|`y", "@a #1\n::add-mask::x"]
)
def test_a_fence_a_span_and_a_title_hold_whatever_is_put_into_them(text: str) -> None:
    assert outside(f"{fenced(text)}\nafter") == "\nafter"
    assert outside(f"before {span(text)} after") == "before  after"
    assert not set("@#`|\n<") & set(plain(text))


def test_what_is_not_proven_or_has_a_finding_is_not_delivered(tmp_path: Path) -> None:
    clone = repository(tmp_path)
    with Store(tmp_path / "runs.db") as store, ScriptedGitHub(SLUG, token="secret-token") as github:
        bundle, verdict = proven(store, better=False)
        assert not verdict.promote
        with pytest.raises(GateError, match="does not promote"):
            delivered(store, clone, github.url, bundle)
        other = Bundle([Version(resource="tone", content="Be slow.", kind="prompt")])
        with pytest.raises(GateError, match="nothing has proven"):
            delivered(store, clone, github.url, other)
        options = DeliveryOptions(repository=clone, github=SLUG, api_url=github.url)
        with pytest.raises(NotFoundError, match="--outcomes"):
            deliver_bundle(store, other, options, patch="", unproven=True)
        assert not github.received
        assert git(clone, "for-each-ref", "refs/heads/whet") == ""
        body = deliver_bundle(store, bundle, options, unproven=True).body
        assert "is **not** shown to be better" in body


def test_no_branch_is_overwritten_and_no_default_branch_pushed(tmp_path: Path) -> None:
    clone = repository(tmp_path)
    with Store(tmp_path / "runs.db") as store, ScriptedGitHub(SLUG, token="secret-token") as github:
        bundle, _ = proven(store)
        git(clone, "branch", "taken", "HEAD")
        for name, message in (("main", "default branch"), ("taken", "holds something else")):
            options = DeliveryOptions(repository=clone, github=SLUG, api_url=github.url, branch=name)
            with pytest.raises(InputError, match=message):
                deliver_bundle(store, bundle, options)
        with pytest.raises(NotFoundError, match="no remote 'other'"):
            deliver_bundle(store, bundle, DeliveryOptions(repository=clone, remote="other"))
        offline = deliver_bundle(store, bundle, DeliveryOptions(repository=clone, offline=True))
        assert offline.pull_request is None
        assert git(clone, "ls-remote", "origin", "refs/heads/whet/*") == ""
        # Somebody pushed another branch of that name: theirs stays.
        git(clone, "push", "-q", "--no-verify", "origin", f"HEAD~0:refs/heads/whet/{bundle.id}")
        theirs = git(clone, "commit-tree", "HEAD^{tree}", "-m", "theirs").strip()
        git(clone, "push", "-q", "--no-verify", "--force", "origin", f"{theirs}:refs/heads/whet/{bundle.id}")
        with pytest.raises(InputError, match="git push failed"):
            delivered(store, clone, github.url, bundle)
        assert theirs in git(clone, "ls-remote", "origin", f"refs/heads/whet/{bundle.id}")
        assert not github.pulls


def test_the_token_goes_to_the_named_address_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = {"branch": "b", "base": "main", "title": "t", "body": "b"}
    with (
        ScriptedGitHub(SLUG, token="secret-token") as elsewhere,
        ScriptedGitHub(SLUG, token="secret-token", redirect=elsewhere.url) as github,
    ):
        with pytest.raises(InputError, match="redirect"):
            github_of("", repository=SLUG, api=github.url).open(**opened)
        assert not elsewhere.received
        monkeypatch.setenv("GITHUB_TOKEN", "another")
        with pytest.raises(InputError, match="not valid"):
            github_of("", repository=SLUG, api=elsewhere.url).open(**opened)
    monkeypatch.delenv("GITHUB_TOKEN")
    with pytest.raises(InputError, match="GITHUB_TOKEN"):
        github_of("", repository=SLUG, api="http://127.0.0.1:9").open(
            branch="b", base="m", title="t", body="b"
        )
    for address in ("http://github.example/api", "https://user:word@github.example", "ftp://github.example"):
        with pytest.raises(InputError):
            github_of("", repository=SLUG, api=address)
    with pytest.raises(InputError, match="--api-url"):
        github_of(str(tmp_path))


@pytest.mark.parametrize(
    ("remote", "repository", "api"),
    [
        ("git@github.com:ann/desk.git", SLUG, "https://api.github.com"),
        ("https://github.com/ann/desk", SLUG, "https://api.github.com"),
        ("https://x:y@github.com/ann/desk.git", SLUG, "https://api.github.com"),
        ("ssh://git@git.example:22/ann/desk.git", SLUG, "https://git.example/api/v3"),
    ],
)
def test_a_remotes_address_says_repository_and_api(remote: str, repository: str, api: str) -> None:
    named = github_of(remote)
    assert (named.repository, named.api) == (repository, api)


@pytest.mark.parametrize("name", ["-x", "a..b", "a b", "a//b", "x.lock", "a\n", "@{-1}", "", "/a", "a/"])
def test_a_branch_whose_name_git_may_take_for_something_else_is_refused(name: str) -> None:
    with pytest.raises(InputError):
        checked(name)


def test_outcomes_of_another_program_prove_a_bundle_that_the_record_did_not_judge(tmp_path: Path) -> None:
    files = (tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    for file, share in zip(files, (2, 20), strict=True):
        file.write_text(
            "".join(f'{{"task":"{number}","success":{int(number % share > 0)}}}\n' for number in range(120))
        )
    evidence = evidence_in(files, "0123456789abcdef")
    assert evidence.verdict.promote
    assert evidence.verdict.against == ".whet-proofs/0123456789abcdef/baseline.jsonl"
    files[0].write_text("[")
    with pytest.raises(InputError, match="one JSON object per line"):
        evidence_in(files, "0123456789abcdef")
