"""A run as an RO-Crate: its configuration, records and reports in one described folder, to archive
and to cite.

Source: RO-Crate Metadata Specification 1.1, https://w3id.org/ro/crate/1.1, written by the package
rocrate.
"""

import mimetypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rocrate.model.contextentity import ContextEntity
from rocrate.rocrate import ROCrate

from ragauge._version import __version__
from ragauge.errors import UserError
from ragauge.io import folders
from ragauge.io.files import file_sha256
from ragauge.results.provenance import machine, provenance_of
from ragauge.results.runs import Runs, Variant

MARK_TEXT = b'{"published": true}\n'  # of the file that marks a crate as written by ragauge
# a term that the context of RO-Crate 1.1 lacks
SHA256 = "https://w3id.org/ro/terms/workflow-run#sha256"
MIME_TYPES = {
    ".jsonl": "application/jsonl",
    ".yaml": "application/yaml",
    ".md": "text/markdown",
    ".tex": "text/x-tex",
}
UNFINISHED = (".partial", ".lock", ".unfinished")
NO_LICENSE = "No licence was stated. Questions and documents in the records keep the licence of their data set."


def write(runs: Runs, config: Path, reports: Path, out: Path, license: str | None = None) -> None:
    """Write the crate of a run and its rendered `reports` into a new folder, or over a crate that
    this function wrote; `license` is an SPDX identifier. Raises UserError if there are no records
    or reports, times were disturbed, or `out` holds other files.
    """
    if not runs.run:
        raise UserError(f"{runs.folder}: holds no records: no answers/DATASET/MODEL/VARIANT.jsonl")
    if not reports.is_dir():
        raise UserError(
            f"{reports}: no such folder; a run is published with its reports: --reports FOLDER"
        )
    for timed in runs.latencies:
        if timed.load.busy:
            path = runs.folder / "latency" / timed.dataset / f"{timed.model}.json"
            raise UserError(
                f"{path}: {timed.load.busy}: not to be published; remove it, and run again on an idle machine"
            )
    folders.check_replaceable(out, _is_crate)

    def fill(folder: Path) -> None:
        _crate(runs, config, reports, license).write(folder)
        (folder / folders.MARK).write_bytes(MARK_TEXT)

    folders.replace(out, fill, _is_crate)


def _is_crate(folder: Path) -> bool:
    mark = folder / folders.MARK
    return mark.is_file() and mark.read_bytes() == MARK_TEXT


def _crate(runs: Runs, config: Path, reports: Path, license: str | None) -> ROCrate:
    crate = ROCrate(version="1.1")
    crate.metadata.extra_terms["sha256"] = SHA256
    for path, name in _files(runs, config, reports):
        mime_type = (
            MIME_TYPES.get(path.suffix)
            or mimetypes.guess_type(name)[0]
            or "application/octet-stream"
        )
        properties = {"name": name, "encodingFormat": mime_type, "sha256": file_sha256(path)}
        crate.add_file(path, name, properties=properties, record_size=True)
    software = _add(
        crate, "#ragauge", "SoftwareApplication", name="ragauge", softwareVersion=__version__
    )
    for number, variant in enumerate(runs.run):
        crate.root_dataset.append_to("mentions", _add_action(crate, variant, number, software))
    crate.name = f"ragauge run {runs.config.run}"
    groups = "; ".join(f"{dataset} with {model}" for dataset, model in runs.groups())
    crate.description = f"Answers, times and report of {len(runs.run)} variants of RAG: {groups}."
    times = [time for variant in runs.run if (time := provenance_of(variant).get("time"))]
    if times:
        crate.root_dataset["datePublished"] = max(map(str, times))
    identity, name = (
        (f"https://spdx.org/licenses/{quote(license)}", license)
        if license
        else ("#license", "Not stated")
    )
    more = {} if license else {"description": NO_LICENSE}
    crate.license = _add(crate, identity, "CreativeWork", name=name, **more)
    return crate


def _files(runs: Runs, config: Path, reports: Path) -> Iterator[tuple[Path, str]]:
    """Every file of the crate and its name there: no links, nothing hidden or unfinished."""
    yield config, "config.yaml"
    for folder, name in ((runs.folder, "results"), (reports, "reports")):
        for path in sorted(folder.rglob("*")):
            inner = path.relative_to(folder)
            hidden = any(part.startswith(".") for part in inner.parts)
            if (
                path.is_file()
                and not path.is_symlink()
                and not hidden
                and not path.name.endswith(UNFINISHED)
            ):
                yield path, f"{name}/{inner.as_posix()}"


def _add_action(
    crate: ROCrate, variant: Variant, number: int, software: ContextEntity
) -> ContextEntity:
    """Describe how the records of a variant were made: from which model and data set, when and
    where.
    """
    provenance = provenance_of(variant)
    specification = variant.specification
    model = _add_asset(
        crate,
        "model",
        variant.model,
        *((specification.model, specification.model_sha256) if specification else (None, None)),
    )
    data = (specification.dataset, specification.data_sha256) if specification else (None, None)
    dataset = _add_asset(crate, "dataset", variant.dataset, *data)
    where = machine(provenance, variant.device)
    description = f"{len(variant.records)} questions, {len(variant.failed)} failed" + (
        f"; {where}" if where else ""
    )
    properties = {
        "name": f"{variant.dataset}/{variant.model}/{variant.name}",
        "description": description,
    }
    if provenance.get("time"):
        properties["endTime"] = provenance["time"]
    return crate.add_action(
        software,
        f"#answers-{number}",
        object=[crate.get("config.yaml"), model, dataset],
        result=crate.get(
            quote(f"results/answers/{variant.dataset}/{variant.model}/{variant.path.name}")
        ),
        properties=properties,
    )


def _add_asset(
    crate: ROCrate, kind: str, label: str, name: str | None, sha256: str | None
) -> ContextEntity:
    """A model or data set that answers depend on, described once, with the hash that the records
    state.
    """
    identity = f"#{kind}-{quote(label, safe='')}"
    hashed = {"sha256": sha256} if sha256 else {}
    return crate.get(identity) or _add(
        crate, identity, "CreativeWork", name=Path(name or label).name, **hashed
    )


def _add(crate: ROCrate, identity: str, kind: str, **properties: Any) -> ContextEntity:
    return crate.add(ContextEntity(crate, identity, {"@type": kind, **properties}))
