"""What the site holds besides docs/: pages and files elsewhere in the repository, and a reference that the code writes.

A hook of MkDocs. Every page stands where it stands in the repository, so that links between them hold in both places;
what a page links to comes with it, and a folder that it links to becomes a list of what is in it.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

FIRST = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "reports/index.md")
LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)")  # the path in a link or of a picture
INTERFACES = (
    "ragauge.library",
    "ragauge.methods",
    "ragauge.engines.protocol",
    "ragauge.datasets",
    "ragauge.metrics",
    "ragauge.results.runs",
    "ragauge.testing",
)
WRITTEN_AGAINST = "# Interfaces\n\nThe library, and what methods, data sets, metrics and items are written against.\n\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of the site, each at its place in the repository."""
    root = Path(config.config_file_path).parent
    own = [file for file in files if str(file.abs_src_path).startswith(config.docs_dir)]
    for file in own:
        files.remove(file)
    written = {"reports/gallery.md": _gallery(root), **_reference(root)}
    waiting = [*FIRST, *(f"docs/{file.src_uri}" for file in own), *written]
    texts: dict[str, str] = {}
    while waiting:
        place = waiting.pop()
        if place in texts or not _is_kept(root, place, written):
            continue
        texts[place] = ""
        if place.endswith(".md"):
            text = written.get(place) or (root / place).read_text(encoding="utf-8")
            texts[place] = LINK.sub(lambda link, at=place: _page_of_folder(root, at, link[1]), text)
            waiting += [_place(place, link) for link in LINK.findall(text)]
            files.append(File.generated(config, place, content=texts[place]))
        elif (root / place).is_dir():
            waiting.append(f"{place}/index.md")
            written[f"{place}/index.md"] = _folder(root / place, place)
        else:
            files.append(File.generated(config, place, abs_src_path=str(root / place)))
    return files


def _is_kept(root: Path, place: str, written: Mapping[str, str]) -> bool:
    return place in written or (not place.startswith("..") and (root / place).exists())


def _place(page: str, link: str) -> str:
    """What a page's link leads to, from the root of the repository."""
    return os.path.normpath(os.path.join(os.path.dirname(page), link))


def _page_of_folder(root: Path, page: str, link: str) -> str:
    """The link; to a folder's page where it leads to a folder."""
    return f"{link.rstrip('/')}/index.md" if (root / _place(page, link)).is_dir() else link


def _folder(folder: Path, place: str) -> str:
    """The page of a folder of rendered items: each picture, with its table as Markdown and CSV."""
    lines = [f"# {place}", ""]
    for picture in sorted(folder.glob("*.svg")):
        forms = [f"[{end}]({picture.stem}.{end})" for end in ("md", "csv") if picture.with_suffix(f".{end}").exists()]
        lines += [
            f"## {picture.stem}",
            "",
            _title(picture.stem),
            "",
            f"![{picture.stem}]({picture.name})",
            "",
            ", ".join(forms),
            "",
        ]
    others = sorted(p.name for p in folder.iterdir() if p.is_file() and not p.with_suffix(".svg").exists())
    return "\n".join([*lines, *(f"- [{name}]({name})" for name in others if name != "index.md")]) + "\n"


def _title(item: str) -> str:
    """The first line of what is said of an item; nothing for other pictures."""
    from ragauge import registry

    return (registry.module("item", item).__doc__ or "").partition("\n")[0] if item in registry.names("item") else ""


# --- committed reports ---

COMPARABLE = """# Committed reports

The runs whose tables, figures and provenance are in the repository, by machine. Times, speeds and what they lead to
may be compared on the same machine only, and there only where threads and data types are the same: a folder is one
machine. Metrics of answers and compute cycles do not depend on the machine's speed; they may be compared between
machines where questions, model, data type and limits are the same, which the provenance states. A GPU or another
processor may round otherwise, so that single answers differ.

[How to read the numbers](../docs/numbers.md) says the rest, and [the state of reproduction](index.md) has every
number of the papers.
"""


def _gallery(root: Path) -> str:
    """Every committed run, by machine, from its provenance."""
    listed = subprocess.run(["git", "ls-files", "reports"], cwd=root, capture_output=True, text=True, check=True)
    places = [Path(line) for line in listed.stdout.split() if len(Path(line).parts) > 2]
    parts = [COMPARABLE]
    for folder in sorted({place.parent for place in places}):
        files = sorted(root / place for place in places if place.parent == folder and place.suffix == ".json")
        runs = [(path, json.loads(path.read_bytes())) for path in files]
        runs = [(path, found) for path, found in runs if _machines(found)]
        pictures = sum(place.suffix == ".svg" for place in places if place.parent == folder)
        parts += [
            f"## {folder.name}",
            "",
            f"{_machine([found for _, found in runs])}. [{pictures} tables and figures]({folder.name})",
            "",
            "| run | what was measured | finished | commit |",
            "| --- | --- | --- | --- |",
            *(_run(path, found) for path, found in runs),
            "",
        ]
    return "\n".join(parts)


def _machines(found: Any) -> list[dict[str, Any]]:
    """The machines and environments of a file of provenance, or of a measurement that states its own."""
    if not isinstance(found, dict):
        return []
    return list(found.get("machines") or filter(None, [found.get("provenance")]))


