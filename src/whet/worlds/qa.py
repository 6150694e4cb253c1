"""Question answering: the smallest environment there is, in its classic form and as an Env.

`SimpleQAEnv`, `generate_reply` and `run_episode` are the well-known teaching skeleton with its
semantics unchanged; `QAEnv` is the same task as an Env over Tasks, which every learner accepts.
It judges by keyword and nothing finer; `whet.judge` has rules that judge more strictly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import EnvError, InputError
from ..record.env import StepResult, Transition
from ..types import Json, Task

TextModel = Callable[[str], str]
"""The classic idea of a model: prompt in, text out."""


FINISHED = "Episode finished."
"""The observation after the end."""


class SimpleQAEnv:
    """One question, one answer, reward 1.0 if the keyword occurs in it, whatever its case."""

    def __init__(self, question: str, answer_keyword: str) -> None:
        self.question = question
        self.answer_keyword = answer_keyword
        self.done = False

    def reset(self) -> str:
        """Begin again; returns "User: <question>"."""
        self.done = False
        return f"User: {self.question}"

    def step(self, action_text: str) -> tuple[str, float, bool, dict[str, bool]]:
        """Answer; returns (next_obs, reward, done, info): "Episode finished." and info = {"correct": bool}.

        Raises:
            EnvError: a RuntimeError; the episode is over.
        """
        if self.done:
            raise EnvError("The episode is over: one question takes one answer. Call reset() to ask again.")
        self.done = True
        correct = self.answer_keyword.lower() in action_text.lower()
        return FINISHED, 1.0 if correct else 0.0, True, {"correct": correct}


def generate_reply(model: TextModel, prompt: str) -> str:
    """The model's reply to the prompt."""
    return model(prompt)


def run_episode(model: TextModel, env: Any) -> list[Transition]:
    """Play one episode of a four-value text environment.

    Args:
        model: is asked with the observation and "\\nAssistant:" after it.
        env: has `reset() -> obs` and `step(text) -> (next_obs, reward, done, info)`.
    """
    obs, done = env.reset(), False
    transitions: list[Transition] = []
    while not done:
        reply = generate_reply(model, obs + "\nAssistant:")
        next_obs, reward, done, _info = env.step(reply)
        transitions.append(Transition(obs, reply, reward, done, next_obs))
        obs = next_obs
    return transitions


def echo_model(prompt: str) -> str:
    """The skeleton's dummy model: whatever it is asked, it gives the right answer about the capital of France."""
    return "The capital of France is Paris."


class QAEnv:
    """SimpleQAEnv as an Env: the Task's instruction is the question, its answer the keyword.

    A Task's `answer` is one keyword or a list of them, any of which will do.  The action is the
    answer's text; the episode ends with the first.
    """

    def __init__(self) -> None:
        self._episodes: list[SimpleQAEnv] = []

    def reset(self, task: Task, seed: int) -> str:
        """The question, as "User: <question>"; nothing is drawn from the seed.

        Raises:
            InputError: the task has no question, or no answer to judge by.
        """
        keywords = task.answer if isinstance(task.answer, list | tuple) else [task.answer]
        if not task.instruction or not keywords or not all(_is_keyword(word) for word in keywords):
            raise InputError(
                f"Task {task.id} cannot be asked: instruction {task.instruction!r:.80}, answer "
                f"{task.answer!r:.80}. QAEnv needs a question and one keyword or a list of them."
            )
        self._episodes = [SimpleQAEnv(task.instruction, str(word)) for word in keywords]
        questions = [episode.reset() for episode in self._episodes]
        return questions[0]

    def step(self, action: Json) -> StepResult:
        """Judge the answer.

        Raises:
            EnvError: stepped before reset or after the end.
        """
        if not self._episodes:
            raise EnvError("QAEnv was stepped before reset().")
        text = action if isinstance(action, str) else ""
        results = [episode.step(text) for episode in self._episodes]
        next_obs, reward, done, info = max(results, key=lambda result: result[1])
        return StepResult(next_obs, reward, done, False, _info(info))


def _is_keyword(word: Json) -> bool:
    # An empty keyword occurs in everything: every answer would be right.
    return isinstance(word, str | int | float) and not isinstance(word, bool) and str(word).strip() != ""


def _info(info: Mapping[str, bool]) -> dict[str, Json]:
    return {**info, "success": info["correct"]}


__all__ = ["QAEnv", "SimpleQAEnv", "TextModel", "Transition", "echo_model", "generate_reply", "run_episode"]
