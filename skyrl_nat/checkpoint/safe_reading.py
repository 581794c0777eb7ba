"""Reading a sharded checkpoint that may come from anywhere: data is read, nothing in it is ever run."""

import io
import pickle
from pathlib import PurePath
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import ReadItem

from skyrl_nat.errors import CheckpointError

_METADATA = "torch.distributed.checkpoint.metadata"
_ALLOWED = {
    *(
        (_METADATA, name)
        for name in (
            "Metadata",
            "MetadataIndex",
            "ChunkStorageMetadata",
            "StorageMeta",
            "TensorProperties",
            "TensorStorageMetadata",
            "_MEM_FORMAT_ENCODING",
        )
    ),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    ("pathlib", "PosixPath"),
}
"""What torch's own description of a checkpoint is made of."""


class SafeReader(FileSystemReader):
    """Reads torch's description of a checkpoint, which is a pickle, without calling what it may name."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return the description.

        Raises:
            CheckpointError: It names anything but torch's own records, or files outside the folder.
        """
        path = self._get_metadata_path(kwargs.get("rank"))
        try:
            with self.fs.create_stream(path, "rb") as file:
                metadata = _Unpickler(file).load()
            if not isinstance(metadata, Metadata):
                raise pickle.UnpicklingError(f"it is a {type(metadata).__name__}")
            names = {info.relative_path for info in metadata.storage_data.values()}
            outside = sorted(name for name in names if PurePath(name).name != name)
            if outside:
                raise pickle.UnpicklingError(f"it names {outside[0]!r}, which is not in its folder")
        except Exception as error:  # whatever a pickle that was made up may raise
            raise CheckpointError(
                f"{path} must hold torch's description of a checkpoint and nothing else, but: {error}. Do not trust "
                "this checkpoint; resume from another one"
            ) from error
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


class SafeLoadPlanner(DefaultLoadPlanner):
    """Fills tensors only: anything else in a checkpoint would be unpickled."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Refuse what is no tensor."""
        raise CheckpointError(f"{read_item.dest_index.fqn} must be a tensor in the checkpoint, it is pickled bytes")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED or (module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}")
