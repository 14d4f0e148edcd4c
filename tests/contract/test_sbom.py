"""The bill of materials holds what the lock files pin, each package once, with the hashes of its files."""

import json
import re
import subprocess
import sys

import pytest

import ragauge


@pytest.fixture(scope="module")
def text(root, tmp_path_factory):
    out = tmp_path_factory.mktemp("sbom") / "bill.json"
    subprocess.run([sys.executable, root / ".ci" / "sbom.py", out], check=True)
    return out.read_text()


def test_the_bill_is_the_lock_file(root, text):
    bill = json.loads(text)
    assert bill["metadata"]["component"]["version"] == ragauge.__version__
    parts = {(one["name"], one["version"]): one for one in bill["components"]}
    assert len(parts) == len(bill["components"]) == len(bill["dependencies"][0]["dependsOn"])
    locked = (root / "requirements.lock").read_text()
    pins = set(re.findall(r"^([\w.-]+)==(\S+)", locked, re.M))
    torch = (root / "envs/requirements-torch.txt").read_text()
    assert set(parts) - pins == set(re.findall(r"^(torch)==(\S+)", torch, re.M))
    assert pins <= set(parts)
    hashes = sum(
        len(r["hashes"]) for one in parts.values() for r in one.get("externalReferences", ())
    )
    assert hashes == locked.count("--hash=sha256:")


def test_it_is_valid_cyclonedx(text):
    pytest.importorskip("jsonschema", reason="needs jsonschema")
    schema = pytest.importorskip("cyclonedx.schema", reason="needs cyclonedx-python-lib")
    validation = pytest.importorskip(
        "cyclonedx.validation.json", reason="needs cyclonedx-python-lib"
    )
    assert validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(text) is None
