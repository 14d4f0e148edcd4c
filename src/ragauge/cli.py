"""The command line. A verb is a file of `ragauge.verbs`; it imports what it needs when it runs, so that `--help` and
`list` answer at once.

Exit codes: 0 on success; 1 where `ragauge serve` stopped too early; 2 with one line on a mistake of the user's; 3 where
`ragauge run` left questions without an answer; 130 when interrupted. Anything else is a defect and keeps its traceback.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from ragauge import __version__, registry
from ragauge.errors import UserError, extras_told
from ragauge.io import progress
from ragauge.io.redaction import redacted
from ragauge.verbs import Parser, grouped, leaves

# What the system says of a disk that is full, over its quota, read-only, someone else's or broken: no defect of ours.
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code."""
    _log()
    code = 0
    try:
        args = command_parser(arguments).parse_args(arguments)
        _be_quiet(args.quiet)
        with extras_told():
            code = int(args.verb(args) or 0)
        sys.stdout.flush()
    except UserError as error:
        print(redacted(f"ragauge: error: {' '.join(str(error).split())}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ragauge: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except MemoryError as error:
        print(
            f"ragauge: error: out of memory: {' '.join(str(error).split()) or 'an allocation failed'}", file=sys.stderr
        )
        return 2
    except OSError as error:
        if error.errno not in DISK:
            raise
        print(f"ragauge: error: {error.filename or 'writing'}: {error.strerror}", file=sys.stderr)
        return 2
    return code


def _log() -> None:
    """Say what we do, and of what libraries say only their warnings: some (bm25s) set their own loggers to tell all."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(message)s"))
    handler.addFilter(lambda record: record.name.startswith("ragauge") or record.levelno >= logging.WARNING)
    logging.basicConfig(handlers=[handler])
    sys.excepthook = _tell_defect
    logging.getLogger("ragauge").setLevel(logging.INFO)


def _tell_defect(*raised: Any) -> None:
    """A traceback without secrets."""
    print(redacted("".join(traceback.format_exception(*raised))), end="", file=sys.stderr)


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """The line, with the traceback if there is one, without secrets."""
        return redacted(super().format(record))


def _be_quiet(quiet: bool) -> None:
    """Only the result, warnings and errors: no progress, nothing about what is being done."""
    progress.hide(quiet)
    if quiet:
        logging.getLogger("ragauge").setLevel(logging.WARNING)


def command_parser(arguments: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser of a command line: of the verb that it names, or of none but with the help of all."""
    stated = next((one for one in (sys.argv[1:] if arguments is None else arguments) if not one.startswith("-")), "")
    parser = Parser(
        prog="ragauge",
        description="What retrieval-augmented generation costs and what it is worth.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ragauge {__version__}")
    verbs = parser.add_subparsers(required=True, metavar="VERB", parser_class=Parser, help="see below")
    texts = {}
    for name in [stated] if stated in registry.names("verb") else registry.names("verb"):
        module = registry.module("verb", name)
        texts[name] = (module.__doc__ or "").partition("\n")[0]
        verb = verbs.add_parser(name, description=texts[name])
        if name == stated:
            _complete(verb, module)
    parser.epilog = grouped(texts)
    return parser


def parser_of(verb: str) -> Parser:
    """The parser of one verb, with all of its options."""
    parser = Parser(prog=f"ragauge {verb}")
    _complete(parser, registry.module("verb", verb))
    return parser


def _complete(parser: Parser, module: ModuleType) -> None:
    """Give a verb's parser its arguments, and what is said of every verb."""
    module.add_arguments(parser)
    parser.set_defaults(verb=module.run, quiet=False)
    for one in leaves(parser):
        one.add_argument("--quiet", action="store_true", help="print only the result, warnings and errors")


if __name__ == "__main__":
    sys.exit(main())
