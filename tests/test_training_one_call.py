"""Training in one plain call: rows of text, recorded runs or an environment in; weights, and a Verdict, out."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from gymnasium import spaces
from methods_toys import DIGITS, FAST, RIGHT, WORDS, beginning, collect, tasks
from policy_world import TEMPLATE, downloaded

import whet
from whet.errors import InputError, TrainingRefused
from whet.learn.optimizers.dpo import DPOOptions
from whet.learn.optimizers.grpo import GRPOOptions
from whet.learn.optimizers.kto import KTOOptions
from whet.learn.optimizers.ppo import PPOOptions
from whet.learn.optimizers.sft import SFTOptions
from whet.learn.training.batch import merge
from whet.learn.training.local import LocalModels
from whet.learn.training.one_call import waited
from whet.record.env import rollout
from whet.types import Bundle, Outcome, Task, Trajectory

torch.set_num_threads(1)


class Next(gymnasium.Env[Any, Any]):
    """A digit is seen, and the one after it is right."""

    observation_space, action_space = spaces.Text(1), spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.digit = str(self.np_random.integers(4))
        return self.digit, {}

    def step(self, action: Any) -> Any:
        return "", float(str(action) == RIGHT[self.digit]), True, False, {}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A tiny model whose vocabulary is digits."""
    beginning(tmp_path)
    WORDS.save(tmp_path / "start" / "vocabulary.json")
    return tmp_path / "start"


def share_right(bundle: Bundle, model: Path) -> float:
    policy = whet.ChatPolicy(model, answer_tokens=1).greedy()

    async def ask(digit: str) -> bool:
        action = await policy(bundle, 0).act(digit)
        return bool(action.value == RIGHT[digit])

    async def all_of_them() -> float:
        return sum([await ask(digit) for digit in DIGITS]) / len(DIGITS)

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("method", ["GRPO", "PPO"])
def test_an_environment_and_a_model_are_enough(method: str, model: Path, tmp_path: Path) -> None:
    options = {"GRPO": GRPOOptions, "PPO": PPOOptions}[method](steps=25, optim=FAST)
    learner = getattr(whet, method)(options)
    trained = learner.train(env=Next, model=model, output=tmp_path / "out", episodes=40, answer_tokens=1)
    assert trained.verdict is not None
    assert trained.verdict.promote, trained.verdict
    assert share_right(trained.bundle, model) == 1.0
    with pytest.raises(InputError, match="holds a run already"):
        learner.train(env=Next, model=model, output=tmp_path / "out", episodes=40, answer_tokens=1)


def test_it_runs_inside_a_notebooks_loop(model: Path, tmp_path: Path) -> None:
    async def cell() -> Any:
        options = GRPOOptions(steps=2, optim=FAST)
        return whet.GRPO(options).train(
            env=Next, model=model, output=tmp_path / "out", episodes=8, answer_tokens=1, gate=False
        )

    trained = asyncio.run(cell())
    assert (trained.rounds, trained.verdict) == (2, None)


def test_what_is_waited_for_sees_the_callers_context_and_raises_as_it_would(model: Path) -> None:
    async def failing() -> None:
        raise KeyError("mine")

    async def cell() -> None:
        waited(failing())

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(cell())


def test_sft_learns_from_rows_of_text_in_memory_and_in_a_file(model: Path, tmp_path: Path) -> None:
    learner = whet.SFT(SFTOptions(epochs=30, batch=8, validation_share=0.0, optim=FAST))
    distinct = [{"prompt": digit, "completion": RIGHT[digit]} for digit in DIGITS]
    trained = learner.train(distinct, model=model, output=tmp_path / "listed")
    assert share_right(trained.bundle, model) == 1.0
    path = tmp_path / "rows.jsonl"
    chats = [
        {"messages": [{"role": "user", "content": a}, {"role": "assistant", "content": RIGHT[a]}]}
        for a in DIGITS
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in chats))
    assert share_right(learner.train(path, model=model, output=tmp_path / "file").bundle, model) == 1.0


