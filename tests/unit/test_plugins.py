"""Components of other packages: found, named with their package, refused in one line, covered by
digests.
"""

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from plugin_packages import METHOD, Install, forget, installer
from ragauge import registry
from ragauge.cli._main import main
from ragauge.config import loading, schema
from ragauge.config.plan.plan import Plan
from ragauge.errors import UserError
from ragauge.io import digest
from ragauge.library import scaffold
from ragauge.methods.base import making
from ragauge.results import scoring
from ragauge.testing import write_checkpoint

METHODS = {"ragauge.methods": {"last": "acme_rag.last"}}
FILES = {"acme_rag/__init__.py": "", "acme_rag/last.py": METHOD}


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Install]:
    with installer(tmp_path / "site") as made:
        yield made


def broken(install: Install, group: str = "metrics", name: str = "worst") -> None:
    files = {
        "acme_broken/__init__.py": "",
        f"acme_broken/{name}.py": "import there_is_no_such_library\n",
    }
    install("acme-broken", {f"ragauge.{group}": {name: f"acme_broken.{name}"}}, files)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    return code, *capsys.readouterr()


# --- found ---


def test_a_method_of_another_package_is_one_of_ours_and_its_name_imports_nothing(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("acme-rag", METHODS, FILES)
    assert "last" in registry.names("method")
    assert digest.reachable("acme_rag.last")
    assert "acme_rag" not in sys.modules
    _, out, err = said(capsys, "list", "methods")
    assert dict(line.split(maxsplit=1) for line in out.splitlines())["last"] == "acme-rag 1.0"
    assert dict(line.split(maxsplit=1) for line in out.splitlines())["naive"] == "ragauge"
    assert err == ""
    found = json.loads(said(capsys, "list", "methods", "--json")[1])
    assert found["methods"] == registry.names("method")
    assert (found["from"]["last"], found["from"]["naive"]) == ("acme-rag 1.0", "ragauge")
    assert type(making.make("last")).__name__ == "Last"


# --- refused ---


def test_a_name_that_two_packages_have_is_refused_where_it_is_used(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"acme_rag/__init__.py": "", "acme_rag/bm25.py": METHOD}
    install("acme-rag", {"ragauge.methods": {"bm25": "acme_rag.bm25"}}, files)
    clash = "method 'bm25' is in ragauge and in acme-rag 1.0; uninstall one of them"
    with pytest.raises(UserError, match=clash):
        making.make("bm25")
    assert making.make("naive")
    code, out, err = said(capsys, "list", "methods")
    assert (code, err) == (0, f"ragauge list: warning: {clash}\n")
    assert "ragauge and acme-rag 1.0" in out


def test_a_plugin_that_cannot_be_imported_is_one_line_where_it_is_used(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    broken(install, "methods")
    reason = (
        "method 'worst' of acme-broken 1.0 cannot be imported: "
        "ModuleNotFoundError: No module named 'there_is_no_such_library'"
    )
    with pytest.raises(UserError) as refused:
        making.make("worst", "config.yaml: methods.mine")
    assert str(refused.value) == f"config.yaml: methods.mine: {reason}"
    code, out, err = said(capsys, "list", "methods")
    assert (code, err) == (0, f"ragauge list: warning: {reason}\n")
    assert "acme-broken 1.0" in out


def test_a_broken_plugin_disturbs_no_other_command(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for group in ("metrics", "datasets", "compressors", "rankers"):
        broken(install, group, "worst")
    records = tmp_path / "a.jsonl"
    base = {
        "key": "1",
        "status": "ok",
        "question": "q",
        "answers": ["a"],
        "gold": [],
        "documents": 1,
    }
    records.write_text(json.dumps({**base, "prompt_sha256": "", "prediction": "a"}) + "\n")
    assert scoring.compare_files(records, records)["metrics"]["f1"]["a"] == 1.0
    assert schema.schema()
    write_checkpoint(tmp_path / "model")
    config = {
        "run": "mine",
        "models": {"tiny": {"source": str(tmp_path / "model")}},
        "datasets": {},
        "methods": {},
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    assert said(capsys, "validate", str(tmp_path / "c.yaml"))[0] == 0
    assert Plan(loading.load(tmp_path / "c.yaml"), cores=1).items.code("frontier")


def test_a_broken_item_has_no_rule_unless_it_is_asked_for(install: Install, tmp_path: Path) -> None:
    broken(install, "items", "worst_item")
    write_checkpoint(tmp_path / "model")
    config = {
        "run": "mine",
        "models": {"tiny": {"source": str(tmp_path / "model")}},
        "items": ["frontier"],
    }
    named = Plan(loading.parse(config, "c.yaml"), cores=1).items.names()
    assert "frontier" in named
    assert "worst_item" not in named
    with pytest.raises(
        UserError, match=r"c\.yaml: items: item 'worst_item' of acme-broken 1\.0 cannot be imported"
    ):
        loading.parse({**config, "items": ["worst_item"]}, "c.yaml")


def test_a_components_file_bears_its_name(install: Install) -> None:
    install("acme-rag", {"ragauge.methods": {"final": "acme_rag.last"}}, FILES)
    with pytest.raises(
        UserError,
        match=r"method 'final' of acme-rag 1\.0: its module is acme_rag\.last; .* acme_rag\.final",
    ):
        making.make("final")


def test_a_module_without_a_component_is_told_by_name(install: Install) -> None:
    install("acme-rag", METHODS, {"acme_rag/__init__.py": "", "acme_rag/last.py": "X = 1\n"})
    with pytest.raises(
        UserError,
        match=r"method 'last': acme_rag\.last defines 0 subclasses of Method; it needs one",
    ):
        making.make("last")


# --- part of what results are made with ---


def of_last() -> str:
    forget()
    return digest.digest("ragauge.measure.runner", "acme_rag.last")


def test_digests_cover_a_plugins_code_version_and_data(install: Install, tmp_path: Path) -> None:
    files = {
        "acme_rag/__init__.py": "",
        "acme_rag/last.py": METHOD + "\nfrom . import helper\nfrom .deep.inner import X\n",
        "acme_rag/helper.py": "VALUE = 1\n",
        "acme_rag/deep/__init__.py": "from ..helper import VALUE\n",
        "acme_rag/deep/inner.py": "from .. import other\nX = 1\n",
        "acme_rag/other.py": "",
        "acme_rag/unrelated.py": "",
        "acme_rag/prompt.txt": "Answer.",
    }
    site = install("acme-rag", METHODS, files)
    assert {name for name in digest.reachable("acme_rag.last") if name.startswith("acme_rag")} == {
        *(
            "acme_rag",
            "acme_rag.last",
            "acme_rag.helper",
            "acme_rag.deep",
            "acme_rag.deep.inner",
            "acme_rag.other",
        )
    }
    assert "ragauge.methods.base.method" in digest.reachable("acme_rag.last")
    own = digest.digest("ragauge.measure.runner", "ragauge.methods.naive")
    seen = [of_last()]
    (site / "acme_rag/helper.py").write_text('"""A docstring."""\nVALUE = 1  # a comment\n')
    (site / "acme_rag/unrelated.py").write_text("VALUE = 2\n")
    assert of_last() == seen[0]
    for name, text in (
        ("helper.py", "VALUE = 2\n"),
        ("deep/inner.py", "X = 2\n"),
        ("prompt.txt", "Answer it."),
    ):
        (site / "acme_rag" / name).write_text(text)
        seen.append(of_last())
    install("acme-rag", METHODS, {}, version="1.1")
    seen.append(of_last())
    assert len(set(seen)) == 5
    assert digest.digest("ragauge.measure.runner", "ragauge.methods.naive") == own


# --- packages that `ragauge new` writes ---


def test_an_existing_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    code, _, err = said(capsys, "new", "method", "last_first", "--out", str(tmp_path / "mine"))
    assert (code, err) == (
        2,
        f"ragauge: error: {tmp_path / 'mine'}: exists already; name another folder with --out\n",
    )


def test_what_is_written_keeps_the_houses_style(root: Path, tmp_path: Path) -> None:
    rules = ",".join(
        tomllib.loads((root / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]["select"]
    )
    for kind, kv in [*((kind, False) for kind in scaffold.MODULES), ("method", True)]:
        scaffold.write(kind, f"new_{kind}", tmp_path / kind / str(kv), kv=kv)
    for verb in (["check", "--select", rules], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *verb, "--isolated", "--line-length", "120", "."]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
