"""The bill of materials holds what the lock files pin, each package once, with the hashes of its files."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest


def test_the_bill_is_the_lock_file(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "bill.json"
    subprocess.run([sys.executable, root / ".ci" / "sbom.py", out], check=True)
    bill = json.loads(out.read_bytes())
    parts = {(one["name"], one["version"]): one for one in bill["components"]}
    assert len(parts) == len(bill["components"]) == len(bill["dependencies"][0]["dependsOn"])
    locked = (root / "requirements.lock").read_text()
    pins = set(re.findall(r"^([\w.-]+)==(\S+)", locked, re.M))
    assert set(parts) - pins == set(re.findall(r"^(torch)==(\S+)", (root / "requirements-torch.txt").read_text(), re.M))
    assert pins <= set(parts)
    hashes = sum(len(r["hashes"]) for one in parts.values() for r in one.get("externalReferences", ()))
    assert hashes == locked.count("--hash=sha256:")


def test_it_is_valid_cyclonedx(root: Path, tmp_path: Path) -> None:
    schema = pytest.importorskip("cyclonedx.schema", reason="needs cyclonedx-python-lib")
    validation = pytest.importorskip("cyclonedx.validation.json", reason="needs cyclonedx-python-lib")
    pytest.importorskip("jsonschema", reason="needs jsonschema")
    out = tmp_path / "bill.json"
    subprocess.run([sys.executable, root / ".ci" / "sbom.py", out], check=True)
    try:
        problem = validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(out.read_text())
    except Exception as error:
        if type(error).__name__ != "MissingOptionalDependencyException":
            raise
        pytest.skip(str(error))
    assert problem is None
