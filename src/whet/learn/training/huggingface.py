"""Causal language models of transformers as networks: full weights or LoRA, safetensors only.

A model is given by folder, or by a name that is already in the local cache or can be
fetched.  It computes logits only where targets are, if a probe at loading shows that
its backbone and output layer alone give what its whole forward gives, and its configuration
names no scale or cap of the logits; otherwise it computes them everywhere.  Another probe shows whether its
attention can be packed (`packed_attention.py`); otherwise rows are padded.  Frozen weights are shared
between a network and its copies, so the reference of a LoRA run costs its factors alone.

It will not run code that came with a model (`trust_remote_code`), nor read pickles.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from ...atomic import whole_folder
from ...errors import InputError, MissingExtra, NotFoundError
from ...escapes import read_json
from ...types import Json, Version
from . import model as ours
from . import norms, packed_attention, recomputing, sharding
from .batch import MicroBatch
from .compute import ComputeOptions
from .importing import importing
from .memory import changes_logits, shape_of, with_recomputing
from .options import LORA_TARGETS
from .packing import WORTH, Layout, plan
from .placement import Placement, placed
from .predictions import Output
from .processes import of_first, place

ADAPTER, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
)
"""Files by which tokenizers of transformers are kept, each kind by some of them."""
# peft imports bitsandbytes wherever that is installed, which then speaks of a kernel for processors that it would like.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
PROBE = WORTH + 4
"""Tokens that two sequences share when it is tried whether a model computes them once."""

LARGE_LOGITS = 300.0
"""Size of logits at which a cap of some tens, or of some hundreds, shows."""


@dataclass(frozen=True, kw_only=True)
class LoRAOptions:
    """Low-rank factors beside frozen weights (Hu et al. 2021), by peft."""

    rank: int = 16
    """Width of the factors."""
    alpha: int = 32
    """The factors' product is scaled by alpha / rank."""
    targets: tuple[str, ...] = LORA_TARGETS
    """Names of the layers that get factors; those a model does not have are passed over."""
    seed: int = 0
    """Of the factors' first weights; their product begins at zero."""

    def __post_init__(self) -> None:
        if self.rank < 1 or not self.targets:
            raise InputError(f"LoRA needs a rank of 1 or more and a layer to go beside; got {self}")


