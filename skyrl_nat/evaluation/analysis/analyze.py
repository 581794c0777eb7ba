"""From a run folder to findings, and to the files that hold them."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from skyrl_nat.errors import DataError
from skyrl_nat.evaluation.analysis.failure_rules import alpha_of, tested
from skyrl_nat.evaluation.analysis.failures import Clusters
from skyrl_nat.evaluation.analysis.findings import Finding
from skyrl_nat.evaluation.analysis.health_rules import phases
from skyrl_nat.evaluation.analysis.material import Material
from skyrl_nat.evaluation.analysis.page import HEALTH, page_of
from skyrl_nat.evaluation.analysis.reading import read_record, rollout_files
from skyrl_nat.evaluation.analysis.rollout_table import correlations
from skyrl_nat.evaluation.analysis.rules import findings_of
from skyrl_nat.evaluation.analysis.tally import tally
from skyrl_nat.evaluation.pages import write_page

NAME = "analysis"
"""Of the files."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """A run and what is to be said of it."""

    material: Material
    findings: list[Finding]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data; what is not known is None."""
        material = self.material
        record = material.record
        return _finite(
            {
                "run": record.name,
                "num_steps": len(record.steps),
                "notes": record.notes,
                "findings": [finding.to_dict() for finding in self.findings],
                "reward": material.reward.to_dict(),
                "success": material.success.to_dict(),
                "held_out": [
                    {"step": result.step, "reward": result.reward, "success": result.success}
                    for result in record.evaluations
                ],
                "gap": material.gap.to_dict(),
                "parts": {
                    part.name: {**part.trend.to_dict(), "weight": part.weight, "contribution": part.contribution}
                    for part in material.parts
                },
                "correlations": correlations(material.train.table),
                "training": {metric: material.trend(metric).to_dict() for metric in HEALTH},
                "seconds": {name: trend.to_dict() for name, trend in phases(material).items()},
                "clusters": _clusters(material.train.failures),
                "held_out_clusters": _clusters(material.held_out.failures),
                "suspicions": _clusters(material.train.suspicions),
                "stages": {
                    name: {
                        "wanted": stage.wanted.total(),
                        "reached": stage.reached.total(),
                        "passed": stage.passed.total(),
                    }
                    for name, stage in material.train.stages.items()
                },
                "outcomes": dict(sorted(material.train.outcomes.items())),
            }
        )


def analyze(folder: Path) -> Analysis:
    """Return the analysis of the run in a folder.

    Raises:
        DataError: The folder holds no run, or one that has not trained a step.
    """
    record = read_record(folder)
    files = rollout_files(folder, "train")
    if not files:
        record.notes.append("There are no recorded rollouts of training: nothing can be said of failures and groups.")
    held_out = tally(rollout_files(folder, "eval"), record.notes, is_held_out=True)
    material = Material(record, tally(files, record.notes), held_out)
    return Analysis(material, findings_of(material))


def write_analysis(analysis: Analysis, folder: Path) -> list[Path]:
    """Write `analysis.json`, `.md` and `.html` into a folder, which is made if needed, and return their paths.

    Raises:
        DataError: There is a file in the place of the folder.
    """
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} must be a folder, it is a file. Name another one with --out")
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / f"{NAME}.json"
    data.write_text(json.dumps(analysis.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return [data, *write_page(page_of(analysis.material, analysis.findings), folder, NAME)]


def _clusters(clusters: Clusters) -> list[dict[str, Any]]:
    return [
        {
            "kind": cluster.name,
            "rollouts": cluster.num_rollouts,
            "share": cluster.num_rollouts / clusters.judged.total(),
            "first_step": min(cluster.by_step),
            "last_step": max(cluster.by_step),
            **clusters.trend(cluster, alpha=alpha_of(clusters)).to_dict(),
            "example": None if cluster.example is None else asdict(cluster.example),
        }
        for cluster in tested(clusters)
    ]


def _finite(value: Any) -> Any:
    """Return data with None for every number that is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value
