"""A Unix socket in the place of an address: its permissions say which users of the machine may ask."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import closing
from pathlib import Path

import grpc

from ragauge.errors import UserError

LONGEST = 107  # bytes of a socket's path on Linux


def listen_on(server: grpc.Server, path: Path, mode: int) -> str:
    """Let a server listen on a socket; its address. A socket that a dead server left is taken over.

    Raises:
        UserError: a server listens there, another file is there, or the path cannot be used.
    """
    wanted = path.absolute()
    if len(os.fsencode(wanted)) > LONGEST:
        raise UserError(f"--socket {path}: longer than {LONGEST} bytes")
    _check_free(wanted)
    mask = os.umask(0o777 & ~mode)  # nobody else gets in between bind and chmod
    try:
        server.add_insecure_port(f"unix:{wanted}")
        wanted.chmod(mode)
    except (RuntimeError, OSError) as error:
        raise UserError(f"--socket {path}: cannot be listened on; is its folder there and writable?") from error
    finally:
        os.umask(mask)
    return f"unix:{wanted}"


def _check_free(path: Path) -> None:
    if not path.exists():
        return
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise UserError(f"--socket {path}: a file that is not a socket is there")
    with closing(socket.socket(socket.AF_UNIX)) as asked:
        try:
            asked.connect(str(path))
        except ConnectionRefusedError:
            return
        except OSError as error:
            raise UserError(f"--socket {path}: {error.strerror}") from error
    raise UserError(f"--socket {path}: another server listens there")
