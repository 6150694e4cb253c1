"""Packed attention for models of transformers, through its own registry of attention functions.

A model whose attention goes through the registry, and that hands on what its forward was given,
computes a `Layout` without padding like our own decoder.  Whether it does is not taken on trust:
`enable` compares both ways on a small forest, and a model that differs (capped scores, a state carried
from token to token) stays padded.  A sliding window changes nothing where sequences are no longer than it,
so such a model is packed part by part (`window_of`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .cache import View
from .packing import Layout, attend

NAME = "whet_packed"
_ONLY_SDPA = ("softcap", "s_aux", "position_bias", "cache")
"""Arguments of attention that change the scores, and that packed attention does not know."""


def _forward(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    whet_layout: Layout | None = None,
    whet_view: View | None = None,
    scaling: float | None = None,
    **settings: Any,
) -> tuple[Tensor, None]:
    """(1, heads, T, width) → (1, T, heads, width) along a Layout or into a cache; without either, what `sdpa` does."""
    if whet_layout is None and whet_view is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward  # loaded already

        out: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **settings
        )
        return out
    odd = [name for name in _ONLY_SDPA if settings.get(name) is not None]
    if odd:
        raise ValueError(f"packed attention does not know {', '.join(odd)}")
    window = settings.get("sliding_window")
    longest = whet_layout.longest if whet_layout is not None else 0 if whet_view is None else whet_view.length
    if window is not None and longest > window:
        raise ValueError(f"a sequence of {longest} tokens is longer than the window of {window}")
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    if whet_view is not None:
        whet_view.write(module.layer_idx, k, v)
        attended = whet_view.attend(module.layer_idx, q, scaling)
        return attended.view(1, len(q), q.shape[1], -1), None
    assert whet_layout is not None
    return along(q, k)(whet_layout, q, k, v, scale=scaling).unsqueeze(0), None


def along(q: Tensor, k: Tensor) -> Callable[..., Tensor]:
    """What attends along a Layout here: one kernel on a GPU where it can, else bands."""
    if q.device.type != "cuda":
        return attend
    try:
        from . import varlen  # torch has its kernel from 2.10 on
    except ImportError:
        return attend
    return varlen.attend if varlen.usable(q, k) else attend


def inputs(layout: Layout) -> dict[str, Any]:
    """The arguments with which an enabled model computes a Layout.

    The mask is a placeholder of four dimensions, which transformers passes on instead of building one
    of T × T.
    """
    return {
        "input_ids": layout.ids.unsqueeze(0),
        "position_ids": layout.positions.unsqueeze(0),
        "attention_mask": torch.zeros(1, 1, 1, 1, device=layout.ids.device),
        "whet_layout": layout,
        "use_cache": False,
    }


def window_of(config: Any) -> int | None:
    """The tokens that a model's sliding layers look back on; None where every layer sees everything."""
    kinds = set(getattr(config, "layer_types", None) or ["sliding_attention"])
    window = getattr(config, "sliding_window", None)
    return int(window) if window is not None and "sliding_attention" in kinds else None


def cached(view: View, ids: Tensor, positions: Tensor) -> dict[str, Any]:
    """The arguments with which an enabled model computes (T,) new tokens of contexts that are cached."""
    return {
        "input_ids": ids.unsqueeze(0),
        "position_ids": positions.unsqueeze(0),
        "attention_mask": torch.zeros(1, 1, 1, 1, device=ids.device),
        "whet_view": view,
        "use_cache": False,
    }


def enable(model: Any, agrees: Callable[[], bool]) -> bool:
    """Have a model's attention understand Layouts, if it can; whether it does.

    Args:
        model: of transformers, without peft around it.
        agrees: whether the packed and the padded way give the same, asked once it is switched on.
    """
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    before = getattr(model.config, "_attn_implementation", None)
    # A copy of an enabled model comes here switched on already, and is not probed again.
    if before != "sdpa" or not kinds <= {"full_attention", "sliding_attention"}:
        return before == NAME
    from transformers import AttentionInterface  # loaded already, with the model
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(NAME, _forward)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    try:
        model.set_attn_implementation(NAME)
        if agrees():
            return True
    except Exception:  # whatever a model's own code raises at arguments that it does not know
        pass
    model.set_attn_implementation(before)
    return False