def _machine(runs: list[dict[str, Any]]) -> str:
    """Processors or GPUs, cores, memory and system, each named once."""
    machines = [machine for found in runs for machine in _machines(found)]
    names = dict.fromkeys((machine.get("gpu") or {}).get("name") or machine["cpu"] for machine in machines)
    cores = dict.fromkeys(f"{machine['cores']['physical']} cores" for machine in machines if machine.get("cores"))
    memory = dict.fromkeys(
        f"{machine['memory_bytes'] / 1e9:.0f} GB" for machine in machines if "memory_bytes" in machine
    )
    return ", ".join([*names, *cores, *memory])


def _run(path: Path, found: dict[str, Any]) -> str:
    """A row of the gallery."""
    done = [one for key in ("answers", "latency", "load", "stream", "pipelines") for one in found.get(key) or ()]
    times = sorted(str(one["finished"]) for one in done if one.get("finished"))
    times = times or [str(machine["time"]) for machine in _machines(found) if machine.get("time")]
    commits = dict.fromkeys(str((machine.get("git") or {}).get("commit", ""))[:9] for machine in _machines(found))
    name = path.name.removesuffix(".json").removesuffix("provenance").rstrip(".") or "default"
    days = dict.fromkeys(time[:10] for time in (times[:1] + times[-1:]))
    told = (
        f"[{name}]({path.parent.name}/{path.name})",
        _measured(found),
        " to ".join(days),
        ", ".join(filter(None, commits)),
    )
    return f"| {' | '.join(told)} |"


def _measured(found: dict[str, Any]) -> str:
    """How many results a file of provenance is about, on which data; of a measurement, what it holds."""
    if "machines" not in found:
        return "a measurement: " + ", ".join(key.replace("_", " ") for key in [*found][:6] if key != "provenance")
    kinds = {"answers": "variants", "latency": "timed", "load": "under load", "stream": "on a stream"}
    counted = ("answers", "latency", "load", "stream", "pipelines")
    counts = [f"{kinds.get(key, key)}: {len(found[key])}" for key in counted if found.get(key)]
    used = [one for key in ("answers", "latency", "pipelines") for one in found.get(key) or ()]
    data = sorted({str(one["dataset"]) for one in used if one.get("dataset")})
    models = sorted({str(one["model"]) for one in used})
    return f"{', '.join(counts)}; {', '.join(data)}; {', '.join(models)}"


# --- reference ---


def _reference(root: Path) -> dict[str, str]:
    interfaces = "".join(f"::: {name}\n\n" for name in INTERFACES)
    return {
        "reference/command-line.md": _command_line(),
        "reference/configuration.md": _configuration(root / "workflow/schemas/config.schema.json"),
        "reference/interfaces.md": WRITTEN_AGAINST + interfaces,
    }


def _command_line() -> str:
    """The help of every verb."""
    from ragauge import registry

    parts = ["# Command line", "", "```text", _help(), "```"]
    for verb in registry.names("verb"):
        parts += ["", f"## ragauge {verb}", "", "```text", _help(verb), "```"]
    return "\n".join(parts) + "\n"


def _help(*verb: str) -> str:
    from ragauge.cli import main

    os.environ["COLUMNS"] = "86"  # what a page is wide
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            main([*verb, "--help"])
    except SystemExit:
        pass
    return said.getvalue().strip()


def _configuration(schema: Path) -> str:
    """The sections of a configuration and their keys, from its schema."""
    whole = json.loads(schema.read_bytes())
    parts = ["# Configuration", *_section("The file", whole)]
    for name, section in whole["$defs"].items():
        if section.get("properties"):
            parts += _section(name, section)
    return "\n".join(parts) + "\n"


def _section(name: str, section: Mapping[str, Any]) -> Iterator[str]:
    yield from (
        "",
        f"## {name}",
        "",
        section.get("description", ""),
        "",
        "| key | | type | default |",
        "| --- | --- | --- | --- |",
    )
    for key, about in section["properties"].items():
        default = (
            json.dumps(about["default"])
            if "default" in about
            else "required"
            if key in section.get("required", ())
            else ""
        )
        cells = (f"`{key}`", about.get("description", ""), _type(about), f"`{default}`" if default else "")
        yield f"| {' | '.join(_cell(str(cell)) for cell in cells)} |"


def _cell(text: str) -> str:
    """A text in a cell of a Markdown table."""
    return " ".join(text.replace("|", "/").replace("<", "&lt;").split())


def _type(about: Mapping[str, Any]) -> str:
    """The type of a key in words."""
    if "$ref" in about:
        name = about["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if choices := about.get("anyOf") or about.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(one) for one in choices if one.get("type") != "null"))
    if "enum" in about or "const" in about:
        return ", ".join(f"`{value}`" for value in about.get("enum", [about.get("const")]))
    if about.get("type") == "array":
        return f"list of {_type(about.get('items', {}))}"
    if labelled := about.get("patternProperties"):
        return f"by label: {' or '.join(_type(one) for one in labelled.values())}"
    return str(about.get("type", "any"))
