"""A run as an RO-Crate 1.1: its files, each described with size and hash, in a folder that can be cited and archived.

Source: RO-Crate Metadata Specification 1.1, https://w3id.org/ro/crate/1.1.
"""

from __future__ import annotations

import json
import mimetypes
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ragauge import __version__
from ragauge.errors import UserError
from ragauge.io import folders
from ragauge.io.files import write_file
from ragauge.publishing import RunPlace
from ragauge.results.provenance import machine, where_asked
from ragauge.results.runs import Runs, Variant

METADATA = "ro-crate-metadata.json"
VERSION = "https://w3id.org/ro/crate/1.1"
SHA256 = "https://w3id.org/ro/terms/workflow-run#sha256"  # a term that the context of 1.1 does not have
SOFTWARE, LICENSE = "#ragauge", "#license"
FORMATS = {".jsonl": "application/jsonl", ".yaml": "application/yaml", ".md": "text/markdown", ".tex": "text/x-tex"}
LEFT_OUT = (".partial", ".lock", ".unfinished")
WITHOUT_LICENSE = (
    "Whoever made this run has stated no licence. Questions and documents in its records keep that of their data sets."
)

Entity = dict[str, Any]


def write(runs: Runs, place: RunPlace, folder: Path) -> None:
    """Fill a folder with the configuration, `results`, `reports` and the crate's description of them.

    Raises:
        UserError: there are no rendered reports.
    """
    if not place.reports.is_dir():
        raise UserError(f"{place.reports}: no such folder; a run is published with its reports: --reports FOLDER")
    shutil.copyfile(place.config, folder / "config.yaml")
    for source, name in ((place.results, "results"), (place.reports, "reports")):
        _copy(source, folder / name)
    graph = json.dumps({"@context": [f"{VERSION}/context", {"sha256": SHA256}], "@graph": _graph(runs, place, folder)})
    write_file(folder / METADATA, (json.dumps(json.loads(graph), indent=1, ensure_ascii=False) + "\n").encode())


def _copy(source: Path, target: Path) -> None:
    """The files of a folder: no links, nothing hidden, nothing unfinished."""
    for path in sorted(source.rglob("*")):
        inner = path.relative_to(source)
        kept = path.is_file() and not path.is_symlink() and not any(part.startswith(".") for part in inner.parts)
        if kept and not path.name.endswith(LEFT_OUT):
            (target / inner).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / inner)


def _graph(runs: Runs, place: RunPlace, folder: Path) -> list[Entity]:
    files = [_file(path, folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    times = sorted(str(where_asked(variant)["time"]) for variant in runs.run if where_asked(variant).get("time"))
    published = times[-1] if times else datetime.now(UTC).isoformat(timespec="seconds")
    models = list(_assets(runs))
    actions = [_action(variant, number) for number, variant in enumerate(runs.run)]
    described = [*files, *models, *actions, _software(), _license(place.license)]
    return [
        {"@id": METADATA, "@type": "CreativeWork", "conformsTo": {"@id": VERSION}, "about": {"@id": "./"}},
        {
            "@id": "./",
            "@type": "Dataset",
            "name": f"ragauge run {place.run}",
            "description": _description(runs),
            "datePublished": published,
            "license": {"@id": _license(place.license)["@id"]},
            "hasPart": [{"@id": file["@id"]} for file in files],
            "mentions": [{"@id": action["@id"]} for action in actions],
        },
        *described,
    ]


def _description(runs: Runs) -> str:
    variants, groups = len(runs.run), runs.groups()
    told = "; ".join(f"{dataset} with {model}" for dataset, model in groups)
    return f"Answers, times and report of {variants} variants of retrieval-augmented generation: {told}."


def _file(path: Path, folder: Path) -> Entity:
    inner = path.relative_to(folder).as_posix()
    kind = FORMATS.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return {
        "@id": quote(inner),
        "@type": "File",
        "name": inner,
        "encodingFormat": kind,
        "contentSize": str(path.stat().st_size),
        "sha256": folders.file_sha256(path),
    }


def _assets(runs: Runs) -> Iterator[Entity]:
    """Each model and data set that answers depend on, once, with the hash that the records state."""
    seen = set[str]()
    for variant in runs.run:
        made = variant.specification
        for kind, label, name, digest in (
            ("model", variant.model, made.model if made else variant.model, made.model_sha256 if made else None),
            ("dataset", variant.dataset, made.dataset if made else variant.dataset, made.data_sha256 if made else None),
        ):
            if (identity := _identity(kind, label)) not in seen:
                seen.add(identity)
                stated = {"sha256": digest} if digest else {}
                yield {"@id": identity, "@type": "CreativeWork", "name": Path(name).name, **stated}


def _identity(kind: str, label: str) -> str:
    return f"#{kind}-{quote(label, safe='')}"


def _action(variant: Variant, number: int) -> Entity:
    """How the records of a variant came to be."""
    provenance = where_asked(variant)
    place = f"results/answers/{variant.dataset}/{variant.model}/{variant.path.name}"
    told = machine(provenance, variant.device)
    ended = {"endTime": provenance["time"]} if provenance.get("time") else {}
    return {
        "@id": f"#answers-{number}",
        "@type": "CreateAction",
        "name": f"{variant.dataset}/{variant.model}/{variant.name}",
        "description": f"{len(variant.records)} questions, {len(variant.failed)} failed"
        + (f"; {told}" if told else ""),
        "instrument": {"@id": SOFTWARE},
        "object": [
            {"@id": "config.yaml"},
            {"@id": _identity("model", variant.model)},
            {"@id": _identity("dataset", variant.dataset)},
        ],
        "result": {"@id": quote(place)},
        **ended,
    }


def _software() -> Entity:
    return {
        "@id": SOFTWARE,
        "@type": "SoftwareApplication",
        "name": "ragauge",
        "softwareVersion": __version__,
        "description": "Measures what retrieval-augmented generation costs and what it is worth",
    }


def _license(identifier: str | None) -> Entity:
    if identifier:
        return {"@id": f"https://spdx.org/licenses/{quote(identifier)}", "@type": "CreativeWork", "name": identifier}
    return {"@id": LICENSE, "@type": "CreativeWork", "name": "Not stated", "description": WITHOUT_LICENSE}