def test_dpo_and_kto_learn_from_rows_of_text(model: Path, tmp_path: Path) -> None:
    wrong = {digit: [other for other in DIGITS if other != RIGHT[digit]] for digit in DIGITS}
    pairs = [
        {"prompt": digit, "chosen": RIGHT[digit], "rejected": other}
        for digit in DIGITS
        for other in wrong[digit]
    ]
    options = {"epochs": 60, "batch": 12, "validation_share": 0.0, "optim": FAST}
    learner = whet.DPO(DPOOptions(**options))  # type: ignore[arg-type]
    assert learner.train(pairs, model=model, output=tmp_path / "dpo").metrics["pairs"] == 12
    thumbs = [
        {"prompt": digit, "completion": answer, "label": answer == RIGHT[digit]}
        for digit in DIGITS
        for answer in DIGITS
    ]
    done = whet.KTO(KTOOptions(**options)).train(thumbs, model=model, output=tmp_path / "kto")  # type: ignore[arg-type]
    assert done.metrics["desirable_logprob_change"] > done.metrics["undesirable_logprob_change"]


def test_recorded_runs_train_with_a_reward_of_ones_own(model: Path, tmp_path: Path) -> None:
    def worth(run: Trajectory) -> float:
        return float(run.output == RIGHT[run.task.initial_state["digits"][0]])

    groups = asyncio.run(collect(whet.ChatPolicy(model).bundle, tasks(40), 8, models=LocalModels()))
    runs = [run for group in groups for run in group.trajectories]
    learner = whet.SFT(SFTOptions(epochs=20, batch=8, validation_share=0.0, optim=FAST))
    path = tmp_path / "runs.db"
    with whet.Store(path) as store:
        store.put(*runs)
        inside = learner.train(store, model=model, output=tmp_path / "store", reward=worth)
    assert learner.options.score is None, "the caller's options are as they were"
    again = learner.train(path, model=model, output=tmp_path / "file", reward=worth)
    listed = learner.train(runs, model=model, output=tmp_path / "listed", reward=worth)
    assert {inside.bundle.id, again.bundle.id} == {listed.bundle.id}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "needs either data or env="),
        ({"data": [], "env": Next}, "and not both"),
        ({"data": [{"question": "1"}]}, "row 1 of 1: it has none of the formats prompt and completion"),
        ({"data": [{"prompt": "1", "completion": 2}]}, "an answer is text or one message, not 2"),
        ({"data": [{"prompt": "1", "completion": "2", "label": 0.5}]}, "label must be true or false"),
        ({"data": [{"messages": [{"role": "user", "content": "1"}]}]}, "no message of the role assistant"),
        ({"data": [1]}, "data must be trajectories, preferences or rows, not a list of int"),
        ({"data": "none.jsonl"}, "cannot read none.jsonl: No such file"),
        ({"env": Next}, "sft learns from data and does not sample"),
    ],
)
def test_what_cannot_be_trained_on_is_said(
    given: dict[str, Any], said: str, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said):
        whet.SFT().train(**given, model=model, output=tmp_path / "out")
    with pytest.raises(TrainingRefused, match="no pair"):
        whet.DPO().train([{"prompt": "1", "completion": "2"}], model=model, output=tmp_path / "out")


def test_a_policy_that_cannot_read_what_it_sees_is_not_called_incompetent(
    model: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        TrainingRefused, match=r"128 of 128 rollouts failed, .* by the agent's InputError: token '\["
    ):
        whet.GRPO().train(
            env=lambda: gymnasium.make("CartPole-v1"), model=model, output=tmp_path / "out", episodes=8
        )


# -- the chat policy ---------------------------------------------------------------------------


class Talk:
    """Three turns, of text and of JSON; any answer will do."""

    def reset(self, task: Task, seed: int) -> Any:
        self.turn = 0
        return "begin"

    def step(self, action: Any) -> Any:
        self.turn += 1
        return {"turn": self.turn}, 1.0, self.turn == 3, False, {}


def talked(policy: Any, seed: int = 0) -> Trajectory:
    return asyncio.run(rollout(Talk(), policy(Bundle(), seed), Task(), seed=seed))


@pytest.mark.parametrize("answer_tokens", [3, 40])
def test_turns_of_a_chat_are_one_sequence_in_the_models_own_template(
    answer_tokens: int, tmp_path: Path
) -> None:
    folder = downloaded(tmp_path / "m", max_length=2048)
    policy = whet.ChatPolicy(folder, system="Be brief.", answer_tokens=answer_tokens)
    played = talked(policy)
    assert played.error is None
    sequences, counts = merge(played, 0)
    assert (len(sequences), counts.forked) == (1, 0)
    tokenizer = policy._text.tokenizer  # type: ignore[attr-defined]
    whole = tokenizer.decode(sequences[0].ids)
    assert whole.startswith("<|system|>Be brief.<|end|><|user|>begin<|end|><|assistant|>")
    assert '<|user|>{"turn":1}<|end|><|assistant|>' in whole
    for step in played.steps:
        assert step.tokens is not None
        assert 1 <= len(step.tokens.output_ids) <= answer_tokens == len(step.tokens.logprobs) or (
            step.tokens.output_ids[-1] == tokenizer.eos_token_id
        )
    assert [step.action for step in talked(policy).steps] == [step.action for step in played.steps]
    assert [step.action for step in talked(policy, 1).steps] != [step.action for step in played.steps]


