"""The policy server: an OpenAI-compatible face of a policy that changes while it is asked.

`requests.py` reads what is asked, `answers.py` writes what came, `part.py` has the routes,
`weights.py` how versions come in: by vLLM's own routes, or from what is live in a store.
It speaks chat and plain completions, with vLLM's token fields; an agent or a sampler moves
between it and vLLM by URL alone.  The generation itself is `training/serving`.
"""

from .part import PolicyPart
from .weights import WeightLoader, watch

__all__ = ["PolicyPart", "WeightLoader", "watch"]
