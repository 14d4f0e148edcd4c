"""Who may ask: a bearer token or a client's certificate, which are read from files, and addresses that want one."""

from __future__ import annotations

import hmac
import ipaddress
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from ragauge.errors import UserError
from ragauge.retrieval.service import wire

HEADER = "authorization"
LEAST_CHARACTERS = 16
MOST_CHARACTERS = 4096


def check_reachable(host: str, *, encrypted: bool, known: bool, insecure: bool) -> None:
    """Raise UserError where other machines would reach a server without credentials, unless that is wanted.

    Args:
        known: whether callers must show who they are, by a token or a certificate.
    """
    if insecure or is_loopback(host) or (encrypted and known):
        return
    lacking = ["--tls-cert with --tls-key"] * (not encrypted) + ["--token-file or --tls-client-ca"] * (not known)
    missing = " and ".join(lacking)
    raise UserError(
        f"--host {host}: other machines can reach it; give {missing}, or --insecure to accept anyone's queries"
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host's address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(path: Path) -> str:
    """The token in a file, without the white space around it; no error shows it.

    Raises:
        UserError: the file cannot be read, or holds no token.
    """
    try:
        with path.open("rb") as file:
            token = file.read(MOST_CHARACTERS + 1).strip()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    if not LEAST_CHARACTERS <= len(token) <= MOST_CHARACTERS or not all(0x21 <= byte <= 0x7E for byte in token):
        raise UserError(
            f"{path}: must hold a token of {LEAST_CHARACTERS} to {MOST_CHARACTERS} printable ASCII characters "
            "without blanks"
        )
    return token.decode()


def read_pair(certificate: Path, key: Path) -> tuple[bytes, bytes]:
    """(private key, certificate chain), as gRPC takes them.

    Raises:
        UserError: files that are missing, not PEM, or do not match.
    """
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
        return key.read_bytes(), certificate.read_bytes()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise UserError(f"TLS: {certificate} and {key} cannot be used: {_reason(error)}") from error


def read_authorities(path: Path) -> bytes:
    """The certificates of authorities in a PEM file. Raises UserError where it holds none, or cannot be read."""
    try:
        found = path.read_bytes()
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=found.decode("ascii"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {_reason(error)}") from error
    return found


def _reason(error: Exception) -> object:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or error


class Guard(grpc.ServerInterceptor):
    """Lets calls of the service through that carry the token; health can be asked without."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()
        self._refusal: Any = grpc.unary_unary_rpc_method_handler(_refuse)

    def intercept_service(self, continuation: Callable[[Any], Any], call: Any) -> Any:
        """See `grpc.ServerInterceptor`."""
        if not call.method.startswith(f"/{wire.SERVICE}/"):
            return continuation(call)
        given = [value for name, value in call.invocation_metadata if name == HEADER]
        told = given[0] if len(given) == 1 else b""
        said = told.encode() if isinstance(told, str) else told
        return continuation(call) if hmac.compare_digest(said, self._expected) else self._refusal


def _refuse(_: bytes, context: grpc.ServicerContext) -> bytes:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "the server wants its token, and this call has none or another")
    raise AssertionError("abort returned")


class _Details(NamedTuple):
    """What gRPC calls `ClientCallDetails`."""

    method: str
    timeout: float | None
    metadata: list[tuple[str, str]]
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class Bearer(grpc.UnaryUnaryClientInterceptor):
    """Adds a client's token to its calls."""

    def __init__(self, token: str) -> None:
        self._header = (HEADER, f"Bearer {token}")

    def intercept_unary_unary(self, continuation: Callable[[Any, Any], Any], call: Any, request: Any) -> Any:
        """See `grpc.UnaryUnaryClientInterceptor`."""
        metadata = [*(call.metadata or ()), self._header]
        kept = [getattr(call, name, None) for name in ("credentials", "wait_for_ready", "compression")]
        return continuation(_Details(call.method, call.timeout, metadata, *kept), request)
