"""One program's wall clock jumps; its monotonic clock and other programs' clocks go on."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.cluster.control.skew import set_offset, skewed

pytestmark = pytest.mark.cluster

TELL = """
import datetime, time
print(time.time(), time.time_ns() / 1e9, datetime.datetime.now(datetime.UTC).timestamp())
print(time.monotonic())
"""


@pytest.mark.parametrize("offset_s", [0.0, 3600.0, -3600.0])
def test_every_wall_clock_of_the_program_is_off_by_as_much(tmp_path, offset_s):
    """Every wall clock that it reads gives the same time; the monotonic clock is the machine's."""
    environment = skewed(tmp_path / "clock")
    set_offset(tmp_path / "clock", offset_s)
    before_s, begun_s = time.time(), time.monotonic()
    printed = subprocess.run(
        [sys.executable, "-c", TELL],
        env=dict(os.environ) | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    walls, monotonic = (list(map(float, line.split())) for line in printed.splitlines())
    assert len(walls) == 3
    for wall in walls:
        assert before_s <= wall - offset_s <= time.time()
    assert begun_s <= monotonic[0] <= time.monotonic()
