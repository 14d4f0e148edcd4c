"""What the site holds besides docs/: pages and files elsewhere in the repository, and a reference
that the code writes.

A hook of MkDocs, which is configured in docs/mkdocs.yml. Every page stands where it stands in the
repository, so that links between them hold in both places; what a page links to comes with it, and
a folder that it links to becomes a list of what is in it.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

FIRST = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "reports/index.md")
LINK = re.compile(  # the path in a link, of a picture, or in the definition of a number's link
    r"(?<=\]\()(?!\w+:)([^)#\s]+)|(?<=\]: )(?!\w+:)(\S+\.csv)(?= \")"
)
INTERFACES = (
    "ragauge.library.models",
    "ragauge.library.methods",
    "ragauge.library.questions",
    "ragauge.library.evaluation",
    "ragauge.library.results",
    "ragauge.methods.base.method",
    "ragauge.engines.protocol",
    "ragauge.datasets.base.dataset",
    "ragauge.metrics.base",
    "ragauge.results.runs",
    "ragauge.testing",
)
WRITTEN_AGAINST = "# Interfaces\n\nThe library, and what methods, data sets, metrics and items are written against.\n\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of the site, each at its place in the repository."""
    root = Path(config.config_file_path).parents[1]
    written = _reference(root)
    own = [f"docs/{page.name}" for page in (root / "docs").glob("*.md")]
    waiting = [*FIRST, *own, *written]
    texts: dict[str, str] = {}
    while waiting:
        place = waiting.pop()
        if place in texts or not _is_kept(root, place, written):
            continue
        texts[place] = ""
        if place.endswith(".md"):
            text = written.get(place) or (root / place).read_text(encoding="utf-8")
            texts[place] = LINK.sub(lambda link, at=place: _page_of_folder(root, at, link[0]), text)
            waiting += [_place(place, link[0]) for link in LINK.finditer(text)]
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
        forms = [
            f"[{end}]({picture.stem}.{end})"
            for end in ("md", "csv")
            if picture.with_suffix(f".{end}").exists()
        ]
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
    others = sorted(
        p.name for p in folder.iterdir() if p.is_file() and not p.with_suffix(".svg").exists()
    )
    return (
        "\n".join([*lines, *(f"- [{name}]({name})" for name in others if name != "index.md")])
        + "\n"
    )


def _title(item: str) -> str:
    """The first line of what is said of an item; nothing for other pictures."""
    from ragauge import registry

    return (
        (registry.module("item", item).__doc__ or "").partition("\n")[0]
        if item in registry.names("item")
        else ""
    )


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
    from ragauge.cli._main import main

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
        cells = (
            f"`{key}`",
            about.get("description", ""),
            _type(about),
            f"`{default}`" if default else "",
        )
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
        return " or ".join(
            dict.fromkeys(_type(one) for one in choices if one.get("type") != "null")
        )
    if "enum" in about or "const" in about:
        return ", ".join(f"`{value}`" for value in about.get("enum", [about.get("const")]))
    if about.get("type") == "array":
        return f"list of {_type(about.get('items', {}))}"
    if labelled := about.get("patternProperties"):
        return f"by label: {' or '.join(_type(one) for one in labelled.values())}"
    return str(about.get("type", "any"))
