"""Engines that sample in processes of their own: started here, or found at an address.

`policy` is `whet serve-policy`, for any model that one process can hold; `vllm` and `sglang` are those servers, where
they are installed.  Each listens on 127.0.0.1 with a key made for the run, writes to `engine.log`, and ends with it.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from ...errors import InputError, MissingExtra, ModelError
from ...escapes import read_json
from ...models.endpoint import Retry, check_address
from ...models.engine import EngineServer
from ...models.sglang import SGLang
from ...models.vllm import VLLM, WhetPolicies
from ...record.store.bundles import BUNDLE_FILE, read_bundle
from .huggingface import ADAPTER_CONFIG
from .remote import free_port

KEY = "WHET_ROLLOUTS_KEY"
"""Environment variable with the key of an engine that is given by its address."""
NAME = "policy"
"""What an engine that is started here calls the model."""
START_SECONDS = 900.0
"""A large model is read, compiled and warmed up before a server answers."""
END_SECONDS = 20.0
LOG = "engine.log"
PATIENT = Retry(attempt_seconds=900.0, total_seconds=1800.0)
"""An engine answers when it has written all tokens, or read all weights."""


@dataclass(frozen=True, kw_only=True)
class EnginePlan:
    """Which engine, for which model."""

    where: str
    """`policy`, `vllm`, `sglang`, or the URL of a server, which is started already."""
    model: str
    """Folder or name of a causal LM, or output folder of `whet train`."""
    resource: str = "policy"
    lora_rank: int = 0
    """Rank of the factors that will be handed over; 0 for full weights."""
    options: str = ""
    """Further options of the engine's own command."""
    device: str = "auto"
    """Where `policy` computes; vllm and sglang have options of their own."""
    dtype: str = "auto"

    def __post_init__(self) -> None:
        if self.where in _COMMANDS or self.where.startswith(("http://", "https://")):
            return
        if self.where.isdigit():
            raise InputError(
                f"--rollouts says where rollouts are sampled; how many there may be is --max-rollouts {self.where}"
            )
        raise InputError(
            f"rollouts are sampled by {', '.join(_COMMANDS)} or a server at a URL (http://host:port/v1); "
            f"got {self.where!r}"
        )


@contextmanager
def engine(plan: EnginePlan, folder: Path) -> Iterator[EngineServer]:
    """The engine while this is entered.

    Args:
        folder: where weights are handed over, and the log is written.

    Raises:
        MissingExtra: it is not installed.
        InputError: nothing at this address is an engine.
        ModelError: it ended, or did not answer in time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if plan.where not in _COMMANDS:
        yield found(plan.where, os.environ.get(KEY))
        return
    key, port = secrets.token_urlsafe(24), free_port()
    url = f"http://127.0.0.1:{port}/v1"
    command, environment = _COMMANDS[plan.where](plan, port, folder, key)
    command += shlex.split(plan.options)
    with ExitStack() as stack:
        log = stack.enter_context(open(folder / LOG, "ab"))
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            # A group of its own: workers that it starts end with it, and Ctrl-C reaches the trainer alone.
            start_new_session=True,
        )
        stack.callback(_end, process)
        _wait(process, url, key, folder / LOG)
        yield _CLIENTS[plan.where](url, NAME, api_key=key, retry=PATIENT)


def found(url: str, key: str | None) -> EngineServer:
    """The engine at an address.

    Raises:
        InputError: nothing there answers as an engine does.
    """
    base = url.rstrip("/").removesuffix("/v1")
    check_address(base, key, ("--rollouts", KEY))
    try:
        models = _get(f"{base}/v1/models", key)
        name, own = str(models["data"][0]["id"]), models["data"][0].get("owned_by") == "whet"
    except (OSError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise InputError(
            f"nothing at {base}/v1/models says which model is served there ({error}). Is the server running, and is "
            f"its key in {KEY}?"
        ) from error
    if own:
        return WhetPolicies(f"{base}/v1", name, api_key=key, retry=PATIENT)
    try:
        about = _get(f"{base}/get_model_info", key)
        sglang = isinstance(about, dict) and "model_path" in about
    except OSError:
        sglang = False
    kind: type[EngineServer] = SGLang if sglang else VLLM
    return kind(f"{base}/v1", name, api_key=key, retry=PATIENT)


def served_model(plan: EnginePlan) -> str:
    """What the engine's own command is to load: for LoRA factors what they stand beside."""
    ended = Path(plan.model) / BUNDLE_FILE
    if not ended.is_file():
        return plan.model
    content = read_bundle(ended).bundle[plan.resource].content
    return str((content.get("base") or content)["path"])


