"""An agent reads its prompt from a file: found by what was recorded, improved by thumbs, written where it stands."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from commands import whet as whet_command
from test_improve_thumbs import PROMPT, RULES, improve, people_ask, record, servers

from whet.errors import InputError
from whet.learn.evolution.delivering import source_patch
from whet.models.fakes import ScriptedServer
from whet.record.store import Store
from whet.repository.modules import Repository
from whet.repository.prompt_files import file_prompts, text_in, with_text
from whet.types import Bundle, Version

__all__ = ["record", "servers"]

Servers = tuple[ScriptedServer, ScriptedServer]
BESIDE = "Path(__file__).with_name"


def reads(folder: Path, expression: str) -> None:
    """The agent reads its prompt, by an expression, when it is called."""
    desk = folder / "desk.py"
    text = desk.read_text().replace(f'SYSTEM_PROMPT = "{PROMPT}"', "from pathlib import Path")
    desk.write_text(text.replace("SYSTEM_PROMPT", expression))


def applied(folder: Path) -> None:
    """The patch is taken by git in the folder."""
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    subprocess.run(["git", "apply", "whet_output/agent.patch"], cwd=folder, check=True)


def test_a_prompt_in_a_text_file_is_found_proven_live_and_patched(record, servers: Servers) -> None:  # type: ignore[no-untyped-def]
    folder = record()
    (folder / "prompts").mkdir()
    (folder / "prompts" / "system.md").write_text(f"---\nmodel: small\n---\n{PROMPT}\n")
    (folder / "prompts" / "note.md").write_text("You sort the letters of a ministry, one by one.\n")
    reads(folder, f'{BESIDE}("prompts").joinpath("system.md").read_text().split("---")[-1].strip()')
    code, out, err = improve(folder, servers, "--release", "--reflections", "12")
    assert code == 0, f"{out}\n{err}"
    assert f"prompts/system.md can change ({len(PROMPT)} characters); desk:answer answers under it" in out
    assert "prompts/system.md is a file whose text 240 of 240 recorded system prompts hold" in out
    assert "note.md" not in out
    assert "proven better, and live at the gateway" in out
    report = json.loads((folder / "whet_output" / "verdict.json").read_text())
    assert sum(rule in report["after"] for rule in RULES.values()) >= 2
    assert people_ask(folder, servers[0]) == {report["after"]}
    # What was released has its place: the next search begins with it.
    code, plan, err = improve(folder, servers, "--dry-run")
    assert code == 0, f"{plan}\n{err}"
    assert "the gateway serves a released prompt in its place" in plan
    assert whet_command("rollback", "--store", "runs.db", folder=folder).returncode == 0
    applied(folder)
    written = (folder / "prompts" / "system.md").read_text()
    assert written == f"---\nmodel: small\n---\n{report['after'].strip()}\n"


def test_constants_that_no_name_tells_are_found_by_what_was_sent(record, servers: Servers) -> None:  # type: ignore[no-untyped-def]
    """The prompt is put together from constants of another module, one of a class; another was never sent."""
    manner = "Be brief, and be polite."
    folder = record(prompt=f"{PROMPT}\n\n{manner}")
    unsent = "You write a newsletter for the customers of a shop, once a month."
    (folder / "texts.py").write_text(
        f"class Clerk:\n    role: str = {PROMPT!r}\n\n\nMANNER = {manner!r}\nMONTHLY = {unsent!r}\n"
    )
    reads(folder, '__import__("texts").Clerk().role + "\\n\\n" + __import__("texts").MANNER')
    code, out, err = improve(folder, servers, "--release", "--reflections", "16")
    assert code == 0, f"{out}\n{err}"
    assert f"texts:Clerk.role can change ({len(PROMPT)} characters)" in out
    assert "not changed: desk:GREETING_PROMPT, texts:MANNER" in out
    assert "texts:MONTHLY" not in out
    assert "proven better, and live at the gateway" in out
    report = json.loads((folder / "whet_output" / "verdict.json").read_text())
    (served,) = people_ask(folder, servers[0])
    assert served == f"{report['after']}\n\n{manner}"


YAML = """# how the desk answers
model: scripted
system: |  # read at every call
  You help {who} at the desk.
  Be of use to everybody who asks there.
