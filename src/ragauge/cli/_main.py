"""The command line: a verb is a file of this package. docs/command-line.md has its grammar and exit
codes.

A verb's module has a docstring, whose first line is the help text, `add_arguments(parser)` and
`run(args)`. It imports what it needs inside `run`, so that `ragauge --help` answers at once; `run`
returns an exit code other than 0, or nothing. An error that is not the user's keeps its traceback.
"""

import errno
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from ragauge.cli._parser import command_parser
from ragauge.cli._process import choose_waiting, retain_freed_memory
from ragauge.errors import UserError, explain_missing_extra, panics_as_user_errors
from ragauge.io import progress
from ragauge.io.redaction import PrintableStream, redacted

# Errors of a disk that is full, over its quota, read-only, someone else's or broken; not bugs.
DISK_ERRORS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EFBIG,
    errno.EIO,
)


def main(arguments: Sequence[str] | None = None) -> int:
    # ids, names and errors may hold what a terminal would obey
    out: Any = PrintableStream(sys.stdout)
    err: Any = PrintableStream(sys.stderr)
    with redirect_stdout(out), redirect_stderr(err):
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    _set_up_logging()
    code = 0
    try:
        args = command_parser(arguments).parse_args(arguments)
        progress.hide(args.quiet)
        if args.quiet:
            logging.getLogger("ragauge").setLevel(logging.WARNING)
        with explain_missing_extra(), panics_as_user_errors():
            choose_waiting()
            if getattr(args, "step", "") != "train":  # _process.py says why
                retain_freed_memory()
            code = int(args.verb(args) or 0)
        sys.stdout.flush()
    except UserError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        print("ragauge: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except MemoryError as error:
        return _fail(f"out of memory: {error or 'an allocation failed'}")
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        return _fail(f"{error.filename or 'writing'}: {error.strerror}")
    return code


def _fail(message: str) -> int:
    print(redacted(f"ragauge: error: {' '.join(message.split())}"), file=sys.stderr)
    return 2


def _set_up_logging() -> None:
    """Log this package's messages, and of libraries only warnings, even of those that configure
    their own loggers.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_RedactingFormatter("%(message)s"))
    handler.addFilter(
        lambda record: record.name.startswith("ragauge") or record.levelno >= logging.WARNING
    )
    logging.basicConfig(handlers=[handler])
    sys.excepthook = lambda *raised: PrintableStream(sys.stderr).write(
        redacted("".join(traceback.format_exception(*raised)))
    )
    logging.getLogger("ragauge").setLevel(logging.INFO)


class _RedactingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))
