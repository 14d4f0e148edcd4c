"""Generate the modules of ragauge.proto: `python -m ragauge.retrieval.service.proto [FOLDER]` (needs grpcio-tools)."""

from __future__ import annotations

import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("ragauge.proto")
ROOT = SOURCE.parents[4]  # the folder that holds the package: modules import each other by their full names


def main(folder: Path) -> int:
    """Write the modules below `folder`, at the place that the package has in it; returns protoc's exit code."""
    from grpc_tools import protoc

    outputs = [f"--{kind}={folder}" for kind in ("python_out", "pyi_out")]
    return int(protoc.main(["protoc", f"--proto_path={ROOT}", *outputs, str(SOURCE)]))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT))
