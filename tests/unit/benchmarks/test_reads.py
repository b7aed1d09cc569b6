"""The benchmark of the read API: a reader that reads everything, and calls beside it."""

from __future__ import annotations

import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from benchmarks.errors import ServerFailed
from benchmarks.speed.reader import PATHS, read_all


class Pages(BaseHTTPRequestHandler):
    """Answers with one page, but for pods with two."""

    asked: list[str]
    status = 200

    def do_GET(self) -> None:
        """One request."""
        url = urlsplit(self.path)
        token = parse_qs(url.query).get("continue")
        self.asked.append(url.path.rpartition("/")[2] + (f" after {token[0]}" if token else ""))
        following = "x" if url.path.endswith("/pods") and not token else None
        content = {"generation": 1, "items": [], "continue": following, "remaining": 0}
        body = json.dumps(content, separators=(",", ":")).encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_words: object) -> None:  # noqa: A002 - http.server's name
        """Say nothing."""


@pytest.fixture
def pages():
    """A server of pages: its connection, what was asked, and the handler."""
    handler = type("Handler", (Pages,), {"asked": []})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    yield connection, handler
    connection.close()
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_reader_reads_every_page(pages):
    """What it does not read costs nothing, and the figures would be too good."""
    connection, handler = pages
    n_bytes = read_all(connection)
    assert set(handler.asked) == {*PATHS, "pods after x"}
    assert n_bytes > len(PATHS) * len('{"generation":1}')


def test_the_reader_fails_where_an_answer_does(pages, check_message):
    """An error is short, so quick."""
    connection, handler = pages
    handler.status = 500
    with pytest.raises(ServerFailed) as caught:
        read_all(connection)
    check_message(caught.value)
