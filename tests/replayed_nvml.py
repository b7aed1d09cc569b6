"""A support bundle as a machine: a libnvidia-ml and a /sys and /proc that answer as recorded.

The library is a Python object below the real `pynvml`, as `tests.fake_nvml`. A call is answered by
a recorded call of the same function with the same arguments (numbers, texts, handles, bytes that
were in memory before): several such calls in their order, the last one again and again. A function
that the recorded library lacked is lacking. A call that was never recorded is an error of the test,
and so is one that had not returned: nothing is made up.
"""

from __future__ import annotations

import ctypes
import gzip
import io
import json
import os
import tarfile
import threading
import time
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

from plugin.sysfs import Sysfs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["ReplayedNvml", "members_of", "write_kernel"]

FOLDER = "coterie-record/"
WAIT = "nvmlEventSetWait_v2"
TIMEOUT = 10
_REFERENCE: Any = type(ctypes.byref(ctypes.c_int()))


def members_of(bundle: bytes | Path) -> dict[str, str]:
    """The texts of a bundle by name."""
    octets = bundle if isinstance(bundle, bytes) else bundle.read_bytes()
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(octets))) as archive:
        return {
            member.name.removeprefix(FOLDER): found.read().decode()
            for member in archive
            if (found := archive.extractfile(member)) is not None
        }


def write_kernel(members: Mapping[str, str], root: Path) -> Sysfs:
    """The recorded /sys and /proc, below `root`."""
    kernel = Sysfs(root / "sys", root / "proc")
    recorded = json.loads(members["sys.json"])
    for folder in recorded["folders"]:
        (kernel.sys / folder).mkdir(parents=True)
    for name, text in recorded["files"].items():
        _write(kernel.sys / name, text)
    for name, target in recorded["links"].items():
        (kernel.sys / target).mkdir(parents=True, exist_ok=True)
        path = kernel.sys / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(kernel.sys / target, path.parent))
    for name, text in members.items():
        if name.startswith("proc/"):
            _write(root / name, text)
    return kernel


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


class ReplayedNvml:
    """The library of a bundle."""

    def __init__(self, members: Mapping[str, str]) -> None:
        lines = members["library-calls.jsonl"].splitlines()
        calls = [json.loads(line) for line in lines]
        self.missing = {call["call"] for call in calls if "arguments" not in call}
        self.missing.add("nvmlErrorString")  # what it returns is not recorded
        self._answers: dict[tuple[Any, ...], deque[dict[str, Any]]] = defaultdict(deque)
        for call in calls:
            if call.get("code") is not None:
                inputs = [_recorded_input(one) for one in call["arguments"]]
                self._answers[_key(call["call"], inputs)].append(call)
        self._names = {name for name, _ in self._answers}
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name in self.__dict__.get("missing", ()):
            raise AttributeError(name)
        assert name in self.__dict__["_names"], f"{name} was not recorded"

        def symbol(*arguments: Any) -> int:
            key = _key(name, [_given_input(one) for one in arguments])
            with self._lock:
                answers = self._answers[key]
                assert answers, f"{key} was not recorded"
                call = answers.popleft() if len(answers) > 1 else answers[0]
            for given, recorded in zip(arguments, call["arguments"], strict=True):
                if isinstance(recorded, dict) and "size" in recorded:
                    _fill(given, recorded)
            if name == WAIT and call["code"] == TIMEOUT:
                time.sleep(min(call["us"] / 1e6, _number(arguments[-1]) / 1000))
            return int(call["code"])

        return symbol


def _key(name: str, inputs: list[Any]) -> tuple[Any, ...]:
    """What a call is found by; of a wait the time that it may take does not count."""
    return name, tuple(inputs[:-1] if name == WAIT else inputs)


def _recorded_input(argument: Any) -> Any:
    if not isinstance(argument, dict):
        return argument
    if "handle" in argument:
        return ("handle", argument["handle"])
    return ("memory", argument["size"], argument.get("before", ""))


def _given_input(argument: Any) -> Any:
    if argument is None or isinstance(argument, int):
        return argument
    if isinstance(argument, ctypes.c_char_p):
        return (argument.value or b"").decode()
    memory = _memory(argument)
    if memory is not None:
        octets = ctypes.string_at(ctypes.addressof(memory), ctypes.sizeof(memory))
        return ("memory", len(octets), octets.rstrip(b"\0").hex())
    if hasattr(argument, "contents"):
        return ("handle", _number_of(ctypes.cast(argument, ctypes.c_void_p).value or 0))
    return _number(argument)


def _fill(given: Any, recorded: Mapping[str, Any]) -> None:
    memory = _memory(given)
    start = ctypes.addressof(memory)
    octets = bytes.fromhex(recorded.get("bytes", "")) or recorded.get("text", "").encode()
    ctypes.memmove(start, octets.ljust(recorded["size"], b"\0"), recorded["size"])
    for offset, number in recorded.get("handles", ()):
        ctypes.c_void_p.from_address(start + offset).value = _address_of(number)


def _memory(argument: Any) -> Any:
    if isinstance(argument, ctypes.Array | ctypes.Structure | ctypes.Union):
        return argument
    if isinstance(argument, _REFERENCE):
        return argument._obj  # noqa: SLF001 - ctypes has no public name for it
    return None


def _number(argument: Any) -> int:
    return int(getattr(argument, "value", argument))


def _address_of(number: int) -> int:
    return 0x10000 + 0x100 * number


def _number_of(address: int) -> int:
    return (address - 0x10000) // 0x100
