"""A server that speaks Ollama's HTTP API as its documentation has it, and refuses whatever that does not allow.

Blobs, create, show, tags, generate (raw), chat and delete; answers are greedy and come from a player.
"""

import asyncio
import hashlib
import json
import re
import tempfile
from collections.abc import Callable
from typing import Any

import go_template
from aiohttp import web

NAME = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9._-]+)?(:[a-zA-Z0-9._-]+)?")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
OPTIONS: dict[str, tuple[type, ...]] = {
    "num_ctx": (int,),
    "num_batch": (int,),
    "num_gpu": (int,),
    "num_predict": (int,),
    "seed": (int,),
    "top_k": (int,),
    "top_p": (int, float),
    "min_p": (int, float),
    "temperature": (int, float),
    "repeat_penalty": (int, float),
    "stop": (list, str),
}
CREATE = {"model", "files", "template", "system", "parameters", "stream"}
GENERATE = {"model", "prompt", "raw", "stream", "options"}
CHAT = {"model", "messages", "stream", "options", "_debug_render_only"}
Player = Callable[[bytes, str, int], tuple[str, int]]
"""(GGUF file, prompt, tokens wanted) -> (greedy text, tokens of the prompt)."""


class OllamaServer:
    """The state of one server."""

    def __init__(self, play: Player, *, shows_prompts: bool = True) -> None:
        self.play = play
        self.shows_prompts = shows_prompts
        """Whether it knows `_debug_render_only`, as newer servers do; older ones answer."""
        self.blobs: dict[str, bytes] = {}
        self.models: dict[str, dict[str, Any]] = {}
        self.num_uploads = 0
        self.forgets = ""
        """Part of a model that is lost when it is created, for tests."""

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=2**32)
        app.router.add_route("HEAD", "/api/blobs/{digest}", self._has_blob)
        app.router.add_post("/api/blobs/{digest}", self._take_blob)
        app.router.add_post("/api/create", self._create)
        app.router.add_post("/api/show", self._show)
        app.router.add_get("/api/tags", self._tags, allow_head=False)
        app.router.add_post("/api/generate", self._generate)
        app.router.add_post("/api/chat", self._chat)
        app.router.add_delete("/api/delete", self._delete)
        return app

    async def _has_blob(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if request.match_info["digest"] in self.blobs else 404)

    async def _take_blob(self, request: web.Request) -> web.Response:
        digest, data = request.match_info["digest"], await request.read()
        if not DIGEST.fullmatch(digest) or f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            raise _bad("digest mismatch")
        self.blobs[digest] = data
        self.num_uploads += 1
        return web.Response(status=201)

    async def _create(self, request: web.Request) -> web.Response:
        body = await _body(request, CREATE, model=str, files=dict, template=str, parameters=dict, stream=bool)
        if not NAME.fullmatch(body["model"]):
            raise _bad("invalid model name")
        files = body["files"]
        if len(files) != 1 or not all(DIGEST.fullmatch(str(each)) for each in files.values()):
            raise _bad("files must be names and digests")
        (digest,) = files.values()
        if digest not in self.blobs:
            raise _bad(f"blob {digest} not found")
        if not self.blobs[digest].startswith(b"GGUF"):
            raise _bad("unknown type of file")
        _check_options(body["parameters"])
        go_template.execute(body["template"], [{"role": "user", "content": "x"}])
        body.pop(self.forgets, None)
        self.models[_full(body["model"])] = body | {"digest": digest}
        return web.json_response({"status": "success"})

    async def _show(self, request: web.Request) -> web.Response:
        model = self._model(await _body(request, {"model", "verbose"}, model=str))
        lines = [
            f"{name:<30} {json.dumps(each) if isinstance(each, str) else each}"
            for name, value in model.get("parameters", {}).items()
            for each in (value if isinstance(value, list) else [value])
        ]
        shown = {"template": model.get("template", "{{ .Prompt }}"), "parameters": "\n".join(lines), "model_info": {}}
        return web.json_response(shown | ({"system": model["system"]} if model.get("system") else {}))

    async def _tags(self, request: web.Request) -> web.Response:
        models = [
            {"name": name, "model": name, "digest": model["digest"].removeprefix("sha256:")}
            for name, model in self.models.items()
        ]
        return web.json_response({"models": models})

    async def _generate(self, request: web.Request) -> web.Response:
        body = await _body(request, GENERATE, model=str, prompt=str, raw=bool, stream=bool, options=dict)
        if not body["raw"] or body["stream"]:
            raise _bad("this server plays raw prompts in one piece")
        return self._answer(self._model(body), body, body["prompt"], "response")

    async def _chat(self, request: web.Request) -> web.Response:
        body = await _body(request, CHAT, model=str, messages=list, stream=bool, options=dict)
        model = self._model(body)
        for message in body["messages"]:
            if set(message) != {"role", "content"} or message["role"] not in ("system", "user", "assistant", "tool"):
                raise _bad(f"invalid message {message}")
        prompt = go_template.execute(model.get("template", ""), body["messages"], model.get("system", ""))
        if body.get("_debug_render_only") and self.shows_prompts:
            return web.json_response({"model": body["model"], "_debug_info": {"rendered_template": prompt}})
        return self._answer(model, body, prompt, "message")

    async def _delete(self, request: web.Request) -> web.Response:
        body = await _body(request, {"model"}, model=str)
        self._model(body)
        del self.models[_full(body["model"])]
        return web.Response()

    def _answer(self, model: dict[str, Any], body: dict[str, Any], prompt: str, where: str) -> web.Response:
        options = model.get("parameters", {}) | body["options"]
        _check_options(options)
        if options["temperature"] != 0:
            raise _bad("this server answers greedily")
        text, count = self.play(self.blobs[model["digest"]], prompt, options["num_predict"])
        said: Any = text if where == "response" else {"role": "assistant", "content": text}
        return web.json_response({"model": body["model"], where: said, "done": True, "prompt_eval_count": count})

    def _model(self, body: dict[str, Any]) -> dict[str, Any]:
        found = self.models.get(_full(body["model"]))
        if found is None:
            raise web.HTTPNotFound(text=json.dumps({"error": f"model '{body['model']}' not found"}))
        return found


