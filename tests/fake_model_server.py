"""A server of models that lies, dies or behaves, as a process: `fake_model_server.py PORT BEHAVIOUR`.

It speaks what vLLM adds to OpenAI's protocol: token ids in and out. `good` serves `base` and `policy`, which differ.
"""

import asyncio
import os
import sys

from aiohttp import web

DIES_AFTER_S = 0.6


class FakeModelServer:
    """Counts what it is asked."""

    def __init__(self, behaviour: str = "good", *, extra_ids: tuple[int, ...] = ()) -> None:
        self.behaviour = behaviour
        self.extra_ids = extra_ids
        self.bodies: list[dict] = []
        self.failures: list[tuple[int, str]] = []
        """Status and `Retry-After`, given out first, one for each call."""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/load_lora_adapter", self._health)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/v1/chat/completions", self._chat)
        return app

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="")

    async def _models(self, request: web.Request) -> web.Response:
        names = [] if self.behaviour == "no_models" else ["base", "policy"]
        return web.json_response({"object": "list", "data": [{"id": name} for name in names]})

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        if self.failures:
            status, after = self.failures.pop(0)
            return web.Response(status=status, text="not now", headers={"Retry-After": after} if after else {})
        if self.behaviour == "hangs":
            await asyncio.sleep(60)
        if self.behaviour == "not_loaded" and body["model"] == "policy":
            return web.json_response({"error": {"message": "The model `policy` does not exist."}}, status=404)
        if self.behaviour == "dies":
            asyncio.get_running_loop().call_later(DIES_AFTER_S, os._exit, 7)
        is_other = body["model"] == "policy" and self.behaviour != "as_base"
        count = body["max_tokens"]
        choice = {
            "token_ids": [5] * count,
            "finish_reason": "length",
            "stop_reason": None,
            "logprobs": {"token_logprobs": [-0.5 if is_other else -0.25] * count},
            "prompt_token_ids": [*self.extra_ids, *body["prompt"]],
        }
        return web.json_response({"model": body["model"], "choices": [choice]})

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        ids = [len(message["content"]) for message in body["messages"]]
        return web.json_response({"model": body["model"], "prompt_token_ids": ids, "choices": []})


if __name__ == "__main__":
    print(f"this is the server called {sys.argv[2]}", flush=True)
    if sys.argv[2] == "no_start":
        sys.exit("RuntimeError: no memory left for the weights")
    web.run_app(
        FakeModelServer(sys.argv[2]).app(), host="127.0.0.1", port=int(sys.argv[1]), print=None, shutdown_timeout=0.1
    )
