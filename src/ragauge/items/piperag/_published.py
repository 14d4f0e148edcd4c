"""The numbers that PipeRAG prints in its table and text, and those of the logs that its repository ships."""

from collections.abc import Mapping
from typing import Any

from ragauge.items.piperag._lines import PAPER
from ragauge.results import Cell, Measure, read_csv
from ragauge.results.pipelines import IndexName
from ragauge.results.systems import KEYS, S3

OTHER = "published for another model, corpus and machine"
OTHER_MACHINE = "published for another machine"
DIFFERENCES = ("latency_difference_s", "perplexity_difference")  # from no retrieval, in brackets in Table 1
LOGGED = "from the logs of the paper's repository, sequences of 512 tokens; published for another model"
KINDS = {"no_retrieval": "no_retrieval", "retro": "retro", "piperag_s3": "piperag"}


def statement(name: str) -> float:
    return next(float(row["value"]) for row in read_csv("piperag_statements") if row["item"] == name)


def row(dataset: str, kind: str, **more: Any) -> dict[str, Any]:
    return {**dict.fromkeys(KEYS, ""), "model": PAPER, "dataset": dataset, "method": kind, **more}


def dataset(label: str) -> str:
    """The paper's name of a text: its label as far as the first underscore, so that c4_t5 is C4."""
    return label.partition("_")[0]


def table_1(quantities: tuple[str, ...] = ("perplexity", "latency_s")) -> list[Cell]:
    cells = []
    for line in read_csv("piperag_table_1"):
        nprobe = S3 if line["system"] == "piperag_s3" else ""
        keys = row(line["dataset"], KINDS[line["system"]], nprobe=nprobe)
        cells += [Cell(keys, q, Measure(note=OTHER), float(line[q])) for q in quantities if line[q]]
    return cells


def logged(*, swept: bool) -> list[Cell]:
    """The perplexities of the logs that vary interval or nprobe, or of those that vary neither."""
    cells = []
    for line in read_csv("piperag_perplexity_from_logs"):
        if swept != any(name in line["log"] for name in ("_interval_", "_nprobe_")):
            continue
        kind = "no_retrieval" if line["no_retrieval"] == "1" else "piperag" if line["staleness"] == "1" else "retro"
        database = line["config_set"].partition("_eval_")[2].removesuffix(".json")
        dataset = "wikipedia" if line["config_set"].startswith("wikipedia") else "realnews"
        interval, nprobe = (int(line[k]) if line[k].isdigit() else "" for k in ("retrieval_interval", "nprobe"))
        retrieval = {"interval": interval, "options": _options(line)} if kind != "no_retrieval" else {}
        keys = row(dataset, kind, nprobe=nprobe, index=IndexName(database) if database else "", **retrieval)
        cells.append(Cell(keys, "perplexity", Measure(note=LOGGED), float(line["perplexity"])))
    return cells


def _options(line: Mapping[str, str]) -> str:
    chunks = int(line["num_continuation_chunks"])
    parts = [] if chunks == 1 else [f"{chunks} chunks of continuation" if chunks else "no continuation"]
    if line["staleness"] == "1":
        parts.append("stale context dropped" if line["remove_stale_context"] == "1" else "stale context kept")
    return ", ".join(parts)
