"""What lies below the root: models, checkpoints, exports and comparisons, found by their files."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from skyrl_nat.service.paths import inside, plain_files
from skyrl_nat.service.schemas import Asset

MAX_ASSETS = 1000
MAX_FILES = 10_000
"""Of one asset, for its size."""
MODEL_CONFIG = "config.json"
MODELS_FOLDER = "models"
WEIGHTS = (".safetensors", ".gguf")


def checkpoints(root: Path) -> list[Asset]:
    """Return the complete checkpoints of all runs."""
    return _assets(root, (path.parent for path in root.glob("*/checkpoints/step_*/manifest.json")))


def models(root: Path) -> list[Asset]:
    """Return the model folders below `models/`."""
    return _assets(root, (path for path in (root / MODELS_FOLDER).glob("*") if (path / MODEL_CONFIG).is_file()))


def exports(root: Path) -> list[Asset]:
    """Return folders and GGUF files with whole weights at most three folders deep, but no models and no checkpoints."""
    folders = {path.parent for depth in ("*", "*/*", "*/*/*") for path in root.glob(f"{depth}/*") if _is_weights(path)}
    return _assets(root, (folder for folder in folders if _is_export(folder.relative_to(root).parts)))


def comparisons(root: Path) -> list[Asset]:
    """Return the folders of `skyrl-nat compare`."""
    return _assets(root, (path for depth in ("", "*/", "*/*/") for path in root.glob(f"{depth}comparison-*")))


KINDS: dict[str, Callable[[Path], list[Asset]]] = {
    "models": models,
    "checkpoints": checkpoints,
    "exports": exports,
    "comparisons": comparisons,
}


def _is_weights(path: Path) -> bool:
    is_named = path.suffix in WEIGHTS and path.is_file()
    return is_named and (path.suffix == ".gguf" or (path.parent / MODEL_CONFIG).is_file())


def _is_export(parts: tuple[str, ...]) -> bool:
    return not parts[0].startswith(".") and parts[0] != MODELS_FOLDER and "checkpoints" not in parts


def _assets(root: Path, found: Iterable[Path]) -> list[Asset]:
    """Return the newest first; what leads out of the root is left out."""
    known = [(path.stat().st_mtime, path) for path in found if path.is_dir() and inside(root, str(path)) is not None]
    return [_asset(root, path, stamp) for stamp, path in sorted(known, reverse=True)[:MAX_ASSETS]]


def _asset(root: Path, path: Path, stamp: float) -> Asset:
    relative = path.relative_to(root)
    return Asset(
        name=path.name,
        path=str(relative),
        size_bytes=sum(file.stat().st_size for file in plain_files(path, MAX_FILES)),
        created_at=datetime.fromtimestamp(stamp, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    )
