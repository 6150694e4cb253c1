"""A server that speaks the Tinker API to its official SDK, over one small decoder: real HTTP, real training.

All of it is done when it is asked for, and every future is ready when it is retrieved.  Forward passes,
gradients, AdamW and sampling are those of this process; full weights stand in for LoRA factors.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import numpy as np
import torch
from tinker.proto import tinker_public_pb2 as wire

from whet.learn.training.batch import Merged, parts
from whet.learn.training.model import Decoder
from whet.learn.training.network import predict
from whet.learn.training.sampler import Sampler


class Trainer:
    """What the server has: weights, moments, and what was saved of them."""

    def __init__(self, decoder: Decoder) -> None:
        self.base = decoder
        self.decoder = decoder.copy()
        self.optimizer: torch.optim.Optimizer | None = None
        self.saved: dict[str, Any] = {}
        self.sessions: dict[str, Any] = {}
        self.steps = 0
        self.asked: list[str] = []
        self.broken: str | None = None
        """A path that fails, to see what becomes of it."""

    def forward_backward(self, request: Any) -> Any:
        """Cross-entropy, summed: Σ −w log p, and its gradient unless it is a forward pass alone."""
        outputs = []
        for datum in request.data:
            tokens = [np.frombuffer(chunk.encoded_text.tokens, np.int32) for chunk in datum.model_input]
            fields = {key: datum.loss_fn_inputs[key] for key in datum.loss_fn_inputs}
            target = np.frombuffer(fields["target_tokens"].dense, np.int64)
            weight = torch.tensor(np.frombuffer(fields["weights"].dense, np.float32))
            ids = [int(id) for id in np.concatenate(tokens)]
            chosen = self._logprobs(ids, [int(id) for id in target])
            if not request.forward_only:
                (-(weight * chosen).sum()).backward()
            outputs.append(chosen.detach().numpy().astype(np.float32))
        sizes = np.cumsum([0, *(4 * len(one) for one in outputs)]).astype(np.int64)
        answer = wire.ForwardBackwardOutput(loss_fn_output_type="CrossEntropyLossReturn")
        record = answer.loss_fn_outputs.add()
        record.num_datums = len(outputs)
        value = wire.BatchedTensor(
            data=np.concatenate(outputs).tobytes(), offsets=sizes.tobytes(), dtype=wire.DTYPE_FLOAT32
        )
        record.fields["logprobs"].CopyFrom(value)
        return answer.SerializeToString()

    def _logprobs(self, ids: list[int], targets: list[int]) -> torch.Tensor:
        """Of each target at its position: one sequence for each, since targets need not follow the ids."""
        rows = [
            Merged(0, [*ids[: place + 1], target], [place + 1], [0.0]) for place, target in enumerate(targets)
        ]
        found = torch.zeros(len(rows))
        collected = []
        for row in rows:
            (part,) = parts([row])
            collected.append(predict(self.decoder, part).chosen)
        return torch.cat(collected) if collected else found

    def step(self, given: dict[str, float]) -> float:
        trained = list(self.decoder.weights().values())
        if self.optimizer is None:
            self.optimizer = torch.optim.AdamW(trained)
        for group in self.optimizer.param_groups:
            group |= {
                "lr": given["learning_rate"],
                "betas": (given["beta1"], given["beta2"]),
                "eps": given["eps"],
                "weight_decay": given["weight_decay"],
            }
        norm = torch.nn.utils.clip_grad_norm_(trained, given["grad_clip_norm"] or float("inf"))
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1
        return float(norm)

    def sample(self, decoder: Any, body: dict[str, Any]) -> bytes:
        given = body["sampling_params"]
        prompt = [id for chunk in body["prompt"]["chunks"] for id in chunk["tokens"]]
        stop = given.get("stop")
        sampler = Sampler(decoder, greedy=given["temperature"] == 0)
        answer = wire.SampleResponse()
        for number in range(body.get("num_samples", 1)):
            session = sampler.session(given["seed"] + number)
            generated = session.generate(
                prompt, stop_id=stop[0] if stop else None, max_new_tokens=given["max_tokens"]
            )
            found = asyncio.run(generated)
            ended = stop and found.output_ids[-1] == stop[0]
            answer.sequences.add(
                stop_reason=wire.STOP_REASON_STOP if ended else wire.STOP_REASON_LENGTH,
                tokens=np.asarray(found.output_ids, np.int32).tobytes(),
                logprobs=np.asarray(found.logprobs, np.float32).tobytes(),
            )
        return answer.SerializeToString()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Any

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        if "/samplers/" in self.path:
            self._answer({"sampler_id": self.path.rpartition("/")[2], "base_model": "tiny"})
        else:
            self._answer({"status": "ok"})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0].removeprefix("/api/v1/")
        trainer: Trainer = self.server.trainer
        trainer.asked.append(path)
        if path == trainer.broken:
            self._answer({"detail": "out of order"}, 400)
            return
        with self.server.lock:
            found = self.server.route(path, raw)
        if found is None:
            self._answer({"detail": f"no {path} here"}, 404)
        elif isinstance(found, bytes):
            self._send(200, "application/x-protobuf", found)
        else:
            self._answer(found)

    def _answer(self, value: Any, status: int = 200) -> None:
        self._send(status, "application/json", msgspec.json.encode(value))

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _HTTP(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.trainer, self.lock = trainer, threading.Lock()
        self.results: dict[str, Any] = {}
        self.count = itertools.count()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is its own business."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def later(self, result: Any) -> dict[str, Any]:
        """A future that is ready."""
        request = f"request-{next(self.count)}"
        self.results[request] = result
        return {"request_id": request, "model_id": "model"}

    def route(self, path: str, raw: bytes) -> Any:
        trainer = self.trainer
        if path == "forward_backward":
            request = wire.ForwardBackwardRequest()
            request.ParseFromString(raw)
            return self.later(trainer.forward_backward(request))
        body = msgspec.json.decode(raw) if raw else {}
        if path == "retrieve_future":
            return self.results[body["request_id"]]
        plain = {
            "client/config": {"use_pyqwest_transport": False, "parallel_fwdbwd_chunks": False},
            "client/dynamic_config": {},
            "create_session": {"type": "create_session", "session_id": "session"},
            "session_heartbeat": {"type": "session_heartbeat"},
            "telemetry": {"status": "accepted"},
            "sessions/session/finish": {},
            "weights_info": {"base_model": "tiny", "is_lora": True, "lora_rank": 32},
            "get_info": {
                "type": "get_info",
                "model_id": "model",
                "model_data": {"model_name": "tiny", "arch": "qwen2"},
            },
        }
        if path in plain:
            return plain[path]
        if path == "create_model":
            return self.later({"type": "create_model", "model_id": "model"})
        if path == "optim_step":
            norm = trainer.step(body["adam_params"])
            return self.later({"metrics": {"grad_norm": norm}})
        if path in ("save_weights", "save_weights_for_sampler"):
            where = f"tinker://session/{path}/{body.get('path')}"
            trainer.saved[where] = trainer.decoder.copy()
            return self.later({"type": path, "path": where})
        if path == "load_weights":
            trainer.decoder.copy_from(trainer.saved[body["path"]].weights())
            return self.later({"type": path, "path": body["path"]})
        if path == "create_sampling_session":
            session = f"session:sample:{len(trainer.sessions)}"
            where = body.get("model_path")
            trainer.sessions[session] = trainer.saved[where] if where else trainer.base
            return {"type": path, "sampling_session_id": session}
        if path == "asample":
            made = self.later(trainer.sample(trainer.sessions[body["sampling_session_id"]], body))
            ids = [f"{made['request_id']}:{place}" for place in range(body.get("num_samples", 1))]
            return {**made, "sample_sequence_ids": ids}
        return None


@contextmanager
def tinker_server(decoder: Decoder) -> Iterator[tuple[str, Trainer]]:
    """Serve while the block runs; the URL, and what the server has."""
    trainer = Trainer(decoder)
    http = _HTTP(trainer)
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}", trainer
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
