"""Permissions: the first rule that matches a part decides, the strictest part wins, the rest is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from whet.errors import InputError, NotFoundError
from whet.record.permissions.files import load_permissions, permissions_of
from whet.record.permissions.rules import PermissionRule, Permissions
from whet.record.permissions.shell import read_shell
from whet.types import Json

SHELL = [
    "ls",
    "ls *",
    "cat *",
    "grep *",
    "cd *",
    "echo *",
    "find *",
    "cp *",
    "mv *",
    "ln *",
    "git status",
    "sort *",
    "curl *",
]
TOOLS: Json = {"bash": {"command": "command"}, "read": {"path": "path:read"}, "write": {"path": "path:write"}}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "root"
    (folder / "src").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "src" / "main.py").write_text("")
    (tmp_path / "secret").write_text("s")
    (folder / "leak").symlink_to("../secret")
    (folder / "code").symlink_to("src")
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


def rules(root: Path, *entries: Json, **more: Json) -> Permissions:
    """A shell, files and an API, as most tests need them, after some rules of their own."""
    usual: list[Json] = [
        {"decision": "allow", "tool": "bash", "command": SHELL, "reason": "usual"},
        {"decision": "allow", "tool": ["read", "write"], "reason": "the project's files"},
        {
            "decision": "allow",
            "tool": "fetch",
            "url": ["https://api.example.com/v1/**", "https://*.wiki.org"],
            "reason": "API",
        },
        {"decision": "allow", "tool": "query", "sql": ["select"], "reason": "reading"},
    ]
    return permissions_of({"tools": TOOLS, "rules": [*entries, *usual], **more}, "rules", folder=root)


def decide(permissions: Permissions, tool: str, value: str) -> str:
    argument = {"bash": "command", "fetch": "url", "query": "sql"}.get(tool, "path")
    return permissions.decide(tool, {argument: value}).decision


@pytest.mark.parametrize(
    ("command", "decision"),
    [
        ("cat a.txt | grep a > out.txt", "allow"),
        ("cd src && cat ../a.txt", "allow"),
        ("cat code/main.py", "allow"),
        ("echo 'rm -rf / ; $(id)'", "allow"),
        ("ls; rm a.txt", "deny"),
        ("cat ../secret", "deny"),
        ("cat leak", "deny"),
        ("cat l*k", "deny"),
        ("cat ~/secret", "deny"),
        ("cat $HOME/secret", "deny"),
        ("echo $(cat a.txt)", "deny"),
        ("cd src; cat ../a.txt", "deny"),
        ("a || cd src && cat ../a.txt", "deny"),
        ("ln -s .. up && cat up/secret", "deny"),
        ("mv code src2 && cat src2/x", "deny"),
        ("sh -c 'cat ../secret'", "deny"),
        ("find . -exec cat {} +", "deny"),
        ("for f in a; do cat a.txt; done", "deny"),
        ("git -c core.pager=x status", "deny"),
        ("curl -L https://api.example.com/v1", "deny"),
        ("", "deny"),
    ],
)
def test_every_program_of_a_command_needs_its_own_permission(root: Path, command: str, decision: str) -> None:
    permissions = rules(root)

    assert decide(permissions, "bash", command) == decision


@pytest.mark.parametrize("path", ["a.txt", "./src/../a.txt", "new/file.txt", "code/main.py"])
def test_paths_inside_the_root_are_allowed(root: Path, path: str) -> None:
    assert decide(rules(root), "read", path) == "allow"


@pytest.mark.parametrize(
    "path",
    [
        *(
            "../secret",
            "leak",
            "~/secret",
            "%2e%2e/secret",
            "%252e%252e/secret",
            "..\\secret",
            "．．/secret",
            "a\0b",
        ),
        *(
            "/proc/self/cwd/a.txt",
            "C:\\a.txt",
            "\\\\host\\share",
            "$HOME/x",
            "file:///etc/passwd",
            "//etc/passwd",
        ),
    ],
)
def test_paths_that_lead_or_may_lead_outside_are_not(root: Path, path: str) -> None:
    assert decide(rules(root), "read", path) == "deny"


@pytest.mark.parametrize(
    ("url", "decision"),
    [
        ("https://api.example.com/v1/items?q=1", "allow"),
        ("https://en.wiki.org/x", "allow"),
        ("https://api.example.com:443/v1", "allow"),
        ("http://api.example.com/v1", "deny"),
        ("https://api.example.com/v2", "deny"),
        ("https://api.example.com/v1/../v2", "deny"),
        ("https://api.example.com@evil.org/v1", "deny"),
        ("https://аpi.example.com/v1", "deny"),
        ("https://api.example.com:444/v1", "deny"),
        ("https://wiki.org.evil.org/", "deny"),
    ],
)
def test_urls_are_matched_by_what_every_client_would_ask(root: Path, url: str, decision: str) -> None:
    assert decide(rules(root), "fetch", url) == decision


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "2130706433", "0x7f.1", "[::ffff:10.0.0.1]", "localhost", "169.254.169.254"]
)
def test_a_wildcard_allows_no_private_host_and_a_pattern_that_names_it_does(root: Path, host: str) -> None:
    anywhere = {"decision": "allow", "tool": "fetch", "url": ["http://*"], "reason": "the web"}

    assert decide(rules(root, anywhere), "fetch", f"http://{host}/") == "deny"

    named = {
        "decision": "allow",
        "tool": "fetch",
        "url": ["http://127.0.0.1", "http://localhost"],
        "reason": "local",
    }
    assert decide(rules(root, named), "fetch", "http://127.0.0.1/") == "allow"


@pytest.mark.parametrize(
    ("statement", "decision"),
    [
        ("SELECT name FROM t -- all\n", "allow"),
        ("WITH a AS (SELECT 1) SELECT * FROM a", "allow"),
        ("SELECT 1; DROP TABLE t", "deny"),
        ("WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a", "deny"),
        ("SELECT 'x\\' ; DROP TABLE t --'", "deny"),
        ("/*!50000 DROP TABLE t */", "deny"),
        ("SELECT load_extension('x')", "deny"),
    ],
)
def test_only_statements_of_the_named_kinds_are_allowed(root: Path, statement: str, decision: str) -> None:
    assert decide(rules(root), "query", statement) == decision


def test_the_first_rule_that_matches_decides_and_says_why(root: Path) -> None:
    ask = {"decision": "ask", "command": ["git *"], "reason": "history is shared"}
    permissions = rules(root, ask)

    decided = permissions.decide("bash", {"command": "git status"})

    assert (decided.decision, decided.rule) == ("ask", 1)
    assert "history is shared" in decided.sentence


def test_the_strictest_part_decides_the_call(root: Path) -> None:
    permissions = rules(root, {"decision": "ask", "command": ["git *"], "reason": "shared"})

    assert decide(permissions, "bash", "ls && git status") == "ask"
    assert decide(permissions, "bash", "git status && cat ../secret") == "deny"


@pytest.mark.parametrize(
    "command", ["/usr/bin/CURL x", "'curl' x", "c\\url x", "env curl x", "ls | curl x", "echo $(curl x)"]
)
def test_a_deny_rule_meets_a_program_in_whatever_dress(root: Path, command: str) -> None:
    permissions = rules(root, {"decision": "deny", "command": ["curl *"], "reason": "no network"})

    assert permissions.decide("bash", {"command": command}).rule == 1


def test_what_is_not_understood_may_be_left_to_a_person_and_is_never_allowed(root: Path) -> None:
    everything = {"decision": "allow", "command": ["*"], "path": ["/**"], "url": ["*"], "reason": "all"}

    assert decide(rules(root, everything), "bash", "cat $x") == "deny"
    assert decide(rules(root, everything, not_understood="ask", default="allow"), "bash", "cat $x") == "ask"
    assert decide(rules(root, everything), "bash", "anything /at/all") == "allow"


def test_conditions_on_arguments_hold_for_both_kinds_of_rule(root: Path) -> None:
    large = {
        "decision": "deny",
        "tool": "pay",
        "arguments": {"amount": {"at_least": 100}},
        "reason": "too much",
    }
    small = {
        "decision": "allow",
        "tool": "pay",
        "arguments": {"to": {"one_of": ["Ada", "Bo"]}},
        "reason": "known people",
    }
    permissions = rules(root, large, small)

    assert permissions.decide("pay", {"amount": 5, "to": "Ada"}).decision == "allow"
    assert permissions.decide("pay", {"amount": 500, "to": "Ada"}).rule == 1
    # A text is no number: it might be read as one, so the bound counts as met.
    assert permissions.decide("pay", {"amount": "500", "to": "Ada"}).rule == 1
    assert permissions.decide("pay", {"amount": 5, "to": "Eve"}).decision == "deny"


def test_a_deny_rule_meets_what_lies_below_a_folder_that_is_read_or_removed(root: Path) -> None:
    (root / "src" / ".env").write_text("key")
    permissions = rules(
        root,
        {"decision": "deny", "path": ["**/.env"], "reason": "secrets"},
        {"decision": "allow", "command": ["rm *"], "reason": "tidy"},
    )

    assert decide(permissions, "bash", "grep -r key src") == "deny"
    assert decide(permissions, "bash", "rm -r src") == "deny"
    assert decide(permissions, "bash", "ls -R src") == "allow"


def test_arguments_that_nobody_declared_are_looked_at(root: Path) -> None:
    permissions = Permissions(
        rules=[PermissionRule(decision="allow", tool="tidy", reason="tidy")], root=str(root)
    )

    assert permissions.decide("tidy", {"targetFile": "a.txt"}).decision == "allow"
    for arguments in (
        {"targetFile": "../secret"},
        {"options": {"outputs": ["a.txt", "../../x"]}},
        {"name": "leak"},
        {"source": "https://evil.example"},
        {"run": {"command": "cat a.txt"}},
    ):
        assert permissions.decide("tidy", arguments).decision == "deny", arguments


def test_a_rule_file_is_read_strictly(tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    with pytest.raises(NotFoundError, match="no rule file"):
        load_permissions(file)
    for text, message in [
        ("{", "cannot be read"),
        ('{"defualt": "allow"}', "'defualt'; it may have rules, default"),
        ('{"rules": [{"decision": "allow"}]}', "rule 1 has no reason"),
        ('{"rules": [{"decision": "permit", "reason": "x"}]}', "rule 1: Invalid enum value 'permit'"),
        ('{"rules": [{"decision": "allow", "reason": " "}]}', "rule 1 has no reason"),
        ('{"rules": [{"decision": "allow", "reason": "x", "url": ["http://"]}]}', "needs a host"),
    ]:
        file.write_text(text)
        with pytest.raises(InputError, match=message.replace("[", r"\[")):
            load_permissions(file)


def test_a_rule_file_may_be_toml_and_its_root_is_relative_to_it(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text('root = "project"\n[[rules]]\ndecision = "allow"\ntool = "read"\nreason = "reading"\n')

    permissions = load_permissions(file)

    assert permissions.root == os.path.realpath(tmp_path / "project")
    assert decide(permissions, "read", "x") == "allow"
    assert decide(permissions, "read", "../x") == "deny"


SHELLISH = st.text(alphabet=" \n;&|<>()$`\\\"'*?[]{}~#!=-./abcat\0\u200b", max_size=40)


@given(SHELLISH)
@example("cat <<E\n")
@example("((((")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_text_breaks_the_reader_of_shell(text: str) -> None:
    commands, problem = read_shell(text)

    assert problem or commands


@given(
    st.one_of(
        SHELLISH,
        st.text(max_size=30),
        st.binary(max_size=30).map(lambda b: b.decode("utf-8", "surrogateescape")),
    )
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_value_breaks_a_decision(root: Path, value: str) -> None:
    permissions = rules(root)

    for tool in ("bash", "read", "fetch", "query", "other"):
        assert decide(permissions, tool, value) in ("allow", "deny")
