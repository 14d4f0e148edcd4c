"""The committed state of reproduction is the page that its script writes."""

import subprocess
import sys


def test_the_committed_page_and_its_directions_are_what_the_script_writes(root, tmp_path):
    script = root / "reports/reproduction.py"
    subprocess.run([sys.executable, script, tmp_path], check=True, cwd=root)
    for name in ("reproduction.md", "directions.csv"):
        assert (tmp_path / name).read_bytes() == (root / "reports" / name).read_bytes(), script
