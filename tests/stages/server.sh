# What the reader of docs/server.md has: an agent, its record, tasks, a prompt, weights that were trained, and a model
# behind an address. What stays in the foreground on the page, until Ctrl-C, is in the background here.
# Words of the page that stand for the reader's own, and what they are here:
#: https://api.openai.com/v1 -> "$URL"
#: 127.0.0.1:4777 -> 127.0.0.1:$PORT
#: RUN -> "$RUN"
#: OUTPUT -> trained
#: --processes 2 -> --processes 1
eval "$(python -m whet.models.fakes)"
export OPENAI_API_KEY=none
# Below those that a system gives to whoever asks for any: no other test's server gets it meanwhile.
PORT=$((20000 + $$ % 10000))
cat >shop.py <<'END'
import whet

prompt = whet.resource("prompt", default="Answer at length.")


@whet.step(kind="tool", effect="read")
def price(article):
    return 12


@whet.trace
def answer(question):
    return f"{price(question)} euros" if "word" in prompt.get() else "It depends."
END
echo '{"instruction": "What is a rake?", "group": "ann"}' >tasks.jsonl
echo 'Answer in one sentence.' >prompt.txt
mkdir -p whet_data
WHET_STORE=runs.db python - <<'END'
import json
from pathlib import Path

import shop
import whet

with whet.run(subject="ann@example.com") as run:
    shop.answer("What is a hose?")
note = {"run": run.id, "kind": "correction", "correction": "Paris, not Rome"}
Path("feedback.json").write_text(json.dumps({"feedback": [note]}))
Path("run").write_text(run.id)
END
RUN=$(cat run)
python - <<'END'
import asyncio
from pathlib import Path

import shop
import whet
from whet.record.store.bundles import write_bundle


def exact(trajectory):
    return trajectory.output == trajectory.task.answer


tasks = [whet.Task(instruction=f"What is rake {n}?", answer="12 euros", group=f"user{n // 2}") for n in range(120)]
better = whet.Bundle([whet.Version(resource="prompt", content="Answer in a word.", kind="prompt")])
with whet.Store("runs.db") as store:
    experiment = whet.Experiment(env=whet.calls(shop.answer), tasks=tasks, rewards=[exact], store=store, seed=0)
    verdict = asyncio.run(experiment.gate(better, against=whet.Bundle(), metric="exact"))
Path("trained").mkdir()
write_bundle(
    Path("trained/bundle.json"), better, baseline=whet.Bundle(), verdict=verdict, store=Path("runs.db").resolve()
)
END
# Where SQLite's own shell is not installed.
command -v sqlite3 >/dev/null || sqlite3() {
    python -c 'import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute(sys.argv[2]), sep="\n")' "$@"
}
whet() {
    case "$1" in
    serve)
        [ -z "${SERVER:-}" ] || { kill -INT "$SERVER" && wait "$SERVER"; }
        command whet "$@" --port "$PORT" >serve.log 2>&1 &
        SERVER=$!
        until grep -q "http://" serve.log; do kill -0 "$SERVER"; sleep 0.1; done
        TOKEN=$(command whet token write --store runs.db)
        export WHET_TOKEN=$TOKEN
        ;;
    work) command whet "$@" --limit 2 ;;
    *) command whet "$@" ;;
    esac
}
