"""Serving a policy while it is being trained: what generates, for many requests and over many versions.

`sampling.py` has the settings of a request and the draw of a token, `engine.py` advances all requests of one
version together, `networks.py` is how each family of models computes the next logits,
`text.py` turns messages to tokens and back, `host.py` holds the versions and swaps them.
There is no HTTP here; `server/policy` speaks that.
"""
