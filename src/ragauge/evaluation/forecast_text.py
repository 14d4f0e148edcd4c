"""A forecast in words."""

from __future__ import annotations

from collections.abc import Mapping

from ragauge.evaluation.forecast import Forecast


def text(made: Forecast, took: Mapping[str, float] | None = None) -> str:
    """A line a section, then what was measured, and what is not in it."""
    machine, likely = made.machine, made.wall
    lines = [f"{'section':10} {'jobs':>5} {'likely':>9}   from      to" + ("        took" if took else "")]
    for section in made.sections:
        wall = section.wall
        before = f"{section.name:10} {section.jobs:5} {duration(wall.likely):>9}   {duration(wall.low):9} "
        lines.append(
            before + f"{duration(wall.high):9}" + _compared(section.work.likely, (took or {}).get(section.name))
        )
    lines.append(f"{'together':16} {duration(likely.likely):>9}   {duration(likely.low):9} {duration(likely.high)}")
    lines.append(f"disk {made.disk_gb:.2f} GB, memory {made.memory_gb:.1f} GB")
    said = f"one thread {machine.one.told(made.shape)}"
    if machine.all.threads > 1:
        said += f", {machine.all.threads} threads: {machine.all.told(made.shape)}"
    elif machine.cores > 1:
        said += f"; other work takes {machine.load_share:.0%} of the machine, so times are those of one thread"
    lines.append(f"measured in {machine.seconds:.0f} s, {machine.one.dtype}: {said}")
    lines += [f"not in it: {section.name}: {reason}" for section in made.sections for reason in section.unknown]
    return "\n".join(lines)


def _compared(work: float, took: float | None) -> str:
    """The seconds of a run's calls, beside those that were expected."""
    return f"  {duration(took)} of calls, {duration(work)} expected" if took else ""


def duration(seconds: float) -> str:
    """In words: 40 s, 12 min, 3.5 h, 2.0 days."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