def _full(name: str) -> str:
    return name if ":" in name else f"{name}:latest"


def _bad(why: str) -> web.HTTPBadRequest:
    return web.HTTPBadRequest(text=json.dumps({"error": why}))


async def _body(request: web.Request, known: set[str], **wanted: type) -> dict[str, Any]:
    try:
        body = json.loads(await request.read())
    except ValueError:
        raise _bad("invalid JSON") from None
    if not isinstance(body, dict) or set(body) - known:
        raise _bad(f"unknown fields {sorted(set(body) - known)}")
    for name, kind in wanted.items():
        if not isinstance(body.get(name), kind):
            raise _bad(f"{name} must be {kind.__name__}, got {body.get(name)!r}")
    return body


def _check_options(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if name not in OPTIONS or not isinstance(value, OPTIONS[name]) or isinstance(value, bool):
            raise _bad(f"invalid option provided: {name}={value!r}")


def play_with_llama_cpp(file: bytes, prompt: str, count: int) -> tuple[str, int]:
    """Answer as llama.cpp does."""
    import llama_cpp

    with tempfile.NamedTemporaryFile(suffix=".gguf") as played:
        played.write(file)
        played.flush()
        llama = llama_cpp.Llama(played.name, n_ctx=512, n_threads=1, verbose=False)
        tokens = llama.tokenize(prompt.encode(), add_bos=True, special=True)
        answer = llama.create_completion(tokens, max_tokens=count, temperature=0.0)
        llama.close()
    return answer["choices"][0]["text"], len(tokens)


async def serve() -> None:
    """Listen on a free port of this machine, say where, and play until the end."""
    runner = web.AppRunner(OllamaServer(play_with_llama_cpp).app())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
