# What the reader of docs/training.md has: a model's folder, an agent that calls it, a reward and an environment. What stays
# in the foreground on the page, until Ctrl-C, is in the background here.
# Words of the page that stand for the reader's own, and what they are here:
#: 4778 -> $PORT
# Where the page learns for long, fewer steps and tasks:
#: --output out/first -> --output out/first --round-tasks 8
#: --episodes 100 -> --episodes 60 --steps 24 --optim.learning-rate 0.02
#: --output out/agent -> --output out/agent --steps 2 --group-size 4 --agent-processes 2 --no-gate
#: --answer-tokens 4 -> --answer-tokens 1
# Commands that are not run here, and why:
#! accelerate launch --config_file fsdp.yaml -m whet train grpo --store runs.db --model models/qwen --output out/second -- tests/test_training_processes.py starts several processes
#! whet train sft --store runs.db --reward-function reader:right --model base --output out/first -- tests/test_weights_journey.py plays this block
#! whet gate out/first --entry reader:answer --reward reader:right --store runs.db --data unseen.jsonl -- tests/test_weights_journey.py plays this block
#! whet release out/first --store runs.db -- tests/test_weights_journey.py plays this block
#! whet release out/agent --store out/agent/runs.db -- tests/test_training_agent.py plays this block
#! whet serve-policy --store out/agent/runs.db --alias gpt-4o-mini --port 4778 --token SECRET -- tests/test_training_agent.py plays this block
#! OPENAI_BASE_URL=http://127.0.0.1:4778/v1 OPENAI_API_KEY=SECRET python -c "import assistant; print(assistant.answer('2'))" -- tests/test_training_agent.py plays this block
#! whet rollback --store out/agent/runs.db -- tests/test_training_agent.py plays this block
#! whet train grpo --env world:env --policy world:policy --tasks-file tasks.jsonl --model out/cloned --round-tasks 32 --max-rollouts 50000 --output out/fresh -- tests/test_training_journey.py learns in an Env by this command
#! whet train grpo --env world:env --tasks-file tasks.jsonl --model models/qwen --lora-rank 16 --rollouts vllm --rollouts-options "--gpu-memory-utilization 0.4" --asynchronous --max-staleness 2 --output out/beside -- it takes vLLM and a GPU; tests/test_training_engines.py plays its parts with a scripted engine
export OMP_NUM_THREADS=1
PORT=$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
python - <<'PY'
from pathlib import Path

from whet.learn.training.local import fresh
from whet.learn.training.model import ModelOptions
from whet.learn.training.vocabulary import Vocabulary

words = Vocabulary([*"0123", *"Answer with the next digit.".split()])
size = ModelOptions(hidden=16, layers=1, heads=2, kv_heads=1, ffn=32, max_length=32)
fresh("policy", Path("models/qwen"), options=size, vocab_size=len(words), seed=0)
words.save(Path("models/qwen/vocabulary.json"))
PY
cat >agent.py <<'PY'
import openai

import whet

client = openai.OpenAI()


@whet.trace
def answer(question: str) -> str:
    messages = [{"role": "user", "content": question}]
    completion = client.chat.completions.create(model="policy", messages=messages, max_tokens=1)
    return completion.choices[0].message.content


if __name__ == "__main__":
    for number in range(64):
        answer(str(number % 4))
PY
cat >rewards.py <<'PY'
def worth(trajectory):
    return None if trajectory.output is None else float(trajectory.output_text.strip() in ("0", "1", "2", "3"))
PY
python - <<'PY'
import json

rows = [
    {"id": f"{split}-{number}", "instruction": str(number % 4), "group": str(number), "split": split}
    for split, count in (("train", 8), ("validation", 16))
    for number in range(count)
]
with open("questions.jsonl", "w") as file:
    file.writelines(json.dumps(row) + "\n" for row in rows)
PY
cat >digits.py <<'PY'
import gymnasium
from gymnasium import spaces


class Next(gymnasium.Env):
    observation_space, action_space = spaces.Text(1), spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.digit = int(self.np_random.integers(4))
        return str(self.digit), {}

    def step(self, action):
        return "", float(action == (self.digit + 1) % 4), True, False, {}
PY
whet() {
    case "$*" in
    serve-policy\ *)
        [ -z "${SERVER:-}" ] || { kill -INT "$SERVER" && wait "$SERVER" || true; }
        command whet "$@" >policy.log 2>&1 &
        SERVER=$!
        until grep -qs http:// policy.log; do kill -0 "$SERVER"; sleep 0.1; done
        ;;
    run\ *) OPENAI_API_KEY=SECRET command whet "$@" ;;
    train\ grpo\ --store\ *)
        command whet "$@"
        weights=$(ls -d "$PWD"/out/first/improve-grpo/weights-* | tail -1)
        printf '{"method": "reload_weights", "kwargs": {"weights_path": "%s"}}' "$weights" >reload.json
        ;;
    *) command whet "$@" ;;
    esac
}
curl() { command curl --silent --fail "$@"; }
