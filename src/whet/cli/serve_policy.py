"""`whet serve-policy`: a policy at an OpenAI-compatible address, also while it is being trained."""

from __future__ import annotations

import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..errors import InputError, NotFoundError
from .root import ADVANCED, AllowHost, Host, Port, Token, command, existing
from .server import interrupted, report_cut_off
from .train_input import Dtype

if TYPE_CHECKING:
    from ..learn.training.serving.loading import Loaded
    from ..record.store import Store
    from ..types import Version


@command("serve-policy")
def serve_policy(
    *,
    model: str | None = None,
    store: Path | None = None,
    name: str = "policy",
    alias: tuple[str, ...] = (),
    host: Host = "127.0.0.1",
    port: Port = 4778,
    token: Annotated[Token, ADVANCED] = None,
    allow_host: Annotated[AllowHost, ADVANCED] = (),
    device: str = "auto",
    dtype: Annotated[Dtype, ADVANCED] = "auto",
    allow_weights: Annotated[tuple[Path, ...], ADVANCED] = (),
    vocabulary: Annotated[Path | None, ADVANCED] = None,
    batch: Annotated[int, ADVANCED] = 64,
    context_tokens: Annotated[int, ADVANCED] = 1_048_576,
    waiting: Annotated[int, ADVANCED] = 1024,
    cache_gigabytes: Annotated[float, ADVANCED] = 4.0,
    threads: Annotated[int | None, ADVANCED] = None,
) -> int:
    """Serve a trained policy as an OpenAI-compatible model: chat, tools, streams, log-probabilities, token ids.

    With --store, it serves the live weights of the store and follows releases and rollbacks; answers in progress finish
    on the version they began with. With --model as well, that model is served while nothing is live. Weights can also
    be loaded through the routes that vLLM has for it. Every answer carries its policy version. Ctrl-C finishes the
    answers in progress, then stops.

    Parameters
    ----------
    model
        Folder of a causal language model (safetensors), of an embedded policy, or of LoRA factors; or the name of a
        model in the local cache or on the Hugging Face hub.
    store
        Serve the live weights of this store.
    name
        Name of the model for clients; with --store, the name of the resource.
    alias
        Further name by which clients may ask for it, such as the model that an agent names itself. May be repeated.
    token
        The only token to accept. If omitted, a new one is made at every start and printed.
    vocabulary
        Vocabulary of an embedded policy whose folder has no vocabulary.json.
    device
        Device of a transformers model: cpu, cuda, cuda:1 or mps; auto takes a CUDA GPU where there is one.
    dtype
        Numbers of a transformers model: float32 or bfloat16; auto is bfloat16 on a GPU and float32 elsewhere.
    allow_weights
        Folder from which requests may load weights and adapters. May be repeated; without it, none can be loaded.
    batch
        Answers generated together.
    context_tokens
        Most tokens of prompts and answers in memory; further requests wait.
    waiting
        Most requests in the queue; further ones get a 503 and should be sent again.
    cache_gigabytes
        Memory up to which conversations stay read between two turns; the one used longest ago goes first.
    threads
        CPU threads to compute with; torch's default if omitted.
    """
    from ..learn.training.compute import ComputeOptions
    from ..learn.training.local import use_compute, use_threads
    from ..learn.training.serving.engine import EngineOptions
    from ..learn.training.serving.host import Host as Serving
    from ..learn.training.serving.loading import from_folder, refuse_device
    from ..learn.training.serving.text import TemplateText, text_of
    from ..learn.training.templates import caution
    from ..serve import Access, Role, Server, new_tokens, run
    from ..serve.policy import PolicyPart, WeightLoader, watch

    if model is None and store is None:
        raise InputError("give the policy as --model DIR, as --store FILE, or as both")
    if threads is not None:
        use_threads(threads)
    use_compute(ComputeOptions(device=device, dtype=dtype))
    opened, released, loaded = _loaded(model, store, name)
    refuse_device(loaded.network, device)
    text = text_of(loaded.folder or Path(model or "."), vocabulary)
    if isinstance(text, TemplateText) and (lost := caution(text.tokenizer)):
        print(f"note: {lost}.", file=sys.stderr, flush=True)
    options = EngineOptions(
        batch=batch, tokens=context_tokens, waiting=waiting, cache_bytes=int(cache_gigabytes * 2**30)
    )
    stopped = interrupted()
    accepted = token or new_tokens()[Role.ADMIN]
    access = Access({Role.ADMIN: accepted}, hosts=(host, *allow_host))
    watcher: threading.Thread | None = None
    with Serving(options) as serving:
        serving.publish(
            name, loaded.network, text, policy_version=loaded.policy_version, version=loaded.version
        )
        weights = WeightLoader(serving, name, loaded.network, text, allowed=allow_weights)
        part = PolicyPart(serving, weights, aliases=dict.fromkeys(alias, name))
        server = Server(access, [part], host=host, port=port)
        if opened is not None:
            watcher = threading.Thread(
                target=partial(
                    watch,
                    *(opened, name, serving, text, stopped),
                    base=None if model is None else partial(from_folder, model),
                    released=released,
                ),
                name="whet-watch",
                daemon=True,
            )
            watcher.start()

        def ready(url: str) -> None:
            print(
                f"{name}: policy version {loaded.policy_version}, on {url}/v1; stop with Ctrl-C\n"
                f"token: {'as given' if token else accepted}",
                flush=True,
            )

        report_cut_off(run(server, stopped, ready))
    # It reads the store, so it has to end before that is closed.
    if watcher is not None:
        watcher.join()
    if opened is not None:
        opened.close()
    return 0


def _loaded(model: str | None, store: Path | None, name: str) -> tuple[Store | None, Version | None, Loaded]:
    """The store to follow, its live Version, and the weights to serve first."""
    from ..learn.training.serving.loading import from_folder, from_version
    from ..record.store import Store

    if store is None:
        return None, None, from_folder(model or "")
    existing(store)
    opened = Store(store)
    live = opened.live()
    version = live.get(name) if live is not None else None
    if version is not None:
        return opened, version, from_version(version)
    if model is not None:
        return opened, None, from_folder(model)
    opened.close()
    raise NotFoundError(
        f"nothing named {name!r} is live in {store}: see whet show for what is live and name it with --name, or give "
        "a model to serve until something is live with --model"
    )
