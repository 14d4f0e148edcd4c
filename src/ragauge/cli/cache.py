"""List, verify or prune the cache: assets, converted checkpoints, exports, tables of kernels."""

from __future__ import annotations

import argparse
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ragauge.cli import _options as options
from ragauge.errors import UserError
from ragauge.io.files import os_errors_as_user_errors

if TYPE_CHECKING:
    from ragauge.assets.cache import CacheEntry

STEPS = {
    "list": "show every cached asset, export and table with its size and last use",
    "verify": "hash the files again and name the damaged ones",
    "prune": "select by age or size, and with --remove remove; whatever is needed is made again",
}
DOCUMENTS = "documents"  # the kind of a document store's entries


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, step in options.add_steps(parser, STEPS):
        add = step.add_argument
        add(
            "--document-store",
            type=Path,
            metavar="FOLDER",
            help="also the keys and values of documents stored there",
        )
        if name == "prune":
            add(
                "--older-than-days",
                type=options.amount,
                metavar="N",
                help="select what was not used for N days",
            )
            add(
                "--keep-gb",
                type=options.amount,
                metavar="X",
                help="select the least recently used until X GB remain",
            )
            add(
                "--remove",
                action="store_true",
                help="remove what is selected; default: only list it",
            )


def run(args: argparse.Namespace) -> None:
    from ragauge.assets import cache, store
    from ragauge.engines.store import files_of

    if args.step == "prune" and args.older_than_days is None and args.keep_gb is None:
        raise UserError("cache prune: give --older-than-days N, --keep-gb X or both")
    entries = cache.entries(store.home())
    folder = args.document_store
    if folder:
        if not folder.is_dir():
            raise UserError(f"--document-store: {folder}: no such folder")
        entries += [cache.CacheEntry.of(DOCUMENTS, path) for path in files_of(folder)]
    if args.step == "list":
        _show(entries, args, "cached")
    elif args.step == "verify":
        _verify(args, entries)
    else:
        keep = None if args.keep_gb is None else int(args.keep_gb * 1e9)
        selected = cache.to_prune(entries, time.time(), args.older_than_days, keep)
        for entry in selected if args.remove else ():
            with os_errors_as_user_errors(entry.path):
                cache.discard(entry)
        _show(
            selected,
            args,
            "removed" if args.remove else "would be removed; remove them with --remove",
        )


def _verify(args: argparse.Namespace, entries: list[CacheEntry]) -> None:
    from ragauge.assets import store
    from ragauge.engines.store import damage

    # other files have no hash to compare
    problems = {e.path: damage(e.path) for e in entries if e.kind == DOCUMENTS}
    problems |= {e.path: store.damage(e.path, verify=True) for e in entries if e.path.is_dir()}
    damaged = {str(path): problem for path, problem in problems.items() if problem}
    lines = [f"{path}: {problem}" for path, problem in damaged.items()]
    text = "\n".join([*lines, f"{len(entries) - len(damaged)} of {len(entries)} intact"])
    options.print_result(args, text, looked_at=len(entries), damaged=damaged)
    if damaged:
        raise UserError(
            f"{len(damaged)} damaged, the first {next(iter(damaged))}; remove it: it is then made again"
        )


def _show(entries: list[CacheEntry], args: argparse.Namespace, what: str) -> None:
    used = {e.path: datetime.fromtimestamp(e.used).isoformat(timespec="seconds") for e in entries}
    largest_first = sorted(entries, key=lambda e: -e.bytes)
    lines = [
        f"{e.bytes / 1e6:10,.1f} MB  used {used[e.path][:10]}  {e.kind:10} {e.path}"
        for e in largest_first
    ]
    total = sum(e.bytes for e in entries)
    text = "\n".join([*lines, f"{total / 1e6:10,.1f} MB in {len(entries)} {what}"])
    facts = [
        {"kind": e.kind, "path": str(e.path), "bytes": e.bytes, "used": used[e.path]}
        for e in entries
    ]
    options.print_result(args, text, bytes=total, entries=facts)
