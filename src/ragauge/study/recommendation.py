"""The recommendation of a study, and the report of a run that was cut short."""

import json
import textwrap
from pathlib import Path

import yaml

from ragauge.config import loading
from ragauge.config.plan.part import RunPaths
from ragauge.io.files import write_file
from ragauge.io.jsonl import JsonObject
from ragauge.report.figures.writing import render
from ragauge.report.page import numbers, page
from ragauge.results.runs import Runs
from ragauge.results.times import STATE_WORDS
from ragauge.study.writing import CONFIG, REFERENCES, RETRIEVAL

RECOMMENDED = "recommended.yaml"  # the configuration of what the page recommends


def warning(count: int) -> str:
    """Say what a recommendation by so few questions cannot tell; empty if they are enough."""
    if count < numbers.MIN_QUESTIONS:
        return f"{count} questions: the report recommends nothing below {numbers.MIN_QUESTIONS}"
    few = numbers.few(count)
    return f"the recommendation will be PROVISIONAL: {few}" if few else ""


def print_recommended(out: Path, name: str) -> None:
    """Print what the page recommends, and write its configuration, which a deployment can keep.

    Args:
        out: the folder of the study.
        name: of its run.
    """
    groups = numbers.groups(_runs(out, name))
    if not groups:
        print("PROVISIONAL, nothing is recommended: no variant has answered yet")
    for group in groups:
        word = "PROVISIONAL, " if group["provisional"] else ""
        found = numbers.recommendation(group)
        if found is None:
            reason = group["withheld"] or "no variant is within the target"
            print(_joined(f"{word}nothing is recommended: {reason}", group["provisional"]))
            continue
        variant = found.row["name"]
        text = _joined(f"{variant}: {_reason(found, group)}", group["provisional"])
        comment = f"{word}recommended: {text}\nrule: {numbers.RULE}"
        write_file(out / RECOMMENDED, _configuration(out, name, variant, comment).encode())
        print(f"{comment}\nits configuration: {out / RECOMMENDED}")


def _joined(*texts: str | None) -> str:
    return "; ".join(filter(None, texts))


def references(out: Path, name: str) -> list[str]:
    """The records that answer first, below the study's folder: what others are compared with."""
    records = f"{RunPaths(name).answers}.jsonl"
    jobs = loading.load(out / CONFIG).answers()
    return [records.format(**job._asdict()) for job in jobs if job.variant in REFERENCES]


def render_finished(out: Path, name: str) -> None:
    """Render the items and the page of a run that was ended; the page names what is missing.

    The provenance, which a finished run has, is removed: it makes the next run of the workflow go
    on, and render all of this again.
    """
    runs = _runs(out, name)
    reports = out / "reports" / name
    for item in runs.config.item_names():
        render(item, runs, reports)
    (out / RunPaths(name).provenance).unlink(missing_ok=True)
    page.write(runs, reports)


def _runs(out: Path, name: str) -> Runs:
    return Runs(out / "results" / name, loading.load(out / CONFIG))


def _configuration(out: Path, name: str, variant: str, text: str) -> str:
    """The study's configuration with one of its variants and the data type that answered."""
    settings = yaml.safe_load((out / CONFIG).read_bytes())
    settings["methods"] = {variant: settings["methods"][variant]}
    for section in {"latency", "judge"} & settings.keys():
        settings[section]["methods"] = [variant]
    for label, model in loading.load(out / RunPaths(name).settings).models.items():
        entry = settings["models"][label]
        entry.pop("served", None)  # whose line in front of prompts keeps variants apart
        entry |= {} if model.served else {"dtype": model.dtype}
    how = json.loads((out / RETRIEVAL).read_bytes())["retrieval"]
    comments = (
        f"{text}\npassages: the first {how['top']} by {how['chosen']}, "
        f"dense retrieval by {how['encoder']}\n"
    )
    return textwrap.indent(comments, "# ") + yaml.safe_dump(settings, sort_keys=False)


def _reason(found: numbers.Recommendation, group: JsonObject) -> str:
    """Quality, wait and the rule that chose the variant, in words."""
    row = found.row
    kind = group["cost"]
    quality = row["quality"]
    words = [
        f"{group['metric']} {quality['mean']:.3f} [{quality['low']:.3f}, {quality['high']:.3f}]"
    ]
    if kind:
        name, unit = numbers.COSTS[kind].values()
        words.append(f"{name}: {numbers.wait(row, kind, group['state']):.3g} {unit}")
        words.append(f"before the question: {STATE_WORDS[group['state']]}")
    if kind in group["targets"]:
        words.append(f"at most {group['targets'][kind]:.3g} {unit}")
    names = ", ".join(f"{other['name']} {other['shared_mean']:.3f}" for other in found.tied)
    words.append(f"statistically tied: {names or 'no other'}")
    return "; ".join(words)
