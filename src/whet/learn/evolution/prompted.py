"""The agent that is one prompt: a row's input in, one call of a model, its answer out.

The prompt is the system message and the input the user's; a prompt with `{input}`, or with `{name}` for the members
of an input that has some, is filled in and is the whole message.  A question that was asked under a prompt is not
asked again: answers are recorded.
"""

from __future__ import annotations

import re

from ...errors import EnvError
from ...models import RecordedModel
from ...record.env import StepResult
from ...record.policy import Action
from ...record.rows import as_text
from ...types import Bundle, Json, Task

_SLOT = re.compile(r"\{(\w+)\}")


def messages_of(prompt: str, input: Json) -> list[dict[str, Json]]:
    """The chat of a prompt and an input."""
    values = input if isinstance(input, dict) else {"input": input}
    slots = {name for name in _SLOT.findall(prompt) if name in values}
    if slots:
        # Not str.format: a prompt may hold other braces, of JSON for instance.
        filled = _SLOT.sub(lambda slot: as_text(values[slot[1]]) if slot[1] in slots else slot[0], prompt)
        return [{"role": "user", "content": filled}]
    question: dict[str, Json] = {"role": "user", "content": as_text(input)}
    return [{"role": "system", "content": prompt}, question] if prompt.strip() else [question]


class QuestionEnv:
    """An Env of one question and one answer."""

    def __init__(self) -> None:
        self._open = False

    def reset(self, task: Task, seed: int) -> Json:
        """The row's input."""
        self._open = True
        return task.initial_state.get("input", task.instruction)

    def step(self, action: Json) -> StepResult:
        """Take the answer; that is the end.

        Raises:
            EnvError: stepped before reset or after the end.
        """
        if not self._open:
            raise EnvError("QuestionEnv was stepped before reset or after the end.")
        self._open = False
        return StepResult(None, terminated=True)


class PromptAgent:
    """A factory of Envs that brings its policy: a model under the prompt of a Bundle.

    Args:
        resource: name of the prompt in the Bundle.
        default: the prompt where the Bundle names none.
        model: answers; `RecordedModel`, so that nothing is asked twice.
        temperature: of its calls; the endpoint's own if None.
    """

    def __init__(
        self, resource: str, default: str, model: RecordedModel, *, temperature: float | None = None
    ) -> None:
        self.resource, self.default, self.model = resource, default, model
        self.settings = {} if temperature is None else {"temperature": temperature}

    def __call__(self) -> QuestionEnv:
        return QuestionEnv()

    def policy(self, bundle: Bundle, seed: int, /) -> _Answering:
        """The policy of one rollout."""
        version = bundle.get(self.resource)
        return _Answering(self, self.default if version is None else str(version.content))


class _Answering:
    def __init__(self, agent: PromptAgent, prompt: str) -> None:
        self._agent, self._prompt = agent, prompt

    async def act(self, observation: Json, /) -> Action:
        agent = self._agent
        # Always sample 0: the same question under the same prompt is the same answer, in the search and at the gate.
        answer = await agent.model.complete(
            messages_of(self._prompt, observation), sample=0, **agent.settings
        )
        return Action(answer.text, usage=answer.usage)
