"""Components of other packages: found, named with their package, refused in one line, covered by
digests.
"""

import json
import re
import sys

import pytest
import yaml

from plugin_packages import METHOD, forget, installer
from ragauge import registry
from ragauge.cli._main import main
from ragauge.config import loading, schema
from ragauge.config.plan.plan import Plan
from ragauge.errors import UserError
from ragauge.io import digest
from ragauge.methods.base import making
from ragauge.results import scoring
from ragauge.testing import write_checkpoint

METHODS = {"ragauge.methods": {"last": "acme_rag.last"}}
FILES = {"acme_rag/__init__.py": "", "acme_rag/last.py": METHOD}


@pytest.fixture
def install(tmp_path):
    with installer(tmp_path / "site") as made:
        yield made


def broken(install, group="metrics", name="worst"):
    files = {
        "acme_broken/__init__.py": "",
        f"acme_broken/{name}.py": "import there_is_no_such_library\n",
    }
    install("acme-broken", {f"ragauge.{group}": {name: f"acme_broken.{name}"}}, files)


def of_one_model(folder):
    source = str(write_checkpoint(folder / "model"))
    return {"run": "mine", "models": {"tiny": {"source": source}}}


def said(capsys, *arguments):
    code = main(arguments)
    return code, *capsys.readouterr()


# --- found ---


def test_a_method_of_another_package_is_one_of_ours_and_its_name_imports_nothing(install, capsys):
    install("acme-rag", METHODS, FILES)
    assert "last" in registry.names("method")
    assert digest.reachable("acme_rag.last")
    assert "acme_rag" not in sys.modules
    _, out, err = said(capsys, "list", "methods")
    origins = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert (origins["last"], origins["naive"], err) == ("acme-rag 1.0", "ragauge", "")
    found = json.loads(said(capsys, "list", "methods", "--json")[1])
    assert found["methods"] == registry.names("method")
    assert found["from"] == origins
    assert type(making.make("last")).__name__ == "Last"


# --- refused ---


def check_refused(capsys, name, facts):
    """A method cannot be made, and the list of methods warns of it in one line."""
    with pytest.raises(UserError, match=rf"^config.yaml: methods.mine: {facts}[^\n]*$"):
        making.make(name, "config.yaml: methods.mine")
    code, out, err = said(capsys, "list", "methods")
    assert code == 0
    assert name in out
    assert re.fullmatch(rf"ragauge list: warning: {facts}[^\n]*\n", err)


def test_a_name_that_two_packages_have_is_refused(install, capsys):
    files = {"acme_rag/__init__.py": "", "acme_rag/bm25.py": METHOD}
    install("acme-rag", {"ragauge.methods": {"bm25": "acme_rag.bm25"}}, files)
    code, _, err = said(capsys, "list", "methods")
    assert code == 2
    assert "method 'bm25' is in ragauge and in acme-rag 1.0; uninstall one of them" in err


def test_a_plugin_that_cannot_be_imported_is_one_line_where_it_is_used(install, capsys):
    broken(install, "methods")
    check_refused(capsys, "worst", "method 'worst' of acme-broken 1.0 .*'there_is_no_such_library'")


def test_a_broken_plugin_disturbs_no_other_command(install, tmp_path, capsys):
    for group in ("metrics", "datasets", "compressors", "rankers"):
        broken(install, group, "worst")
    records = tmp_path / "a.jsonl"
    base = {"key": "1", "status": "ok", "question": "q", "answers": ["a"], "gold": []}
    record = {**base, "documents": 1, "prompt_sha256": "", "prediction": "a"}
    records.write_text(json.dumps(record) + "\n")
    assert scoring.compare_files(records, records)["metrics"]["f1"]["a"] == 1.0
    assert schema.schema()
    config = {**of_one_model(tmp_path), "datasets": {}, "methods": {}}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    assert said(capsys, "validate", str(tmp_path / "c.yaml"))[0] == 0
    assert Plan(loading.load(tmp_path / "c.yaml"), cores=1).items.code("frontier")


def test_a_broken_item_has_no_rule_unless_it_is_asked_for(install, tmp_path):
    broken(install, "items", "worst_item")
    config = {**of_one_model(tmp_path), "items": ["frontier"]}
    named = Plan(loading.parse(config, "c.yaml"), cores=1).items.names()
    assert "frontier" in named
    assert "worst_item" not in named
    with pytest.raises(UserError, match=r"c\.yaml: items: .*'worst_item' of acme-broken 1\.0"):
        loading.parse({**config, "items": ["worst_item"]}, "c.yaml")


@pytest.mark.parametrize(
    ("name", "code", "facts"),
    [
        ("final", METHOD, r"method 'final' of acme-rag 1\.0: .*acme_rag\.last; .*acme_rag\.final"),
        ("last", "X = 1\n", r"method 'last': acme_rag\.last .*0 subclasses of Method"),
    ],
)
def test_a_module_has_one_component_of_its_name(name, code, facts, install):
    files = {**FILES, "acme_rag/last.py": code}
    install("acme-rag", {"ragauge.methods": {name: "acme_rag.last"}}, files)
    with pytest.raises(UserError, match=facts):
        making.make(name)


# --- part of what results are made with ---


def of_last():
    forget()
    return digest.digest("ragauge.measure.runner", "acme_rag.last")


def test_digests_cover_a_plugins_code_version_and_data(install, tmp_path):
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
    reached = digest.reachable("acme_rag.last")
    modules = ("last", "helper", "deep", "deep.inner", "other")
    expected = {"acme_rag", *(f"acme_rag.{module}" for module in modules)}
    assert {name for name in reached if name.startswith("acme_rag")} == expected
    assert "ragauge.methods.base.method" in reached
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


def test_an_existing_folder_is_refused(tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    code, _, err = said(capsys, "new", "method", "last_first", "--out", str(tmp_path / "mine"))
    assert code == 2
    assert f"{tmp_path / 'mine'}: " in err
