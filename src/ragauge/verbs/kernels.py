"""Show which matrix product and attention kernels this machine uses, measuring those not measured yet."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ragauge.cost.hardware import DTYPES
from ragauge.errors import unknown
from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dtypes", type=options.names, default=["float32", "bfloat16"], metavar="A,B", help="float32,bfloat16,int8"
    )
    parser.add_argument("--threads", type=options.count, metavar="N", help="default: torch's own choice")
    parser.add_argument("--again", action="store_true", help="measure again, for example on a quiet machine")
    parser.add_argument(
        "--out", type=Path, metavar="FILE.json", help="also write the table to this file, for --kernels FILE.json"
    )
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    for name in args.dtypes:
        if name not in (known := (*DTYPES, "int8")):
            raise unknown("dtype", name, known, "--dtypes")
    import torch

    from ragauge.engines.kernels import measured
    from ragauge.io.files import write_file

    if args.threads:
        torch.set_num_threads(args.threads)
    tables: dict[str, Any] = {}
    for name in args.dtypes:
        tables[name] = measured.kept(getattr(torch, name), args.again)[name]
    if args.out:
        write_file(args.out, measured.stated(tables))
    if args.json:
        options.show({"machine": measured.machine(), "file": str(measured.table_path()), "kernels": tables}, True)
        return
    for name, table in tables.items():
        for what, row in table.items():
            times = ", ".join(f"{kernel} {1e3 * s:.3g}" for kernel, s in sorted(row["seconds"].items(), key=_second))
            print(f"{name}, {what}: {row['kernel']} (ms: {times})")
    print(measured.table_path())


def _second(pair: tuple[str, float]) -> float:
    return pair[1]
