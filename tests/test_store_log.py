"""The append log of a piece of work."""

from __future__ import annotations

from pathlib import Path

import pytest

import whet
from whet.errors import InputError
from whet.record.store import Log


def test_an_entry_is_found_by_the_next_process(tmp_path: Path) -> None:
    with whet.Store(tmp_path / "runs.db") as store:
        log = Log(store, "night")
        log.put("answer/1", {"text": "yes"}).result()
        assert log.get("answer/1") == {"text": "yes"}
    with whet.Store(tmp_path / "runs.db") as store:
        again = Log(store, "night")
        assert "answer/1" in again
        assert again.get("answer/1") == {"text": "yes"}
        assert list(again) == ["answer/1"]
        assert "answer/1" not in Log(store, "nigh")
        assert "answer/1" not in Log(store, "night0")


@pytest.mark.parametrize("path", [None, ":memory:"])
def test_an_entry_that_is_there_stays_as_it_is(path: str | None) -> None:
    log = Log(whet.Store(path) if path else None)
    log.put("a", 1)
    log.put("a", 2).result()
    log.flush()
    log.put("a", 3)
    assert log.get("a") == 1
    assert log.get("b", "nothing") == "nothing"
    assert len(log) == 1


def test_a_long_log_stays_on_disk_and_not_in_memory(tmp_path: Path) -> None:
    with whet.Store(tmp_path / "runs.db") as store:
        log = Log(store, "long")
        for number in range(1000):
            log.put(str(number), number)
        assert len(log._entries) <= 257
        log.flush()
        assert not log._entries
        assert sum(log.get(key) for key in log) == 499500


def test_a_value_without_a_json_form_is_refused() -> None:
    with pytest.raises(InputError):
        Log().put("a", object())
