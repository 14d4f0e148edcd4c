"""Install the locked packages into the environment of this interpreter: through uv, or else pip.

    .venv/bin/python envs/install.py

uv is faster than pip with the same files and hashes. It is itself installed by pip with the hashes
of the lock file, and told pip's own settings of where packages come from.
"""

import ast
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
TORCH = ROOT / "envs/requirements-torch.txt"  # by pip alone, whose settings choose its build
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
LOCKED = ("--require-hashes", "--no-deps", "--requirement")
UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "cert": "SSL_CERT_FILE",
}


def main() -> None:
    """Install the lock file, torch, and the package itself as an editable one."""
    if not _install_by_uv():
        print("setup: pip goes on in uv's place, which takes longer", file=sys.stderr)
        subprocess.run([*PIP, *LOCKED, LOCK], check=True)
    subprocess.run([*PIP, "--requirement", TORCH], check=True)
    subprocess.run([*PIP, "--no-deps", "--editable", ROOT], check=True)


def uv_settings(pip_settings: str) -> dict[str, str]:
    """Translate what `pip config list` prints to uv's variables of the environment.

    pip prints files before the environment, whose settings win.
    """
    settings = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # as pip searches; hashes decide
    for key, value in re.findall(r"^\S+\.([\w-]+)=('.*')$", pip_settings, re.MULTILINE):
        if key in UV_NAMES:
            text = ast.literal_eval(value)
            separator = "," if key == "find-links" else " "
            settings[UV_NAMES[key]] = separator.join(text.split())
    return settings


def _install_by_uv() -> bool:
    """Return whether uv could be had and has installed the lock file."""
    entry = re.search(r"^uv==.*(?:\n +.*)*", LOCK.read_text(), re.MULTILINE)
    assert entry is not None, f"{LOCK} has no uv"
    with tempfile.TemporaryDirectory() as folder:
        requirement = Path(folder, "uv.txt")
        requirement.write_text(entry[0])
        if subprocess.run([*PIP, *LOCKED, requirement]).returncode:
            return False
    config = [sys.executable, "-m", "pip", "config", "list"]
    printed = subprocess.run(config, capture_output=True, text=True).stdout
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet"]
    command = [*uv, "--python", sys.executable, *LOCKED, LOCK]
    return not subprocess.run(command, env={**os.environ, **uv_settings(printed)}).returncode


if __name__ == "__main__":
    main()
