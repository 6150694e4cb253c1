"""A policy server on a real socket, and the small policies that it serves in the tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import openai
import torch
from training_toys import SMALL, VOCABULARY

from whet.learn.training import huggingface
from whet.learn.training.model import ModelOptions, build
from whet.learn.training.network import Network
from whet.learn.training.serving.engine import EngineOptions
from whet.learn.training.serving.host import Host
from whet.learn.training.serving.text import TemplateText, TextCodec, WordText
from whet.serve import Access, Role, Server, running
from whet.serve.policy import PolicyPart, WeightLoader

torch.set_num_threads(1)
TOKEN = "whet-token-of-the-tests"
TEMPLATE = (
    "{% if tools %}<tool_call> tools: {% for tool in tools %}{{ tool | tojson }}{% endfor %}\n{% endif %}"
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}"
    "{% if message.tool_calls %}{% for call in message.tool_calls %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n'
    "</tool_call>{% endfor %}{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
PLAIN = TEMPLATE.replace("<tool_call>", "").replace("</tool_call>", "")


@dataclass
class Serving:
    """What a test asks."""

    url: str
    host: Host
    text: TextCodec

    def post(self, path: str, body: Any, *, token: str = TOKEN) -> httpx2.Response:
        with httpx2.Client(verify=False, timeout=90) as client:
            return client.post(f"{self.url}{path}", json=body, headers={"authorization": f"Bearer {token}"})

    def chat(self, *messages: Any, **options: Any) -> Any:
        """A plain answer, as JSON; a string is a message of the user."""
        given = [{"role": "user", "content": one} if isinstance(one, str) else one for one in messages]
        found = self.post("/v1/chat/completions", {"model": "policy", "messages": given, **options})
        assert found.status_code == 200, found.text
        return found.json()

    @contextmanager
    def stream(self, body: dict[str, Any]) -> Iterator[Iterator[str]]:
        """The lines of a streamed answer, for as long as the block lasts."""
        with (
            httpx2.Client(verify=False, timeout=90) as client,
            client.stream(
                "POST",
                f"{self.url}/v1/chat/completions",
                json={**body, "stream": True},
                headers={"authorization": f"Bearer {TOKEN}"},
            ) as found,
        ):
            assert found.status_code == 200
            yield found.iter_lines()

    def openai(self) -> openai.OpenAI:
        client = openai.DefaultHttpxClient(verify=False)
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=TOKEN, max_retries=0, http_client=client)


@contextmanager
def serving(
    network: Network,
    text: TextCodec,
    *,
    options: EngineOptions | None = None,
    allowed: Sequence[Path] = (),
    policy_version: str = "0",
    host: Host | None = None,
) -> Iterator[Serving]:
    """Serve one policy under the name `policy` while the block runs."""
    with host or Host(options) as host:
        host.publish("policy", network, text, policy_version=policy_version)
        weights = WeightLoader(host, "policy", network, text, allowed=allowed)
        server = Server(Access({Role.ADMIN: TOKEN}), [PolicyPart(host, weights)])
        with running(server) as url:
            yield Serving(url, host, text)


def embedded(seed: int = 0, **changes: Any) -> tuple[Network, TextCodec]:
    """Random weights over digits."""
    options = ModelOptions(
        **{"hidden": 32, "heads": 2, "kv_heads": 1, "ffn": 64, "max_length": 64, **changes}
    )
    return build(options if changes else SMALL, len(VOCABULARY), seed), WordText(VOCABULARY)


def byte_tokenizer(folder: Path, template: str = TEMPLATE) -> Any:
    """A byte-level tokenizer with a chat template, saved as one downloads it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {piece: number for number, piece in enumerate(alphabet)}
    # merges, so that text cut up anew may become other tokens than were sampled
    merges = [("a", "b"), ("b", "c"), ("ab", "c")]
    words |= {"".join(pair): len(words) + place for place, pair in enumerate(merges)}
    made = Tokenizer(models.BPE(vocab=words, merges=merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>")
    fast.add_special_tokens(
        {"additional_special_tokens": ["<|user|>", "<|assistant|>", "<|tool|>", "<|system|>"]}
    )
    fast.add_tokens(["<tool_call>", "</tool_call>", "</think>"])
    fast.chat_template = template
    fast.save_pretrained(folder)
    return fast


def downloaded(folder: Path, *, seed: int = 0, max_length: int = 512, template: str = TEMPLATE) -> Path:
    """A folder with a small causal language model and its tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = byte_tokenizer(folder, template)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=max_length,
        initializer_range=0.3,
        eos_token_id=tokenizer.eos_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def template_text(folder: Path) -> TemplateText:
    from whet.learn.training.serving.text import text_of

    found = text_of(folder)
    assert isinstance(found, TemplateText)
    return found


def causal(folder: Path) -> tuple[Network, TextCodec]:
    """What `downloaded` made, loaded."""
    return huggingface.load(folder), template_text(folder)
