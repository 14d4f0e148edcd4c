"""The page: one template, its style and scripts, and their data, with nothing left to fetch.

Texts of data sets reach the page in two ways only: through Jinja2 with escaping, or as JSON whose
`<`, `>` and `&` are written as escapes, which the scripts turn into text nodes. A policy in the
page's head lets no other script run.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape

from ragauge._version import __version__
from ragauge.config.launch.files import rerun_command
from ragauge.io.files import write_file
from ragauge.io.jsonl import JsonObject
from ragauge.report.figures.footer import distinct
from ragauge.report.page import blocks, numbers, rendered
from ragauge.report.page.problems import Problem, problems
from ragauge.results import provenance
from ragauge.results.provenance import commit, machine
from ragauge.results.runs import Runs, Variant

SCRIPTS = ("text.js", "frontier.js", "chooser.js", "records.js")
# C0 and C1 controls as pictures; tab and line ends are text
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if code not in (0x09, 0x0A, 0x0D)}
_PICTURES |= {0x7F: "␡", **dict.fromkeys(range(0x80, 0xA0), "�")}


def write(runs: Runs, folder: Path) -> Path:
    """Write `index.html` into the folder with a run's rendered items; the page names the configured
    results that are missing.

    Raises:
        UserError: a file cannot be read or the page be written.
    """
    path = folder / "index.html"
    # half a surrogate pair is not valid UTF-8
    write_file(path, page(runs, folder).encode("utf-8", "replace"))
    return path


def page(runs: Runs, folder: Path) -> str:
    """The page of a run; `folder` has its rendered items."""
    from mpld3 import urls

    sections = rendered.by_paper(runs, folder)
    saved = folder / "provenance.json"
    lacking = problems(runs) + [
        problem for items in sections.values() for item in items for problem in item.problems
    ]
    if not saved.is_file():
        lacking.append(Problem("Provenance as a file", saved, "no such file", "provenance"))
    parts = "\n".join(map(_own, SCRIPTS))
    # the first line of D3 names its version and holder; its licence (BSD-3-Clause) goes with it
    d3 = Path(urls.D3_LOCAL).read_text(encoding="utf-8").strip()
    scripts = {"d3": d3, "code": f'"use strict";\n(() => {{\n{parts}\nstart();\n}})();'}
    payload = {
        "groups": numbers.groups(runs),
        "kinds": numbers.COSTS,
        "resamples": numbers.RESAMPLES,
        "rule": numbers.RULE,
        "call": blocks.CALL,
    }
    datasets = dict.fromkeys(variant.dataset for variant in runs.run)
    titles = {f"documents/{d}": blocks.pack_titles(runs, d) for d in datasets}
    records = {f"records/{v.dataset}/{v.model}/{v.name}": blocks.pack_records(v) for v in runs.run}
    return _template().render(
        run=runs.config.run,
        version=__version__,
        summary=_summary(runs),
        sections=sections,
        problems=lacking,
        rerun=rerun_command(runs.folder.absolute().parent.parent),
        provenance=provenance.describe(runs),
        settings=yaml.safe_dump(runs.config.model_dump(exclude_none=True), sort_keys=False),
        policy=_policy(scripts.values()),
        style=Markup(_own("page.css")),
        scripts={name: Markup(text) for name, text in scripts.items()},
        payload=Markup(script_json(payload)),
        blocks={name: Markup(text) for name, text in (titles | records).items()},
    )


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(shown=shown, code=with_code)
    return environment.from_string(_own("page.html"))


def script_json(data: Any) -> str:
    """JSON that is safe in a script element: no text in it can end the element or open another."""
    text = blocks.compact_json(data)
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def shown(value: Any) -> str:
    """A value as text for the page, control characters as pictures of themselves."""
    text = (
        value
        if isinstance(value, str)
        else json.dumps(blocks.finite(value), ensure_ascii=False, indent=1)
    )
    return text.translate(_PICTURES)


def with_code(text: str) -> Markup:
    """A docstring's paragraph with what stands between backquotes as code."""
    return Markup(re.sub("`(.*?)`", r"<code>\1</code>", str(escape(text))))


def _summary(runs: Runs) -> JsonObject:
    questions: dict[str, int] = {}
    for v in runs.run:
        questions[v.dataset] = max(len(v.records), questions.get(v.dataset, 0))
    return {
        "variants": len({v.name for v in runs.run}),
        "records": sum(len(v.records) for v in runs.run),
        "models": distinct(f"{v.model} ({v.engine})" for v in runs.run),
        "questions": questions,
        "asked": {d: e.limit for d, e in runs.config.datasets.items()},
        "machines": distinct(map(_machine, runs.run)),
        "code": distinct(commit(v.meta.get("provenance") or {}) for v in runs.run),
    }


def _machine(variant: Variant) -> str:
    facts = provenance.provenance_of(variant)
    memory = facts.get("memory_bytes")
    # threads are those of a clock: the answers', the protocol's
    description = machine(facts | {"threads": None}, variant.device)
    return (
        f"{description}, {memory / 1e9:.0f} GB memory"
        if description and memory and not variant.stack
        else description
    )


def _policy(scripts: Iterable[str]) -> str:
    """A content security policy: the page's own scripts by their hashes, pictures inside the page,
    no network.
    """
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'"
        for s in scripts
    )
    nothing = "default-src 'none'; base-uri 'none'; form-action 'none'"
    return f"{nothing}; script-src {hashes}; style-src 'unsafe-inline'; img-src data:"


def _own(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
