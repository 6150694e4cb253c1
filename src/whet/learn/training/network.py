"""The networks that a learner trains: our decoder, or a causal LM of transformers.

A `Network` has named parameters, gives states and logits at the targets of a
MicroBatch, copies itself and writes itself to a folder.  `ScalarHead` is what is put on the
states where a number is wanted: a value, a score, a step's quality.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import InputError, TrainingRefused
from ...types import Json, Version
from . import model, recomputing
from .batch import MicroBatch
from .forward import fuse, hidden_states
from .huggingface import CausalLM
from .model import Decoder
from .predictions import Output, Predictions

Network = Decoder | CausalLM


def pretrained(network: Network) -> bool:
    """True of whatever is no decoder of whet's own: it knows a language, and is trained at small rates."""
    return not isinstance(network, Decoder)


def adapted(network: Network) -> bool:
    """True if LoRA factors are trained and not all weights."""
    # What a server trains beside its own copy of a model is factors too.
    return pretrained(network) and getattr(network, "adapted", True)


def computing(network: Network) -> dict[str, Json]:
    """Where a network computes, in which numbers, and whether activations are computed again."""
    if isinstance(network, Decoder):
        return {"device": "cpu", "dtype": "float32", "recompute": False}
    dtype = network.layer_dtype or network.model.get_input_embeddings().weight.dtype
    return {
        "device": network.device.type,
        "dtype": str(dtype).removeprefix("torch."),
        "recompute": recomputing.enabled(network.model),
    }


def predict(network: Network, part: MicroBatch, temperature: float = 1.0) -> Predictions:
    """Predictions of a network at the targets of a MicroBatch; under autograd unless switched off."""
    return Predictions(_output(network, part), part, temperature=temperature)


def _output(network: Network, part: MicroBatch) -> Output:
    largest = int(part.layout.ids.max())
    if largest >= network.vocab_size:
        raise InputError(
            f"a trajectory has the token id {largest}, and the model knows {network.vocab_size} ids: these "
            "tokens are another model's; train the model that wrote them, or capture with this one"
        )
    length = int(part.layout.positions.max()) + 1
    if length > network.max_length:
        raise InputError(
            f"a trajectory is {length} tokens long, and the model takes {network.max_length}: leave out runs as long "
            "as that, or train a model with a longer context"
        )
    with explained(f"over {part.computed} tokens"):
        return _computed(network, part)


@contextmanager
def explained(activity: str) -> Iterator[None]:
    """Turn an allocator's failure into a refusal that says what to lower.

    Args:
        activity: the computation in words, for the message.

    Raises:
        TrainingRefused: memory ran out.
    """
    try:
        yield
    # TrainingRefused is a RuntimeError too: a refusal from within keeps its own message.
    except TrainingRefused:
        raise
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        lines = str(error).splitlines() or [type(error).__name__]
        raise TrainingRefused(
            f"out of memory {activity}: {lines[0]:.200}. No weights were changed. Lower part_tokens (what is "
            "computed at once) first, then minibatch or batch, then train LoRA factors instead of full weights."
        ) from error


def _out_of_memory(error: Exception) -> bool:
    # On the CPU torch raises a plain RuntimeError ("can't allocate memory"), on a GPU OutOfMemoryError.
    return isinstance(error, MemoryError) or ("memory" in str(error) and "alloc" in str(error).lower())


def _computed(network: Network, part: MicroBatch) -> Output:
    if isinstance(network, Decoder):
        fused = fuse(network)
        states = hidden_states(fused, part.layout).index_select(0, part.layout.index)
        return Output(states, fused.head)
    return network.output(part)


def target_outputs(network: Network, part: MicroBatch) -> tuple[Tensor, Tensor]:
    """(N, hidden) states and (N, vocabulary) logits at the targets of a MicroBatch, in one pass."""
    output = _output(network, part)
    if output.weight is None:
        assert output.logits is not None
        logits = output.logits
    else:
        logits = F.linear(output.states, output.weight, output.bias)
    return output.states.float().to(part.targets.device), logits.float().to(part.targets.device)


def target_states(network: Network, part: MicroBatch) -> Tensor:
    """(N, hidden) states at the targets of a MicroBatch."""
    return _output(network, part).states.float().to(part.targets.device)


def saved(
    network: Network, resource: str, folder: Path, parent: str | None, meta: Mapping[str, Json]
) -> Version:
    """Write it to `folder`, which must not exist, and return its Version."""
    if isinstance(network, Decoder):
        model.save(network, folder)
        return model.weights_version(resource, folder, parent, meta)
    network.save(folder)
    return network.version(resource, folder, parent, meta)


class ScalarHead(nn.Module):
    """A number from each state: linear, or through one layer of `width` units.

    Its last layer begins at zero, so that at first everything is worth the same and an advantage is
    the reward itself.

    Args:
        hidden: width of the states.
        width: units of the layer between; None for none.
        seed: of that layer's weights.
    """

    def __init__(self, hidden: int, width: int | None = None, *, seed: int = 0) -> None:
        super().__init__()
        self.inner: nn.Linear | None = None
        if width is not None:
            self.inner = nn.Linear(hidden, width)
            generator = torch.Generator().manual_seed(seed)
            with torch.no_grad():
                # From a generator of its own: torch's global stream would depend on what was built before.
                self.inner.weight.normal_(0.0, hidden**-0.5, generator=generator)
                self.inner.bias.zero_()
        self.out = nn.Linear(width or hidden, 1)
        with torch.no_grad():
            self.out.weight.zero_()
            self.out.bias.zero_()

    def forward(self, states: Tensor) -> Tensor:
        """(..., hidden) → (...)."""
        if self.inner is not None:
            states = torch.tanh(self.inner(states))
        value: Tensor = self.out(states).squeeze(-1)
        return value
