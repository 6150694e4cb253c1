"""A small decoder-only transformer: its shape, its weights, and how they are kept.

The weights are those of transformers' `Qwen2ForCausalLM`, under the same names
and with the same configuration, so that a saved folder loads there and in
anything that reads Qwen2.  The computation is our own (`forward.py`): at 0.1 M
parameters, a general implementation spends most of its time between the
kernels.  Weights are safetensors only; nothing is unpickled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from ...atomic import whole_file, whole_folder
from ...errors import InputError, MissingExtra, NotFoundError
from ...escapes import read_json
from ...types import Json, Version
from .vocabulary import WORDS, Vocabulary

WEIGHTS, CONFIG = "model.safetensors", "config.json"


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Shape of the network; about 93,000 parameters as it stands, with 150 tokens."""

    hidden: int = 64
    """Width of the residual stream."""
    layers: int = 2
    """Number of decoder layers."""
    heads: int = 4
    """Query heads; `hidden / heads` is the width of one."""
    kv_heads: int = 2
    """Key and value heads, each shared by `heads / kv_heads` query heads."""
    ffn: int = 152
    """Width inside the feed-forward layers."""
    max_length: int = 1024
    """Longest context in tokens, prompt and output of all turns together."""
    rope_theta: float = 10_000.0
    """Base of the rotary position frequencies."""
    norm_epsilon: float = 1e-6
    """Added to the mean square inside each RMSNorm."""
    init_std: float = 0.1
    """Standard deviation of the initial weights; so narrow a network learns sooner from more than 0.02."""

    def __post_init__(self) -> None:
        if min(self.hidden, self.layers, self.heads, self.kv_heads, self.ffn, self.max_length) < 1:
            raise InputError(f"every size of a model must be at least 1; got {self}")
        if self.hidden % self.heads or self.heads % self.kv_heads or (self.hidden // self.heads) % 2:
            raise InputError(
                f"hidden={self.hidden} must be a multiple of heads={self.heads} with an even quotient, "
                f"and heads a multiple of kv_heads={self.kv_heads}"
            )

    @property
    def head_width(self) -> int:
        """Width of one head."""
        return self.hidden // self.heads


class Decoder(nn.Module):
    """The weights, under transformers' names; input and output embeddings are tied.

    It computes nothing itself: `forward.py` does, from these parameters.

    Args:
        words: what its ids stand for, where that is known; kept beside the weights, so that a folder
            made by training can be served as the one that it began from.
    """

    def __init__(self, options: ModelOptions, vocab_size: int, words: Vocabulary | None = None) -> None:
        super().__init__()
        self.options = options
        self.vocab_size = vocab_size
        self.words = words
        self.names: list[str] = []
        for name, shape in shapes(options, vocab_size).items():
            # a module may not have dots in a parameter's name, and transformers' names do
            self.register_parameter(name.replace(".", "/"), nn.Parameter(torch.empty(shape)))
            self.names.append(name)

    @property
    def hidden(self) -> int:
        """Width of its states."""
        return self.options.hidden

    @property
    def max_length(self) -> int:
        """The longest context that it takes, in tokens."""
        return self.options.max_length

    def weight(self, name: str) -> nn.Parameter:
        """The parameter of this (dotted) name."""
        parameter = self._parameters[name.replace(".", "/")]
        assert parameter is not None
        return parameter

    def weights(self) -> dict[str, nn.Parameter]:
        """Name → parameter, in a fixed order."""
        return {name: self.weight(name) for name in self.names}

    def copy_from(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Take these values.

        Raises:
            InputError: a name or a shape does not fit.
        """
        own = self.weights()
        if set(own) != set(weights):
            odd = sorted(set(own) ^ set(weights))
            raise InputError(f"these weights belong to another model: {', '.join(odd[:3])} on one side only")
        with torch.no_grad():
            for name, parameter in own.items():
                if parameter.shape != weights[name].shape:
                    raise InputError(
                        f"{name} has shape {tuple(weights[name].shape)}, not {tuple(parameter.shape)}; "
                        "the configuration and the weights do not belong together"
                    )
                parameter.copy_(weights[name])

    def copy(self) -> Decoder:
        """The same model with weights of its own."""
        twin = Decoder(self.options, self.vocab_size, self.words)
        twin.copy_from(self.weights())
        return twin

    def count(self) -> int:
        """Number of parameters."""
        return sum(parameter.numel() for parameter in self.parameters())


def shapes(options: ModelOptions, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """Name → shape of every parameter; matrices are (out, in)."""
    hidden, ffn, kv = options.hidden, options.ffn, options.kv_heads * options.head_width
    shape_of: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab_size, hidden)}
    for number in range(options.layers):
        layer = f"model.layers.{number}"
        shape_of |= {
            f"{layer}.input_layernorm.weight": (hidden,),
            f"{layer}.self_attn.q_proj.weight": (hidden, hidden),
            f"{layer}.self_attn.q_proj.bias": (hidden,),
            f"{layer}.self_attn.k_proj.weight": (kv, hidden),
            f"{layer}.self_attn.k_proj.bias": (kv,),
            f"{layer}.self_attn.v_proj.weight": (kv, hidden),
            f"{layer}.self_attn.v_proj.bias": (kv,),
            f"{layer}.self_attn.o_proj.weight": (hidden, hidden),
            f"{layer}.post_attention_layernorm.weight": (hidden,),
            f"{layer}.mlp.gate_proj.weight": (ffn, hidden),
            f"{layer}.mlp.up_proj.weight": (ffn, hidden),
            f"{layer}.mlp.down_proj.weight": (hidden, ffn),
        }
    shape_of["model.norm.weight"] = (hidden,)
    return shape_of


def build(options: ModelOptions, vocab_size: int, seed: int) -> Decoder:
    """A fresh model: matrices from N(0, init_std²), biases 0, norms 1; the same seed gives the same weights.

    Raises:
        InputError: an empty vocabulary.
    """
    if vocab_size < 1:
        raise InputError(f"a model needs a vocabulary of at least one token; got {vocab_size}")
    decoder = Decoder(options, vocab_size)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in decoder.weights().items():
            if parameter.ndim == 2:
                # One stream, drawn in the order of `shapes`: another order is another model for a seed.
                parameter.normal_(0.0, options.init_std, generator=generator)
            else:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
    return decoder


def configuration(decoder: Decoder) -> dict[str, Json]:
    """The content of transformers' config.json; our own options ride along under `whet`."""
    options = decoder.options
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": decoder.vocab_size,
        "hidden_size": options.hidden,
        "intermediate_size": options.ffn,
        "num_hidden_layers": options.layers,
        "num_attention_heads": options.heads,
        "num_key_value_heads": options.kv_heads,
        "max_position_embeddings": options.max_length,
        "hidden_act": "silu",
        "rms_norm_eps": options.norm_epsilon,
        "initializer_range": options.init_std,
        "rope_parameters": {"rope_type": "default", "rope_theta": options.rope_theta},
        "tie_word_embeddings": True,
        "attention_dropout": 0.0,
        "use_cache": True,
        # The ids of `Vocabulary`: <bos> 1, <eos> 3, <pad> 0.
        "bos_token_id": 1,
        "eos_token_id": 3,
        "pad_token_id": 0,
        "dtype": "float32",
        "whet": asdict(options),
    }


def to_transformers(decoder: Decoder) -> Any:
    """The same model as a `transformers.Qwen2ForCausalLM` with its own copy of the weights.

    Raises:
        MissingExtra: transformers is not installed.
    """
    try:
        from transformers import Qwen2Config, Qwen2ForCausalLM  # seconds to import, and only oracles need it
    except ImportError as error:
        raise MissingExtra("transformers", "train") from error
    config = {key: value for key, value in configuration(decoder).items() if key not in ("whet", "dtype")}
    model = Qwen2ForCausalLM(Qwen2Config(**config))
    missing, unexpected = model.load_state_dict(
        {name: parameter.detach() for name, parameter in decoder.weights().items()}, strict=False
    )
    assert not unexpected, unexpected
    # The output layer is tied and has no entry of its own; `tie_weights` below joins it to the embedding.
    assert set(missing) <= {"lm_head.weight"}, missing
    model.tie_weights()
    model.train(False)
    return model


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_tensors(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write a safetensors file that is either whole or not there, and is on disk when this returns."""
    with whole_file(path) as partial:
        # safetensors refuses a tensor that is not contiguous.
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, partial)


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read a safetensors file.

    Raises:
        NotFoundError: no such file.
        InputError: it is something else, a pickle for instance.
    """
    if not path.is_file():
        raise NotFoundError(f"no weights at {path}; were they moved, or saved on another machine?")
    if path.suffix != ".safetensors":
        raise InputError(f"{path} is not a .safetensors file; nothing else is read, as pickles can run code")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise InputError(f"{path} is not a safetensors file, or is damaged: {error}") from error


def save(decoder: Decoder, folder: Path) -> None:
    """Write weights, configuration and words, if any, to a folder that is either whole or not there.

    Raises:
        InputError: the folder holds something already.
    """
    with whole_folder(Path(folder)) as partial:
        (partial / CONFIG).write_bytes(msgspec.json.format(msgspec.json.encode(configuration(decoder))))
        if decoder.words is not None:
            decoder.words.save(partial / WORDS)
        save_tensors(decoder.weights(), partial / WEIGHTS)


def load(folder: Path, *, sha: str | None = None) -> Decoder:
    """Read what `save` wrote.

    Args:
        sha: expected SHA-256 of the weights file; None to take what is there.

    Raises:
        NotFoundError: nothing is there.
        InputError: it is damaged, was changed since, or is no model of ours.
    """
    folder = Path(folder)
    if not (folder / WEIGHTS).is_file():
        raise NotFoundError(f"no {WEIGHTS} in {folder}; were the weights moved, or saved on another machine?")
    if sha is not None and (digest := sha256(folder / WEIGHTS)) != sha:
        raise InputError(
            f"{folder / WEIGHTS} was changed since it was saved: sha256 {digest[:12]}, not {sha[:12]}"
        )
    tensors = load_tensors(folder / WEIGHTS)
    option_names = {field.name for field in fields(ModelOptions)}
    try:
        config = read_json(msgspec.json.decode, (folder / CONFIG).read_bytes())
        options = ModelOptions(**{key: value for key, value in config["whet"].items() if key in option_names})
        vocab_size = int(config["vocab_size"])
    except (OSError, msgspec.DecodeError, KeyError, AttributeError, TypeError) as error:
        raise InputError(f"{folder / CONFIG} does not describe a model of ours: {error!r}") from error
    words = Vocabulary.load(folder / WORDS) if (folder / WORDS).is_file() else None
    decoder = Decoder(options, vocab_size, words)
    decoder.copy_from(tensors)
    return decoder


def weights_version(
    resource: str, folder: Path, parent: str | None = None, meta: Mapping[str, Json] | None = None
) -> Version:
    """The Version of the weights saved in `folder`.

    Its id depends on the resource and the weights alone: the same weights in another folder are the
    same Version.
    """
    folder = Path(folder)
    path = folder / WEIGHTS
    if not path.is_file():
        raise NotFoundError(f"no {WEIGHTS} in {folder}; save the model there first")
    digest = sha256(path)
    same = Version(resource=resource, kind="weights", content={"sha256": digest}).id
    return Version(
        resource=resource,
        kind="weights",
        content={"path": str(folder.resolve()), "sha256": digest},
        parent=parent,
        meta=dict(meta or {}),
        id=same,
    )
