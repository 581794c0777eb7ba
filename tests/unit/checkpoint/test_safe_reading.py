"""A checkpoint may come from anywhere: nothing in it is run, and nothing outside its folder is read."""

import io
import os
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata

from skyrl_nat.checkpoint.safe_reading import SafeReader
from skyrl_nat.checkpoint.sharded import load_sharded, names_in, save_sharded
from skyrl_nat.errors import CheckpointError

TENSORS = {
    "w": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "b": torch.ones(2, dtype=torch.bfloat16),
    "random": torch.zeros(3, dtype=torch.uint8),
}


class Attack:
    """Makes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.target),)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "policy"
    save_sharded(folder, TENSORS, {"num_steps": 3}, lambda tensor: tensor)
    return folder


def load(folder: Path) -> dict[str, torch.Tensor]:
    found = {name: torch.full_like(tensor, 7) for name, tensor in TENSORS.items()}
    load_sharded(folder, found, ["num_steps"])
    return found


def rewrite(folder: Path, change: Callable[[Metadata], Any]) -> None:
    """Change torch's description of a checkpoint."""
    metadata = FileSystemReader(folder).read_metadata()
    (folder / ".metadata").write_bytes(pickle.dumps(change(metadata)))


def test_what_torch_writes_is_read_as_torch_reads_it(checkpoint: Path):
    assert names_in(checkpoint) == {*TENSORS, "counter.num_steps"}
    for name, tensor in load(checkpoint).items():
        assert torch.equal(tensor, TENSORS[name]), name
    safe, plain = SafeReader(checkpoint).read_metadata(), FileSystemReader(checkpoint).read_metadata()
    assert safe.state_dict_metadata == plain.state_dict_metadata
    assert safe.storage_data == plain.storage_data


@pytest.mark.parametrize("place", ["alone", "state_dict_metadata", "planner_data", "storage_data", "storage_meta"])
def test_a_description_that_would_run_something_is_refused_and_nothing_is_run(
    checkpoint: Path, tmp_path: Path, place: str
):
    target = tmp_path / "attacked"

    def change(metadata: Metadata) -> Any:
        if place == "alone":
            return Attack(target)
        setattr(metadata, place, Attack(target))
        return metadata

    rewrite(checkpoint, change)
    assert b"mkdir" in (checkpoint / ".metadata").read_bytes(), "the attack is there"
    with pytest.raises(CheckpointError, match=r"it names posix\.mkdir\. Do not trust") as caught:
        load(checkpoint)
    assert "\n" not in str(caught.value)
    assert not target.exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("builtins", "eval"),
        ("torch", "load"),
        ("torch", "serialization.load"),
        ("torch.distributed.checkpoint.metadata", "os.system"),
        ("torch.distributed.checkpoint.metadata", "dataclass"),
        ("torch.distributed.checkpoint.filesystem", "pickle.loads"),
        ("pathlib", "os.system"),
    ],
)
def test_names_that_lead_out_of_an_allowed_module_are_refused(checkpoint: Path, module: str, name: str):
    stream = io.BytesIO()
    pickler = pickle._Pickler(stream, 4)  # type: ignore[attr-defined]  # writes any text as a name
    stream.write(pickle.PROTO + b"\x04")
    pickler.save(module)
    pickler.save(name)
    stream.write(pickle.STACK_GLOBAL + pickle.STOP)
    (checkpoint / ".metadata").write_bytes(stream.getvalue())
    assert "STACK_GLOBAL" in [opcode.name for opcode, _, _ in pickletools.genops(stream.getvalue())]
    with pytest.raises(CheckpointError, match=f"it names {module}.{name}"):
        names_in(checkpoint)


def test_a_tensor_that_became_pickled_bytes_is_refused_and_not_unpickled(checkpoint: Path, tmp_path: Path):
    """torch's reader would unpickle it."""
    target = tmp_path / "attacked"
    (checkpoint / "__0_0.distcp").write_bytes(pickle.dumps(Attack(target)))

    def declare(metadata: Metadata) -> Metadata:
        metadata.state_dict_metadata = dict.fromkeys(metadata.state_dict_metadata, BytesStorageMetadata())
        return metadata

    rewrite(checkpoint, declare)
    with pytest.raises(CheckpointError, match=r"it names torch.*\.BytesStorageMetadata"):
        load(checkpoint)
    assert not target.exists()


def test_a_shard_with_a_pickle_in_it_is_refused(checkpoint: Path, tmp_path: Path):
    target = tmp_path / "attacked"
    stream = io.BytesIO()
    torch.save(Attack(target), stream)
    data, attack = checkpoint / "__0_0.distcp", stream.getvalue()

    def point_at_it(metadata: Metadata) -> Metadata:
        for info in metadata.storage_data.values():
            info.offset, info.length = 0, len(attack)
        return metadata

    data.write_bytes(attack)
    rewrite(checkpoint, point_at_it)
    with pytest.raises(CheckpointError, match="must fit the model and be complete"):
        load(checkpoint)
    assert not target.exists()


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "below/secret"])
def test_no_file_outside_the_folder_is_read(checkpoint: Path, name: str):
    def move(metadata: Metadata) -> Metadata:
        next(iter(metadata.storage_data.values())).relative_path = name
        return metadata

    rewrite(checkpoint, move)
    with pytest.raises(CheckpointError, match=f"it names '{name}', which is not in its folder"):
        load(checkpoint)


@pytest.mark.parametrize("data", [b"", b"\x80", b"cut", pickle.dumps({"a": 1})])
def test_what_is_no_description_is_refused_in_one_sentence(checkpoint: Path, data: bytes):
    (checkpoint / ".metadata").write_bytes(data)
    with pytest.raises(CheckpointError, match="must hold torch's description") as caught:
        names_in(checkpoint)
    assert "\n" not in str(caught.value)
