"""vLLM's and SGLang's routes for weights and sleep, scripted."""

from __future__ import annotations

from urllib.parse import parse_qs

from ...types import Json


class ScriptedWeights:
    """The adapters and weights that a scripted engine has loaded, and its sleep; vLLM's routes."""

    def __init__(self) -> None:
        self.adapters: dict[str, str] = {}
        """Name → folder."""
        self.reloaded: list[str | None] = []
        """Folder of every reload, None for the one that the server was started with."""
        self.asleep: set[str] = set()
        """Of `weights` and `kv_cache`, what has no memory now."""

    def post(self, path: str, body: Json) -> tuple[int, Json] | None:
        """Status and answer of one of the routes, None for any other path."""
        route, _, query = path.partition("?")
        parameters = parse_qs(query)
        if route == "/v1/load_lora_adapter":
            if body["lora_name"] in self.adapters and not body.get("load_inplace"):
                return 400, _error(f"The lora adapter '{body['lora_name']}' has already been loaded.")
            self.adapters[body["lora_name"]] = body["lora_path"]
            return 200, f"Success: LoRA adapter '{body['lora_name']}' added successfully."
        if route == "/v1/unload_lora_adapter":
            if self.adapters.pop(body["lora_name"], None) is None:
                return 404, _error(f"The lora adapter '{body['lora_name']}' cannot be found.")
            return 200, f"Success: LoRA adapter '{body['lora_name']}' removed successfully."
        if route == "/collective_rpc":
            if "weights" in self.asleep:
                return 500, _error("weights have no memory: wake up with tags=weights first")
            if body.get("method") != "reload_weights":
                return 400, _error(f"no method {body.get('method')!r}")
            self.reloaded.append((body.get("kwargs") or {}).get("weights_path"))
            return 200, {"results": [None]}
        if route == "/sleep":
            self.asleep = {"weights", "kv_cache"}
            return 200, None
        if route == "/wake_up":
            self.asleep -= set(parameters.get("tags") or self.asleep)
            return 200, None
        return (200, None) if route == "/reset_prefix_cache" else None


def _error(message: str) -> Json:
    return {"error": {"message": message, "type": "BadRequestError"}}


class ScriptedSGLangWeights(ScriptedWeights):
    """The same by SGLang's routes, with the version that the trainer gave."""

    def __init__(self) -> None:
        super().__init__()
        self.weight_version = "default"

    def post(self, path: str, body: Json) -> tuple[int, Json] | None:
        """Status and answer of one of the routes, None for any other path."""
        if path == "/update_weights_from_disk":
            self.reloaded.append(body["model_path"])
            self.weight_version = body.get("weight_version") or self.weight_version
            return 200, {"success": True, "message": "Succeeded to update model weights."}
        if path == "/load_lora_adapter":
            if body["lora_name"] in self.adapters:
                return 400, {"success": False, "error_message": f"{body['lora_name']} is already loaded"}
            self.adapters[body["lora_name"]] = body["lora_path"]
            return 200, {"success": True, "loaded_adapters": dict(self.adapters)}
        if path == "/unload_lora_adapter":
            if self.adapters.pop(body["lora_name"], None) is None:
                return 400, {"success": False, "error_message": f"{body['lora_name']} is not loaded"}
            return 200, {"success": True, "loaded_adapters": dict(self.adapters)}
        return (200, {"success": True}) if path == "/flush_cache" else None

    def get(self, path: str, model: str) -> Json | None:
        """The answer of a route that is read, None for any other path."""
        if path == "/get_model_info":
            return {"model_path": model, "is_generation": True, "weight_version": self.weight_version}
        return None
