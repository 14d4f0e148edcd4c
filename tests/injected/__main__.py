"""Injects faults and prints what they came to; ends with 1 if a promise was broken.

PYTHONPATH=tests python -m injected [--share 0.1] [--seed 0] [--only TEXT] [--write]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import NamedTuple

from injected import children

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- begin: make faults -->\n", "<!-- end: make faults -->"


class Fault(NamedTuple):
    """One injected fault."""

    kind: str
    place: str  # the writer or the file
    case: str
    came_to: str


@dataclass
class Outcomes:
    """What all faults came to."""

    faults: list[Fault] = field(default_factory=list)
    broken: list[Fault] = field(default_factory=list)
    seconds: float = 0.0

    def counts(self, kind: str) -> Counter[str]:
        """By what they came to."""
        return Counter(fault.came_to for fault in self.faults if fault.kind == kind)


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parsed(arguments)
    room = Path(os.environ.get(children.LIBRARY) or tempfile.mkdtemp(prefix="ragauge-faults-"))
    children.load_library("injected", room)
    try:
        outcomes = _all(args, room)
    finally:
        shutil.rmtree(room, ignore_errors=True)
    text = table(outcomes, args.share, args.seed)
    print(text)
    if args.write:
        write(PAGE, text)
    return int(bool(outcomes.broken))


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="part of the faults that is injected, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="TEXT", help="kinds and writers whose name contains it")
    parser.add_argument("--write", action="store_true", help=f"put the table into docs/{PAGE.name}")
    return parser.parse_args(arguments)


def _all(args: argparse.Namespace, room: Path) -> Outcomes:
    from injected import kinds, versions, writers

    writers.warm_up(room / "warm")
    started, outcomes = time.monotonic(), Outcomes()
    for number, tested in enumerate(writers.ALL):
        chosen = [kind for kind in kinds.KINDS if args.only in f"{kind.name}, {tested.name}"]
        if not chosen:
            continue
        prepared = kinds.Prepared.make(tested, room / f"{number}")
        for kind in chosen:
            cases = list(kind.cases(prepared))
            _inject(outcomes, kind.name, tested.name, _drawn(cases, args, f"{kind.name} {tested.name}"))
        shutil.rmtree(room / f"{number}")
        print(f"{len(outcomes.faults):5} faults, {len(outcomes.broken)} broken: {tested.name}", file=sys.stderr)
    for name, cases in versions.cases(room / "versions").items():
        if args.only in f"{versions.KIND}, {name}":
            _inject(outcomes, versions.KIND, name, _drawn(cases, args, name))
    outcomes.seconds = time.monotonic() - started
    return outcomes


def _drawn(cases: list, args: argparse.Namespace, name: str) -> Iterator:
    """A share of the cases, the same ones for the same seed."""
    draw = random.Random(f"{args.seed} {name}")
    return (case for case in cases if args.share >= 1 or draw.random() < args.share)


def _inject(outcomes: Outcomes, kind: str, place: str, cases: Iterable) -> None:
    for name, case in cases:
        try:
            outcomes.faults.append(Fault(kind, place, name, case()))
        except Exception as error:
            told = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
            outcomes.faults.append(Fault(kind, place, name, "BROKEN"))
            outcomes.broken.append(Fault(kind, place, name, told))
            print(f"BROKEN: {kind}, {place}, {name}: {told}", file=sys.stderr)


def table(outcomes: Outcomes, share: float, seed: int) -> str:
    """The outcomes as Markdown."""
    from injected import kinds, versions

    promised = [(k.name, k.where, k.promise) for k in kinds.KINDS] + [(versions.KIND, versions.WHERE, versions.PROMISE)]
    rows = ["| fault | where | promised | injected | what happened |", "| --- | --- | --- | --: | --- |"]
    for name, where, promise in promised:
        counts = outcomes.counts(name)
        happened = "; ".join(f"{what}: {count:,}" for what, count in counts.most_common())
        rows.append(f"| {name} | {where} | {promise} | {counts.total():,} | {happened} |")
    rows += [
        "",
        "| writer | " + " | ".join(k.name for k in kinds.KINDS) + " |",
        "| --- |" + " --: |" * len(kinds.KINDS),
    ]
    by_place = Counter((fault.place, fault.kind) for fault in outcomes.faults)
    for place in dict.fromkeys(fault.place for fault in outcomes.faults if fault.kind != versions.KIND):
        rows.append(f"| {place} | " + " | ".join(f"{by_place[place, k.name]:,}" for k in kinds.KINDS) + " |")
    return f"{summary(outcomes, share, seed)}\n\n" + "\n".join(rows) + "\n"


def summary(outcomes: Outcomes, share: float, seed: int) -> str:
    """How many faults were injected, when and on what."""
    from ragauge.cost.machine import cpu_model

    part = "" if share >= 1 else f" (a share of {share:g}, seed {seed})"
    kept = "no promise was broken" if not outcomes.broken else f"{len(outcomes.broken):,} promises were broken"
    on = f"{date.today():%-d %B %Y}, {cpu_model()}"
    return f"{len(outcomes.faults):,} faults{part}, {kept}; {on}, {outcomes.seconds:.0f} s."


def write(page: Path, text: str) -> None:
    """Put the text between the marks of the page."""
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
