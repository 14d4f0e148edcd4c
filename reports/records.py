"""Pack the records of a run without the data set's questions, answers and passages, and unpack.

    python reports/records.py pack reference-qwen      # results/<run> -> reports/<run>, compressed
    python reports/records.py unpack reference-qwen    # back, with the texts of results/<run>/data by key

The questions come first, with no model: `snakemake --cores 1 results/<run>/data/NAME.jsonl
--configfile FILE`. From unpacked records `ragauge report item NAME --config FILE` renders a table
again.
"""

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TEXTS = ("question", "answers", "wordless_answers")  # of the data set, in front of the field AFTER
AFTER = "gold"
PACKED = ("answers/*/*/*.json*", "latency/*/*.json", "pipelines/*.json*")
SUFFIXES = (".json", ".jsonl")  # others are of a run that goes on


def pack(results: Path, reports: Path) -> None:
    there = (path for pattern in PACKED for path in results.glob(pattern))
    for path in sorted(path for path in there if path.suffix in SUFFIXES):
        text = path.read_text(encoding="utf-8")
        if holds_answers(path):
            text = "".join(_line(_bare(record)) for record in _lines(text))
        packed = reports / path.relative_to(results).with_name(f"{path.name}.gz")
        packed.parent.mkdir(parents=True, exist_ok=True)
        packed.write_bytes(gzip.compress(text.encode(), mtime=0))


def unpack(results: Path, reports: Path) -> None:
    for path in sorted(reports.glob("*/**/*.gz")):
        text = gzip.decompress(path.read_bytes()).decode()
        unpacked = results / path.relative_to(reports).with_suffix("")
        if holds_answers(unpacked):
            questions = (results / f"data/{path.parts[-3]}.jsonl").read_text(encoding="utf-8")
            known = {question["key"]: question for question in _lines(questions)}
            text = "".join(_line(_whole(record, known[record["key"]])) for record in _lines(text))
        unpacked.parent.mkdir(parents=True, exist_ok=True)
        unpacked.write_text(text, encoding="utf-8")


def holds_answers(path: Path) -> bool:
    return path.suffix == ".jsonl" and path.parts[-4] == "answers"


def _bare(record: dict[str, Any]) -> dict[str, Any]:
    for passage in _passages(record):
        passage["text"] = ""
    return {name: value for name, value in record.items() if name not in TEXTS}


def _whole(record: dict[str, Any], question: dict[str, Any]) -> dict[str, Any]:
    for passage in _passages(record):
        article = question["documents"][passage["document"]]["text"]
        passage["text"] = article[passage["start"] : passage["stop"]]
    texts = {name: question.get(name, []) for name in TEXTS}
    place = list(record).index(AFTER)
    items = list(record.items())
    return dict([*items[:place], *texts.items(), *items[place:]])


def _passages(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The evidence that stands in a document word for word; the rest is the model's."""
    return [passage for passage in record.get("evidence") or () if passage["document"] is not None]


def _lines(text: str) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, text.splitlines())


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


if __name__ == "__main__":
    verb, run = sys.argv[1:]
    {"pack": pack, "unpack": unpack}[verb](ROOT / "results" / run, ROOT / "reports" / run)
