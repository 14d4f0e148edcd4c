"""The command line. A verb is a file of `ragauge.verbs`; it imports what it needs when it runs, so that `--help` and
`list` answer at once.

Exit codes: 0 on success; 2 with one line on a mistake of the user's; 130 when interrupted. Anything else is a defect
and keeps its traceback.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from ragauge import __version__, registry
from ragauge.errors import UserError

# What the system says of a disk that is full, over its quota, read-only, someone else's or broken: no defect of ours.
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code."""
    _log()
    try:
        args = _parser(arguments).parse_args(arguments)
        args.verb(args)
        sys.stdout.flush()
    except UserError as error:
        print(f"ragauge: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ragauge: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if error.errno not in DISK:
            raise
        print(f"ragauge: error: {error.filename or 'writing'}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


def _log() -> None:
    """Say what we do, and of what libraries say only their warnings: some (bm25s) set their own loggers to tell all."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(lambda record: record.name.startswith("ragauge") or record.levelno >= logging.WARNING)
    logging.basicConfig(format="%(message)s", handlers=[handler])
    logging.getLogger("ragauge").setLevel(logging.INFO)


class _Parser(argparse.ArgumentParser):
    """Mistakes are told in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def _parser(arguments: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser of a command line; verbs that it does not name have no options, which take imports to know."""
    stated = set(sys.argv[1:] if arguments is None else arguments)
    parser = _Parser(prog="ragauge", description="What retrieval-augmented generation costs and what it is worth.")
    parser.add_argument("--version", action="version", version=f"ragauge {__version__}")
    verbs = parser.add_subparsers(required=True, metavar="VERB", parser_class=_Parser)
    for name in registry.names("verb"):
        module = registry.module("verb", name)
        text = (module.__doc__ or "").partition("\n")[0]
        verb = verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
        verb.set_defaults(verb=module.run)
        if name in stated:
            module.add_arguments(verb)
    return parser


if __name__ == "__main__":
    sys.exit(main())