def test_a_template_without_a_system_role_reads_it_before_the_first_message(tmp_path: Path) -> None:
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + TEMPLATE
    policy = whet.ChatPolicy(
        downloaded(tmp_path / "m", template=refusing), system="Be brief.", answer_tokens=2
    )
    played = talked(policy)
    first = played.steps[0].tokens
    assert first is not None
    said = policy._text.decode(first.prompt_ids, special=True)
    assert said == "<|user|>Be brief.\n\nbegin<|end|><|assistant|>"


def test_a_template_that_rewrites_history_starts_a_sequence_of_its_own(tmp_path: Path) -> None:
    # Earlier answers are shortened, as templates do that drop thoughts.
    forgetting = TEMPLATE.replace(
        "{{ message.content }}", "{{ message.content if message.role != 'assistant' else '...' }}", 1
    )
    played = talked(whet.ChatPolicy(downloaded(tmp_path / "m", template=forgetting), answer_tokens=4))
    assert (played.error, played.outcome) == (None, Outcome.UNKNOWN)
    sequences, _ = merge(played, 0)
    assert len(sequences) == 3


def test_a_model_that_cannot_chat_says_so_before_anything_is_sampled(tmp_path: Path) -> None:
    beginning(tmp_path)
    with pytest.raises(InputError, match="has no tokenizer, so messages cannot become tokens"):
        whet.ChatPolicy(tmp_path / "start")
    folder = downloaded(tmp_path / "m")
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(InputError, match="has no chat template"):
        whet.ChatPolicy(folder)
    with pytest.raises(InputError, match="answer_tokens must be 1 or more"):
        whet.ChatPolicy(folder, answer_tokens=0)


def test_a_finished_run_chats_with_its_own_weights(tmp_path: Path) -> None:
    folder = downloaded(tmp_path / "m")
    rows = [{"prompt": "hello", "completion": "abc"}]
    options = SFTOptions(epochs=40, validation_share=0.0, optim=FAST)
    whet.SFT(options).train(rows, model=folder, output=tmp_path / "out")
    policy = whet.ChatPolicy(tmp_path / "out", answer_tokens=8).greedy()
    assert asyncio.run(policy(Bundle(), 0).act("hello")).value == "abc"


def test_the_command_reads_rows_of_text_plain_and_as_chats_from_json_lines_and_parquet(
    model: Path, tmp_path: Path
) -> None:
    from pyarrow import Table, parquet

    from whet.cli import app
    from whet.record.store.bundles import read_bundle

    chats = [
        {
            "prompt": [{"role": "user", "content": a}],
            "completion": [{"role": "assistant", "content": RIGHT[a]}],
        }
        for a in DIGITS
    ]
    parquet.write_table(Table.from_pylist(chats), tmp_path / "chats.parquet")
    plain = [{"prompt": digit, "completion": RIGHT[digit]} for digit in DIGITS]
    (tmp_path / "plain.jsonl").write_text("".join(json.dumps(row) + "\n" for row in plain))

    def train(method: str, file: str, *words: str) -> Bundle:
        output = tmp_path / file.partition(".")[0]
        learning = [
            "--batch",
            "8",
            "--validation-share",
            "0",
            "--optim.learning-rate",
            str(FAST.learning_rate),
        ]
        command = [
            "train",
            method,
            "--data",
            str(tmp_path / file),
            "--output",
            str(output),
            *learning,
            *words,
        ]
        assert app(command, result_action="return_value") == 0
        return read_bundle(output / "bundle.json").bundle

    for file in ("chats.parquet", "plain.jsonl"):
        assert share_right(train("sft", file, "--model", str(model), "--epochs", "30"), model) == 1.0
    pairs = [
        {"prompt": a, "chosen": RIGHT[a], "rejected": b} for a in DIGITS for b in DIGITS if b != RIGHT[a]
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    preferred = train("dpo", "pairs.jsonl", "--model", str(model), "--epochs", "60")
    assert share_right(preferred, model) > share_right(Bundle(), model)
    with pytest.raises(InputError, match="rows of text, which a model's own tokenizer reads: give --model"):
        train("sft", "plain.jsonl")
