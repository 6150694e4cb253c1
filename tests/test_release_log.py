"""`whet release --to`, `log`, `diff` and `rollback` in one walk over one record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whet.cli import app
from whet.errors import GateError, InputError, NotFoundError
from whet.record.store import Stage, Store, bundle_of
from whet.types import Bundle, Verdict

PROMPT = "gateway.system_prompt"


def run(*words: object) -> int:
    code: int = app([*map(str, words)], result_action="return_value", exit_on_error=False)
    return code


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A record with one prompt live and a proven one beside it."""
    path = tmp_path / "runs.db"
    first, second = bundle_of({PROMPT: "Be kind."}), bundle_of({PROMPT: "Be brief."})
    with Store(path) as store:
        store.release(first, unproven=True, reason="by hand")
        store.put_bundle(second)
        store.put_verdict(
            Verdict(
                promote=True,
                effect=0.1,
                interval=(0.04, 0.16),
                e_value=55.0,
                n=200,
                candidate=second.id,
                baseline=first.id,
                metric="right",
                evaluator="v7",
            ),
            experiment="support",
        )
    return path


def test_a_candidate_is_tried_widened_released_and_every_step_is_read_in_the_log(
    record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    candidate = bundle_of({PROMPT: "Be brief."})

    def said(*words: object) -> str:
        assert run(*words, "--store", record) == 0
        return capsys.readouterr().out

    assert said("diff", "live", candidate.id).splitlines()[3:] == ["-Be kind.", "+Be brief."]
    assert "nobody is served" in said("release", candidate.id, "--to", "shadow")
    assert "0.1 of all, by subject" in said("release", candidate.id, "--to", "canary", "--unit", "subject")
    said("release", candidate.id, "--to", "canary", "--share", "0.5", "--unit", "subject")
    standing = [line for line in said("log").splitlines() if " * " in line]
    assert [line.split()[4] for line in standing] == ["live", "canary"]
    assert "live now" in said("release", candidate.id)
    log = said("log").splitlines()
    stages = [line[:70].replace("*", " ").split()[3] for line in log[:-1]]
    assert stages == ["live", "gated", "shadow", "canary", "canary", "live"]
    assert "unproven: by hand; released in spite of: no Verdict" in log[0]
    assert "experiment support" in log[1]
    assert said("diff", "live~1", "live") == said("diff", candidate.id, "live~1").replace(
        "-Be brief.\n+Be kind.", "-Be kind.\n+Be brief."
    )
    told = said("log", candidate[PROMPT].id)
    assert f"{PROMPT} {candidate[PROMPT].id}: prompt, live" in told
    assert "evaluator v7" in told
    assert "promotes right +0.100 [+0.040, +0.160], e-value 55, 200 pairs" in told
    entries = [json.loads(line) for line in said("log", "--json").splitlines()]
    assert [entry["share"] for entry in entries] == [0.0, 1.0, 0.1, 0.5, 0.0]
    assert len({entry["trial"] for entry in entries[1:]}) == 1
    assert said("diff", "live~2", "live~1").splitlines()[-1] == "+Be kind."
    assert json.loads(said("diff", "live", "live", "--json")) == {"changed": {}, "diff": ""}
    assert "live now" in said("rollback")
    with Store(record) as store:
        assert store.live() == bundle_of({PROMPT: "Be kind."})


def test_a_trial_is_taken_back_by_name_and_what_makes_no_sense_is_refused(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.txt"
    other.write_text("Be slow.")
    with pytest.raises(GateError, match="nothing has proven"):
        run("release", PROMPT, other, "--to", "canary", "--store", record)
    assert run("release", PROMPT, other, "--to", "canary", "--unproven", "--store", record) == 0
    with Store(record) as store:
        (trial,) = store.on_trial()
        assert store.version(trial.bundle[PROMPT].id).parent == bundle_of({PROMPT: "Be kind."})[PROMPT].id
    assert run("rollback", trial.candidate, "--reason", "thumbs fell", "--store", record) == 0
    with Store(record) as store:
        assert store.on_trial() == []
        assert store.release_log()[-1].stage is Stage.RETIRED
        assert store.live() == bundle_of({PROMPT: "Be kind."})
    capsys.readouterr()
    assert run("log", trial.bundle[PROMPT].id, "--store", record) == 0
    assert "prompt, retired" in capsys.readouterr().out
    with pytest.raises(InputError, match="between 0 and 1"):
        run("release", PROMPT, other, "--to", "canary", "--share", "1", "--unproven", "--store", record)
    with pytest.raises(NotFoundError, match="goes 1 releases back"):
        run("diff", "live~2", "live", "--store", record)


def test_back_to_the_agent_as_it_came_and_a_log_without_releases(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new.db"
    Store(path).close()
    assert run("log", "--store", path) == 0
    assert capsys.readouterr().out == "nothing is live: the agent is as it came\n"
    assert run("diff", "live", "live", "--store", path) == 0
    with Store(path) as store:
        assert store.live() in (None, Bundle())
