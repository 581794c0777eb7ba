"""The names that the vLLM engine imports for each request, without vLLM."""

import sys
from types import ModuleType, SimpleNamespace

import pytest


def put_vllm_names(monkeypatch: pytest.MonkeyPatch) -> None:
    top, parameters = ModuleType("vllm"), ModuleType("vllm.sampling_params")
    top.SamplingParams = top.TokensPrompt = SimpleNamespace  # type: ignore[attr-defined]
    parameters.RequestOutputKind = SimpleNamespace(DELTA="delta", FINAL_ONLY="final")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", top)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", parameters)
