"""A client of the read API that asks for everything each second, in a process of its own.

It reads all pages of nodes and pods, the pending pods, the machines, the capacity and the sums,
without entity tags, so that all is sent each time. It runs at the lowest priority, until a line
comes on its standard input; then it writes as one line of JSON how many rounds it made, their bytes
and their seconds. `python -m benchmarks.speed.reader PORT`.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import sys
import time
from statistics import median

from benchmarks.errors import ServerFailed

__all__ = ["EVERY_S", "read_all"]

EVERY_S = 1.0
"""Seconds from the beginning of one round to that of the next."""
PATHS = ("cluster", "machines", "capacity", "nodes", "pods", "pending")
LIMIT = 5000
_CONTINUE = re.compile(rb'"continue":"([^"]+)","remaining":[0-9]+\}$')


def read_all(connection: http.client.HTTPConnection) -> int:
    """Read everything once; returns the bytes of all bodies. Raises `ServerFailed`."""
    n_bytes = 0
    for path in PATHS:
        token: str | None = ""
        while token is not None:
            query = f"?limit={LIMIT}" + (f"&continue={token}" if token else "")
            connection.request("GET", f"/api/v1/{path}{query}")
            response = connection.getresponse()
            body = response.read()
            if response.status != http.client.OK:
                msg = f"GET /api/v1/{path}: status {response.status}, expected 200"
                raise ServerFailed(msg)
            n_bytes += len(body)
            found = _CONTINUE.search(body)
            token = None if found is None else found[1].decode()
    return n_bytes


def main(port: int) -> None:
    """Read each second until something comes on standard input."""
    os.nice(19)  # it stands for a client elsewhere, which takes no processor from the extender
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    sizes: list[int] = []
    seconds: list[float] = []
    is_ended = False
    while not is_ended:
        begin_s = time.monotonic()
        sizes.append(read_all(connection))
        seconds.append(time.monotonic() - begin_s)
        left_s = max(0.0, begin_s + EVERY_S - time.monotonic())
        is_ended = bool(select.select([sys.stdin], [], [], left_s)[0])
    connection.close()
    summary = {"rounds": len(sizes), "bytes": median(sizes), "seconds": median(seconds)}
    sys.stdout.write(json.dumps(summary) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
