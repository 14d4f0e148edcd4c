"""This workflow as a module of another one (config/README.md)."""

from collections.abc import Callable
from typing import Any

from ragauge.errors import UserError


def check_module(paths: Any) -> None:
    """Raise UserError if a workflow that uses this one as a module changes (`paths`) what its
    commands name, too.
    """
    if paths.prefix or paths.modifies_prefixes:
        raise UserError(
            "module: prefix and replace_prefix are not supported; the configuration's `run` names folders"
        )


def begin_with(workflow: Any, outer: Callable[[Any], None], begin: Callable[[], None]) -> None:
    """Have `begin` called when a run starts of a workflow that uses this one as a module.

    Snakemake calls one `onstart` handler: that of the main Snakefile or, in older versions, of
    whichever is read last.

    Args:
        outer: the handler before this module was read, which comes first.
    """

    def start_both(log: Any) -> None:
        outer(log)
        begin()

    # once for each `use rule`
    read_before = getattr(outer, "__qualname__", "") == start_both.__qualname__
    workflow._onstart = outer if read_before else start_both
