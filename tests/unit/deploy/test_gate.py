import asyncio
from pathlib import Path

import numpy as np
import pytest
from aiohttp.test_utils import TestServer
from fake_model_server import FakeModelServer
from safetensors.numpy import save_file

from skyrl_nat.deploy.gate import NUM_PROMPTS, check_adapter, check_difference
from skyrl_nat.deploy.policy_client import Endpoint, PolicyClient
from skyrl_nat.errors import ConfigError

LAYER = "model.layers.0.self_attn.q_proj"


def folders(folder: Path, **tensors: tuple[int, ...]) -> tuple[Path, Path]:
    """An adapter of the given tensors, `.` written as `__`, and its model: one layer of 8 by 6."""
    adapter, base = folder / "adapter", folder / "base"
    for one in (adapter, base):
        one.mkdir()
    save_file({f"{LAYER}.weight": np.zeros((8, 6), np.float32)}, base / "model.safetensors")
    found = {name.replace("__", "."): np.ones(shape, np.float32) for name, shape in tensors.items()}
    save_file(found, adapter / "adapter_model.safetensors")
    return adapter, base


def names(prefix: str, down: tuple[int, ...] = (2, 6), up: tuple[int, ...] = (8, 2)) -> dict[str, tuple[int, ...]]:
    path = f"{prefix}{LAYER}".replace(".", "__")
    return {f"{path}__lora_A__weight": down, f"{path}__lora_B__weight": up}


def test_an_adapter_whose_tensors_all_have_a_place_passes(tmp_path: Path) -> None:
    assert check_adapter(*folders(tmp_path, **names("base_model.model."))) == 1


@pytest.mark.parametrize(
    ("tensors", "count"),
    [
        (names("base_model.model.module."), "2 of 2"),
        (names(""), "2 of 2"),
        (names("base_model.model.", down=(2, 5)), "1 of 2"),
        (names("base_model.model.", up=(8, 3)), "1 of 2"),
        ({"base_model__model__extra": (1,)} | names("base_model.model."), "1 of 3"),
        ({}, "0 of 0"),
    ],
)
def test_a_tensor_without_a_place_in_the_model_is_refused(
    tmp_path: Path, tensors: dict[str, tuple[int, ...]], count: str
) -> None:
    """DP-01: an extra wrapper in the names, none at all, a wrong shape, a stray tensor, an empty file."""
    with pytest.raises(ConfigError, match=f"must belong to a layer of .* {count} do not"):
        check_adapter(*folders(tmp_path, **tensors))


@pytest.mark.parametrize("behaviour", ["good", "as_base"])
def test_an_adapter_that_answers_as_its_model_does_is_refused(behaviour: str) -> None:
    """DP-01: the server dropped the adapter without a word."""

    async def scenario() -> None:
        fake = FakeModelServer(behaviour)
        async with TestServer(fake.app()) as server:
            endpoint = Endpoint(base_url=str(server.make_url("/v1")), model="policy")
            async with PolicyClient(endpoint) as client:
                prompts = [[number, 1] for number in range(9)]
                if behaviour == "good":
                    assert await check_difference(client, "base", prompts) == 0.25
                else:
                    with pytest.raises(ConfigError, match=r"differ by at most 0\. The adapter is not in use"):
                        await check_difference(client, "base", prompts)
        assert len(fake.bodies) == 2 * NUM_PROMPTS
        assert {body["temperature"] for body in fake.bodies} == {0.0}

    asyncio.run(scenario())
