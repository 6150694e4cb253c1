"""The agent that is one prompt: a row's input in, one call of a model, its answer out.

The prompt is the system message and the input the user's; a prompt with slots (`slots`), `{input}` or the name of a
column, is filled in and is the whole message.  A question that was asked under a prompt is not
asked again: answers are recorded.
"""

from __future__ import annotations

from ....errors import EnvError
from ....models import RecordedModel
from ....record.env import StepResult
from ....record.policy import Action
from ....record.rows import as_text
from ....types import Bundle, Json, Task
from ..editing.slots import INPUT, filled


def messages_of(prompt: str, input: Json, *, column: str = INPUT) -> list[dict[str, Json]]:
    """The chat of a prompt and an input.

    Args:
        column: of an input that has no members, whose name a slot may have too.
    """
    values = input if isinstance(input, dict) else {INPUT: input, column: input}
    message = filled(prompt, values)
    if message is not None:
        return [{"role": "user", "content": message}]
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
        column: of an input that has no members.
    """

    def __init__(
        self,
        resource: str,
        default: str,
        model: RecordedModel,
        *,
        temperature: float | None = None,
        column: str = INPUT,
    ) -> None:
        self.resource, self.default, self.model, self.column = resource, default, model, column
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
            messages_of(self._prompt, observation, column=agent.column), sample=0, **agent.settings
        )
        return Action(answer.text, usage=answer.usage)
