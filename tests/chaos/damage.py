"""What a disk, or a process that was killed, may do to a checkpoint."""

from pathlib import Path


def flip_bytes(checkpoint: Path) -> None:
    """Damage the largest file as a disk would: same size, other bytes."""
    file = max((path for path in checkpoint.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    middle = len(data) // 2
    for place in range(middle, min(middle + 64, len(data))):
        data[place] ^= 0xFF
    file.write_bytes(data)


def tear_manifest(checkpoint: Path) -> None:
    """Leave half of the manifest."""
    file = checkpoint / "manifest.json"
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


DAMAGES = {"newest checkpoint corrupted": flip_bytes, "newest manifest torn": tear_manifest}
