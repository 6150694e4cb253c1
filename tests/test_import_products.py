"""What Langfuse, LangSmith, Phoenix and MLflow exported becomes runs, thumbs and rows, once and without secrets."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from captures_read import tree
from exports_read import (
    ANSWER,
    CORRECTED,
    FILES,
    FOLDER,
    QUESTION,
    exported,
    objects,
    product_of,
    write_copies,
)
from test_improve_thumbs import AGENT, PROMPT, adviser, chance_of, desk, questions, said

from whet.cli.products import FromProduct, import_product
from whet.errors import InputError, WhetError
from whet.models.fakes import ScriptedServer
from whet.record.exchange.platforms.files import records
from whet.record.store import Store
from whet.record.tables import read_table
from whet.record.tracing.dialects import form
from whet.types import Trajectory

DESK = ["agent desk", "  llm", "  tool weather", "  tool reserve", "  llm"]
SECRET = b"sk-live-9fK2qLx7VbT4mZcR8wYdQs"


def bring(product: str, *sources: Path | str, store: Path, **options: Any) -> int:
    return import_product(product, [str(source) for source in sources], store, FromProduct(**options))


def runs_of(store: Path) -> dict[str, Trajectory]:
    with Store(store) as opened:
        return {run.subject or run.id: run for run in opened.trajectories()}


@pytest.mark.parametrize("form_name", FILES)
def test_an_export_is_runs_with_steps_thumbs_scores_and_rows(form_name: str, tmp_path: Path) -> None:
    product, store = product_of(form_name), tmp_path / "runs.db"
    assert bring(product, *exported(form_name, tmp_path), store=store) == 0
    runs = runs_of(store)
    assert list(runs) == ["ada", "bob", "cleo", "dan"]
    ada, bob, dan = runs["ada"], runs["bob"], runs["dan"]
    assert [line.partition(" !")[0] for line in tree(form(ada))] == DESK
    assert (ada.task.instruction, ada.output, ada.session) == (QUESTION, ANSWER, "monday")
    calls = [step for step in ada.steps if step.kind == "llm"]
    assert [
        (step.info["model"], step.usage.prompt_tokens, step.usage.output_tokens)
        for step in calls
        if step.usage
    ] == [
        ("gpt-4o-mini", 40, 7),
        ("gpt-4o-mini", 70, 10),
    ]
    assert [call["id"] for call in calls[0].action["tool_calls"]] == ["call_21", "call_22"]
    weather, reserve = (step for step in ada.steps if step.kind == "tool")
    assert (weather.observation, weather.action) == ({"city": "Paris"}, "22 degrees in Paris")
    assert reserve.error is not None
    assert reserve.error.message == "no table at Chez Paul"
    assert "abc123" in ada.versions.values() or "r1" in ada.versions.values()
    assert ada.meta["source"] == product
    assert any("hotel" in tag for tag in ada.meta.get("tags", ["hotel"]))
    assert [(note.kind, note.value) for note in ada.feedback] == [("thumb", 1.0)]
    # Those of MLflow's folder have the same millisecond.
    down, correction = sorted(bob.feedback, key=lambda note: note.kind, reverse=True)
    assert (down.kind, down.value, down.comment) == ("thumb", -1.0, "no other place was offered")
    assert (correction.kind, correction.correction) == ("correction", CORRECTED)
    assert (ada.scores["helpful"].value, ada.scores["helpful"].reason) == (0.75, "it says both")
    assert runs["cleo"].scores["stars"].value == 2.0
    assert runs["cleo"].feedback == ()
    assert bob.meta["labels"] == {"tone": "curt"}
    assert dan.error is not None
    assert "no such place: Atlantis" in dan.error.message
    assert dan.output is None
    with Store(store) as opened:
        tasks = {task.instruction: task for task in opened.tasks()}
    assert (tasks[QUESTION].answer, tasks[QUESTION].group) == (CORRECTED, "paris")
    assert tasks["Is breakfast included?"].answer == "Yes, until ten."
    assert not tasks["Who are you?"].answer_known


@pytest.mark.parametrize("form_name", ["langfuse", "langsmith", "phoenix", "mlflow"])
def test_no_secret_is_stored_and_a_second_import_changes_nothing(
    form_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    product, store = product_of(form_name), tmp_path / "runs.db"
    files = exported(form_name, tmp_path)
    assert any(SECRET in file.read_bytes() for file in files)
    assert bring(product, *files, store=store) == 0
    assert "redacted" in capsys.readouterr().out
    assert not any(SECRET in file.read_bytes() for file in tmp_path.glob("runs.db*"))
    assert runs_of(store)["cleo"].meta["untrainable"]
    with Store(store) as opened:
        before = (list(opened.trajectories()), list(opened.feedback()), list(opened.tasks()))
    assert bring(product, *files, store=store, json=True) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["new_runs"], report["updated_runs"], report["new_feedback"], report["new_tasks"]) == (
        0,
        0,
        0,
        0,
    )
    with Store(store) as opened:
        assert (list(opened.trajectories()), list(opened.feedback()), list(opened.tasks())) == before


def test_costs_that_a_product_states_are_the_calls_own(tmp_path: Path) -> None:
    for product in ("langfuse", "langsmith"):
        store = tmp_path / f"{product}.db"
        bring(product, *exported(product, tmp_path), store=store)
        run = runs_of(store)["ada"]
        assert run.usage.dollars == pytest.approx((110 * 0.15 + 17 * 0.6) / 1e6)


def test_a_later_score_and_a_changed_thumb_reach_a_stored_run(tmp_path: Path) -> None:
    store, files = tmp_path / "runs.db", exported("langfuse", tmp_path)
    bring("langfuse", *files, store=store)
    thumb, *others = objects("langfuse", "scores.jsonl")
    late = tmp_path / "late.jsonl"
    changed = thumb | {"value": False, "timestamp": "2027-01-01T00:00:00Z"}
    judged = others[2] | {"id": "late", "name": "polite", "source": "EVAL", "value": 0.5}
    late.write_text("\n".join(map(json.dumps, [changed, judged])))
    assert bring("langfuse", late, files[0], store=store) == 0
    ada = runs_of(store)["ada"]
    assert [note.value for note in ada.feedback] == [1.0, -1.0]  # the last one counts
    assert {name: score.value for name, score in ada.scores.items()} == {"helpful": 0.75, "polite": 0.5}


def test_a_broken_line_is_told_by_its_number_and_the_others_are_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (FOLDER / "langfuse" / "observations.jsonl").read_text().splitlines()
    first = json.loads(lines[0]) | {"moodRing": "blue"}
    broken = tmp_path / "observations.jsonl"
    broken.write_text("\n".join([json.dumps(first), '{"id": "cut', '{"colour": 3}', *lines[1:]]))
    code = bring("langfuse", broken, store=tmp_path / "runs.db")
    out, err = capsys.readouterr()
    assert code == 1
    assert "4 runs recorded" in out
    assert "fields that are not read: moodRing (1)" in out
    assert f"not read: {broken}, line 2: not JSON" in err
    assert f"not read: {broken}, line 3: nothing of langfuse has the fields colour" in err


def test_people_sessions_and_tags_may_be_numbers(tmp_path: Path) -> None:
    lines = (FOLDER / "langsmith" / "runs.jsonl").read_text()
    changed = lines.replace('"user_id": "ada"', '"user_id": 41').replace(
        '"thread_id": "monday"', '"thread_id": 7'
    )
    assert changed != lines
    (tmp_path / "runs.jsonl").write_text(changed)
    assert bring("langsmith", tmp_path / "runs.jsonl", store=tmp_path / "runs.db") == 0
    with Store(tmp_path / "runs.db") as store:
        assert ("41", "7") in {(run.subject, run.session) for run in store.trajectories()}


def test_a_scale_becomes_thumbs_only_where_a_person_says_so_and_a_judge_never(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    bring("langfuse", *exported("langfuse", tmp_path), store=store, thumbs=("stars>=4",))
    assert [note.value for note in runs_of(store)["cleo"].feedback] == [-1.0]
    (note,) = [note for note in objects("langfuse", "scores.jsonl") if note["name"] == "stars"]
    verdict = tmp_path / "verdict.jsonl"
    verdict.write_text(
        json.dumps(note | {"name": "user-happy", "source": "EVAL", "dataType": "BOOLEAN", "value": True})
    )
    judged = tmp_path / "judged.db"
    bring("langfuse", verdict, FOLDER / "langfuse" / "observations.jsonl", store=judged)
    cleo = runs_of(judged)["cleo"]
    assert (cleo.feedback, cleo.scores["user-happy"].value) == ((), 1.0)


def test_a_folder_and_gzipped_files_in_the_names_of_the_blob_export_are_read(tmp_path: Path) -> None:
    import gzip
    import re

    def snake(row: dict[str, Any]) -> dict[str, Any]:
        return {
            re.sub(r"([A-Z])", lambda match: f"_{match[1].lower()}", name): value
            for name, value in row.items()
        }

    for name in ("observations", "scores"):
        (tmp_path / "export" / name).mkdir(parents=True)
        rows = [json.dumps(snake(row)) for row in objects("langfuse", f"{name}.jsonl")]
        (tmp_path / "export" / name / "one.jsonl.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    assert bring("langfuse", tmp_path / "export", store=tmp_path / "runs.db") == 0
    assert [note.value for note in runs_of(tmp_path / "runs.db")["ada"].feedback] == [1.0]


def test_a_score_of_a_run_that_names_neither_trace_nor_parent_reaches_the_root_of_its_trace(
    tmp_path: Path,
) -> None:
    runs, notes = (objects("langsmith", name) for name in ("runs.jsonl", "feedback.jsonl"))
    roots = [row["id"] for row in runs if row["id"] == row["trace_id"]]
    judged = [note | {"trace_id": None, "run_id": roots[0], "id": "root"} for note in notes[:1]]
    file = tmp_path / "notes.jsonl"
    file.write_text("\n".join(map(json.dumps, judged)))
    late, together = tmp_path / "late.db", tmp_path / "together.db"
    bring("langsmith", FOLDER / "langsmith" / "runs.jsonl", file, store=together)
    bring("langsmith", FOLDER / "langsmith" / "runs.jsonl", store=late)
    bring("langsmith", file, store=late)
    opinions = []
    for path in (together, late):
        with Store(path) as store:
            opinions.append([(note.run, note.kind, note.value) for note in store.feedback()])
    assert opinions[0] == opinions[1] == [(opinions[0][0][0], "thumb", 1.0)]


def test_an_array_is_read_member_by_member_up_to_where_it_is_broken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = objects("langfuse", "observations.jsonl")
    rows[0]["input"] = "é" * 100_000  # longer than what is read at once
    whole, cut = tmp_path / "whole.json", tmp_path / "cut.json"
    text = json.dumps(rows, ensure_ascii=False, indent=1)
    whole.write_text(f"\ufeff {text}", "utf-8")
    cut.write_text(text[:-60], "utf-8")
    assert bring("langfuse", whole, store=tmp_path / "whole.db") == 0
    assert list(runs_of(tmp_path / "whole.db")) == ["ada", "bob", "cleo", "dan"]
    assert bring("langfuse", cut, store=tmp_path / "cut.db") == 1
    assert f"not read: {cut}, number {len(rows)}: not JSON" in capsys.readouterr().err
    assert list(runs_of(tmp_path / "cut.db")) == ["ada", "bob", "cleo", "dan"]


def copies(traces: int) -> list[str]:
    """The first observations of an export, of each trace the root and forty within it."""
    root, inner = objects("langfuse", "observations.jsonl")[:2]
    return [
        json.dumps(row | {"traceId": f"{number:032x}", "id": f"{row['id']}-{copy}"})
        for number in range(traces)
        for copy, row in enumerate([root | {"id": inner["parentObservationId"]}, *[inner] * 40])
    ]


IMPORT = """
import sys
from pathlib import Path
from whet.cli.products import FromProduct, import_product

