"""Serves a folder as hosts do: compressed, over connections that stay open."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PLAIN = (".woff2", ".png", ".gz", ".jpg", ".webp")


@cache
def transferred(path: Path) -> bytes:
    """What a host sends for the file."""
    content = path.read_bytes()
    return content if path.suffix in PLAIN else gzip.compress(content, 6)


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Send the file, or the page that says that there is none."""
        path = Path(self.translate_path(self.path))
        if path.is_dir():
            path /= "index.html"
        found = path.is_file()
        if not found:
            path = Path(self.directory) / "404.html"
        body = transferred(path)
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", self.guess_type(path))
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=600")
        if path.suffix not in PLAIN:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: the tests look at what the browser was given."""


@contextmanager
def serving(folder: Path) -> Iterator[int]:
    """Serve ``folder`` on the port that is given."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder))) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()
