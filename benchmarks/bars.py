"""The form of a result that is measured against a bar."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch


def write_result(path: Path, bar: str, value: float, unit: str, target: float, *, is_met: bool, raw: Any) -> None:
    """Write one result; card, versions, command and date are those of this process."""
    result = {
        "bar": bar,
        "value": value,
        "unit": unit,
        "target": target,
        "met": is_met,
        "card": torch.cuda.get_device_name(),
        "versions": {"torch": torch.__version__, "python": sys.version.split()[0]},
        "command": ["python", *sys.argv],
        "date": time.strftime("%Y-%m-%d"),
        "raw": raw,
    }
    path.write_text(json.dumps(result, indent=1) + "\n")
