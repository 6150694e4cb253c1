"""A Bundle's model, parameters, prompt and route, and their application to a request.

Four resources of a Bundle speak to the gateway; one that is absent changes nothing:

- `gateway.model`: a model's name, or `{"name": ..., "policy_version": ...}`.  With a policy version
  the upstream's answers must carry it; one that does not is an error, not an answer.
- `gateway.parameters`: decoding parameters in the words of the chat API (`temperature`,
  `max_tokens`, `stop`, ...), which replace the agent's own.
- `gateway.system_prompt`: a text that replaces the agent's system prompt, or
  `{"text": ..., "mode": "replace" | "prepend" | "append"}`, or, for an agent with several prompts,
  `{"rewrites": {"the whole old prompt": "the new one"}}`, or, where a framework writes more around the prompt,
  `{"passages": {"the old passage": "the new one"}}`, each of which is replaced wherever it stands in it.
- `gateway.route`: `{"upstream": NAME}`, or `{"split": {NAME: share, ...}}`, which a run falls into by
  the hash of its id.  Names are those that the operator gave; a Bundle cannot name an address.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import InputError
from ...record.store.releases import GATEWAY
from ...record.store.releases import GATEWAY_MODEL as MODEL
from ...record.store.releases import GATEWAY_PARAMETERS as PARAMETERS
from ...record.store.releases import GATEWAY_PROMPT as SYSTEM_PROMPT
from ...record.store.releases import GATEWAY_ROUTE as ROUTE
from ...types import Bundle, Fault, Json
from .failures import UpstreamFailed

DECODING = frozenset(
    {
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "max_tokens",
        "max_completion_tokens",
        "seed",
        "stop",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
        "logit_bias",
        "reasoning_effort",
        "parallel_tool_calls",
    }
)
"""The fields that `gateway.parameters` may set: how an answer is sampled, never the question."""
_WORDS: Mapping[str, Mapping[str, str]] = {
    "responses": {
        "temperature": "temperature",
        "top_p": "top_p",
        "max_tokens": "max_output_tokens",
        "max_completion_tokens": "max_output_tokens",
        "parallel_tool_calls": "parallel_tool_calls",
    },
    "messages": {
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
        "max_tokens": "max_tokens",
        "max_completion_tokens": "max_tokens",
        "stop": "stop_sequences",
    },
}
"""API → chat's word for a parameter → its own."""
_MODES = ("replace", "prepend", "append")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBundle:
    """A Bundle as the gateway serves it.  Immutable: a call keeps the one that it began with."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """Resource → Version id, of the gateway's resources alone."""
    model: str | None = None
    policy_version: str | None = None
    parameters: Mapping[str, Json] = field(default_factory=dict)
    prompt: str | None = None
    mode: str = "replace"
    rewrites: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    """Upstream → share of the runs; empty where the Bundle does not say."""
    trials: Mapping[str, Json] = field(default_factory=dict)
    """Canaries that the run was drawn for, with its arm in each."""

    @property
    def changes(self) -> bool:
        """True if requests are altered at all."""
        return bool(self.model or self.parameters or self.prompt is not None or self.rewrites)

    def upstream(self, key: str) -> str | None:
        """The upstream of the run with this key: the same one each time; None where any will do."""
        if not self.shares:
            return None
        # Not hash(), which differs between processes: a run must stay where it is after a restart.
        point = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) / 2**64
        total = sum(self.shares.values())
        for name, share in self.shares.items():
            point -= share / total
            if point < 0:
                return name
        return next(reversed(list(self.shares)))  # the rounding of the shares

    def applied(self, request: Mapping[str, Any], api: str, *, translated: bool) -> dict[str, Any]:
        """A copy of a request in the dialect `api`, as this Bundle has it.

        Raises:
            UpstreamFailed: a parameter that the API does not have, which must not be left out silently.
        """
        # Shallow: what is changed below gets new lists and dicts, never the caller's changed in place.
        body = dict(request)
        if self.model is not None:
            body["model"] = self.model
        self._set_parameters(body, api, translated=translated)
        if self.prompt is not None or self.rewrites:
            _PROMPTS[api](body, self._prompt)
        return body

    def _set_parameters(self, body: dict[str, Any], api: str, *, translated: bool) -> None:
        words = _WORDS.get(api)
        for name, value in self.parameters.items():
            word = name if words is None else words.get(name, name if translated else None)
            if word is None and api == "responses" and name == "reasoning_effort":
                body["reasoning"] = {**(body.get("reasoning") or {}), "effort": value}
                continue
            if word is None:
                raise UpstreamFailed(
                    Fault.ENVIRONMENT,
                    "parameter_not_supported",
                    f"Version {self.versions[PARAMETERS]} of {PARAMETERS} sets {name}, which the {api} API "
                    "does not have. Release one without it, or route to a chat upstream.",
                    status=500,
                )
            # Two names of one limit: the agent's under the other name would stand beside the Bundle's.
            if word in ("max_tokens", "max_completion_tokens"):
                body.pop("max_tokens", None)
                body.pop("max_completion_tokens", None)
            body[word] = [value] if word == "stop_sequences" and isinstance(value, str) else value

    def _prompt(self, old: str | None) -> str | None:
        """The system prompt in place of `old`; None leaves the request without one."""
        if self.mode == "passages" and old is not None:
            for passage, new in self.rewrites.items():
                old = old.replace(passage, new)
            return old
        if self.rewrites:
            return None if old is None else self.rewrites.get(old, old)
        if old is None or self.mode == "replace" or self.prompt is None:
            return self.prompt
        first, second = (self.prompt, old) if self.mode == "prepend" else (old, self.prompt)
        return f"{first}\n\n{second}"


