"""The packages that `ragauge new` writes: each adds one component and can be installed and tested
as it is.
"""

import re
from keyword import iskeyword
from pathlib import Path
from string import Template

from ragauge import registry
from ragauge._version import __version__
from ragauge.errors import UserError
from ragauge.io.files import write_file

# kind -> the kinds that the package has a module of: a ranker comes with a method that uses it
MODULES = {
    "method": ("method",),
    "dataset": ("dataset",),
    "metric": ("metric",),
    "ranker": ("ranker", "method"),
    "compressor": ("compressor",),
    "item": ("item",),
}
TEXTS = Path(__file__).with_name("skeletons")


def write(kind: str, name: str, folder: Path, *, kv: bool = False) -> list[Path]:
    """Write the package of a component, of a kind of MODULES, into a folder of its own; returns the
    files. `kv`: the method stores, moves and reads again keys and values.

    Raises:
        UserError: the name is none of a Python module or taken, or the folder holds something.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise UserError(
            f"NAME: {name!r} must be words of small letters and digits joined by '_', as in last_first"
        )
    if iskeyword(name):
        raise UserError(f"NAME: {name!r} is a word of Python; choose another")
    for each in MODULES[kind]:
        if name in registry.names(each):
            raise UserError(
                f"NAME: {each} {name!r} is in {registry.origin(each, name)} already; choose another"
            )
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise UserError(f"{folder}: exists already; name another folder with --out")
    texts = _files(kind, name, "kv_" if kv else "")
    for place, text in texts.items():
        write_file(folder / place, text.encode())
    return [folder / place for place in texts]


def package(name: str) -> str:
    """Name the package, which is the name of its folder, too."""
    return f"ragauge-{name.replace('_', '-')}"


def _files(kind: str, name: str, variant: str) -> dict[str, str]:
    """The text of each file by its place in the package's folder."""
    module = package(name).replace("-", "_")
    points = (
        f'[project.entry-points."ragauge.{k}s"]\n{name} = "{module}.{k}s.{name}"\n'
        for k in MODULES[kind]
    )

    def filled(text: str) -> str:
        return Template((TEXTS / f"{text}.txt").read_text(encoding="utf-8")).substitute(words)

    words = {
        "kind": kind,
        "name": name,
        "cls": "".join(part.capitalize() for part in name.split("_")),
        "package": package(name),
        "module": module,
        "version": __version__,
        "entry_points": "\n".join(points),
    }
    files = {
        "pyproject.toml": filled("pyproject"),
        "README.md": filled("readme"),
        f"src/{module}/__init__.py": f'"""The {kind} `{name}` for ragauge."""\n',
        f"tests/test_{name}.py": filled(f"test_{variant}{kind}"),
    }
    for each in MODULES[kind]:
        text = f"{variant}{kind}" if each == kind else f"{kind}_{each}"
        files |= {
            f"src/{module}/{each}s/__init__.py": "",
            f"src/{module}/{each}s/{name}.py": filled(text),
        }
    return files
