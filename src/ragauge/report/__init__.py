"""The page that people open: one self-contained file a run, from its records and its rendered items alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write(config: Any, results_dir: Path, out_dir: Path) -> Path:
    """Write `index.html` below `out_dir` from whatever the run has left; what is missing is named on the page.

    Args:
        config: the ragauge.experiment.schema.Config of the run; it tells what was asked for.
        results_dir: the run's folder, `results/<run>`.
        out_dir: the folder with its rendered items, usually `reports/<run>`.

    Raises:
        UserError: the page cannot be written there.
    """
    from ragauge.errors import UserError
    from ragauge.io.records import replace_atomically
    from ragauge.report import _page
    from ragauge.report._run import ReadableRuns

    path = Path(out_dir) / "index.html"
    page = _page.page(ReadableRuns(Path(results_dir), config), Path(out_dir))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_atomically(path, page.encode("utf-8", "replace"))  # half of a surrogate pair is no UTF-8
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path