def _rank(plan: EnginePlan) -> int:
    """Rank of the factors that will be handed over: new ones, or those that an earlier run ended with."""
    ended = Path(plan.model) / BUNDLE_FILE
    if plan.lora_rank or not ended.is_file():
        return plan.lora_rank
    version = read_bundle(ended).bundle[plan.resource]
    if version.kind != "adapter":
        return 0
    config = read_json(msgspec.json.decode, (Path(version.content["path"]) / ADAPTER_CONFIG).read_bytes())
    return int(config["r"])


def _policy(plan: EnginePlan, port: int, folder: Path, key: str) -> tuple[list[str], Mapping[str, str]]:
    command = [sys.executable, "-m", "whet", "serve-policy", "--model", served_model(plan), "--name", NAME]
    command += ["--port", str(port), "--allow-weights", str(folder.resolve())]
    command += ["--device", plan.device, "--dtype", plan.dtype]
    return command, {"WHET_TOKEN": key}


def _vllm(plan: EnginePlan, port: int, folder: Path, key: str) -> tuple[list[str], Mapping[str, str]]:
    program = _program("vllm")
    if program is None:
        raise MissingEngine(
            "vllm", "pip install vllm, in an environment of its own whose bin folder is on PATH"
        )
    command = [program, "serve", served_model(plan), "--host", "127.0.0.1", "--port", str(port)]
    # The distribution that was sampled from, as the trainer computes it at this temperature.
    command += ["--served-model-name", NAME, "--logprobs-mode", "processed_logprobs"]
    if rank := _rank(plan):
        command += ["--enable-lora", "--max-lora-rank", str(rank), "--max-loras", "4"]
    environment = {
        "VLLM_API_KEY": key,
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    }
    return command, environment


def _sglang(plan: EnginePlan, port: int, folder: Path, key: str) -> tuple[list[str], Mapping[str, str]]:
    program = _program("sglang")
    if find_spec("sglang") is not None:
        command = [sys.executable, "-m", "sglang.launch_server"]
    elif program is not None:
        command = [program, "serve"]
    else:
        raise MissingEngine(
            "sglang", "pip install 'sglang[all]', in an environment of its own whose bin folder is on PATH"
        )
    command += ["--model-path", served_model(plan), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--served-model-name", NAME, "--api-key", key]
    if rank := _rank(plan):
        command += ["--enable-lora", "--max-lora-rank", str(rank), "--lora-target-modules", "all"]
        command += ["--max-loras-per-batch", "4"]
    return command, {}


_COMMANDS = {"policy": _policy, "vllm": _vllm, "sglang": _sglang}
_CLIENTS: Mapping[str, type[EngineServer]] = {"policy": WhetPolicies, "vllm": VLLM, "sglang": SGLang}


class MissingEngine(MissingExtra):
    """An engine is not installed, and no extra of whet's brings it."""

    def __init__(self, package: str, advice: str) -> None:
        super().__init__(package, "")
        self.args = (f"{package} is not installed, so it cannot sample the rollouts. Run: {advice}",)


def _program(name: str) -> str | None:
    beside = Path(sys.executable).with_name(name)
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(name)


def _wait(process: subprocess.Popen[bytes], url: str, key: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ModelError(
                f"the engine ended with status {process.returncode} before it answered. {_tail(log)}"
            )
        try:
            _get(f"{url}/models", key)
            return
        except OSError:
            time.sleep(0.1)
    raise ModelError(f"the engine did not answer within {START_SECONDS:g} s. {_tail(log)}")


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
    return f"The end of {log}:\n" + "\n".join(lines)


def _get(url: str, key: str | None) -> Any:
    """The JSON at an address.

    Raises:
        OSError: none came.
    """
    import httpx2  # with the HTTP client, which `import whet` does not load

    try:
        with httpx2.Client(timeout=10, trust_env=False) as client:
            answer = client.get(url, headers={"authorization": f"Bearer {key}"} if key else {})
        answer.raise_for_status()
        return read_json(msgspec.json.decode, answer.content)
    except (httpx2.HTTPError, msgspec.DecodeError) as error:
        raise OSError(str(error)) from error


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process that was started here, and its group."""
    for way in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, way)
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        return


Engines: Sequence[str] = tuple(_COMMANDS)
"""Those that can be started here."""
