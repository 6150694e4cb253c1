"""GEPA optimises a prompt on train.jsonl; results of the first and of the best prompt on tasks that it never saw."""

import json
import os
import urllib.request
from pathlib import Path

import gepa
from gepa import EvaluationBatch, GEPAAdapter


def ask(base, model, turns):
    body = json.dumps({"model": model, "messages": turns}).encode()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer none"}
    with urllib.request.urlopen(
        urllib.request.Request(f"{base}/chat/completions", body, headers), timeout=60
    ) as said:
        return json.load(said)["choices"][0]["message"]["content"]


class Clerk(GEPAAdapter):
    def evaluate(self, batch, candidate, capture_traces=False):
        answers = [
            ask(
                os.environ["OPENAI_BASE_URL"],
                "clerk",
                [
                    {"role": "system", "content": candidate["prompt"]},
                    {"role": "user", "content": row["question"]},
                ],
            )
            for row in batch
        ]
        scores = [float(answer == row["expected"]) for answer, row in zip(answers, batch, strict=True)]
        traces = list(zip(batch, answers, scores, strict=True)) if capture_traces else None
        return EvaluationBatch(outputs=answers, scores=scores, trajectories=traces)

    def make_reflective_dataset(self, candidate, eval_batch, components_to_update):
        return {
            "prompt": [
                {
                    "Inputs": row["question"],
                    "Generated Outputs": answer,
                    "Feedback": f"{score}; {row['expected']}",
                }
                for row, answer, score in eval_batch.trajectories
            ]
        }


def reflect(prompt):
    turns = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
    return ask(os.environ["PROMPTER_BASE_URL"], "prompter", turns)


def rows(name):
    return [json.loads(line) for line in Path(name).read_text().splitlines()]


train = rows("train.jsonl")
first = {"prompt": os.environ["PROMPT"]}
adapter = Clerk()
result = gepa.optimize(
    seed_candidate=first,
    trainset=train[:20],
    valset=train[20:],
    adapter=adapter,
    reflection_lm=reflect,
    max_metric_calls=300,
    seed=0,
)
held_out = rows("held_out.jsonl")
for name, candidate in (("before", first), ("after", result.best_candidate)):
    scores = adapter.evaluate(held_out, candidate).scores
    lines = (
        {"id": row["id"], "group": row["group"], "score": score}
        for row, score in zip(held_out, scores, strict=True)
    )
    Path(f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
