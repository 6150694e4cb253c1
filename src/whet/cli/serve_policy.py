"""`whet serve-policy`: a policy behind an OpenAI-compatible address, while it is being trained."""

from __future__ import annotations

import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..errors import InputError, NotFoundError
from .app import app, existing

if TYPE_CHECKING:
    from ..store import Store
    from ..training.serving.loading import Loaded
    from ..types import Version


@app.command(name="serve-policy")
def serve_policy(
    *,
    model: str | None = None,
    store: Path | None = None,
    name: str = "policy",
    host: str = "127.0.0.1",
    port: int = 4778,
    token: Annotated[str | None, Parameter(env_var="WHET_TOKEN")] = None,
    allow_host: tuple[str, ...] = (),
    allow_weights: tuple[Path, ...] = (),
    vocabulary: Path | None = None,
    batch: int = 64,
    context_tokens: int = 1_048_576,
    waiting: int = 1024,
    device: str = "cpu",
    threads: int | None = None,
) -> int:
    """Serve a policy as an OpenAI-compatible model: chat, tools, streams, log-probabilities, token ids.

    With --store, what is live in the store is served, and a release or rollback is taken up as it
    happens; answers under way finish on the version they began with. With --model beside it, that
    model is served while nothing is live.  Weights can also be handed in by the
    routes that vLLM has for it.  Every answer is tagged with its policy version.  Ctrl-C answers
    what is under way, then stops.

    Parameters
    ----------
    model
        Folder of a causal language model (safetensors), of an embedded policy, or of LoRA factors;
        or the name of a model that is in the local cache or can be fetched.
    store
        Serve the live Version of a resource of this store.
    name
        What clients call the model; with --store the resource.
    host
        Address to listen on.
    port
        0 takes any that is free and prints it.
    token
        The one token to accept, instead of one that is made at every start and printed.
    allow_host
        A name that clients may call this server by, beside localhost; repeat it for several.
    allow_weights
        Folder below which requests may name weights and adapters to take up; repeat it for several.
        Without any, none are taken.
    vocabulary
        The words of an embedded policy, where its folder has no vocabulary.json.
    batch
        Answers generated at once.
    context_tokens
        Tokens of prompts and answers held at once, at most; what does not fit waits.
    waiting
        Requests in line at most; one more gets 503 and should be sent again.
    device
        Where a transformers model computes: cpu, cuda or cuda:1.
    threads
        Processor threads to compute with; torch's own choice if left out.
    """
    from ..server import Access, Role, Server, new_tokens, run
    from ..server.policy import PolicyPart, Weights, watch
    from ..training.local import use_threads
    from ..training.serving.engine import EngineOptions
    from ..training.serving.host import Host
    from ..training.serving.loading import from_folder, placed
    from ..training.serving.text import text_of

    if model is None and store is None:
        raise InputError("give the policy as --model DIR, as --store FILE, or as both")
    if threads is not None:
        use_threads(threads)
    opened, released, loaded = _loaded(model, store, name)
    placed(loaded.network, device)
    text = text_of(loaded.folder or Path(model or "."), vocabulary)
    stopped = _interrupted()
    made = token or new_tokens()[Role.ADMIN]
    access = Access({Role.ADMIN: made}, hosts=(host, *allow_host))
    watcher: threading.Thread | None = None
    with Host(EngineOptions(batch=batch, tokens=context_tokens, waiting=waiting)) as serving:
        serving.publish(
            name, loaded.network, text, policy_version=loaded.policy_version, version=loaded.version
        )
        weights = Weights(serving, name, loaded.network, text, allowed=allow_weights)
        server = Server(access, [PolicyPart(serving, weights)], host=host, port=port)
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
            given = "as given" if token else made
            print(
                f"{name}: policy version {loaded.policy_version}, on {url}/v1; stop with Ctrl-C\ntoken: {given}"
            )
            sys.stdout.flush()

        cut = run(server, stopped, ready)
        if cut:
            print(f"{cut} requests did not end in time and were cut off", flush=True)
    if watcher is not None:
        watcher.join()
    if opened is not None:
        opened.close()
    return 0


def _interrupted() -> threading.Event:
    """Set by Ctrl-C or SIGTERM."""
    stopped = threading.Event()
    for signal_ in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_, lambda *_: stopped.set())
    return stopped


def _loaded(model: str | None, store: Path | None, name: str) -> tuple[Store | None, Version | None, Loaded]:
    """The store to follow, what is live in it, and what to serve at first."""
    from ..store import Store
    from ..training.serving.loading import from_folder, from_version

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
        f"nothing named {name!r} is live in {store}; whet show says what is, --name which of it to serve, and "
        "--model what to serve while nothing is"
    )
