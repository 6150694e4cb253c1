"""A chat policy for any local model: observations become messages, answers become actions.

The model's own tokenizer and chat template write the prompt.  Within a rollout each turn extends the tokens of
the turn before, answers as they were sampled, so that a rollout is one sequence in training (`batch.merge`).  Where the
template rewrites history (drops thoughts, say) the turn starts a sequence of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import msgspec

from ...errors import InputError
from ...models.sampling import TokenSampler, TokenSession
from ...record.policy import Action
from ...record.store.bundles import BUNDLE_FILE, read_bundle
from ...types import Bundle, Json, Version, digest
from .huggingface import LoRAOptions, within_reach
from .local import LocalModels, adopted
from .serving.text import IdText, TemplateText, TextCodec, text_of
from .text_rows import stop_of

ANSWER_TOKENS = 64

Opening = Callable[[str], list[dict[str, Json]]]
"""The messages of a first turn, of its observation."""


class ChatPolicy:
    """Makes chat policies of a local model; a PolicyFactory.

    An observation is the user's message: text as it is, anything else as JSON.  The model's answer, without
    special tokens and outer space, is the action, with its token ids and log-probabilities.

    Args:
        model: folder or hub name of a causal language model with tokenizer and chat template, folder of a decoder of
            whet's with a `vocabulary.json`, or output folder of `whet train`.
        system: text of the system message; none if empty. A template without a system role gets it before the first
            user message.
        answer_tokens: most tokens of an answer.
        resource: the weights in the Bundle; a Bundle without them is answered by `model` itself.
        temperature: divides the logits before sampling.
        greedy: take the likeliest token instead of sampling.
        models: where weights live; the process's own if None. `RemoteModels` samples from a policy server.

    Raises:
        InputError: the model has no tokenizer, no chat template, or cannot read the system message.
        NotFoundError, MissingExtra: as `whet.learn.training.huggingface.load`.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        system: str = "",
        answer_tokens: int = ANSWER_TOKENS,
        resource: str = "policy",
        temperature: float = 1.0,
        greedy: bool = False,
        models: LocalModels | None = None,
    ) -> None:
        if answer_tokens < 1:
            raise InputError(f"answer_tokens must be 1 or more; got {answer_tokens}")
        self.model, self.system, self.answer_tokens = str(model), system, answer_tokens
        self.resource, self._temperature, self._likeliest = resource, temperature, greedy
        self._models = models or LocalModels.shared()
        self._start: Bundle | None = None
        self._text = codec_of(self.model, resource)
        self._folds = self._refuses_system()

    @property
    def bundle(self) -> Bundle:
        """The model's own weights, to start training from."""
        if self._start is None:
            self._start = starting_weights(self.model, self.resource)
        return self._start

    def greedy(self) -> ChatPolicy:
        """The same policy, which takes the likeliest token instead of sampling."""
        return ChatPolicy(
            self.model,
            system=self.system,
            answer_tokens=self.answer_tokens,
            resource=self.resource,
            greedy=True,
            models=self._models,
        )

    def __call__(self, bundle: Bundle, seed: int) -> ChatSession:
        """The policy of one rollout."""
        version = (bundle if self.resource in bundle else self.bundle)[self.resource]
        sampler = self._models.sampler(version, greedy=self._likeliest, temperature=self._temperature)
        return ChatSession(sampler, self._text, self._opening, self.answer_tokens, seed)

    def _opening(self, observation: str) -> list[dict[str, Json]]:
        """The messages of a first turn."""
        if not self.system:
            return [_message("user", observation)]
        if self._folds:
            return [_message("user", f"{self.system}\n\n{observation}")]
        return [_message("system", self.system), _message("user", observation)]

    def _refuses_system(self) -> bool:
        """True if the template has no system role; raises where it cannot write a chat at all.

        Here and not at the first turn: there it would be each rollout's failure.
        """
        self._text.render([_message("user", "")], ())
        if not self.system:
            return False
        try:
            prompt = self._text.render([_message("system", self.system), _message("user", "")], ())
        except InputError:
            return True
        # Some templates drop a system message without a word.
        if self.system.strip() not in prompt and isinstance(self._text, TemplateText):
            return True
        self._text.encode(prompt)
        return False