assert import_product("langfuse", sys.argv[1:2], Path(sys.argv[2]), FromProduct()) == 0
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="says no peak of its memory")
def test_an_import_takes_no_more_memory_for_a_larger_file(tmp_path: Path) -> None:
    def peak(traces: int) -> int:
        """Kilobytes."""
        file = tmp_path / f"{traces}.jsonl"
        file.write_text("\n".join(copies(traces)))
        words = [sys.executable, "-c", IMPORT, str(file), str(tmp_path / f"{traces}.db")]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
        assert f"{traces:,} runs recorded" in done.stdout
        return int(done.stdout.splitlines()[-1])

    # The caches of the two databases fill at first; all spans at once were 80 MB more.
    assert peak(900) < peak(300) + 40_000


def test_a_large_array_is_never_held_whole(tmp_path: Path) -> None:
    import tracemalloc

    file = tmp_path / "array.json"
    file.write_text(f"[{','.join(copies(100))}]")
    tracemalloc.start()
    number = sum(1 for record in records(file) if record.object)
    (_, most) = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert number == 4_100
    assert most < file.stat().st_size / 4


@pytest.mark.parametrize("product", ["langfuse", "langsmith", "phoenix", "mlflow"])
def test_imported_thumbs_and_rows_are_what_improve_goes_by(
    product: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from whet.cli.thumbed import ThumbOptions, ThumbRun, improve_agent_file

    store = tmp_path / "runs.db"
    asked = [
        (f"person-{n % 5}", f"Where is order {4000 + n}?", "It is on its way.", n % 3 == 0) for n in range(12)
    ]
    assert bring(product, *write_copies(product, asked, tmp_path), store=store) == 0
    (tmp_path / "desk.py").write_text(AGENT)
    capsys.readouterr()
    run = ThumbRun(
        target=str(tmp_path / "desk.py"), store=store, model=None, base_url=None, alpha=0.05, regime="new-group",
        seed=0, output=tmp_path / "out", release=False, dry_run=True, json=False,
    )  # fmt: skip
    improve_agent_file(run, ThumbOptions())
    assert (
        "12 recorded runs; 4 thumbs up and 8 down of 5 people on 12 different inputs"
        in capsys.readouterr().out
    )
    bring(product, *exported(product, tmp_path)[-1:], store=store)
    table = read_table(store)
    assert [(row["input"], row["expected"], row["group"]) for _, row in table.lines if row["group"]] == [
        (QUESTION, CORRECTED, "paris")
    ]


@pytest.mark.parametrize("product", ["langfuse", "langsmith", "phoenix", "mlflow"])
def test_from_an_export_to_a_prompt_that_is_proven(product: str, tmp_path: Path) -> None:
    from test_improve_thumbs import improve

    answers = [
        (person, question, *said(PROMPT, question, chance_of(PROMPT, question)))
        for person, question in questions(3)
    ]
    bring(product, *write_copies(product, answers, tmp_path, prompt=PROMPT), store=tmp_path / "runs.db")
    (tmp_path / "desk.py").write_text(AGENT)
    with ScriptedServer(desk) as agent, ScriptedServer(adviser) as proposer:
        code, out, err = improve(tmp_path, (agent, proposer), "--reflections", "12")
    assert code == 0, f"{out}\n{err}"
    assert "240 recorded runs" in out
    assert "proven better" in out


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(address.query).items()}
        self._answer(*self.server.answer(address.path, query, self.headers))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self._answer(*self.server.answer(urlsplit(self.path).path, body, self.headers))

    def _answer(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(answer: Any) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.answer = answer  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Langfuse:
    """The reading API of Langfuse over the exported objects; the second page is out of order as often as `busy`."""

    def __init__(self, busy: int = 0) -> None:
        self.busy = busy
        self.asked: list[tuple[str, str]] = []
        self.keys: set[str] = set()

    def answer(self, path: str, query: dict[str, str], headers: Any) -> tuple[int, Any]:
        self.keys.add(headers["authorization"])
        names = {
            "observations": "observations.jsonl",
            "scores": "scores.jsonl",
            "score-configs": "score_configs.jsonl",
            "dataset-items": "dataset_items.jsonl",
        }
        rows = objects("langfuse", names[path.rpartition("/")[2]])
        start = int(query.get("cursor") or 0)
        self.asked.append((path, query.get("cursor", "")))
        if start and self.busy:
            self.busy -= 1
            return 429, {"message": "slower"}
        size = 6
        return 200, {
            "data": rows[start : start + size],
            "meta": {"cursor": str(start + size) if rows[start + size :] else None},
        }


@pytest.fixture
def langfuse_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk-1")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk-1")