def _text(content: Json) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content or () if isinstance(part, dict))


def _chat_prompt(body: dict[str, Any], change: Any) -> None:
    turns = list(body.get("messages") or ())
    first = turns[0] if turns and isinstance(turns[0], dict) else {}
    there = first.get("role") in ("system", "developer")
    old = _text(first.get("content")) if there else None
    new = change(old)
    if new is None or new == old:
        return
    turn = {**first, "content": new} if there else {"role": "system", "content": new}
    body["messages"] = [turn, *(turns[1:] if there else turns)]


def _responses_prompt(body: dict[str, Any], change: Any) -> None:
    conversation = body.get("input")
    items = conversation if isinstance(conversation, list) else []
    first = items[0] if items and isinstance(items[0], dict) else {}
    if body.get("instructions") is None and first.get("role") in ("system", "developer"):
        old = _text(first.get("content"))
        new = change(old)
        if new is not None and new != old:
            body["input"] = [{**first, "content": new}, *items[1:]]
        return
    new = change(body.get("instructions"))
    if new is not None:
        body["instructions"] = new


def _messages_prompt(body: dict[str, Any], change: Any) -> None:
    system = body.get("system")
    old = None if system is None else _text(system)
    new = change(old)
    if new is not None and new != old:  # an unchanged one keeps its blocks and their cache marks
        body["system"] = new


_PROMPTS = {"chat": _chat_prompt, "responses": _responses_prompt, "messages": _messages_prompt}


def served(bundle: Bundle, upstreams: Mapping[str, object]) -> ServedBundle:
    """A Bundle, compiled for the gateway.

    Args:
        upstreams: the names that its route may use.

    Raises:
        InputError: one of the gateway's resources is not as the module's text describes it.
    """
    versions = {name: bundle[name] for name in GATEWAY if name in bundle}
    content = {name: version.content for name, version in versions.items()}
    model, policy = _model(content.get(MODEL))
    prompt, mode, rewrites = _system_prompt(content.get(SYSTEM_PROMPT))
    return ServedBundle(
        versions={name: version.id for name, version in versions.items()},
        model=model,
        policy_version=policy,
        parameters=_parameters(content.get(PARAMETERS)),
        prompt=prompt,
        mode=mode,
        rewrites=rewrites,
        shares=_route(content.get(ROUTE), upstreams),
    )


def _model(content: Json) -> tuple[str | None, str | None]:
    if content is None:
        return None, None
    if isinstance(content, str) and content:
        return content, None
    if isinstance(content, dict) and isinstance(content.get("name"), str | None):
        version = content.get("policy_version")
        return content.get("name"), None if version is None else str(version)
    raise InputError(
        f"{MODEL} is {content!r:.80}; it must be a name or {{'name': ..., 'policy_version': ...}}."
    )


def _parameters(content: Json) -> Mapping[str, Json]:
    if content is None:
        return {}
    if not isinstance(content, dict) or not set(content) <= DECODING:
        strange = sorted(set(content) - DECODING) if isinstance(content, dict) else f"{content!r:.80}"
        raise InputError(f"{PARAMETERS} has {strange}; it may set {', '.join(sorted(DECODING))}.")
    return content


def _system_prompt(content: Json) -> tuple[str | None, str, Mapping[str, str]]:
    if content is None or isinstance(content, str):
        return content, "replace", {}
    if isinstance(content, dict):
        rewrites = content.get("rewrites")
        if isinstance(rewrites, dict) and all(isinstance(text, str) for text in rewrites.values()):
            return None, "replace", rewrites
        passages = content.get("passages")
        if isinstance(passages, dict) and all(old and isinstance(new, str) for old, new in passages.items()):
            return None, "passages", passages
        if isinstance(content.get("text"), str) and content.get("mode", "replace") in _MODES:
            return content["text"], content.get("mode", "replace"), {}
    raise InputError(
        f"{SYSTEM_PROMPT} is {content!r:.80}; it must be a text, {{'text': ..., 'mode': one of {_MODES}}}, "
        "{'rewrites': {old: new}} or {'passages': {old: new}}."
    )


def _route(content: Json, upstreams: Mapping[str, object]) -> Mapping[str, float]:
    if content is None:
        return {}
    shares = content.get("split") if isinstance(content, dict) else None
    if isinstance(content, dict) and isinstance(content.get("upstream"), str):
        shares = {content["upstream"]: 1.0}
    if not isinstance(shares, dict) or not shares:
        raise InputError(
            f"{ROUTE} is {content!r:.80}; it must be {{'upstream': NAME}} or {{'split': {{...}}}}."
        )
    unknown = sorted(set(shares) - set(upstreams))
    if unknown:
        raise InputError(f"{ROUTE} names {unknown}; this gateway has the upstreams {sorted(upstreams)}.")
    weights = list(shares.values())
    if not all(isinstance(weight, int | float) and weight >= 0 for weight in weights) or not sum(weights) > 0:
        raise InputError(f"{ROUTE} has the shares {weights}; they must be numbers from 0, not all 0.")
    return shares
