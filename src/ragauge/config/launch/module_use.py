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


def begin_with(
    workflow: Any, outer: Callable[[Any], None], module: str, begin: Callable[[], None]
) -> None:
    """Have `begin` called when a run starts of a workflow that uses this one as a module.

    Snakemake calls one `onstart` handler: that of the main Snakefile or, in older versions, of
    whichever is read last.

    Args:
        outer: the handler before this module was read, which comes first.
        module: its name; each `use rule` reads the module again, and several may use this workflow.
    """
    modules: dict[str, Callable[[], None]] = getattr(outer, "modules", {})
    first = getattr(outer, "outer", outer)

    def start_all(log: Any) -> None:
        first(log)
        for begin_module in modules.values():
            begin_module()

    modules.setdefault(module, begin)
    start_all.modules = modules  # type: ignore[attr-defined]
    start_all.outer = first  # type: ignore[attr-defined]
    workflow._onstart = start_all
