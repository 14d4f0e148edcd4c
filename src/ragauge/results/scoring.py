"""Metrics of files of records with their uncertainty, for `ragauge score` and `ragauge compare`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ragauge import registry
from ragauge.errors import UserError
from ragauge.io import records
from ragauge.io.jsonl import JsonObject, read_jsonl
from ragauge.metrics import base as metrics
from ragauge.results.cells import mean
from ragauge.results.stats import paired_test

_TYPES: dict[str, tuple[str, TypeAdapter[Any]]] = {
    "prediction": ("text", TypeAdapter(str)),
    "question": ("text", TypeAdapter(str)),
    "full_prompt": ("text, or null", TypeAdapter(str | None)),
    "answers": ("a list of texts", TypeAdapter(list[str])),
    "passages": ("a list of texts, or null", TypeAdapter(list[str] | None)),
    "kept": ("a list of integers", TypeAdapter(list[int])),
    "evidence": ("a list of objects, or null", TypeAdapter(list[JsonObject] | None)),
    "gold_stretches": ("a list of objects", TypeAdapter(list[JsonObject])),
    "tokens": ("an object", TypeAdapter(JsonObject)),
    "gold": ("a list of integers", TypeAdapter(list[int])),
}
_ANY: TypeAdapter[Any] = TypeAdapter(Any)
# metrics for which an answer that normalisation empties fits anything
NORMALISING = ("best_subspan_em", "em", "f1")


def score_file(
    path: Path,
    metric: str,
    *,
    prediction_key: str = "prediction",
    answers_key: str = "answers",
) -> JsonObject:
    """A metric over a file of JSON lines (.jsonl, .jsonl.gz): our records, or any predictions with
    their answers.

    Returns:
        The `mean` with `low` and `high` (95% interval) over `n` scored records, null where n is 0;
        `records` in the file, of them `failed`, which count as wrong where the metric applies;
        `remark` where normalisation empties answers.

    Raises:
        UserError: a line cannot be read, or a field is missing or of another type; file and line
            are named.
    """
    names = {"prediction": prediction_key, "answers": answers_key}
    meta = records.read_meta(path) or {}
    records.check_unchanged(path, meta)
    read = dict(read_jsonl(path))
    seen = set[str]()
    for number, line in read.items():
        if {"key", "status"} <= line.keys():  # of records, not of others' predictions
            records.note_key(seen, str(line["key"]), f"{path}:{number}")
    filled = metrics.with_failed_empty([*read.values()], prediction_key)
    lines = [
        _Line(line, names, f"{path}:{number}") for number, line in zip(read, filled, strict=True)
    ]
    if not lines:
        raise UserError(f"{path}: holds no records")
    scores = [_score_line(metric, line) for line in lines]
    remark = {}
    if metric in NORMALISING and (literal := _literal_scores(metric, lines, scores)):
        meaning = "to the official formula, which counts here, it is in every prediction"
        if meta.get("specification", {}).get("dataset", "study") == "study":
            official = fmean(score for score in scores if score is not None)
            meaning = f"it counts where the prediction is the same; officially {official:.3f}"
            scores = [literal.get(at, score) for at, score in enumerate(scores)]
        emptied = "an answer that normalisation empties, such as 'A' or '!'"
        remark = {"remark": f"{len(literal)} records have {emptied}: {meaning}"}
    applying = [score for score in scores if score is not None]
    average = mean(applying, 0, limits=metrics.limits(metric))
    return {
        "metric": metric,
        "file": str(path),
        "mean": average.value,
        "low": average.low,
        "high": average.high,
        "n": average.n,
        "records": len(lines),
        "failed": sum(line.get("status") == "failed" for line in lines),
        **remark,
    }


def compare_files(a: Path, b: Path, metric_names: Sequence[str] | None = None) -> JsonObject:
    """Two methods on the questions that both files hold: for each metric (None: every one that
    applies) their means and the numbers of `paired_test`. A failed question counts as wrong where
    the metric applies; `failed_a` and `failed_b` count those shared.

    Raises:
        UserError: no question is shared, or a key stands for two.
    """
    first = _by_key(a)
    second = _by_key(b)
    shared = [key for key in first if key in second]
    if not shared:
        raise UserError(f"{a} and {b}: no question in common")
    if other := [key for key in shared if first[key]["question"] != second[key]["question"]]:
        why = f"{other[0]!r} is a different question in each: the files are of different data sets"
        raise UserError(f"{a} and {b}: {why}")
    pairs = [(first[key], second[key]) for key in shared]
    compared = {name: _compare(name, pairs) for name in metric_names or registry.usable("metric")}
    return {
        "a": str(a),
        "b": str(b),
        "questions": len(shared),
        "only_a": len(first) - len(shared),
        "only_b": len(second) - len(shared),
        **{
            f"failed_{side}": sum(pair[at]["status"] == "failed" for pair in pairs)
            for at, side in enumerate("ab")
        },
        "metrics": {
            name: result for name, result in compared.items() if metric_names or result["n"]
        },
    }


def _compare(
    metric: str, pairs: Sequence[tuple[metrics.RecordFields, metrics.RecordFields]]
) -> JsonObject:
    scored = [(metrics.score(metric, x), metrics.score(metric, y)) for x, y in pairs]
    both = [(x, y) for x, y in scored if x is not None and y is not None]
    if not both:
        return {**dict.fromkeys(("a", "b", "difference", "low", "high", "p")), "n": 0}
    x, y = zip(*both, strict=True)
    test = paired_test(x, y, limits=metrics.limits(metric))
    return {"a": sum(x) / len(x), "b": sum(y) / len(y), **test}


def _by_key(path: Path) -> dict[str, metrics.RecordFields]:
    read = [record.model_dump() for record in records.read(path)]
    return {record["key"]: record for record in metrics.with_failed_empty(read)}


def _literal_scores(
    metric: str, lines: Sequence["_Line"], scores: Sequence[float | None]
) -> dict[int, float]:
    """By line: its score where an answer that normalisation empties fits only a prediction of the
    same text.
    """
    literal = {}
    for at, line in enumerate(lines):
        if scores[at] is not None and (empty := metrics.wordless(line["answers"])):
            texts = [answer.strip().lower() for answer in empty]
            same = line.get("status") != "failed" and line["prediction"].strip().lower() in texts
            others = [answer for answer in line["answers"] if answer not in empty]
            rest = replace(line, content={**line.content, line.names["answers"]: others})
            literal[at] = 1.0 if same else _score_line(metric, rest) or 0.0
    return literal


def _score_line(metric: str, line: "_Line") -> float | None:
    try:
        return metrics.score(metric, line)
    except KeyError as error:
        missing = line.names.get(error.args[0], error.args[0])
        raise UserError(
            f"{line.place}: no field {missing!r}, which {metric} requires; it has {', '.join(line)}"
        ) from error


@dataclass(frozen=True)
class _Line(Mapping[str, Any]):
    """A JSON line under a record's field names; only fields that a metric reads are type-checked."""

    content: Mapping[str, Any]
    names: Mapping[str, str]  # of fields, where the line has others
    place: str

    def __getitem__(self, field: str) -> Any:
        name = self.names.get(field, field)
        if name not in self.content:
            raise KeyError(field)
        wanted, kind = _TYPES.get(field, ("", _ANY))
        try:
            return kind.validate_python(self.content[name], strict=True)
        except ValidationError:
            raise UserError(f"{self.place}: field {name!r} must be {wanted}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)
