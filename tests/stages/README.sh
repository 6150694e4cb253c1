# What the reader of README.md has: an agent that people ask, a prompt and a table, an environment and a model, and beside
# them a repository with a rule to improve. What stays in the foreground on the page is in the background here.
# Words of the page that stand for the reader's own, and what they are here:
#: NAME -> "$MODEL"
#: URL -> "$URL"
#: RUN -> "$RUN"
#: my_world:Env --model DIR -> my_world:Env --model small --answer-tokens 1
#: --model DIR -> --model small
#: OUTPUT -> out
# Where the page learns for long, fewer steps:
#: --output out -> --output out --episodes 60 --steps 10 --optim.learning-rate 0.02
#: --num-samples 200 -> --num-samples 120
#: --release -> --dry-run
#: evolve --target answer -> evolve --target answer --iterations 20
#: trl-sft --store runs.db -> trl-sft --store .whet/whet.db
# Commands that are not run here, and why:
#! scripts/demo -- the whole demo takes minutes; tests/test_demo_stages.py plays its parts
#! scripts/test -- it is these tests
#! whet sandbox check -- tests/test_sandbox_attacks.py holds the same attacks
#! whet improve bills:amount --data examples.csv -- docs/my-prompt.md plays it with another function
#! whet evolve program.py evaluator.py --offline -- docs/coming-from.md plays it
#! whet rollback --store .whet/whet.db -- whet improve only plans here; docs/my-agent.md plays both to the end
eval "$(python -m whet.models.fakes)"
export OPENAI_BASE_URL="$URL" OPENAI_API_KEY=none OMP_NUM_THREADS=1
git init --quiet .
cat >my_agent.py <<'PY'
import os

import openai

SYSTEM_PROMPT = "You sort letters of customers. Name the department that answers the letter."
client = openai.OpenAI()


def answer(question: str) -> str:
    messages = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": question}]
    completion = client.chat.completions.create(model=os.environ["MODEL"], messages=messages)
    return completion.choices[0].message.content


if __name__ == "__main__":
    from letters import arrive

    arrive(answer)
PY
people() { # who write letters; they come after `whet init`, which would take them for the agent
cat >letters.py <<'PY'
import csv

import whet


def arrive(answer):
    for row in csv.DictReader(open("examples.csv")):
        with whet.run(subject=row["customer"]):
            answer(row["question"])
PY
}
cat >thumbs.py <<'PY'
import csv

import whet
from whet.record.store import Store

right = {row["question"]: row["answer"] for row in csv.DictReader(open("examples.csv"))}
with Store(".whet/whet.db") as store:
    for run in store.trajectories():
        question = run.task.instruction
        good = next(right[asked] for asked in right if asked in question) in run.output_text
        store.add_feedback(whet.Feedback(run=run.id, value=1.0 if good else -1.0, kind="thumb"))
PY
cat >my_world.py <<'PY'
import gymnasium
from gymnasium import spaces


class Env(gymnasium.Env):
    observation_space, action_space = spaces.Text(1), spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.digit = int(self.np_random.integers(4))
        return str(self.digit), {}

    def step(self, action):
        return "", float(action == (self.digit + 1) % 4), True, False, {}
PY
python - <<'PY'
from pathlib import Path

from whet.learn.training.local import fresh
from whet.learn.training.model import ModelOptions
from whet.learn.training.vocabulary import Vocabulary

words = Vocabulary(list("0123"))
size = ModelOptions(hidden=16, layers=1, heads=2, kv_heads=1, ffn=32, max_length=32)
fresh("policy", Path("small"), options=size, vocab_size=len(words), seed=0)
words.save(Path("small/vocabulary.json"))
PY
repository() { # another one, with a rule that people corrected
mkdir desk
cat >desk/desk.py <<'PY'
import whet


@whet.trace("runs.db")
@whet.evolve
def answer(hours: int, calls: int) -> str:
    return "today" if hours > 48 else "later"
PY
cat >desk/traffic.py <<'PY'
from desk import answer

import whet

for number in range(120):
    hours, calls = number * 7 % 61, number % 7
    with whet.run(subject=f"customer {number // 2}") as run:
        said = answer(hours, calls)
    right = "today" if hours > 24 else "later"
    whet.feedback(run.id, 1.0 if said == right else -1.0)
    if said != right:
        whet.feedback(run.id, correction=right, kind="correction")
PY
cat >desk/program.py <<'PY'
# EVOLVE-BLOCK-START
def speed():
    return 3
# EVOLVE-BLOCK-END
PY
cat >desk/evaluator.py <<'PY'
import importlib.util


def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return {"combined_score": 1.0 / (1 + abs(program.speed() - 7))}
PY
cd desk
python traffic.py
}
whet() {
    case "$*" in
    init)
        command whet "$@"
        people
        ;;
    run\ *)
        command whet "$@"
        RUN=$(python -c 'import whet; print(next(iter(whet.Store(".whet/whet.db").trajectories())).id)')
        ;;
    label\ *) # a key for one of them, and the people's thumbs for the others
        echo u | command whet "$@"
        python thumbs.py
        ;;
    extract-targets\ *)
        repository
        command whet "$@"
        ;;
    "train --help") # back at the model
        cd ..
        command whet "$@"
        ;;
    serve-policy\ *)
        command whet "$@" --port 0 >policy.log 2>&1 &
        until grep -qs http:// policy.log; do kill -0 $!; sleep 0.1; done
        ;;
    *) command whet "$@" ;;
    esac
}
printf '{"task": "%s", "score": 0}\n' $(seq 40) >A.jsonl
printf '{"task": "%s", "score": 1}\n' $(seq 40) >B.jsonl
