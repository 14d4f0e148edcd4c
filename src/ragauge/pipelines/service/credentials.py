"""TLS certificates and bearer tokens, read from files, and the check that other machines need them."""

import hmac
import ipaddress
import re
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from ragauge.errors import UserError

MIN_CHARACTERS = 16
MAX_CHARACTERS = 4096


@dataclass(frozen=True)
class ServerAccess:
    """Who may search on a server."""

    certificate: Path | None = None  # chain of the server, PEM; None: nothing is encrypted
    key: Path | None = None
    token_file: Path | None = None  # of the token that calls must carry
    insecure: bool = False  # other machines may search without TLS and token

    def check(self, host: str) -> None:
        """Raise UserError if other machines could reach a server without TLS and token."""
        if (self.certificate is None) != (self.key is None):
            raise UserError("--tls-cert and --tls-key: give both or neither")
        missing = [] if self.certificate else ["--tls-cert with --tls-key"]
        missing += [] if self.token_file else ["--token-file"]
        if missing and not self.insecure and not is_loopback(host):
            remedy = f"give {' and '.join(missing)}, or --insecure to accept anyone's queries"
            raise UserError(f"--host {host}: other machines can reach it; {remedy}")

    def token(self) -> str | None:
        return read_token(self.token_file) if self.token_file else None

    def tls(self) -> grpc.ServerCredentials | None:
        return (
            server_credentials(self.certificate, self.key)
            if self.certificate and self.key
            else None
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host's address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(path: Path) -> str:
    """Read a file's token; no error shows it.

    Raises:
        UserError: the file cannot be read, or holds no token.
    """
    with _readable(f"{path}: cannot be read"), path.open("rb") as file:
        token = file.read(MAX_CHARACTERS + 1).strip()
    if not re.fullmatch(rb"[!-~]{%d,%d}" % (MIN_CHARACTERS, MAX_CHARACTERS), token):
        raise UserError(
            f"{path}: must hold a token of {MIN_CHARACTERS} to {MAX_CHARACTERS} printable ASCII"
            " characters without blanks"
        )
    return token.decode()


def carries_token(metadata: Iterable[tuple[str, str | bytes]], token: str) -> bool:
    """Return whether a call's metadata carry the token; compared in constant time."""
    header = str(dict(metadata).get("authorization", ""))
    return hmac.compare_digest(header.encode(), f"Bearer {token}".encode())


def server_credentials(certificate: Path, key: Path) -> grpc.ServerCredentials:
    """Read a server's certificate chain and key.

    Raises:
        UserError: missing, not PEM, no match.
    """
    with _readable(f"TLS: {certificate} and {key} cannot be used"):
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
        return grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])


def channel_credentials(ca: Path) -> grpc.ChannelCredentials:
    """Read the CA certificates that verify a server.

    Raises:
        UserError: missing, not PEM.
    """
    with _readable(f"{ca}: cannot be read"):
        pem = ca.read_bytes()
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("ascii"))
        return grpc.ssl_channel_credentials(pem)


@contextmanager
def _readable(problem: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise UserError(f"{problem}: {reason}") from error
