"""Messages that were read before are remembered, in bounded memory however short they are."""

from __future__ import annotations

import json
import tracemalloc

from whet.record.tracing.dialects.messages import messages


def test_what_is_remembered_of_short_messages_stays_small() -> None:
    tracemalloc.start()
    try:
        before, highest = tracemalloc.get_traced_memory()[0], 0
        for number in range(30_000):
            conversation = [{"role": "user", "content": f"question {number}"}]
            assert messages(json.dumps(conversation)) == [{"role": "user", "text": f"question {number}"}]
            if number % 1_000 == 0:
                highest = max(highest, tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()
    assert highest < 12e6
