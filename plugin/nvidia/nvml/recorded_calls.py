"""Records NVML's calls below pynvml, at the handle of the loaded library.

pynvml looks each function up by name in its module's `nvmlLib` and passes it ctypes arguments
(nvidia-ml-py 13.615.71, `_nvmlGetFunctionPointer`). A library that passes everything on and notes
arguments, memory, return code and time is put in its place, so that nothing above has to know.
What was loaded before is put back in the end.
"""

from __future__ import annotations

import ctypes
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pynvml as _untyped  # type: ignore[import-untyped]  # nvidia-ml-py ships no types

from plugin.machine import HandleArgument, LibraryCall, Memory

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from plugin.machine import Argument, CallLog

__all__ = ["record_calls"]

_nvml: Any = _untyped
_Array: Any = ctypes.Array
_Pointer: Any = ctypes.POINTER(ctypes.c_byte).__mro__[1]
"""The base of all pointers, which has no public name."""

_RETURNS_TEXT = "nvmlErrorString"
"""The one function that returns no code; it describes one, so nothing is lost without it."""
_HANDLE, _UUID = "handle", "uuid"
_UUID_BYTES = 16
_POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)


@contextmanager
def record_calls() -> Generator[CallLog]:
    """Record what pynvml calls, from the loading of the library on, while the context lasts."""
    log = _Log()
    library, load = _nvml.nvmlLib, _nvml.CDLL

    def load_recorded(name: str) -> _RecordedLibrary:
        return _RecordedLibrary(load(name), log)

    _forget_functions()
    _nvml.CDLL = load_recorded
    if library is not None:
        _nvml.nvmlLib = _RecordedLibrary(library, log)
    try:
        yield log
    finally:
        recorded = _nvml.nvmlLib
        _nvml.CDLL = load
        _nvml.nvmlLib = getattr(recorded, "_library", recorded)
        _forget_functions()


def _forget_functions() -> None:
    _nvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - pynvml keeps functions there


class _Log:
    """The calls, and the numbers of handles by their address."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[LibraryCall] = []
        self._handles: dict[int, int] = {}

    def calls(self) -> Sequence[LibraryCall]:
        with self._lock:
            return tuple(self._calls)

    def begin(self, call: LibraryCall) -> int:
        """Add a call; its place."""
        with self._lock:
            self._calls.append(call)
            return len(self._calls) - 1

    def end(self, place: int, call: LibraryCall) -> None:
        with self._lock:
            self._calls[place] = call

    def number(self, address: int) -> int:
        with self._lock:
            return self._handles.setdefault(address, len(self._handles))


class _RecordedLibrary:
    """A library whose functions are recorded; every one of them returns a nvmlReturn_t."""

    def __init__(self, library: Any, log: _Log) -> None:  # noqa: ANN401 - a ctypes library
        self._library = library
        self._log = log

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a ctypes function
        log = self._log
        try:
            function = getattr(self._library, name)
        except AttributeError:
            log.begin(LibraryCall(name, None))
            raise
        if name == _RETURNS_TEXT:
            return function

        def recorded(*arguments: object) -> int:
            before = tuple(_argument(one, log) for one in arguments)
            call = LibraryCall(name, before)
            place = log.begin(call)
            began_ns = time.perf_counter_ns()
            code = int(function(*arguments))
            micros = (time.perf_counter_ns() - began_ns) // 1000
            after = tuple(
                _after(one, given, log) for one, given in zip(before, arguments, strict=True)
            )
            log.end(place, replace(call, arguments=after, code=code, micros=micros))
            return code

        return recorded


def _argument(given: Any, log: _Log) -> Argument:  # noqa: ANN401 - ctypes has no common type
    """An argument before the call."""
    if given is None or isinstance(given, int):
        return given
    if isinstance(given, ctypes.c_char_p):
        return (given.value or b"").decode("utf-8", errors="replace")
    if isinstance(given, _Pointer):
        return HandleArgument(log.number(_address(given)))
    memory = _memory_of(given)
    if memory is None:
        return int(given.value)
    octets = _octets(memory)
    places = _places(memory.__class__)
    return Memory(
        before=octets,
        after=octets,
        uuids=tuple(offset for kind, offset in places if kind == _UUID),
        is_text=isinstance(memory, _Array) and memory._type_ is ctypes.c_char,
    )


def _after(before: Argument, given: Any, log: _Log) -> Argument:  # noqa: ANN401 - as above
    """The same argument after the call."""
    if not isinstance(before, Memory):
        return before
    memory = _memory_of(given)
    raw = ctypes.string_at(ctypes.addressof(memory), ctypes.sizeof(memory))
    handles = tuple(
        (offset, log.number(address))
        for kind, offset in _places(memory.__class__)
        if kind == _HANDLE
        and (address := int.from_bytes(raw[offset : offset + _POINTER_BYTES], "little"))
    )
    return replace(before, after=_octets(memory), handles=handles)


def _memory_of(given: Any) -> Any:  # noqa: ANN401 - as above
    """What `byref` points to, an array or a structure; None for a plain number."""
    if isinstance(given, _Array | ctypes.Structure | ctypes.Union):
        return given
    return getattr(given, "_obj", None)


def _octets(memory: Any) -> bytes:  # noqa: ANN401 - as above
    """Its bytes, without the addresses."""
    octets = bytearray(ctypes.string_at(ctypes.addressof(memory), ctypes.sizeof(memory)))
    for kind, offset in _places(memory.__class__):
        if kind == _HANDLE:
            octets[offset : offset + _POINTER_BYTES] = bytes(_POINTER_BYTES)
    return bytes(octets)


@cache
def _places(kind: Any) -> tuple[tuple[str, int], ...]:  # noqa: ANN401 - as above
    """Offsets of handles and binary UUIDs in a type."""
    if issubclass(kind, _Pointer | ctypes.c_void_p):
        return ((_HANDLE, 0),)
    if issubclass(kind, _Array):
        inner, size = _places(kind._type_), ctypes.sizeof(kind._type_)
        return tuple(
            (what, offset + i * size) for i in range(kind._length_) for what, offset in inner
        )
    found: list[tuple[str, int]] = []
    for name, field, *_ in getattr(kind, "_fields_", ()):
        start = getattr(kind, name).offset
        if name.lower().endswith("uuid") and ctypes.sizeof(field) == _UUID_BYTES:
            found.append((_UUID, start))
        else:
            found += [(what, start + offset) for what, offset in _places(field)]
    return tuple(found)


def _address(handle: Any) -> int:  # noqa: ANN401 - as above
    return int(ctypes.cast(handle, ctypes.c_void_p).value or 0)
