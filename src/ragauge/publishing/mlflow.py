"""MLflow's file store: an experiment a run, a tracker's run a variant.

Source: MLflow's documentation of the file store, and what `mlflow.store.tracking.file_store` reads: `meta.yaml` of
experiments and runs, a file a metric ("milliseconds value step"), parameter and tag.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

import yaml

from ragauge.io import records
from ragauge.io.files import write_file
from ragauge.publishing import RunPlace
from ragauge.publishing.tracked import Tracked, tracked
from ragauge.results.runs import Runs

STORE = "mlruns"
FINISHED = 3  # mlflow.entities.RunStatus
LOCAL = 4  # mlflow.entities.SourceType
MOST_CHARACTERS = {"params": 6000, "tags": 8000}  # longer values are refused by MLflow's clients
UNKNOWN_CHARACTERS = re.compile(r"[^/\w.\- :]", re.ASCII)  # of a key


def write(runs: Runs, place: RunPlace, folder: Path) -> None:
    """Fill a folder with `mlruns`, which `mlflow server --backend-store-uri` shows."""
    experiment_id = str(int(hashlib.sha256(place.run.encode()).hexdigest()[:15], 16))
    experiment = folder / STORE / experiment_id
    final = (place.out.resolve() / STORE / experiment_id).as_uri()
    finished: list[int] = []
    for variant in runs.run:
        each = tracked(runs, variant)
        finished.append(_milliseconds(each))
        _write_run(experiment / each.id, each, experiment_id, f"{final}/{each.id}/artifacts")
        for path in (variant.path, records.meta_path(variant.path)):
            shutil.copyfile(path, experiment / each.id / "artifacts" / path.name)
    about = {
        "artifact_location": final,
        "creation_time": min(finished),
        "experiment_id": experiment_id,
        "last_update_time": max(finished),
        "lifecycle_stage": "active",
        "name": place.run,
    }
    _write_yaml(experiment / "meta.yaml", about)


def _write_run(folder: Path, each: Tracked, experiment_id: str, artifacts: str) -> None:
    at = _milliseconds(each)
    about = {
        "artifact_uri": artifacts,
        "end_time": at,
        "entry_point_name": "",
        "experiment_id": experiment_id,
        "lifecycle_stage": "active",
        "run_id": each.id,
        "run_name": each.name,
        "run_uuid": each.id,
        "source_name": "ragauge",
        "source_type": LOCAL,
        "source_version": "",
        "start_time": at,  # when it began is not recorded
        "status": FINISHED,
        "tags": [],
        "user_id": "",
    }
    _write_yaml(folder / "meta.yaml", about)
    (folder / "artifacts").mkdir()
    commit = each.provenance.get("git.commit")
    tags = {"mlflow.runName": each.name, "mlflow.source.name": "ragauge", **each.provenance}
    tags |= {"mlflow.source.git.commit": commit} if commit else {}
    _write_values(folder, "metrics", {name: f"{at} {value!r} 0" for name, value in each.metrics.items()})
    _write_values(folder, "params", {name: str(value) for name, value in each.parameters.items()})
    _write_values(folder, "tags", tags)


def _write_values(folder: Path, kind: str, values: dict[str, str]) -> None:
    (folder / kind).mkdir()
    for name, value in values.items():
        key = UNKNOWN_CHARACTERS.sub("_", name).strip("/.") or "_"
        write_file(folder / kind / key, value[: MOST_CHARACTERS.get(kind)].encode())


def _write_yaml(path: Path, about: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, yaml.safe_dump(about).encode())


def _milliseconds(each: Tracked) -> int:
    return int((each.finished_s or 0) * 1000)
