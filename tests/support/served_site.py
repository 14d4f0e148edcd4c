"""Servers on loopback; one has a file and behaves or misbehaves as a test says."""

import hashlib
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BODY = bytes(range(256)) * 4000  # about 1 MB
SHA256 = hashlib.sha256(BODY).hexdigest()


class Quiet:
    """Part of a handler that prints no requests and replies in one call."""

    def log_message(self, format, *args):
        pass

    def reply(self, body, status=200, headers=()):
        """Send a response with its length; to a HEAD request its headers alone."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **dict(headers)}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Site(ThreadingHTTPServer):
    """One file at every address; `cut`, `failures`, `ranges` and `length` say how the server
    misbehaves.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body = BODY
        self.etag = '"one"'
        self.cut = []  # bytes after which the next replies end early
        self.failures = []  # status codes of the next replies
        self.ranges = True
        self.length = True
        self.asked = []  # the Range header of each request

    def url(self, name="file.bin"):
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(Quiet, BaseHTTPRequestHandler):
    server: Site

    def do_GET(self):
        site = self.server
        site.asked.append(self.headers.get("Range"))
        if site.failures:
            self.send_error(site.failures.pop(0))
            return
        start = self._start()
        if start >= len(site.body):
            self.send_error(416)
            return
        body = site.body[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header(
                "Content-Range", f"bytes {start}-{len(site.body) - 1}/{len(site.body)}"
            )
        if site.etag:
            self.send_header("ETag", site.etag)
        if site.length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: site.cut.pop(0)] if site.cut else body)

    def _start(self):
        wanted = self.headers.get("Range") if self.server.ranges else None
        if not wanted or self.headers.get("If-Range") != self.server.etag:
            return 0
        return int(wanted.removeprefix("bytes=").removesuffix("-"))


@contextmanager
def running(server):
    """A server that answers on a thread of its own."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
