"""Assets in a repository of the Hugging Face hub (or of the mirror that `$HF_ENDPOINT` names)."""

import os
import re
from pathlib import Path

from ragauge.assets.store import Facts, Store, check_sha256, contents, digest
from ragauge.errors import UserError, error_line
from ragauge.io import progress
from ragauge.io.redaction import redacted

AFFECTS_RESULTS = False

TOKENIZER = [
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.jinja",
]
SETTINGS = ["*.json", "*.model", *TOKENIZER]
OTHER_RUNTIMES = ["onnx/*", "openvino/*", "coreml/*", "original/*"]  # the same weights once more
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def fetch(
    store: Store,
    repository: str,
    revision: str | None = None,
    tokenizer: str | None = None,
    sha256: str | None = None,
) -> Path:
    """Return a folder with the repository's settings, tokenizer and safetensors (or else
    `pytorch_model*.bin`). It links to files in the hub's own cache. `tokenizer` is a repository
    whose tokenizer completes the checkpoint.

    Raises:
        UserError: the hub cannot be reached or refuses, the repository has no weights, or a file
            has a wrong hash.
    """
    for name in filter(None, (repository, tokenizer)):
        if not REPOSITORY.fullmatch(name):
            raise UserError(f"hf:{name}: not of the form hf:organisation/name")
    target = store.folder("hub", repository, revision, tokenizer)

    def make(folder: Path) -> Facts:
        progress.line(f"fetching hf:{repository}")
        snapshot = _snapshot(repository, revision, [*SETTINGS, "*.safetensors"])
        if not list(snapshot.glob("*.safetensors")):
            snapshot = _snapshot(repository, revision, [*SETTINGS, "pytorch_model*.bin*"])
            if not list(snapshot.glob("*.bin")):
                raise UserError(
                    f"hf:{repository}: holds neither *.safetensors nor pytorch_model*.bin"
                )
        _link(snapshot, folder)
        if tokenizer is not None:
            _link(_snapshot(tokenizer, None, TOKENIZER), folder)
        return {"source": f"hf:{repository}", "revision": snapshot.name}

    folder = store.build(target, make)
    actual = sha256 and digest(contents(folder))
    if actual != sha256:
        raise UserError(
            f"hf:{repository}: wrong sha256 of its files together: expected {sha256}, found {actual}"
        )
    return folder


def file(repository: str, name: str, revision: str | None = None) -> Path:
    """Return one file of a repository, in the hub's own cache.

    Raises:
        UserError: it cannot be fetched.
    """
    path = _snapshot(repository, revision, [name]) / name
    if not path.is_file():
        raise UserError(f"hf:{repository}: holds no {name}")
    return path


def dataset_commit(repository: str, revision: str | None = None) -> str:
    """Return the commit of a data set's revision, by default the newest; raises the errors of the
    hub's library.
    """
    from huggingface_hub import HfApi

    return str(HfApi().dataset_info(repository, revision=revision).sha)


def _snapshot(repository: str, revision: str | None, patterns: list[str]) -> Path:
    """Return the hub's folder of the files that match; cached files are not downloaded again."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    reasons = {
        GatedRepoError: f"access is granted by its owners; ask at {endpoint}/{repository}, then run: hf auth login",
        RepositoryNotFoundError: "no such repository, or a private one",
        RevisionNotFoundError: "no such revision",
    }
    try:
        snapshot = snapshot_download(
            repository,
            revision=revision,
            endpoint=endpoint,
            allow_patterns=patterns,
            ignore_patterns=OTHER_RUNTIMES,
        )
        return Path(snapshot)
    except Exception as error:  # of the hub, of two generations of its HTTP library, of the disk
        reason = next(
            (reason for kind, reason in reasons.items() if isinstance(error, kind)),
            error_line(error),
        )
        trouble = redacted(f"cannot be fetched from {endpoint}: {reason}")
        raise UserError(
            f"hf:{repository}: {trouble}; a local copy is named path:/folder"
        ) from error


def _link(snapshot: Path, folder: Path) -> None:
    """Link to the snapshot's files from `folder`; a file that the hub names by its sha256 is
    checked first.
    """
    for path in sorted(p for p in snapshot.rglob("*") if p.is_file()):
        link = folder / path.relative_to(snapshot)
        blob = path.resolve()
        if link.exists():
            continue
        if re.fullmatch(r"[0-9a-f]{64}", blob.name):
            try:
                check_sha256(blob, blob.name, f"the hub, for {path.name}")
            except UserError:
                blob.unlink()
                raise
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