retries: 3
"""


def test_a_template_under_a_key_of_yaml_goes_live_by_the_passages_between_its_places(
    record, servers: Servers
) -> None:  # type: ignore[no-untyped-def]
    sent = "You help Ann at the desk.\nBe of use to everybody who asks there.\n"
    folder = record(prompt=sent)
    (folder / "agent.yaml").write_text(YAML)
    load = f'__import__("yaml").safe_load({BESIDE}("agent.yaml").read_text())["system"].format(who="Ann")'
    reads(folder, load)
    code, out, err = improve(folder, servers, "--release", "--reflections", "12", "--seed", "2")
    assert code == 0, f"{out}\n{err}"
    assert "agent.yaml:system can change" in out
    assert "proven better, and live at the gateway" in out
    report = json.loads((folder / "whet_output" / "verdict.json").read_text())
    assert "{who}" in report["after"]
    with Store(folder / "runs.db") as store:
        live = store.live()
        assert live is not None
        assert list(live["gateway.system_prompt"].content) == ["passages"]
    (served,) = people_ask(folder, servers[0])
    assert served.strip() == report["after"].replace("{who}", "Ann")
    assert whet_command("rollback", "--store", "runs.db", folder=folder).returncode == 0
    bundle = Bundle([Version(resource="agent.yaml:system", content=report["after"], kind="program")])
    delivered = source_patch(folder, bundle)
    assert (delivered.text, delivered.unplaced) == (report["diff"], [])
    applied(folder)
    assert people_ask(folder, servers[0]) == {served}
    assert (
        (folder / "agent.yaml").read_text().startswith("# how the desk answers\nmodel: scripted\nsystem: |")
    )


def test_of_two_files_with_one_text_the_one_that_the_source_names_is_taken_or_nobody_guesses(  # type: ignore[no-untyped-def]
    record, servers: Servers
) -> None:
    folder = record()
    for name in ("first.txt", "second.txt"):
        (folder / name).write_text(PROMPT)
    reads(folder, f'{BESIDE}(os.environ["PROMPT_NAME"]).read_text()')
    code, _, err = improve(folder, servers, "--dry-run")
    assert code == 2
    assert "stands in first.txt and in second.txt alike" in err
    assert "--prompt first.txt" in err
    code, out, _ = improve(folder, servers, "--dry-run", "--prompt", "second.txt")
    assert code == 0
    assert "second.txt can change" in out
    desk = folder / "desk.py"
    desk.write_text(desk.read_text().replace('os.environ["PROMPT_NAME"]', '"second.txt"'))
    code, out, _ = improve(folder, servers, "--dry-run")
    assert code == 0
    assert "the same text stands in first.txt, which stays: the source reads second.txt" in out
    desk.write_text(desk.read_text() + f'\nFALLBACK_PROMPT = "{PROMPT}"\n')
    code, _, err = improve(folder, servers, "--dry-run")
    assert code == 2
    assert "second.txt and in desk:FALLBACK_PROMPT" in err
    assert [server.requests for server in servers] == [[], []]


LONGER = "- State 'units' with \"care\": é\n- Of C:\\x # say {nothing}"


@pytest.mark.parametrize("more", [" Be brief.", f"\n{LONGER}"])
@pytest.mark.parametrize(
    ("name", "key", "text"),
    [
        ("a.txt", "", "You help at the desk."),
        ("a.md", "", "---\nmodel: x\n---\n\nYou help at the desk.\n"),
        ("a.yaml", "system", "system: You help at the desk.  # why\nversion: 3\n"),
        (
            "a.yaml",
            "a.0.system",
            "a:\n  - system: |\n      You help\n      at the desk.\n\n  # why\n  - x: !hidden y\n",
        ),
        ("a.yaml", "system", "system: >-\n  You help\n  at the desk.\nlist: [yes, 1]\n"),
        ("a.yml", "system", "copy: &one 'It''s you at the desk'\nsystem: 'It''s you at the door'\n"),
        ("a.yaml", "l.1.p", 'l: [a, {p: "You help at the\\ndesk"}]\n'),
        ("a.toml", "agent.system", '[agent]\nsystem = "You help at the desk." # why\nn = 3\n'),
        ("a.toml", "system", "system = '''\nYou help\nat the desk.\n'''\nlist = ['a', \"b\"]\n"),
        ("a.toml", "system", 'system = """You help \\\n  at the desk."""\n'),
        ("a.json", "a.1.system", '{"a": [1, {"system": "You help at the desk.", "other": "You help."}]}\n'),
    ],
)
def test_a_text_is_written_in_the_format_of_its_file_and_nothing_else_changes(
    name: str, key: str, text: str, more: str
) -> None:
    new = text_in(name, text, key) + more
    changed = with_text(name, text, key, new)
    assert text_in(name, changed, key) == new
    # And back: what stands around it was kept.
    again = with_text(name, changed, key, text_in(name, text, key))
    assert text_in(name, again, key) == text_in(name, text, key)
    for line in (
        "version: 3",
        "# why\n",
        "list: [yes, 1]",
        "copy: &one 'It''s you at the desk'",
        "n = 3",
        "!hidden y",
    ):
        assert (line in text) == (line in changed)


def test_a_text_that_two_keys_share_is_not_written_for_one_of_them() -> None:
    text = "system: &it You help at the desk.\nother: *it\n"
    with pytest.raises(InputError, match="cannot be replaced there without a change of something else"):
        with_text("a.yaml", text, "system", "Another text, for one of them.")


def test_files_that_cannot_be_read_are_told_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "latin.txt").write_bytes("Grüße an alle Leute im Lande".encode("latin-1"))
    (tmp_path / "two.yaml").write_text("--- \na: 1\n--- \nb: 2\n")
    (tmp_path / "good.txt").write_text("You help at the desk of a shop.")
    repository = Repository(tmp_path)
    assert [prompt.path for prompt in file_prompts(repository, lambda text: True)] == ["good.txt"]
    assert repository.problems.keys() == {"broken.json", "latin.txt", "two.yaml"}
