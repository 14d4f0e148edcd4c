"""The report of a run: one self-contained HTML page, made from its records and its rendered items alone."""

from pathlib import Path
from typing import Any


def write(config: Any, results_dir: Path, out_dir: Path) -> Path:
    """Write `index.html` below `out_dir`, the folder with the rendered items, from whatever a run left in
    `results_dir`; the page names what `config` asked for and is missing. Raises UserError if a file cannot be read or
    the page be written."""
    from ragauge.io.files import write_file
    from ragauge.report import page
    from ragauge.results import Runs

    path = Path(out_dir) / "index.html"
    text = page.page(Runs(Path(results_dir), config), Path(out_dir))
    write_file(path, text.encode("utf-8", "replace"))  # half a surrogate pair is not valid UTF-8
    return path
