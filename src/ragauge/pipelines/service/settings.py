"""Options of `ragauge serve`, and the form of a server's address."""

import re

from pydantic import Field

from ragauge.errors import UserError
from ragauge.io.sections import Section

ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+):(\d{1,5})")


class ServerSettings(Section):
    """Address, threads, and limits of a retrieval server."""

    port: int = Field(
        50051, ge=0, le=65535, description="port to listen on; 0: chosen by the system"
    )
    host: str = Field(
        "127.0.0.1",
        description="address to listen on; 127.0.0.1 can only be reached from this machine",
    )
    threads: int | None = Field(
        None, ge=1, le=1024, description="threads per search; default: all cores of the server"
    )
    grace: float = Field(
        30.0, ge=0, le=86400, description="seconds that running requests get after a stop"
    )
    max_queries: int = Field(256, ge=1, le=65536, description="maximum queries in one request")
    max_concurrent: int = Field(
        64, ge=1, le=4096, description="maximum requests in the queue and in search"
    )
    max_message_bytes: int = Field(
        1 << 20, ge=1024, le=1 << 30, description="maximum bytes of a request"
    )


def check_address(address: str) -> None:
    """Raise UserError unless the address is host:port."""
    match = ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match[2]) < 65536:
        raise UserError(f"retrieval address {address!r}: must be host:port, as in 127.0.0.1:50051")