@pytest.mark.usefixtures("langfuse_keys")
def test_a_server_is_read_page_by_page_and_waited_for_where_it_is_too_busy(tmp_path: Path) -> None:
    api = Langfuse(busy=2)
    with serving(api.answer) as url:
        assert bring("langfuse", url, store=tmp_path / "runs.db") == 0
    assert list(runs_of(tmp_path / "runs.db")) == ["ada", "bob", "cleo", "dan"]
    assert [cursor for path, cursor in api.asked if path.endswith("observations")] == [
        "",
        "6",
        "6",
        "6",
        "12",
    ]
    assert api.keys == {"Basic cGstMTpzay0x"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs.db", "runs.db.lock"]


@pytest.mark.usefixtures("langfuse_keys")
def test_an_import_that_was_cut_off_goes_on_from_the_page_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whet.record.exchange.platforms import fetch

    monkeypatch.setattr(fetch, "ATTEMPTS", 2)
    api = Langfuse(busy=2)
    with serving(api.answer) as url:
        with pytest.raises(WhetError, match="run the same command again"):
            bring("langfuse", url, store=tmp_path / "runs.db")
        (pages,) = tmp_path.glob("runs.db.import-*")
        assert pages.stat().st_mode & 0o077 == 0
        api.asked.clear()
        assert bring("langfuse", url, store=tmp_path / "runs.db") == 0
    assert api.asked[0][1] == "6"
    assert len(runs_of(tmp_path / "runs.db")) == 4
    assert not list(tmp_path.glob("runs.db.import-*"))


def test_a_secret_does_not_reach_the_pages_that_are_kept(tmp_path: Path, langfuse_keys: None) -> None:
    from whet.record.exchange.platforms.fetch import Api

    with serving(Langfuse().answer) as url:
        api = Api(url, {"authorization": "none"}, tmp_path / "pages")
        rows = list(api.rows("/api/public/v2/observations", at="data", cursor="meta.cursor"))
        api.close()
    assert SECRET.decode() in json.dumps(objects("langfuse", "observations.jsonl"))
    assert SECRET not in (tmp_path / "pages").read_bytes()
    assert SECRET.decode() not in json.dumps(rows)
    assert api.redacted


def test_a_missing_key_and_an_unnamed_project_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LANGFUSE_PUBLIC_KEY", raising=False)
    monkeypatch.delenv("LANGFUSE_SECRET_KEY", raising=False)
    with pytest.raises(
        InputError, match="LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY must be in the environment"
    ):
        bring("langfuse", "http://127.0.0.1:9", store=tmp_path / "runs.db")

    def projects(path: str, query: dict[str, str], headers: Any) -> tuple[int, Any]:
        return 200, {"data": [{"id": "1", "name": "desk"}, {"id": "2", "name": "lab"}], "next_cursor": None}

    with (
        serving(projects) as url,
        pytest.raises(InputError, match="name one with --project; the server has desk, lab"),
    ):
        bring("phoenix", url, store=tmp_path / "runs.db")
    assert not (tmp_path / "runs.db").exists()


def test_a_rating_of_one_star_alone_is_not_taken_for_a_thumb_up(tmp_path: Path) -> None:
    (note,) = [note for note in objects("langfuse", "scores.jsonl") if note["name"] == "stars"]
    stars = tmp_path / "stars.jsonl"
    observations = FOLDER / "langfuse" / "observations.jsonl"
    one = note | {"name": "user-rating", "source": "API", "dataType": "NUMERIC", "value": 1}
    stars.write_text(json.dumps(one))
    bring("langfuse", stars, observations, store=tmp_path / "one.db")
    cleo = runs_of(tmp_path / "one.db")["cleo"]
    assert (cleo.feedback, cleo.scores["user-rating"].value) == ((), 1.0)
    bring("langfuse", stars, observations, store=tmp_path / "said.db", thumbs=("user-rating>=4",))
    assert [note.value for note in runs_of(tmp_path / "said.db")["cleo"].feedback] == [-1.0]
    stars.write_text(json.dumps(one | {"name": "thumb"}))
    bring("langfuse", stars, observations, store=tmp_path / "thumb.db")
    assert [note.value for note in runs_of(tmp_path / "thumb.db")["cleo"].feedback] == [1.0]


@pytest.mark.parametrize("product", ["langfuse", "langsmith"])
def test_a_rating_is_its_share_of_the_scale_that_the_product_declares(
    product: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bring(product, *exported(product, tmp_path), store=tmp_path / "runs.db")
    said_of_it = capsys.readouterr().out
    assert "rating is declared from 1 to 5, and recorded as its share of that, in 0 to 1" in said_of_it
    rating = runs_of(tmp_path / "runs.db")["bob"].scores["rating"]
    assert (rating.value, rating.reason) == (0.75, "4 on a scale from 1 to 5; nearly")
    assert runs_of(tmp_path / "runs.db")["cleo"].scores["stars"].value == 2.0, "nothing declares its scale"


@pytest.mark.parametrize("product", ["langfuse", "langsmith"])
@pytest.mark.parametrize(("value", "share"), [(1, 0.0), (5, 1.0), (6, None), (0.5, None)])
def test_a_rating_outside_of_its_scale_is_told_and_the_lowest_one_is_no_thumb(
    product: str, value: float, share: float | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"langfuse": ("scores.jsonl", "value"), "langsmith": ("feedback.jsonl", "score")}
    name, field = names[product]
    changed = tmp_path / name
    rows = [
        row | ({field: value} if row.get("name", row.get("key")) == "rating" else {})
        for row in objects(product, name)
    ]
    changed.write_text("\n".join(map(json.dumps, rows)))
    files = [changed if path.name == name else path for path in exported(product, tmp_path)]
    bring(product, *files, store=tmp_path / "runs.db")
    bob = runs_of(tmp_path / "runs.db")["bob"]
    assert [note.value for note in bob.feedback if note.kind == "thumb"] == [-1.0]
    if share is None:
        assert "rating" not in bob.scores
        assert "left out: 1 x rating that is not from 1 to 5, as it is declared" in capsys.readouterr().out
    else:
        assert bob.scores["rating"].value == share


def test_a_file_store_of_mlflow_2_is_read_and_its_trash_and_other_runs_are_not(tmp_path: Path) -> None:
    mlruns = tmp_path / "project" / "mlruns"
    span = {
        "name": "desk",
        "context": {"span_id": "d32b09d03327c10c", "trace_id": "55291a885ac8ec1508857963ae10bac3"},
        "parent_id": None,
        "start_time": 1795562210553133921,
        "end_time": 1795562210558747652,
        "status_code": "ERROR",
        "status_message": "ValueError: no such room",
        "attributes": {"mlflow.spanType": '"AGENT"', "mlflow.spanInputs": '{"q": "bad"}'},
        "events": [],
    }
    for experiment, name in (("181", "a4d8"), (".trash/182", "b5e9")):
        trace = mlruns / experiment / "traces" / name
        (trace / "artifacts").mkdir(parents=True)
        (trace / "artifacts" / "traces.json").write_text(json.dumps({"spans": [span]}))
        (trace / "trace_info.yaml").write_text("request_id: a4d8\nstatus: ERROR\nassessments: []\n")
        (trace / "tags").mkdir()
        (trace / "tags" / "mlflow.artifactLocation").write_text("file:///etc")
        (trace / "tags" / "desk").write_text("hotel")
    (mlruns / "181" / "36f8" / "artifacts").mkdir(parents=True)
    (mlruns / "181" / "36f8" / "artifacts" / "table.json").write_text("[1]")
    for folder in (mlruns.parent, mlruns / "181"):
        store = tmp_path / f"{folder.name}.db"
        assert bring("mlflow", folder, store=store) == 0
        (run,) = runs_of(store).values()
        assert run.error is not None
        assert (run.error.type, run.error.message) == ("ValueError", "no such room")
        assert run.meta["tags"] == ["desk=hotel"]
