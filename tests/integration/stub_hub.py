"""A Hugging Face Hub on loopback: HEAD and GET with ranges, redirects, refusals, and transfers that break off."""

from __future__ import annotations

import hashlib
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class HubState:
    """What the stub serves, how it misbehaves, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    """Contents by path behind the host: `/owner/repo/resolve/main/file.gguf`."""
    breaks: list[int] = field(default_factory=list)
    """Bytes after which each of the next GETs breaks off; then they run through."""
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Status and X-Error-Code by path."""
    get_status: int | None = None
    """Status of every GET, where HEAD still answers."""
    is_large: bool = True
    """Whether the etag is the SHA-256, as of files in large-file storage."""
    ignores_ranges: bool = False
    cdn: str | None = None
    """Where a HEAD redirects to; `None`: the file is served in place."""
    is_hub: bool = True
    """Without: a web server that knows nothing of repositories."""
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """Method, path and headers of every request."""

    def ranges(self) -> list[str | None]:
        """What every GET of a file asked for; huggingface_hub has questions of its own besides."""
        return [
            headers.get("range") for method, path, headers in self.requests if method == "GET" and path in self.files
        ]

    def etag(self, content: bytes) -> str:
        return (hashlib.sha256 if self.is_large else hashlib.sha1)(content).hexdigest()


class HubServer(ThreadingHTTPServer):
    """A server with the state that its handlers go by."""

    daemon_threads = True

    def __init__(self) -> None:
        self.state = HubState()
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    """Answers one connection by the state of its server."""

    protocol_version = "HTTP/1.1"

    @property
    def state(self) -> HubState:
        assert isinstance(self.server, HubServer)
        return self.server.state

    def do_HEAD(self) -> None:
        self.answer("HEAD")

    def do_GET(self) -> None:
        self.answer("GET")

    def answer(self, method: str) -> None:
        self.state.requests.append((method, self.path, {k.lower(): v for k, v in self.headers.items()}))
        status, code = self.state.refusals.get(self.path, (0, ""))
        content = self.state.files.get(self.path)
        if status == 0 and content is None:
            status, code = 404, "EntryNotFound"
        if method == "GET" and self.state.get_status is not None:
            status = self.state.get_status
        if status != 0:
            self.refuse(status, code)
        elif content is not None:
            self.send_head(content) if method == "HEAD" else self.send_content(content)

    def refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def send_head(self, content: bytes) -> None:
        self.send_response(302 if self.state.cdn is not None else 200)
        if self.state.is_hub:
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("X-Linked-Size", str(len(content)))
            self.send_header("X-Linked-Etag" if self.state.is_large else "ETag", f'"{self.state.etag(content)}"')
        if self.state.cdn is not None:
            self.send_header("Location", self.state.cdn + self.path)
        self.send_header("Content-Length", "0" if self.state.cdn is not None else str(len(content)))
        self.end_headers()

    def send_content(self, content: bytes) -> None:
        wanted = self.headers.get("Range")
        start = 0
        if wanted is not None and not self.state.ignores_ranges:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        rest = content[start:]
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        length = self.state.breaks.pop(0) if self.state.breaks else len(rest)
        self.wfile.write(rest[:length])
        self.close_connection = length < len(rest)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def stub_hub() -> Iterator[tuple[str, HubState]]:
    """Serve on a free port; gives the address and the state."""
    server = HubServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
