"""Write a bill of materials from the lock files as CycloneDX 1.6, which audits read.

python .ci/sbom.py [FILE.json]      (default: dist/ragauge.cdx.json)
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PINNED = re.compile(
    r"^([A-Za-z0-9][\w.-]*)(?:\[[\w,.-]+\])?==([^\s;\\]+)\s*(?:;\s*([^\\]*?))?\s*\\?$"
)
HASH = re.compile(r"^\s+--hash=sha256:([0-9a-f]{64})")


def components(lock: str) -> list[dict[str, Any]]:
    """A component for each pinned package of a lock file, with the hashes of its files."""
    found: list[dict[str, Any]] = []
    for line in lock.splitlines():
        if pin := PINNED.match(line):
            name, version, marker = pin.groups()
            purl = f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"
            found.append(
                {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
            )
            if marker:
                found[-1]["properties"] = [{"name": "ragauge:marker", "value": marker}]
        elif (digest := HASH.match(line)) and found:
            sums = found[-1].setdefault("externalReferences", [])
            address = f"https://pypi.org/project/{found[-1]['name']}/{found[-1]['version']}/"
            if not sums:
                sums.append({"type": "distribution", "url": address, "hashes": []})
            sums[0]["hashes"].append({"alg": "SHA-256", "content": digest[1]})
    return found


def bill(version: str, locks: list[str]) -> dict[str, Any]:
    """The bill of this program in a version."""
    program = {"type": "application", "bom-ref": "ragauge", "name": "ragauge", "version": version}
    packages = {one["bom-ref"]: one for lock in locks for one in components(lock)}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": program},
        "components": list(packages.values()),
        "dependencies": [{"ref": "ragauge", "dependsOn": sorted(packages)}],
    }


def main(out: Path) -> None:
    text = (ROOT / "src/ragauge/_version.py").read_text(encoding="utf-8")
    stated = re.search(r'^__version__ = "([^"]+)"', text, re.M)
    assert stated, "src/ragauge/_version.py states no version"
    locks = [
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("requirements.lock", "envs/requirements-torch.txt")
    ]
    out.parent.mkdir(parents=True, exist_ok=True)
    made = bill(stated[1], locks)
    out.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    print(f"{out}: {len(made['components'])} packages")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist" / "ragauge.cdx.json")
