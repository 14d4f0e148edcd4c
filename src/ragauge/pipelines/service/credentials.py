"""TLS certificates and bearer tokens, read from files, and the check that other machines need them."""

import hmac
import ipaddress
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from ragauge.errors import UserError

MIN_CHARACTERS = 16
MAX_CHARACTERS = 4096


def check_reachable(host: str, *, encrypted: bool, authenticated: bool, insecure: bool) -> None:
    """Raise UserError if other machines could reach a server without TLS and token (or client
    certificate).
    """
    if insecure or is_loopback(host) or (encrypted and authenticated):
        return
    tls = [] if encrypted else ["--tls-cert with --tls-key"]
    missing = " and ".join([*tls, *([] if authenticated else ["--token-file or --tls-client-ca"])])
    ways = f"give {missing}, or --insecure to accept anyone's queries"
    raise UserError(f"--host {host}: other machines can reach it; {ways}")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host's address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(path: Path) -> str:
    """Read a file's token; no error shows it. Raises UserError: the file cannot be read, or holds
    no token.
    """
    try:
        with path.open("rb") as file:
            token = file.read(MAX_CHARACTERS + 1).strip()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    if not MIN_CHARACTERS <= len(token) <= MAX_CHARACTERS or not all(
        0x21 <= byte <= 0x7E for byte in token
    ):
        characters = (
            f"{MIN_CHARACTERS} to {MAX_CHARACTERS} printable ASCII characters without blanks"
        )
        raise UserError(f"{path}: must hold a token of {characters}")
    return token.decode()


def carries_token(context: grpc.ServicerContext, token: str) -> bool:
    """Whether a call carries the token; compared in constant time."""
    given = str(dict(context.invocation_metadata()).get("authorization", ""))
    return hmac.compare_digest(given.encode(), f"Bearer {token}".encode())


def server_credentials(
    certificate: Path, key: Path, client_ca: Path | None = None
) -> grpc.ServerCredentials:
    """A server's certificate chain and key, and its clients' CA. Raises UserError: missing, not
    PEM, no match.
    """
    authorities = _read_authorities(client_ca) if client_ca else None
    return grpc.ssl_server_credentials(
        [_read_key_pair(certificate, key)], authorities, authorities is not None
    )


def channel_credentials(
    ca: Path | None, certificate: Path | None, key: Path | None
) -> grpc.ChannelCredentials | None:
    """The client's TLS from PEM files, None without `ca`. Raises UserError as `server_credentials`."""
    if (certificate is None) != (key is None):
        raise UserError("--tls-cert and --tls-key: give both or neither")
    if ca is None:
        if certificate:
            raise UserError(
                f"--tls-cert {certificate}: needs --tls-ca, which verifies the server that it is shown to"
            )
        return None
    pair = _read_key_pair(certificate, key) if certificate and key else (None, None)
    return grpc.ssl_channel_credentials(_read_authorities(ca), *pair)


def _read_key_pair(certificate: Path, key: Path) -> tuple[bytes, bytes]:
    """Read (private key, certificate chain), in gRPC's order."""
    with _readable(f"TLS: {certificate} and {key} cannot be used"):
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
        return key.read_bytes(), certificate.read_bytes()


def _read_authorities(path: Path) -> bytes:
    with _readable(f"{path}: cannot be read"):
        pem = path.read_bytes()
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("ascii"))
        return pem


@contextmanager
def _readable(problem: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise UserError(f"{problem}: {reason}") from error
