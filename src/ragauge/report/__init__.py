"""The report of a run: one self-contained HTML page, made from its records and its rendered items alone."""

from pathlib import Path
from typing import Any


def write(config: Any, results_dir: Path, out_dir: Path) -> Path:
    """Write `index.html` below `out_dir` from whatever the run left behind; the page names what is missing.

    Args:
        config: the ragauge.config.schema.Config of the run; it says what was asked for.
        results_dir: the run's folder, `results/<run>`.
        out_dir: the folder with its rendered items, usually `reports/<run>`.

    Raises:
        UserError: a file cannot be read, or the page cannot be written there.
    """
    from ragauge.io.files import write_file
    from ragauge.report import page
    from ragauge.results import Runs

    path = Path(out_dir) / "index.html"
    text = page.page(Runs(Path(results_dir), config), Path(out_dir))
    write_file(path, text.encode("utf-8", "replace"))  # half a surrogate pair is not valid UTF-8
    return path
