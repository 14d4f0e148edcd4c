"""List, verify or prune what is kept on disk to be used again."""

from __future__ import annotations

import argparse
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge.errors import UserError
from ragauge.verbs import _options as options

if TYPE_CHECKING:
    from ragauge.assets.kept import Kept

STEPS = {
    "list": "show what is kept, its size and its last use: assets, converted checkpoints, exports, tables of kernels",
    "verify": "hash the files again and name what is damaged",
    "prune": "name what can go by age or size, and with --remove remove it; whatever is needed is made again",
}
DOCUMENTS = "documents"  # the kind of a document store's entries


def add_arguments(parser: argparse.ArgumentParser) -> None:
    steps = parser.add_subparsers(required=True, metavar="STEP", dest="step")
    for name, text in STEPS.items():
        step = steps.add_parser(name, help=text, description=text, allow_abbrev=False)
        step.add_argument(
            "--document-store", type=Path, metavar="FOLDER", help="also the keys and values of documents kept there"
        )
        if name == "prune":
            _add_limits(step)
        options.add_json(step)


def _add_limits(step: argparse.ArgumentParser) -> None:
    step.add_argument("--older-than-days", type=options.days, metavar="N", help="select what was not used for N days")
    step.add_argument(
        "--keep-gb", type=options.size, metavar="X", help="select the least recently used until X GB are left"
    )
    step.add_argument("--remove", action="store_true", help="remove what is selected; default: only list it")


def run(args: argparse.Namespace) -> None:
    {"list": _list, "verify": _verify, "prune": _prune}[args.step](args)


def _list(args: argparse.Namespace) -> None:
    _show(_kept(args), args)


def _verify(args: argparse.Namespace) -> None:
    from ragauge.assets import kept
    from ragauge.engines import store

    looked_at = _kept(args)
    checks = {}
    for one in looked_at:
        with kept.unnoticed(one):
            checks[one.path] = store.damage(one.path) if one.kind == DOCUMENTS else kept.damage(one)
    damaged = {str(path): reason for path, reason in checks.items() if reason}
    lines = [f"{path}: {reason}" for path, reason in damaged.items()]
    told = "\n".join([*lines, f"{len(looked_at) - len(damaged)} of {len(looked_at)} whole"])
    options.tell(args, told, looked_at=len(looked_at), damaged=damaged)
    if damaged:
        raise UserError(f"{len(damaged)} damaged, the first {next(iter(damaged))}; remove it: it is then made again")


def _prune(args: argparse.Namespace) -> None:
    from ragauge.assets import kept

    if args.older_than_days is None and args.keep_gb is None:
        raise UserError("cache prune: give --older-than-days N, --keep-gb X or both")
    keep = None if args.keep_gb is None else int(args.keep_gb * 1e9)
    gone = kept.to_prune(_kept(args), time.time(), args.older_than_days, keep)
    if args.remove:
        for one in gone:
            _discard(one)
    _show(gone, args, "removed" if args.remove else "would be removed; remove them with --remove")


def _discard(one: Kept) -> None:
    from ragauge.assets import kept

    try:
        kept.discard(one)
    except OSError as error:
        raise UserError(f"{error.filename or one.path}: cannot be removed: {error.strerror or error}") from error


def _kept(args: argparse.Namespace) -> list[Kept]:
    """What the home holds, and the document store where one is named."""
    from ragauge.assets import kept, store

    found = kept.found(store.home())
    if folder := args.document_store:
        from ragauge.engines.store import files_of

        if not folder.is_dir():
            raise UserError(f"--document-store: {folder}: no such folder")
        found += [kept.of(DOCUMENTS, path) for path in files_of(folder)]
    return found


def _show(found: list[Kept], args: argparse.Namespace, what: str = "kept") -> None:
    total = sum(one.bytes for one in found)
    lines = [_line(one) for one in sorted(found, key=lambda one: -one.bytes)]
    told = "\n".join([*lines, f"{total / 1e6:10,.1f} MB in {len(found)} {what}"])
    options.tell(args, told, bytes=total, entries=[_facts(one) for one in found])


def _line(one: Kept) -> str:
    return f"{one.bytes / 1e6:10,.1f} MB  used {datetime.fromtimestamp(one.used):%Y-%m-%d}  {one.kind:10} {one.path}"


def _facts(one: Kept) -> dict[str, Any]:
    used = datetime.fromtimestamp(one.used).isoformat(timespec="seconds")
    return {"kind": one.kind, "path": str(one.path), "bytes": one.bytes, "used": used}
