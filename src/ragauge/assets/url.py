"""Assets at a URL: downloads that resume, are whole or absent, and show how far they are."""

from __future__ import annotations

import base64
import errno
import hashlib
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ragauge import __version__
from ragauge.assets import archive
from ragauge.assets.store import Store, check_sha256
from ragauge.errors import UserError
from ragauge.io.progress import bar
from ragauge.io.redaction import holds_secret, redacted

ATTEMPTS = 5  # in a row without a byte of progress
PAUSE_S = 1.0  # before the second attempt; doubled before each further one
TIMEOUT_S = 60.0  # of silence
CHUNK = 1 << 18  # bytes


def fetch(store: Store, url: str, sha256: str | None = None, members: Sequence[str] = ()) -> Path:
    """The file at `url`; for an archive (`.zip`, `.tar.gz`, ...) the folder of its unpacked members.

    Raises UserError for an address that cannot be had, a wrong hash (the file is removed), and an unsafe archive.
    """
    name = file_name(url)
    target = store.folder("url", name, _identity(url), sha256, list(members))
    packed = name.endswith(archive.SUFFIXES)

    def make(folder: Path) -> dict[str, Any]:
        store.say(f"fetching {redacted(url)}")
        part = target.parent / f".{target.name}.part" / name  # outlives a failure, for the next attempt to resume
        Download(url, part).run(store.progress)
        found = _checked(part, sha256, redacted(url))
        if packed:
            archive.unpack(part, folder, members)
        else:
            part.replace(folder / name)
        shutil.rmtree(part.parent)
        return {"source": redacted(url), "archive_sha256": found}

    folder = store.build(target, make)
    return folder if packed else folder / name


def _identity(url: str) -> str:
    """What names a URL's folder. That of a secret does not let it be guessed: trying one takes a tenth of a second."""
    if not holds_secret(url):
        return url
    return redacted(url) + hashlib.scrypt(url.encode(), salt=b"ragauge", n=1 << 14, r=8, p=1).hex()


def _without_user(url: str) -> tuple[str, str]:
    """(the URL without user and password, these two as `user:password`)."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return (parts._replace(netloc=host).geturl(), unquote(user)) if at else (url, "")


def file_name(url: str) -> str:
    """The last part of the URL's path; raises UserError for a URL without a host or a file name."""
    parts = urlsplit(url)
    name = unquote(parts.path).rpartition("/")[2]
    if parts.scheme not in ("http", "https") or not parts.hostname or not re.fullmatch(r"\w[\w.+=@ -]*", name):
        raise UserError(f"{redacted(url)}: not of the form https://host/path/file")
    return name


def _checked(part: Path, sha256: str | None, url: str) -> str:
    try:
        return check_sha256(part, sha256, url)
    except UserError as error:
        shutil.rmtree(part.parent)
        raise UserError(f"{error}; the file was removed") from None


class _ConnectionLostError(Exception):
    """The connection failed or ended early; another attempt may help."""


@dataclass(frozen=True)
class Download:
    """One file on its way from `url` to `path`. What an earlier attempt or process got is kept.

    The server is asked for the rest alone if it gave a validator (ETag or Last-Modified), which also makes sure that
    the rest belongs to the same file; one that ignores the question sends everything, and we start again.
    """

    url: str
    path: Path

    def run(self, progress: bool = True) -> None:
        """Downloads until the file is whole; raises UserError when attempts get nowhere or the server refuses."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        failed, most = 0, self._bytes()
        while failed < ATTEMPTS:
            try:
                return self.attempt(progress)
            except _ConnectionLostError as error:
                reason = str(error)
            failed = failed + 1 if self._bytes() <= most else 1
            most = max(most, self._bytes())
            time.sleep(PAUSE_S * 2 ** (failed - 1))
        raise UserError(
            f"{redacted(self.url)}: download failed after {ATTEMPTS} attempts: {reason}; run again to resume"
        )

    @property
    def _validator_file(self) -> Path:
        return self.path.with_name(self.path.name + ".validator")

    def _bytes(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def attempt(self, progress: bool) -> None:
        """Ask for the file, or for the rest of it, once. Raises UserError or `_ConnectionLostError`."""
        try:
            with urllib.request.urlopen(self._request(), timeout=TIMEOUT_S) as response:
                self._receive(response, progress)
        except urllib.error.HTTPError as error:
            self._refused(error)
        except (OSError, HTTPException) as error:
            if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
                raise  # the disk's trouble, not the network's
            reason = redacted(str(getattr(error, "reason", error)))
            raise _ConnectionLostError(reason or type(error).__name__) from error

    def _request(self) -> urllib.request.Request:
        headers = {"User-Agent": f"ragauge/{__version__}"}
        if self._bytes() and self._validator_file.exists():
            headers["Range"] = f"bytes={self._bytes()}-"
            headers["If-Range"] = self._validator_file.read_text()
        address, user = _without_user(self.url)
        request = urllib.request.Request(address, headers=headers)
        if user:  # for this host, not for those that it redirects to
            request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(user.encode()).decode()}")
        return request

    def _refused(self, error: urllib.error.HTTPError) -> None:
        """Sorts an HTTP error: one that time may heal, a range the file no longer has, or a plain no."""
        if error.code == 416:
            self.path.unlink(missing_ok=True)
            self._validator_file.unlink(missing_ok=True)
        if error.code in (408, 416, 429) or error.code >= 500:
            raise _ConnectionLostError(f"HTTP {error.code} {error.reason}") from error
        raise UserError(f"{redacted(self.url)}: HTTP {error.code} {error.reason}") from error

    def _receive(self, response: HTTPResponse, progress: bool) -> None:
        start = self._bytes() if response.status == 206 else 0
        if start and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise UserError(f"{redacted(self.url)}: the server sent another range than was asked for")
        length = response.headers.get("Content-Length")
        total = start + int(length) if length and length.isdigit() else None
        self._keep_validator(response)
        self._check_room(total, start)
        shown = bar(self.path.name, "B", total, start, unit_scale=True, disable=not progress)
        with self.path.open("ab" if start else "wb") as file, shown:
            while data := response.read(CHUNK):
                file.write(data)
                shown.update(len(data))
        if total is not None and self._bytes() != total:
            raise _ConnectionLostError(f"the connection ended at {self._bytes():,} of {total:,} bytes")

    def _keep_validator(self, response: HTTPResponse) -> None:
        tag = response.headers.get("ETag", "")
        validator = tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")
        if validator:
            self._validator_file.write_text(validator)
        else:
            self._validator_file.unlink(missing_ok=True)

    def _check_room(self, total: int | None, start: int) -> None:
        free = shutil.disk_usage(self.path.parent).free
        if total is not None and total - start > free:
            raise UserError(
                f"{redacted(self.url)}: {total - start:,} bytes to come, {free:,} free in {self.path.parent}"
            )