class CausalLM:
    """A transformers model as a Network.

    Args:
        model: owned from here on; with peft factors or without.
        base: what the factors stand beside, as `{"path", "sha256"}`; None for full weights.
        saved_as: dtype that full weights are written in; what they have if None.
        layer_dtype: dtype in which layers compute where processes share them; as loaded if None.
        home: where its weights will be once they are shared out, of a model that the first process alone has
            read (`load(to_share=True)`); None where every process has all of it.
    """

    def __init__(
        self,
        model: Any,
        *,
        base: Mapping[str, Json] | None = None,
        saved_as: torch.dtype | None = None,
        layer_dtype: torch.dtype | None = None,
        home: torch.device | None = None,
    ) -> None:
        self.model = model.eval()  # dropout would make a ratio of 1 something else
        for module in model.modules():
            # bitsandbytes repacks what does not train for a kernel of processors that has no backward pass.
            if type(module).__name__ == "Linear4bit":
                module.training = True
        self.base = dict(base) if base else None
        self.saved_as, self.layer_dtype, self.home = saved_as, layer_dtype, home
        config = model.config.get_text_config()
        self.vocab_size = int(model.get_output_embeddings().weight.shape[0])
        self.hidden = int(config.hidden_size)
        self.max_length = int(getattr(config, "max_position_embeddings", None) or 2**31)
        self.window = packed_attention.window_of(config)
        self._split = not changes_logits(config.to_dict()) and self._tried(self._splits)
        self.packs = packed_attention.enable(self._whole(), lambda: self._tried(self._packs_alike))

    @property
    def adapted(self) -> bool:
        """True if it trains LoRA factors rather than its own weights."""
        return self.base is not None

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        device: torch.device = self.model.get_input_embeddings().weight.device
        return self.home or device

    def weights(self) -> dict[str, nn.Parameter]:
        """Name → parameter of all that is trained, in a fixed order."""
        return {name: weight for name, weight in self.model.named_parameters() if weight.requires_grad}

    def copy_from(self, weights: Mapping[str, Tensor]) -> None:
        """Take these values for what is trained.

        Raises:
            InputError: a name or a shape does not fit.
        """
        own = self.weights()
        odd = sorted(set(own) ^ set(weights))
        odd += [name for name in own if name in weights and own[name].shape != weights[name].shape]
        if odd:
            raise InputError(f"these weights belong to another model: {', '.join(odd[:3])} does not fit")
        with torch.no_grad():
            for name, parameter in own.items():
                sharding.own(parameter.data).copy_(sharding.share_of(weights[name], parameter))

    def copy(self) -> CausalLM:
        """The same network with trained weights of its own; what is frozen is shared."""
        # deepcopy takes from its memo what it finds there: frozen weights stay one, trained ones are copied.
        frozen = {id(weight): weight for weight in self.model.parameters() if not weight.requires_grad}
        twin = copy.deepcopy(self.model, frozen)
        return CausalLM(twin, base=self.base, saved_as=self.saved_as, layer_dtype=self.layer_dtype)

    def layers(self) -> list[nn.Module]:
        """The parts that it repeats, as it names them itself."""
        names = set(getattr(self._whole(), "_no_split_modules", None) or ())
        return [module for module in self.model.modules() if type(module).__name__ in names]

    def idle(self) -> None:
        """A forward and a backward pass that come to nothing: others compute an item, and need this share."""
        ids = torch.zeros(1, 2, dtype=torch.long, device=self.device)
        states, _ = self._run({"input_ids": ids, "use_cache": False})
        # The backward pass must be made: the others wait for this process in theirs as well.
        (states.sum() * 0.0).backward()  # type: ignore[no-untyped-call]

    def _whole(self) -> Any:
        return self.model.get_base_model() if self.adapted else self.model

    def _backbone(self) -> Any:
        inner = self._whole()
        return getattr(inner, inner.base_model_prefix, None)

    def _tried(self, probe: Callable[[], bool]) -> bool:
        """What a probe says; of the first process where the others have no weights to try it with."""
        return probe() if self.home is None else of_first(probe)

    def _splits(self) -> bool:
        """True if backbone and output layer alone give the whole model's logits, large ones too."""
        backbone = self._backbone()
        if backbone is None:
            return False
        weights = self.model.get_input_embeddings().weight
        ids = torch.arange(min(8, self.vocab_size), device=weights.device).unsqueeze(0)
        last, factor = self.model.get_output_embeddings(), 1.0

        def enlarge(module: Any, arguments: Any, out: Any) -> Any:
            out.last_hidden_state = out.last_hidden_state * factor
            return out

        hook = backbone.register_forward_hook(enlarge)
        try:
            with torch.no_grad():
                states = backbone(input_ids=ids, use_cache=False).last_hidden_state
                # A cap does not show in the small logits of fresh weights, so the states are made larger.
                factor = max(1.0, LARGE_LOGITS / max(1e-6, float(last(states).abs().max())))
                logits = self.model(input_ids=ids, use_cache=False).logits
                return _alike(last(states * factor), logits)
        finally:
            hook.remove()

    def _packs_alike(self) -> bool:
        """True if sequences with a common beginning give the same states packed and padded."""
        if min(self.max_length, self.window or self.max_length) < PROBE + 4:
            return False
        ids = [number % self.vocab_size for number in range(1, PROBE + 4)]
        rows = [ids, [*ids[:PROBE], *reversed(ids[PROBE:])], ids[:5]]
        weights = self.model.get_input_embeddings().weight
        layout = plan(rows, [range(len(row)) for row in rows]).to(weights.device)
        with torch.no_grad():
            packed, padded = (self._states(layout, packed=packed)[0] for packed in (True, False))
        return _alike(packed, padded)

    def _states(self, layout: Layout, *, packed: bool) -> tuple[Tensor, Tensor | None]:
        """(Q, hidden) states of what is wanted, and (Q, vocabulary) logits unless a Linear gives them."""
        if packed:
            states, logits = self._run(packed_attention.inputs(layout))
            return states[0, layout.wanted], None if logits is None else logits[0, layout.wanted]
        rows: list[Tensor] = []
        logit_rows: list[Tensor] = []
        for band in layout.bands:
            if band.read_first == band.read_last:
                continue
            states, logits = self._run({"input_ids": layout.ids[band.path], "use_cache": False})
            row = band.read_slots // band.read_positions.shape[1]
            column = band.read_positions.flatten()[band.read_slots]
            rows.append(states[row, column])
            logit_rows += [] if logits is None else [logits[row, column]]
        return torch.cat(rows), torch.cat(logit_rows) if logit_rows else None

    def _run(self, inputs: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
        if self._split:
            return self._backbone()(**inputs).last_hidden_state, None
        out = self.model(**inputs, output_hidden_states=True)
        return out.hidden_states[-1], out.logits

    def output(self, part: MicroBatch) -> Output:
        """States at the targets of a MicroBatch and what makes logits of them, on the network's device."""
        layout = part.layout.to(self.device)
        packed = self.packs and (self.window is None or layout.longest <= self.window)
        if self.packs and not packed and place().sharded:
            raise InputError(
                f"a trajectory is {layout.longest} tokens long, and the model looks back on {self.window}: beyond that "
                "its processes would not compute in step. Leave out longer runs, or launch without FSDP"
            )
        states, logits = self._states(layout, packed=packed)
        states = states.index_select(0, layout.index)
        if logits is not None:
            return Output(states, logits=logits.index_select(0, layout.index))
        last = self.model.get_output_embeddings()
        # Not `isinstance`: a subclass may do more than its weight and bias say.
        if type(last) is nn.Linear:
            return Output(states, last.weight, last.bias)
        return Output(states, logits=last(states))  # with factors of its own, or quantised

    def save(self, folder: Path) -> None:
        """Write what is trained, as transformers or peft keep it, to a folder that is whole or not there.

        Full weights have the tokenizer of the model that they were made from beside them, so that the folder
        can be served or trained further by itself; factors have it with their base.

        Raises:
            InputError: the folder holds something already.
        """
        with whole_folder(Path(folder)) as partial:
            # Each process has a folder of its own; transformers would let the first one alone write.
            self._whole().should_save_on_this_rank = bool
            state = {name: self._as_saved(tensor) for name, tensor in self.model.state_dict().items()}
            with _bars_on_a_terminal():
                # In one file: `weights_version` names the weights by the hash of model.safetensors alone.
                self.model.save_pretrained(partial, max_shard_size="1000GB", state_dict=state)
            if not self.adapted:
                _copy_tokenizer(self.model.config._name_or_path, partial)
                _note_dtype(partial, self.saved_as)

    def _as_saved(self, tensor: Tensor) -> Tensor:
        """A tensor of the state, whole, as it is written."""
        whole = sharding.whole(tensor)
        full = not self.adapted and self.saved_as is not None and whole.is_floating_point()
        return whole.to(self.saved_as) if full else whole

    def version(self, resource: str, folder: Path, parent: str | None, meta: Mapping[str, Json]) -> Version:
        """The Version of what `save` wrote."""
        if not self.adapted:
            return ours.weights_version(resource, folder, parent, meta)
        content = {
            "path": str(Path(folder).resolve()),
            "sha256": ours.sha256(Path(folder) / ADAPTER),
            "base": self.base,
        }
        # The id leaves the path out: the same factors in another folder are the same Version.
        same = Version(resource=resource, kind="adapter", content={**content, "path": ""}).id
        return Version(
            resource=resource, kind="adapter", content=content, parent=parent, meta=dict(meta), id=same
        )


def load(
    source: str | Path,
    *,
    sha: str | None = None,
    lora: LoRAOptions | None = None,
    compute: ComputeOptions | None = None,
    frozen: bool = False,
    to_share: bool = False,
) -> CausalLM:
    """A causal LM from a folder, or by name from the cache or the hub.

    Its weights go to their device and dtype one by one as they are read, so that they are never twice in memory.

    Args:
        sha: expected digest of its weights (`digest_of`); None to take what is there.
        lora: train fresh factors beside it; None trains all of its weights.
        compute: where and in which numbers; `ComputeOptions()` if None.
        frozen: factors come to stand beside it, so that its own weights may be held in four bits.
        to_share: a `Learner` that shares it out over processes comes next, in all of them: the first one alone
            reads the weights, into main memory, and the others get their shares from it (`sharding.shard`).

    Raises:
        NotFoundError: no such folder, and no such model in the cache or within reach.
        InputError: it holds pickles and no safetensors, is no causal LM, or was changed; no such device.
        MissingExtra: transformers, peft or bitsandbytes is not installed.
    """
    folder = Path(source)
    placement = placed(compute or ComputeOptions())
    apart = to_share and place().sharded and lora is None and not frozen
    within_reach(source)
    if folder.is_dir():
        _refuse_pickles(folder)
        if sha is not None and (digest := digest_of(folder)) != sha:
            raise InputError(f"the weights in {folder} were changed: sha256 {digest[:12]}, not {sha[:12]}")
    try:
        with importing():
            from transformers import AutoConfig, AutoModelForCausalLM  # seconds to import
    except ImportError as error:
        raise MissingExtra("transformers", "train") from error
    try:
        with _bars_on_a_terminal(), _read_whole():
            config = AutoConfig.from_pretrained(str(source), trust_remote_code=False)
            saved_as = getattr(config.get_text_config(), "dtype", None) or getattr(config, "dtype", None)
            settings = _loading(placement, frozen=frozen or lora is not None, apart=apart)
            if apart and not place().first:
                model = _shapes(config, settings["dtype"])
            else:
                model = AutoModelForCausalLM.from_pretrained(
                    str(source), use_safetensors=True, trust_remote_code=False, **settings
                )
    except (OSError, ValueError, SafetensorError) as error:
        raise _not_loaded(source, error) from error
    if placement.device.type == "cuda":
        norms.enable(model)
    if _recomputes(model, placement, frozen=frozen or lora is not None):
        recomputing.enable(model)
    kept: dict[str, Any] = {"saved_as": saved_as, "layer_dtype": placement.dtype if place().sharded else None}
    if lora is None:
        return CausalLM(model, **kept, home=placement.device if apart else None)
    if not folder.is_dir():
        folder = Path(model.config._name_or_path)
    base = {"path": str(folder.resolve() if folder.is_dir() else source), "sha256": None}
    if folder.is_dir():
        base["sha256"] = digest_of(folder)
    return CausalLM(_in_dtype(_with_factors(model, lora), placement.dtype), base=base, **kept)


def _recomputes(model: Any, placement: Placement, *, frozen: bool) -> bool:
    """Whether activations are computed again: as was asked, or where a GPU could not hold them beside the rest."""
    free = placement.free() if placement.recompute is None and placement.device.type != "cpu" else None
    size = placement.dtype.itemsize
    shape = shape_of(model.config.get_text_config().to_dict(), dtype_bytes=size, on_cpu=free is None)
    if shape is None:
        return bool(placement.recompute)
    if free is not None and not frozen:
        # Gradients, moments and masters are still to come.
        free -= shape.held_bytes() - shape.held_bytes(adapted=True)
    return with_recomputing(shape, free, placement.recompute).recompute


@contextmanager
def _read_whole() -> Iterator[None]:
    """Have transformers read weights in every process that asks, whatever a launcher's file says of that."""
    name = "FSDP_CPU_RAM_EFFICIENT_LOADING"
    before = os.environ.pop(name, None)
    try:
        yield
    finally:
        if before is not None:
            os.environ[name] = before


def _shapes(config: Any, dtype: torch.dtype) -> Any:
    """A model whose weights are shapes alone; its buffers, which it computes, are there."""
    from accelerate import init_empty_weights
    from transformers import AutoModelForCausalLM

    with init_empty_weights(include_buffers=False):
        return AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)  # type: ignore[no-untyped-call]


