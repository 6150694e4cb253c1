"""The store as a record: exact, idempotent, atomic, searchable."""

from __future__ import annotations

import contextlib
import math
import os
import random
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.errors import InputError, NotFoundError, StoreError, StoreVersionError
from whet.record.store import Store
from whet.record.store.codec import decode, encode, recordable
from whet.record.store.schema import KEPT, LENGTHS, OF_RUNS, TABLES, listed, migrate, portions
from whet.types import (
    Bundle,
    Failure,
    Fault,
    Feedback,
    Outcome,
    Preference,
    Rollout,
    Score,
    Split,
    Step,
    Task,
    Tokens,
    Trajectory,
    Usage,
    Version,
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
integer = st.integers()
number = st.floats(allow_nan=False, allow_infinity=False)
json = st.recursive(
    st.none() | st.booleans() | integer | number | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
table = st.dictionaries(text, json, max_size=2)
ids = st.lists(st.integers(0, 50_000), max_size=4).map(tuple)
tokens = st.builds(
    Tokens,
    ids,
    ids,
    st.lists(number, max_size=4).map(tuple),
    st.none() | st.lists(st.booleans(), max_size=4).map(tuple),
    st.none() | text,
)
failures = st.builds(Failure, st.sampled_from(Fault), text, text)
steps = st.builds(
    Step,
    observation=json,
    action=json,
    reward=st.none() | number,
    done=st.booleans(),
    kind=text,
    id=text,
    parent=st.none() | text,
    tokens=st.none() | tokens,
    usage=st.none() | st.builds(Usage, integer, integer, number, integer),
    latency=st.none() | number,
    error=st.none() | failures,
    info=table,
)
scores = st.builds(Score, text, st.none() | number, text, text)
said = st.builds(Feedback, run=text, value=st.none() | number, correction=json, step=st.none() | text)
tasks = st.builds(
    Task,
    instruction=text,
    initial_state=table,
    answer=json,
    split=st.none() | st.sampled_from(Split),
    meta=table,
)
trajectories = st.builds(
    Trajectory,
    task=tasks,
    steps=st.lists(steps, max_size=3).map(tuple),
    output=json,
    versions=st.dictionaries(text, text, max_size=2),
    scores=st.dictionaries(text, scores, max_size=2),
    feedback=st.lists(said, max_size=2).map(tuple),
    outcome=st.sampled_from(Outcome),
    error=st.none() | failures,
    trace_ids=st.lists(text, max_size=2).map(tuple),
    seed=st.none() | integer,
    seconds=st.none() | number,
    meta=table,
)


@settings(max_examples=60)
@given(trajectories)
def test_a_trajectory_comes_back_from_its_bytes_exactly(trajectory: Trajectory) -> None:
    assert decode(encode(trajectory), Trajectory) == trajectory


def simple(id: str = "", **fields: object) -> Trajectory:
    made = Trajectory(task=Task(instruction="when?"), output="noon", **fields)  # type: ignore[arg-type]
    return replace(made, id=id) if id else made


def test_a_missing_score_stays_none_and_a_log_probability_without_a_value_is_nan() -> None:
    step = Step(tokens=Tokens((1,), (2, 3), (-math.inf, -0.5)), reward=math.nan)
    trajectory = simple(steps=(step,), scores={"judge": Score("judge", None)})
    with Store(":memory:") as store:
        store.put(trajectory)
        back = store.trajectory(trajectory.id)
    assert back.scores["judge"].value is None
    assert back.steps[0].reward is None
    assert back.steps[0].tokens is not None
    assert math.isnan(back.steps[0].tokens.logprobs[0])
    assert back.steps[0].tokens.logprobs[1] == -0.5


def test_usage_that_lacks_a_count_is_refused_and_a_record_that_holds_it_can_be_read() -> None:
    step = Step(usage=Usage(prompt_tokens=None, output_tokens=3))  # type: ignore[arg-type]
    counted = simple(steps=(Step(usage=Usage(5, 3)),))
    with Store(":memory:") as store:
        with pytest.raises(InputError, match=r"step 1 is Usage\(prompt_tokens=None"):
            store.put(simple(steps=(Step(), step)))
        store.put(counted)
        assert [run.id for run in store.trajectories()] == [counted.id]
    written = encode(counted).replace(b'"prompt_tokens":5', b'"prompt_tokens":null')
    assert decode(written, Trajectory).steps[0].usage is None
    assert recordable(simple(steps=(step, counted.steps[0]))).usage == Usage(5, 3)


@pytest.mark.parametrize("value", [object(), {1: object()}, "\ud800"])
def test_what_json_cannot_carry_is_refused_and_nothing_is_recorded(value: object) -> None:
    with Store(":memory:") as store:
        with pytest.raises(InputError, match="cannot be stored"):
            store.put(simple(), simple(meta={"x": value}))
        assert store.counts()["trajectories"] == 0


def test_putting_twice_records_once_and_replace_overwrites(tmp_path: Path) -> None:
    first = simple("one")
    judged = replace(first, outcome=Outcome.SUCCESS).scored(Score("exact", 1.0))
    with Store(tmp_path / "runs.db") as store:
        store.put(first, first, experiment="a")
        store.put(judged)
        assert list(store.trajectories()) == [first]
        store.put(judged, replace=True)
        assert list(store.trajectories(experiment="a", outcome=Outcome.SUCCESS)) == [judged]


def test_of_one_batch_the_last_that_replaces_stands_and_what_was_before_is_a_revision() -> None:
    first, other = simple("one"), simple("two")
    judged = replace(first, outcome=Outcome.SUCCESS)
    with Store(":memory:") as store:
        with store.batch() as batch:
            batch.put(first)
            batch.put(judged, replace=True)
            batch.put(replace(first, outcome=Outcome.FAILURE), other)
        assert list(store.trajectories()) == [judged, other]
        assert store.revisions("one") == [first]


def test_trajectories_are_found_by_experiment_id_run_time_and_outcome_in_order(tmp_path: Path) -> None:
    made = [
        simple(
            f"t{n:04}",
            started=float(n),
            outcome=Outcome.SUCCESS if n % 2 else Outcome.FAILURE,
            meta={"run": f"run{n // 3}"},
        )
        for n in range(1_200)  # more than two pages
    ]
    with Store(tmp_path / "runs.db") as store:
        store.put(*made[:600], experiment="a")
        store.put(*made[600:], experiment="b")
        assert list(store.trajectories()) == made
        assert list(store.trajectories(experiment="b")) == made[600:]
        assert list(store.trajectories(ids=["t0003", "t0001"])) == [made[1], made[3]]
        assert list(store.trajectories(ids=["run2"])) == made[6:9]
        assert list(store.trajectories(since=1_190.0)) == made[1_190:]
        assert list(store.trajectories(outcome=Outcome.SUCCESS, limit=501)) == made[1::2][:501]
        assert list(store.trajectories(limit=0)) == []
        counts = store.counts()
        assert (counts["trajectories"], counts["trajectories.success"]) == (1_200, 600)
        assert (store.count("trajectories"), store.count("spans")) == (1_200, counts["spans"])
        with pytest.raises(InputError, match="no table"):
            store.count("secrets")
        with pytest.raises(NotFoundError):
            store.trajectory("t9")


def test_more_rows_than_one_statement_takes_are_all_written_in_their_order(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        rollouts = [Rollout(id=f"r{n}", task=Task(instruction=f"{n}")) for n in range(120)]
        store.add_rollouts(rollouts[70], *rollouts, rollouts[3])
        leases = store.queue.claim("w", n=200).result()
        assert [each.rollout.id for each in leases] == ["r70", *(f"r{n}" for n in range(120) if n != 70)]
        assert store.count("rollouts") == store.count("tasks") == 120
        runs = [Trajectory(task=Task(instruction="x"), id=f"t{n}", output=n, started=1.0) for n in range(120)]
        store.put(*runs)
        store.put(*(replace(each, output="again") for each in runs[:110]), replace=True)
        assert [each.output for each in store.trajectories()] == ["again"] * 110 + list(range(110, 120))
        assert store.revisions("t109") == [runs[109]]
        assert store.revisions("t110") == []


def test_the_counts_are_those_of_the_rows_whatever_was_written_again_changed_or_taken_out(
    tmp_path: Path,
) -> None:
    made = [simple(f"t{n}", started=float(n), subject="ann" if n >= 15 else None) for n in range(20)]
    with Store(tmp_path / "runs.db") as store:
        store.put(*made, *made[:3])
        store.put(*(replace(one, outcome=Outcome.SUCCESS) for one in made[3:9]), replace=True)
        store.put(*made[3:5], replace=True)
        said = Feedback(run="t7", value=1.0)
        store.add_feedback(said, said, Feedback(run="t17", value=1.0))
        store.put_tasks(Task(id="a"), Task(id="a", instruction="again"), Task(id="b"))
        store.add_rollouts(Rollout(id="r", task=Task(id="c")), Rollout(id="r", task=Task(id="c")))
        store.put_state("round", 1)
        store.put_state("round", 2)
        store.set_live(Bundle([Version(resource="p", content="x")]))
        store.erase("ann")
        store.put(made[19])  # erased: it does not come back
        store.put(simple("next"))  # in the place of the last one that was
        found = store.counts()
        for table in TABLES:
            assert found[table] == store.database.rows(f"SELECT count(*) FROM {table}")[0][0], table
            assert found[table] == store.count(table)
        outcomes = {f"trajectories.{outcome}": rows for outcome, rows in store.database.rows(_OUTCOMES)}
        assert outcomes == {name: rows for name, rows in found.items() if name.startswith("trajectories.")}
        assert (found["trajectories"], found["feedback"], found["states"]) == (16, 1, 1)


_OUTCOMES = "SELECT outcome, count(*) FROM trajectories GROUP BY outcome"


def test_feedback_is_joined_to_a_trajectory_and_to_all_of_a_run() -> None:
    with Store(":memory:") as store:
        store.put(
            simple("a", meta={"run": "r"}), simple("b", meta={"run": "r"}), simple("r", meta={"run": "r"})
        )
        thumb, late = Feedback(run="r", value=1.0), Feedback(run="a", value=-1.0)
        store.add_feedback(thumb, late, thumb)
        assert store.trajectory("a").feedback == (late, thumb)
        assert store.trajectory("b").feedback == (thumb,)
        assert list(store.trajectories(ids=["r"]))[2].feedback == (thumb,)  # its id and run: not twice
        assert list(store.feedback("a")) == [late]
        assert list(store.feedback()) == [thumb, late]


def test_a_trajectory_that_brings_its_feedback_keeps_it_once() -> None:
    brought = Feedback(run="a", value=1.0)
    with Store(":memory:") as store:
        store.put(simple("a", feedback=(brought,)))
        assert store.trajectory("a").feedback == (brought,)
        assert list(store.feedback("a")) == [brought]


def test_tasks_versions_preferences_and_states_come_back(tmp_path: Path) -> None:
    task = Task(instruction="q", split=Split.TRAIN, group="box")
    held = Task(instruction="r", split=Split.GATE, group="other")
    prompt = Version(resource="prompt", content="be brief", kind="prompt", meta={"seed": 1})
    preference = Preference(prompt="q", chosen="a", rejected="b")
    with Store(tmp_path / "runs.db") as store:
        store.put_tasks(replace(task, split=Split.VALIDATION), held)
        store.put_tasks(task)
        store.put_versions(prompt, prompt)
        store.put_preferences(preference, preference)
        store.put_state("round", {"n": 3, "rng": [1, None]})
        store.put_state("nothing", None)
    with Store(tmp_path / "runs.db") as store:
        assert list(store.tasks()) == [task, held]
        assert list(store.tasks(split=Split.GATE)) == [held]
        assert list(store.versions("prompt")) == [prompt]
        assert list(store.versions("other")) == []
        assert store.version(prompt.id) == prompt
        assert list(store.preferences()) == [preference]
        assert store.state("round") == {"n": 3, "rng": [1, None]}
        assert store.state("nothing", "unset") is None
        assert store.state("never", "unset") == "unset"


def bundle(content: str) -> Bundle:
    return Bundle([Version(resource="prompt", content=content), Version(resource="rule", content={"n": 1})])


def test_rollback_goes_back_one_release_at_a_time_and_the_history_keeps_all() -> None:
    with Store(":memory:") as store:
        assert store.live() is None
        for content in ("a", "b", "c"):
            store.set_live(bundle(content), reason=f"release {content}")
        assert store.live() == bundle("c")
        assert store.rollback() == bundle("b")
        assert store.rollback(reason="worse") == bundle("a")
        assert store.live() == bundle("a")
        assert store.rollback() == store.live() == Bundle()  # the agent as it came
        with pytest.raises(NotFoundError, match="as it came"):
            store.rollback()
        *log, last = store.history()
        assert [release.bundle["prompt"].content for release in log] == ["a", "b", "c", "b", "a"]
        assert (log[-1].reason, last.previous) == ("worse", None)
        assert store.live("canary") is None


def half_bad(store: Store) -> None:
    with store.batch() as batch:
        batch.put_state("round", 2)
        batch.put(simple("two", meta={"x": object()}))


def test_a_batch_commits_everything_or_nothing(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        with store.batch() as batch:
            batch.put(simple("one"))
            batch.put_state("round", 1)
            batch.set_live(bundle("a"))
            assert store.counts()["trajectories"] == 0
        assert store.counts()["trajectories"] == store.state("round") == 1
        with pytest.raises(InputError):
            half_bad(store)
        assert store.state("round") == 1
        bad = store.database.write([("task", [("x", None, "", b"{}")]), ("task", [(None, None, "", b"{}")])])
        good = store.submit(simple("three"))
        with pytest.raises(StoreError):
            bad.result()
        good.result()
        assert store.counts()["tasks"] == 0
        assert [each.id for each in store.trajectories()] == ["one", "three"]


def test_a_row_that_a_table_does_not_take_undoes_its_own_writes_and_nobody_elses(tmp_path: Path) -> None:
    def rows(name: str, worst: int | None = None) -> list[tuple[str | None, ...]]:
        return [(f"{name}{n}", None, None if n == worst else "g", "{}") for n in range(60)]

    with Store(tmp_path / "runs.db") as store:
        writes = [
            [("task", rows("a"))],
            [("task", rows("b", 55)), ("task", rows("c"))],
            [("task", rows("d"))],
        ]
        told = [future.exception() for future in [store.database.write(each) for each in writes]]
        assert [type(each) for each in told] == [type(None), StoreError, type(None)]
        found = store.database.rows("SELECT substr(id, 1, 1), count(*) FROM tasks GROUP BY 1")
        assert found == [("a", 60), ("d", 60)]
        assert store.count("tasks") == 120


def test_what_an_agent_did_is_recordable_whatever_it_answered() -> None:
    done = simple(
        steps=(Step(action="a cut \ud83d"),), error=Failure(Fault.AGENT, "ValueError", "half \ud83d")
    )
    kept = recordable(done)
    assert (kept.steps[0].action, kept.error) == (
        "a cut \ufffd",
        Failure(Fault.AGENT, "ValueError", "half \ufffd"),
    )
    whole = simple()
    assert recordable(whole) is whole
    odd = recordable(simple(steps=(Step(action=object()),)))
    assert (odd.outcome, odd.steps, odd.error and odd.error.type) == (Outcome.FAILURE, (), "InputError")
    with Store(":memory:") as store:
        store.put(kept, odd)


def test_a_name_that_no_column_can_hold_is_refused_and_costs_nobody_elses_write(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        batches = [store.batch() for _ in range(40)]
        for number, batch in enumerate(batches):
            batch.put_state("half \ud83d" if number == 20 else str(number), number)
        done = [batch.submit().exception(20) for batch in batches]
        assert [type(each) for each in done if each is not None] == [InputError]
        assert "UTF-8" in str(done[20])
        assert store.counts()["states"] == 39


def test_a_store_of_a_newer_whet_is_refused_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    Store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreVersionError, match="Upgrade"):
        Store(path)
    assert path.read_bytes() == before


def test_files_that_are_no_store_are_refused_with_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("hello, this is a text file, long enough to have a header" * 20)
    with pytest.raises(StoreError, match="not a whet store"):
        Store(tmp_path / "text.db")
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE cats (name)")
    connection.close()
    with pytest.raises(StoreError, match="another program"):
        Store(tmp_path / "other.db")
    with pytest.raises(StoreError, match=rf"folder {tmp_path / 'missing'} does not exist"):
        Store(tmp_path / "missing" / "runs.db", serve=True)
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(StoreError, match="is a folder, and a store is a file"):
        Store(folder, serve=True)
    assert not list(tmp_path.glob("folder.*"))


def test_a_server_is_refused_a_file_that_it_cannot_write() -> None:
    program = """
import os, tempfile
from pathlib import Path
from whet.errors import StoreError
from whet.record.store import Store
if os.geteuid() == 0:  # which may write whatever its mode is
    os.setgroups([])
    os.setresgid(12345, 12345, 12345)
    os.setresuid(12345, 12345, 12345)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "runs.db")
    Store(path).close()
    path.chmod(0o444)
    before = os.listdir(folder)
    try:
        Store(path, serve=True)
    except StoreError as error:
        print(error)
    assert os.listdir(folder) == before
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    assert "is not writable by this user" in done.stdout


def test_a_damaged_schema_whose_error_is_no_utf8_is_reported_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    Store(path).close()
    content = path.read_bytes()
    # SQLite quotes the schema's text in its message, and the module decodes that message.
    path.write_bytes(content.replace(b"CREATE TABLE versions", b"CREATE \xc1\xc1\xc1\xc1\xc1 versions"))
    assert path.read_bytes() != content
    with pytest.raises(StoreError, match="is damaged"):
        Store(path)


def test_a_damaged_file_is_reported_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        store.put(*[simple() for _ in range(300)])
    body = bytearray(path.read_bytes())
    body[4096:] = b"\x5a" * (len(body) - 4096)
    path.write_bytes(body)
    with pytest.raises(StoreError, match=r"damaged|could not be read"), Store(path) as store:
        list(store.trajectories())


def test_no_write_permission_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    program = (
        "import os, sys\n"
        "from whet.record.store import Store\n"
        "from whet.errors import StoreError\n"
        "if os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "try: Store('runs.db')\n"
        "except StoreError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert "no permission" in done.stdout, done.stderr


def test_a_closed_store_says_so_and_closing_again_is_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.db")
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.put(simple())
    with pytest.raises(StoreError, match="closed"):
        list(store.trajectories())


def test_the_file_is_private_and_closing_leaves_no_journal(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        store.put(simple())
        assert os.stat(path).st_mode & 0o077 == 0
        assert os.stat(f"{path}.sock").st_mode & 0o777 == 0o600
        list(store.trajectories())
    assert sorted(each.name for each in tmp_path.iterdir()) == ["runs.db", "runs.db.lock"]


def test_rows_are_written_in_their_order_by_statements_of_a_few_lengths_and_sizes() -> None:
    dice = random.Random(1)
    for _ in range(200):
        heavy = dice.random() < 0.3
        rows = [(n, b"x" * dice.randrange(KEPT if heavy else 1000)) for n in range(dice.randrange(130))]
        parts = list(portions(rows))
        assert [row for part in parts for row in part] == rows
        assert {len(part) for part in parts} <= set(LENGTHS)
        assert all(sum(len(body) for _, body in part) <= KEPT for part in parts if len(part) > 1)


def test_the_trajectories_of_a_run_are_found_whether_the_queue_named_them_or_another() -> None:
    dice, names = random.Random(2), ["a", "a.1", "ab", "12", "12.3", "a.b", "a/", "a-", "."]
    rows = {
        f"{run}{dice.choice(('', '.', '.7', '.1x', '/2', '.12.3'))}": run for run in names for _ in range(6)
    }
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, ":memory:")
        connection.executemany(
            "INSERT INTO trajectories (id, run, task_id, outcome, started, body) VALUES (?, ?, '', '', 0, x'')",
            rows.items(),
        )
        for _ in range(100):
            runs = dice.sample([*names, "none"], dice.randrange(4))
            query = f"SELECT id FROM trajectories WHERE {OF_RUNS.format('?1')}"
            of_runs = [id for (id,) in connection.execute(query, [listed(runs)])]
            assert sorted(of_runs) == sorted(id for id, run in rows.items() if run in runs)
