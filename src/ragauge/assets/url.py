"""Assets at a URL: downloads that resume, are complete or absent, and show progress."""

import hashlib
import re
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ragauge._version import __version__
from ragauge.assets import archive
from ragauge.assets.store import Facts, Store, check_sha256
from ragauge.errors import UserError
from ragauge.io import progress
from ragauge.io.redaction import holds_secret, redacted

AFFECTS_RESULTS = False

ATTEMPTS = 5  # in a row without a byte of progress
PAUSE_S = 1.0  # before the second attempt; doubled before each further one
TIMEOUT_S = 60.0  # of silence
TRANSIENT = (408, 416, 429, 500, 502, 503, 504)  # statuses after which another attempt may succeed


def fetch(store: Store, url: str, sha256: str | None = None, members: Sequence[str] = ()) -> Path:
    """Return the file at `url`, or an archive's unpacked members.

    Raises:
        UserError: wrong hash, tar or unsafe archive.
    """
    parts = urlsplit(url)
    name = unquote(parts.path).rpartition("/")[2]
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or not re.fullmatch(r"\w[\w.+=@ -]*", name)
    ):
        raise UserError(f"{redacted(url)}: not of the form https://host/path/file")
    if name.endswith(archive.TAR_SUFFIXES):
        raise UserError(f"{redacted(url)}: tar archives are not unpacked; known: .whl, .zip")
    identity = url
    if holds_secret(url):  # a hash that is slow to guess
        identity = (
            redacted(url) + hashlib.scrypt(url.encode(), salt=b"ragauge", n=1 << 14, r=8, p=1).hex()
        )
    target = store.folder("url", name, identity, sha256, list(members))
    is_archive = name.endswith(archive.SUFFIXES)

    def make(folder: Path) -> Facts:
        progress.line(f"fetching {redacted(url)}")
        # outlives a failure, for the next attempt to resume
        part = target.parent / f".{target.name}.part" / name
        download(url, part)
        try:
            actual = check_sha256(part, sha256, redacted(url))
        except UserError as error:
            shutil.rmtree(part.parent)
            raise UserError(f"{error}; the file was removed") from None
        if is_archive:
            archive.unpack(part, folder, members)
        else:
            part.replace(folder / name)
        shutil.rmtree(part.parent)
        return {"source": redacted(url), "archive_sha256": actual}

    folder = store.build(target, make)
    return folder if is_archive else folder / name


def check_access(url: str) -> None:
    """Raise UserError if the server refuses an address; any other trouble may pass."""
    import httpx2

    with suppress(httpx2.HTTPError), httpx2.stream("GET", url, follow_redirects=True) as response:
        if response.is_error and response.status_code not in TRANSIENT:
            raise UserError(
                f"{redacted(url)}: HTTP {response.status_code} {response.reason_phrase}"
            )


def download(url: str, path: Path) -> None:
    """Download a file; what was received before stays, if an ETag or a date says that it is of the
    same file.

    Raises:
        UserError: attempts get nowhere, the server refuses, or the disk is too small.
    """
    import httpx2

    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    failures = 0
    received = path.stat().st_size
    while True:
        try:
            return _attempt(url, path)
        except httpx2.HTTPStatusError as error:
            reason = f"HTTP {error.response.status_code} {error.response.reason_phrase}"
            if error.response.status_code not in TRANSIENT:
                raise UserError(f"{redacted(url)}: {reason}") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            reason = redacted(str(error)) or type(error).__name__
        size = path.stat().st_size
        failures = failures + 1 if size <= received else 1
        received = max(received, size)
        if failures >= ATTEMPTS:
            raise UserError(
                f"{redacted(url)}: download failed after {ATTEMPTS} attempts: {reason}; "
                "run again to resume"
            )
        time.sleep(PAUSE_S * 2 ** (failures - 1))


def _attempt(url: str, path: Path) -> None:
    """Ask once for the file, or for the rest of it if the server has the same file still."""
    import httpx2

    validator = path.with_name(f"{path.name}.validator")
    headers = {"User-Agent": f"ragauge/{__version__}", "Accept-Encoding": "identity"}
    if (start := path.stat().st_size) and validator.exists() and (tag := validator.read_text()):
        headers |= {"Range": f"bytes={start}-", "If-Range": tag}
    with httpx2.stream(
        "GET", url, headers=headers, follow_redirects=True, timeout=TIMEOUT_S
    ) as response:
        if response.status_code == 416:  # nothing beyond what is here: start again
            path.write_bytes(b"")
        response.raise_for_status()
        start = start if response.status_code == 206 else 0
        tag = response.headers.get("ETag", "")
        validator.write_text(
            "" if tag.startswith("W/") else tag or response.headers.get("Last-Modified", "")
        )
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else None
        if total is not None and total - start > (free := shutil.disk_usage(path.parent).free):
            raise UserError(
                f"{redacted(url)}: {total - start:,} bytes to come, {free:,} free in {path.parent}"
            )
        bar = progress.bar(path.name, "B", total, start, unit_scale=True)
        with path.open("ab" if start else "wb") as file, bar:
            for data in response.iter_raw():
                file.write(data)
                bar.update(len(data))
