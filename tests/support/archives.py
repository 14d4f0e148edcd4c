"""Archives of files in memory."""

import io
import tarfile
import zipfile
from collections.abc import Mapping


def zipped(files: Mapping[str, bytes | str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, body in files.items():
            file.writestr(name, body)
    return packed.getvalue()


def tarred(name: str, body: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    """One member in a gzipped archive."""
    packed, info = io.BytesIO(), tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(body) if kind == tarfile.REGTYPE else 0
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        file.addfile(info, io.BytesIO(body))
    return packed.getvalue()
