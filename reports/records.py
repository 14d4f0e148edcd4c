"""Pack the records of a run without the data set's questions, answers and passages, and unpack.

    python reports/records.py pack reference-qwen      # results/<run> -> reports/<run>, compressed
    python reports/records.py unpack reference-qwen    # back, with the texts of results/<run>/data by key

The questions come first, with no model: `snakemake --cores 1 results/<run>/data/NAME.jsonl
--configfile FILE`. From unpacked records `ragauge report item NAME --config FILE` renders a table
again.

Answers that are unfinished (`.partial`) are packed, too, so that another machine can go on with
them; once the file is whole they go.
"""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TEXTS = ("question", "answers", "wordless_answers")  # of the data set, in front of the field AFTER
AFTER = "gold"
PACKED = ("answers/*/*/*.json*", "latency/*/*.json", "pipelines/*.json*")
UNFINISHED = ".partial"
SUFFIXES = (".json", ".jsonl", UNFINISHED)


def pack(results: Path, reports: Path) -> None:
    there = (path for pattern in PACKED for path in results.glob(pattern))
    for path in sorted(path for path in there if path.suffix in SUFFIXES):
        text = path.read_text(encoding="utf-8")
        if holds_answers(path):
            text = "".join(_bare(line) for line in _lines(text))
        packed = reports / path.relative_to(results).with_name(f"{path.name}.gz")
        packed.parent.mkdir(parents=True, exist_ok=True)
        packed.write_bytes(gzip.compress(text.encode(), mtime=0))
        packed.with_name(f"{path.name}{UNFINISHED}.gz").unlink(missing_ok=True)


def unpack(results: Path, reports: Path) -> None:
    for path in sorted(reports.glob("*/**/*.gz")):
        text = gzip.decompress(path.read_bytes()).decode()
        unpacked = results / path.relative_to(reports).with_suffix("")
        if holds_answers(unpacked):
            questions = (results / f"data/{path.parts[-3]}.jsonl").read_text(encoding="utf-8")
            known = {question["key"]: question for question in map(json.loads, _lines(questions))}
            text = "".join(_whole(line, known) for line in _lines(text))
        unpacked.parent.mkdir(parents=True, exist_ok=True)
        unpacked.write_text(text, encoding="utf-8")


def holds_answers(path: Path) -> bool:
    return ".jsonl" in path.suffixes and path.parts[-4] == "answers"


def _bare(line: str) -> str:
    record = json.loads(line)
    # the first line of an unfinished file: the seals of the others depend on its bytes
    if "key" not in record:
        return line
    for passage in _passages(record):
        passage["text"] = ""
    return _line({name: value for name, value in record.items() if name not in TEXTS})


def _whole(line: str, questions: dict[str, dict[str, Any]]) -> str:
    record = json.loads(line)
    if "key" not in record:
        return line
    question = questions[record["key"]]
    for passage in _passages(record):
        article = question["documents"][passage["document"]]["text"]
        passage["text"] = article[passage["start"] : passage["stop"]]
    texts = {name: question.get(name, []) for name in TEXTS}
    place = list(record).index(AFTER)
    items = list(record.items())
    return _line(dict([*items[:place], *texts.items(), *items[place:]]))


def _passages(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The evidence that stands in a document word for word; the rest is the model's."""
    return [passage for passage in record.get("evidence") or () if passage["document"] is not None]


def _lines(text: str) -> list[str]:
    """Whole lines: the last one of a file that is being written may be torn."""
    return [f"{line}\n" for line in text.split("\n")[:-1]]


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


if __name__ == "__main__":
    verb, run = sys.argv[1:]
    {"pack": pack, "unpack": unpack}[verb](ROOT / "results" / run, ROOT / "reports" / run)