def _loading(placement: Placement, *, frozen: bool, apart: bool = False) -> dict[str, Any]:
    """How transformers is to load a model: device, dtype and bits."""
    # Shares are kept in float32, and computed with in `layer_dtype`: they are their own masters.
    dtype = torch.float32 if place().sharded and not frozen else placement.dtype
    # Said even for float32: transformers takes the file's own dtype by default, and bfloat16 moves
    # log-probabilities by some hundredths of a nat (decision 063).
    settings: dict[str, Any] = {"dtype": dtype}
    if (placement.device.type != "cpu" and not apart) or placement.four_bit:
        settings["device_map"] = {"": placement.device}
    if placement.four_bit:
        if not frozen:
            raise InputError(
                "weights in four bits are not trained: train LoRA factors beside them (--lora-rank 16)"
            )
        from transformers import BitsAndBytesConfig  # loaded already, with the model's class

        settings["quantization_config"] = BitsAndBytesConfig(  # type: ignore[no-untyped-call]
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
    return settings


def within_reach(source: str | Path) -> None:
    """Refuse a name that is neither a folder nor in the cache nor known to the hub, with one question to it.

    transformers asks for each of some files, several times, and a minute passes before it gives up.

    Raises:
        NotFoundError: it is nowhere, or there is no network.
        MissingExtra: transformers is not installed.
    """
    if Path(source).exists():
        return
    try:
        from huggingface_hub import HfApi, try_to_load_from_cache  # comes with transformers
    except ImportError as error:
        raise MissingExtra("transformers", "train") from error
    try:
        if not isinstance(try_to_load_from_cache(str(source), "config.json"), str):
            HfApi().model_info(str(source), timeout=10)
    except Exception as error:  # no network, no such model, no right to it, no name at all
        raise _not_loaded(source, error) from error


def load_adapter(
    folder: Path,
    base: Mapping[str, Json],
    *,
    sha: str | None = None,
    onto: CausalLM | None = None,
    compute: ComputeOptions | None = None,
) -> CausalLM:
    """A model with the LoRA factors that `CausalLM.save` wrote, ready to train on.

    Args:
        base: what they stand beside, as `{"path", "sha256"}`.
        onto: that model, where it is loaded already; owned from here on.
        compute: as `load`.

    Raises:
        NotFoundError, InputError, MissingExtra: as `load`.
    """
    if not (folder / ADAPTER).is_file():
        raise NotFoundError(f"no {ADAPTER} in {folder}; was the adapter moved, or saved on another machine?")
    if sha is not None and (digest := ours.sha256(folder / ADAPTER)) != sha:
        raise InputError(f"the adapter in {folder} was changed: sha256 {digest[:12]}, not {sha[:12]}")
    base_model = onto or load(str(base["path"]), sha=base["sha256"], compute=compute, frozen=True)
    try:
        from peft import PeftModel  # seconds to import
    except ImportError as error:
        raise MissingExtra("peft", "train") from error
    dtype = placed(compute or ComputeOptions()).dtype
    with _peft_in_peace():
        adapted = PeftModel.from_pretrained(base_model.model, str(folder), is_trainable=True)
    return CausalLM(_in_dtype(adapted, dtype), base=base, layer_dtype=base_model.layer_dtype)


def _alike(left: Tensor, right: Tensor) -> bool:
    """True if two ways of computing something differ by no more than their dtype rounds."""
    if left.dtype is torch.float32:
        return torch.allclose(left, right, rtol=1e-3, atol=1e-4)
    # A wrong mask or a missing factor moves states by about their own size; bfloat16 by a percent of it.
    size = float(right.float().square().mean().sqrt())
    return float((left.float() - right.float()).square().mean().sqrt()) < 0.05 * size


def _note_dtype(folder: Path, dtype: torch.dtype | None) -> None:
    """Have a saved configuration name the dtype that weights were written in, not the one they were trained in."""
    if dtype is None:
        return
    path = folder / ours.CONFIG
    config = msgspec.json.decode(path.read_bytes())
    config["dtype"] = str(dtype).removeprefix("torch.")
    path.write_bytes(msgspec.json.format(msgspec.json.encode(config)))


@contextmanager
def _bars_on_a_terminal() -> Iterator[None]:
    """transformers draws its progress wherever standard error goes, into a log too."""
    from transformers.utils import logging  # there is a model of it, so it is loaded

    if sys.stderr.isatty() or not logging.is_progress_bar_enabled():
        yield
        return
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.enable_progress_bar()  # type: ignore[no-untyped-call]


@contextmanager
def _peft_in_peace() -> Iterator[None]:
    """peft asks transformers for a property under its old name, and transformers warns whoever listens."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
        yield


def _with_factors(model: Any, options: LoRAOptions) -> Any:
    try:
        from peft import LoraConfig, get_peft_model  # seconds to import
    except ImportError as error:
        raise MissingExtra("peft", "train") from error
    present = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    targets = [name for name in options.targets if name in present]
    if not targets:
        raise InputError(
            f"this model has none of the layers {', '.join(options.targets)}; name some of its own in "
            f"LoRAOptions(targets=...), it has {', '.join(sorted(present - {''})[:12])}"
        )
    config = LoraConfig(
        r=options.rank, lora_alpha=options.alpha, target_modules=targets, lora_dropout=0.0, bias="none"
    )
    # peft draws from torch's global stream, which is put back as it was.
    with torch.random.fork_rng(devices=[]), _peft_in_peace():
        torch.manual_seed(options.seed)
        return get_peft_model(model, config)


def _in_dtype(adapted: Any, dtype: torch.dtype) -> Any:
    """A model whose factors compute in the dtype of what they stand beside, or each would cast its input, and keep it.

    Masters hold what an update adds, as they do of full weights (`optim.py`).  Shares of processes are float32.
    """
    if not place().sharded:
        for weight in adapted.parameters():
            if weight.requires_grad:
                weight.data = weight.data.to(dtype)
    return adapted


def _copy_tokenizer(source: str, folder: Path) -> None:
    """Copy the tokenizer that stands beside the weights of a folder or of a cached name."""
    from huggingface_hub import try_to_load_from_cache  # comes with transformers

    for name in TOKENIZER:
        file: Any = Path(source) / name
        if not Path(source).is_dir():
            with suppress(ValueError):  # a folder that is gone is no name
                file = try_to_load_from_cache(source, name)
        if isinstance(file, str | Path) and Path(file).is_file():
            shutil.copyfile(file, folder / name)


def digest_of(folder: Path) -> str:
    """SHA-256 over the safetensors files of a folder, in the order of their names.

    Raises:
        InputError: it holds pickles and no safetensors.
        NotFoundError: it holds neither.
    """
    _refuse_pickles(folder)
    files = sorted(folder.glob("*.safetensors"))
    if len(files) == 1:
        return ours.sha256(files[0])
    return hashlib.sha256("".join(ours.sha256(file) for file in files).encode()).hexdigest()


def _refuse_pickles(folder: Path) -> None:
    if any(folder.glob("*.safetensors")):
        return
    pickles = sorted(
        file.name for suffix in ("*.bin", "*.pt", "*.pth", "*.ckpt") for file in folder.glob(suffix)
    )
    if pickles:
        raise InputError(
            f"{folder} holds its weights as {pickles[0]}, a pickle, which can run code when it is read. "
            "Convert it where you trust it (safetensors.torch.save_model), or take a copy in safetensors."
        )
    raise NotFoundError(f"no .safetensors file in {folder}; is it the folder of a model?")


def _not_loaded(source: str | Path, error: Exception) -> InputError:
    text = str(error).strip().splitlines()
    why = text[0][:200] if text else type(error).__name__
    if Path(source).exists():
        return InputError(f"{source} could not be loaded as a causal language model: {why}")
    return NotFoundError(
        f"there is no folder {source}, and no model of that name in the cache or within reach ({why}). "
        f"Fetch it where there is a network (hf download {source} --local-dir DIR) and give the folder's path."
    )


def is_ours(folder: Path) -> bool:
    """True if a folder holds a decoder of our own."""
    try:
        config = read_json(msgspec.json.decode, (folder / ours.CONFIG).read_bytes())
    except (OSError, msgspec.DecodeError):
        return False
    return isinstance(config, dict) and "whet" in config
