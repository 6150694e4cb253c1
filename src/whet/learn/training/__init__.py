"""The shared parts of weight methods: token units, batches, losses, samplers and small local models.

torch lives here and nowhere above; importing this package without it names the
extra that brings it.  Read `model.py`, then `sampler.py` (how a policy acts),
`batch.py` and `losses.py` (what is learned from), `learner.py` (what learns).
"""

from __future__ import annotations

from importlib.util import find_spec

from ...errors import MissingExtra

for _module in ("torch", "safetensors", "numpy"):
    if find_spec(_module) is None:
        raise MissingExtra(_module, "train")