class ChatSession:
    """The chat of one rollout; made by ChatPolicy.

    Args:
        opening: makes the messages of the first turn of its observation.
    """

    def __init__(
        self,
        sampler: TokenSampler,
        text: TextCodec,
        opening: Opening,
        answer_tokens: int,
        seed: int,
    ) -> None:
        self._sampler, self._text, self._opening = sampler, text, opening
        self._limit, self._seed = answer_tokens, seed
        self._messages: list[dict[str, Json]] = []
        self._session: TokenSession | None = None
        self._written = ""
        """The session's context as text."""
        self._turns = 0

    async def act(self, observation: Json) -> Action:
        """The model's answer to the observation."""
        said = observation if isinstance(observation, str) else msgspec.json.encode(observation).decode()
        self._messages += [_message("user", said)] if self._messages else self._opening(said)
        prompt = self._text.render(self._messages, ())
        if self._session is None or not prompt.startswith(self._written):
            # Not the rollout's seed again: the same numbers would be drawn as in its first turn.
            seed = self._seed if not self._turns else int(digest([self._seed, self._turns], 12), 16)
            self._session, self._written = self._sampler.session(seed), ""
        fresh = self._text.encode(prompt[len(self._written) :])
        sampled = await self._session.generate(fresh, stop_id=stop_of(self._text), max_new_tokens=self._limit)
        output = sampled.output_ids
        self._written = self._text.joined(prompt, self._text.decode(output, special=True))
        ended = bool(output) and output[-1] in self._text.eos
        # As it was sampled, so that the next prompt begins with it; without its end, which the template writes.
        raw = self._text.decode(output[:-1] if ended else output, special=True)
        self._messages.append(_message("assistant", raw))
        self._turns += 1
        return Action(self._text.decode(output).strip(), sampled.tokens, sampled.usage)


def starting_weights(
    model: str | Path, resource: str, folder: Path | None = None, *, lora: LoRAOptions | None = None
) -> Bundle:
    """The weights that a model's name stands for: those that a training run ended with, or a pretrained model's.

    Args:
        folder: where fresh LoRA factors are written; a temporary folder if None.
        lora: factors to train beside a pretrained model.

    Raises:
        InputError: the training run has no weights of that name, or LoRA factors are asked for beside them.
        NotFoundError, MissingExtra: as `whet.learn.training.huggingface.load`.
    """
    ended = Path(model) / BUNDLE_FILE
    if not ended.is_file():
        return Bundle([adopted(resource, model, folder or Path(mkdtemp(prefix="whet-")), lora=lora)])
    if lora is not None:
        raise InputError(
            f"{model} is a training run, whose weights are trained on as they are; leave out --lora-rank, or give the "
            "folder of the weights as the model"
        )
    return Bundle([_ended_with(ended, resource)])


def _ended_with(path: Path, resource: str) -> Version:
    versions = read_bundle(path).bundle
    if resource not in versions:
        raise InputError(f"{path} has no {resource!r}, only {sorted(versions)}")
    return versions[resource]


def codec_of(model: str, resource: str = "policy") -> TextCodec:
    """The TextCodec of a model: folder, hub name, or output folder of a training run.

    Raises:
        InputError: it has neither tokenizer nor vocabulary.
    """
    folder = Path(model)
    if (folder / BUNDLE_FILE).is_file():
        content = _ended_with(folder / BUNDLE_FILE, resource).content
        folder = Path((content.get("base") or content)["path"])
    within_reach(folder)
    text = text_of(folder)
    if isinstance(text, IdText):
        raise InputError(
            f"{model} has no tokenizer, so messages cannot become tokens; give a model with tokenizer.json and a chat "
            "template, or a policy of your own (--policy module:function)"
        )
    return text


def _message(role: str, content: str) -> dict[str, Json]:
    return {"role": role, "content": content}
