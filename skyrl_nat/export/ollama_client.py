"""Ollama's HTTP API, as far as an export needs it."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from skyrl_nat.errors import ExportError
from skyrl_nat.types import Message

_GREEDY = {"temperature": 0, "top_k": 1, "seed": 0}


class OllamaClient:
    """One server; an asynchronous context manager."""

    def __init__(self, url: str, timeout_s: float = 600.0) -> None:
        """Take an address.

        Args:
            url: For instance `http://127.0.0.1:11434`.
            timeout_s: Of one request.
        """
        self._url = url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "OllamaClient":
        """Open."""
        self._session = aiohttp.ClientSession(timeout=self._timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        if self._session is not None:
            await self._session.close()

    async def push(self, file: Path) -> str:
        """Upload a file, unless the server has it, and return its digest.

        Raises:
            ExportError: The server refuses.
        """
        with file.open("rb") as stream:
            digest = f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
            path = f"/api/blobs/{digest}"
            status, _ = await self._send("HEAD", path, accepted=(200, 404))
            if status == 404:
                stream.seek(0)
                await self._send("POST", path, data=stream, accepted=(200, 201))
        return digest

    async def create(
        self, name: str, *, files: Mapping[str, str], template: str, system: str, parameters: Mapping[str, Any]
    ) -> None:
        """Make a model of uploaded files.

        Raises:
            ExportError: The server refuses, or does not say "success".
        """
        body = {
            "model": name,
            "files": dict(files),
            "template": template,
            "parameters": dict(parameters),
            "stream": False,
        } | ({"system": system} if system else {})
        answer = await self._post("/api/create", body)
        if answer.get("status") != "success":
            raise ExportError(f"Ollama must create {name} with success, but says {answer}. Look at its log")

    async def show(self, name: str) -> dict[str, Any]:
        """Return what the server knows of a model."""
        return await self._post("/api/show", {"model": name})

    async def delete(self, name: str) -> None:
        """Remove a model; one that is not there is no error."""
        await self._send("DELETE", "/api/delete", json_body={"model": name}, accepted=(200, 404))

    async def tags(self) -> list[str]:
        """Return the names of the models that the server has."""
        _, text = await self._send("GET", "/api/tags")
        return [str(each["name"]) for each in json.loads(text)["models"]]

    async def generate_raw(self, name: str, prompt: str, *, num_predict: int) -> str:
        """Return the greedy answer to a prompt as it is."""
        options = {**_GREEDY, "num_predict": num_predict}
        body = {"model": name, "prompt": prompt, "raw": True, "stream": False, "options": options}
        return str((await self._post("/api/generate", body))["response"])

    async def rendered(self, name: str, messages: Sequence[Message]) -> str | None:
        """Return the prompt that the server makes of a dialogue; None of a server that does not show it."""
        answer = await self._post("/api/chat", self._chat(name, messages) | {"_debug_render_only": True})
        shown = answer.get("_debug_info")
        return None if shown is None else str(shown["rendered_template"])

    async def num_prompt_tokens(self, name: str, messages: Sequence[Message]) -> int:
        """Return how many tokens the server makes of a dialogue."""
        return int((await self._post("/api/chat", self._chat(name, messages)))["prompt_eval_count"])

    def _chat(self, name: str, messages: Sequence[Message]) -> dict[str, Any]:
        options = {**_GREEDY, "num_predict": 1}
        return {"model": name, "messages": list(messages), "stream": False, "options": options}

    async def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        _, text = await self._send("POST", path, json_body=body)
        return json.loads(text)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        json_body: Mapping[str, Any] | None = None,
        data: Any = None,
        accepted: Sequence[int] = (200,),
    ) -> tuple[int, str]:
        if self._session is None:
            raise ExportError("An Ollama client must be open before it is used, this one is not. Enter it first")
        try:
            async with self._session.request(method, self._url + path, json=json_body, data=data) as response:
                text = await response.text()
                if response.status not in accepted:
                    raise ExportError(f"Ollama must take {method} {path}, but answers {response.status}: {text[:300]}")
                return response.status, text
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ExportError(
                f"An Ollama server must answer at {self._url}, but: {error!r}. Start one with ollama serve"
            ) from error
