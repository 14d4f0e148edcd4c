"""What the address of a retrieval server looks like."""

from __future__ import annotations

import re

from ragauge.errors import UserError

ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+):(\d{1,5})")


def check_address(address: str) -> None:
    """Raise UserError at what is neither host:port nor unix:/PATH."""
    if address.startswith("unix:/"):
        return
    found = ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found[2]) < 65536:
        raise UserError(f"retrieval address {address!r}: must be host:port, as in 127.0.0.1:50051, or unix:/PATH")
