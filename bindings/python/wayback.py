# SPDX-License-Identifier: LGPL-2.1-or-later
"""The past of a mounted Wayback tree, by libwayback.

    import wayback

    with wayback.Client("/mnt/project") as client:
        for version in client.versions("/mnt/project/report.txt"):
            print(version.when, version.operation, version.size)
        with client.open_at("/mnt/project/report.txt", client.time("yesterday")) as stream:
            old = stream.read()
        client.restore("/mnt/project/report.txt", client.time("yesterday"))

Times are nanoseconds since the epoch, as time.time_ns() returns them; wherever a time is expected, text such as
"14:03", "2h" (ago) or the name of a snapshot will do as well. Paths are str, bytes or os.PathLike. Failures raise
OSError, with the errno of the library and its description. wayback.h (libwayback(3)) has the details.

Needs libwayback.so.0, which the dynamic linker must find; WAYBACK_LIBRARY names another file.
"""
import ctypes
import os
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_char, c_char_p, c_int, c_int64, c_size_t, c_uint32,
                    c_uint64, c_void_p, sizeof)
from dataclasses import dataclass
from enum import IntEnum
from typing import Callable, Iterator, Optional, Union

__all__ = ["Action", "Client", "Entry", "Event", "Info", "Result", "Snapshot", "Usage", "Version", "format_time",
           "library_version"]

Path = Union[str, bytes, os.PathLike]
Time = Union[int, str]


class _ClientInfo(Structure):
    _fields_ = [("size", c_size_t), ("flags", c_uint32), ("at_sign", c_char), ("began", c_int64), ("now", c_int64),
                ("point", c_char_p)]


class _VersionInfo(Structure):
    _fields_ = [("when", c_int64), ("number", c_uint32), ("flags", c_uint32), ("operation", c_char_p),
                ("existed", c_int), ("exists", c_int), ("size_before", c_uint64), ("size", c_uint64),
                ("offset", c_uint64), ("length", c_uint64), ("uid", c_uint32), ("gid", c_uint32), ("pid", c_uint32),
                ("command", c_char_p), ("name", c_char_p), ("other", c_char_p), ("detail", c_char_p),
                ("since", c_int64), ("began", c_int64), ("operations", c_uint32)]


class _ListEntry(Structure):
    _fields_ = [("name", c_char_p), ("mode", c_uint32), ("uid", c_uint32), ("gid", c_uint32), ("size", c_uint64),
                ("mtime", c_int64)]


class _RestoreEvent(Structure):
    _fields_ = [("action", c_int), ("error", c_int), ("path", c_char_p), ("other", c_char_p), ("problem", c_char_p),
                ("bytes", c_uint64)]


_EventFunction = CFUNCTYPE(c_int, c_void_p, POINTER(_RestoreEvent))


class _RestoreOptions(Structure):
    _fields_ = [("size", c_size_t), ("flags", c_uint32), ("event", _EventFunction), ("data", c_void_p)]


class _RestoreResult(Structure):
    _fields_ = [("size", c_size_t), ("when", c_int64), ("before", c_int64), ("actions", c_uint64),
                ("failures", c_uint64), ("bytes", c_uint64)]


class _SnapshotInfo(Structure):
    _fields_ = [("name", c_char_p), ("text", c_char_p), ("path", c_char_p), ("when", c_int64), ("uid", c_uint32),
                ("flags", c_uint32)]


class _UsageInfo(Structure):
    _fields_ = [("size", c_size_t), ("flags", c_uint32), ("files", c_uint64), ("bytes", c_uint64), ("disk", c_uint64),
                ("oldest", c_int64), ("newest", c_int64)]


_PROTOTYPES = {
    "wb_open": (c_int, c_char_p, POINTER(c_void_p)),
    "wb_close": (c_void_p, c_void_p),
    "wb_error_text": (c_char_p,),
    "wb_library_version": (c_char_p,),
    "wb_client_info": (c_int, c_void_p, POINTER(_ClientInfo)),
    "wb_time_resolve": (c_int, c_void_p, c_char_p, c_char_p, POINTER(c_int64)),
    "wb_time_format": (c_int, c_int64, c_int, c_char_p, c_size_t),
    "wb_version_begin": (c_int, c_void_p, c_char_p, c_int64, c_int64, POINTER(c_void_p)),
    "wb_version_next": (c_int, c_void_p, POINTER(POINTER(_VersionInfo))),
    "wb_version_end": (c_void_p, c_void_p),
    "wb_name_at": (c_int, c_void_p, c_char_p, c_int64, POINTER(c_void_p)),
    "wb_open_at": (c_int, c_void_p, c_char_p, c_int64),
    "wb_list_at": (c_int, c_void_p, c_char_p, c_int64, POINTER(c_void_p)),
    "wb_list_next": (c_int, c_void_p, POINTER(POINTER(_ListEntry))),
    "wb_list_end": (c_void_p, c_void_p),
    "wb_restore": (c_int, c_void_p, c_char_p, c_int64, POINTER(_RestoreOptions), POINTER(_RestoreResult)),
    "wb_undo": (c_int, c_void_p, c_char_p, POINTER(_RestoreOptions), POINTER(_RestoreResult)),
    "wb_snapshots_begin": (c_int, c_void_p, c_char_p, POINTER(c_void_p)),
    "wb_snapshots_next": (c_int, c_void_p, POINTER(POINTER(_SnapshotInfo))),
    "wb_snapshots_end": (c_void_p, c_void_p),
    "wb_snapshots_create": (c_int, c_void_p, c_char_p, c_char_p, c_char_p, POINTER(c_int64)),
    "wb_snapshots_remove": (c_int, c_void_p, c_char_p),
    "wb_usage_get": (c_int, c_void_p, c_char_p, POINTER(_UsageInfo)),
}


def _load():
    library = ctypes.CDLL(os.environ.get("WAYBACK_LIBRARY", "libwayback.so.0"))
    for name, (result, *arguments) in _PROTOTYPES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


_library = _load()
_free = ctypes.CDLL(None).free
_free.restype, _free.argtypes = None, [c_void_p]


class Action(IntEnum):
    """What a step of a restore did (enum wb_restore_action)."""
    RESTORED = 1
    RENAMED = 2
    LINKED = 3
    COPIED = 4
    REWRITTEN = 5
    ATTRIBUTES = 6
    UNLINKED = 7
    REMOVED = 8
    SHARED = 9
    FAILED = 10


@dataclass(frozen=True)
class Info:
    """A mount: struct wb_client_info."""
    point: str
    began: int
    now: int
    at_sign: str
    read_only: bool


@dataclass(frozen=True)
class Version:
    """A version of a path, and what there was after it: struct wb_version_info."""
    when: int
    number: int
    operation: str
    existed: bool
    exists: bool
    size_before: int
    size: int
    offset: int
    length: int
    uid: int
    gid: int
    pid: int
    command: str
    name: str
    other: str
    detail: str
    since: int
    began: int
    operations: int
    gap: bool
    gap_open: bool
    thinned: bool
    withheld: bool


@dataclass(frozen=True)
class Entry:
    """An entry of a directory at a time: struct wb_list_entry."""
    name: str
    mode: int
    uid: int
    gid: int
    size: int
    mtime: int


@dataclass(frozen=True)
class Event:
    """One step of a restore: struct wb_restore_event."""
    action: Action
    path: str
    other: Optional[str]
    bytes: int
    error: int
    problem: Optional[str]


@dataclass(frozen=True)
class Result:
    """What a restore did: struct wb_restore_result. client.restore(path, result.before) reverses it."""
    when: int
    before: int
    actions: int
    failures: int
    bytes: int


@dataclass(frozen=True)
class Snapshot:
    """A named time of a directory: struct wb_snapshot_info."""
    name: str
    text: str
    path: str
    when: int
    uid: int
    automatic: bool


@dataclass(frozen=True)
class Usage:
    """The space of history: struct wb_usage_info."""
    files: int
    bytes: int
    disk: int
    oldest: int
    newest: int
    partial: bool


def _text(data: Optional[bytes]) -> Optional[str]:
    return None if data is None else os.fsdecode(data)


def _check(result: int) -> int:
    if result < 0:
        raise OSError(-result, _text(_library.wb_error_text()))
    return result


def _version(found) -> Version:
    return Version(found.when, found.number, _text(found.operation), bool(found.existed), bool(found.exists),
                   found.size_before, found.size, found.offset, found.length, found.uid, found.gid, found.pid,
                   _text(found.command), _text(found.name), _text(found.other), _text(found.detail), found.since,
                   found.began, found.operations,
                   *(bool(found.flags & flag) for flag in (1, 2, 4, 8)))


def _entry(found) -> Entry:
    return Entry(_text(found.name), found.mode, found.uid, found.gid, found.size, found.mtime)


def _snapshot(found) -> Snapshot:
    return Snapshot(_text(found.name), _text(found.text), _text(found.path), found.when, found.uid,
                    bool(found.flags & 1))


def library_version() -> str:
    """The version of libwayback that was loaded."""
    return _text(_library.wb_library_version())


def format_time(when: int, style: str = "local") -> str:
    """`when` as text; `style` is "local", "iso" or "epoch" (as in NAME@TIME)."""
    buffer = ctypes.create_string_buffer(64)
    _check(_library.wb_time_format(when, ("local", "iso", "epoch").index(style), buffer, sizeof(buffer)))
    return buffer.value.decode()


class _Items:
    """An iteration of the library. It ends by itself, also if it is given up or outlives its client."""

    def __init__(self, client: "Client", kind: str, item, convert, iterator: c_void_p):
        self._client, self._iterator, self._convert = client, iterator, convert
        self._following, self._end = getattr(_library, f"wb_{kind}_next"), getattr(_library, f"wb_{kind}_end")
        self._found = POINTER(item)()

    def __iter__(self):
        return self

    def __next__(self):
        if not self._iterator:
            raise StopIteration
        self._client._open()
        if _check(self._following(self._iterator, byref(self._found))) == 0:
            return self._convert(self._found.contents)
        self.close()
        raise StopIteration

    def close(self) -> None:
        """Ends the iteration."""
        if self._iterator:
            self._end(self._iterator)
            self._iterator = None

    def __del__(self):
        self.close()


class Client:
    """An open Wayback mount: the one that contains `path`. One thread at a time may use it."""

    def __init__(self, path: Path):
        handle = c_void_p()
        _check(_library.wb_open(os.fsencode(path), byref(handle)))
        self._handle = handle

    def close(self) -> None:
        """Closes the client; it cannot be used any more."""
        if self._handle:
            _library.wb_close(self._handle)
            self._handle = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None):
            self.close()

    def _open(self) -> c_void_p:
        if not self._handle:
            raise ValueError("the client is closed")
        return self._handle

    def _when(self, path: Path, when: Time) -> int:
        return self.time(when, path) if isinstance(when, str) else when

    def info(self) -> Info:
        """The mount itself."""
        info = _ClientInfo(size=sizeof(_ClientInfo))
        _check(_library.wb_client_info(self._open(), byref(info)))
        return Info(_text(info.point), info.began, info.now, _text(info.at_sign), bool(info.flags & 1))

    def time(self, text: str, path: Optional[Path] = None) -> int:
        """A time as users write it, for `path` (by default the mount): "yesterday", "2h", a snapshot's name, "~1"."""
        when = c_int64()
        path = self.info().point if path is None else path
        _check(_library.wb_time_resolve(self._open(), os.fsencode(path), os.fsencode(text), byref(when)))
        return when.value

    def versions(self, path: Path, since: int = 0, until: int = 0) -> Iterator[Version]:
        """The versions of `path`, newest first, with changes from `since` to `until` (0: no limit)."""
        iterator = c_void_p()
        _check(_library.wb_version_begin(self._open(), os.fsencode(path), since, until, byref(iterator)))
        return _Items(self, "version", _VersionInfo, _version, iterator)

    def name_at(self, path: Path, when: Time) -> str:
        """The path under which every system call finds what `path` was at `when`."""
        found = c_void_p()
        _check(_library.wb_name_at(self._open(), os.fsencode(path), self._when(path, when), byref(found)))
        try:
            return _text(ctypes.string_at(found))
        finally:
            _free(found)

    def open_at(self, path: Path, when: Time, mode: str = "rb", **arguments):
        """Opens the file `path` as it was at `when`, for reading: a file object, as open() returns it."""
        if set(mode) - set("rbt"):
            raise ValueError("the past can only be read")
        instant = self._when(path, when)
        # With an opener, open() closes the descriptor whenever it fails; os.fdopen() only in some cases.
        return open(path, mode, opener=lambda *_: _check(_library.wb_open_at(self._open(), os.fsencode(path), instant)),
                    **arguments)

    def list_at(self, path: Path, when: Time) -> Iterator[Entry]:
        """The entries of the directory `path` as it was at `when`, in byte order of names. After an entry that cannot be
        described (OSError), the iteration may go on."""
        iterator = c_void_p()
        _check(_library.wb_list_at(self._open(), os.fsencode(path), self._when(path, when), byref(iterator)))
        return _Items(self, "list", _ListEntry, _entry, iterator)

    @staticmethod
    def _options(dry_run, all_links, sync, event):
        raised = []

        def call(_, found):
            found = found.contents
            try:
                stop = event(Event(Action(found.action), _text(found.path), _text(found.other), found.bytes,
                                   -found.error, _text(found.problem)))
            except BaseException as error:  # pylint: disable=broad-except
                raised.append(error)
                stop = True
            return 1 if stop else 0

        options = _RestoreOptions(size=sizeof(_RestoreOptions),
                                  flags=(1 if dry_run else 0) | (2 if all_links else 0) | (0 if sync else 4))
        if event:
            options.event = _EventFunction(call)
        return options, raised

    @staticmethod
    def _result(code, result, raised):
        if raised:
            raise raised[0]
        _check(code)
        return Result(result.when, result.before, result.actions, result.failures, result.bytes)

    def restore(self, path: Path, when: Time, *, dry_run: bool = False, all_links: bool = False, sync: bool = True,
                event: Optional[Callable[[Event], Optional[bool]]] = None) -> Result:
        """Makes `path` what it was at `when`. `event` is called after each step; if it returns True, the restore stops
        with InterruptedError."""
        options, raised = self._options(dry_run, all_links, sync, event)
        result = _RestoreResult(size=sizeof(_RestoreResult))
        code = _library.wb_restore(self._open(), os.fsencode(path), self._when(path, when), byref(options),
                                   byref(result))
        return self._result(code, result, raised)

    def undo(self, path: Path, *, dry_run: bool = False, all_links: bool = False, sync: bool = True,
             event: Optional[Callable[[Event], Optional[bool]]] = None) -> Result:
        """Undoes the most recent version of `path`."""
        options, raised = self._options(dry_run, all_links, sync, event)
        result = _RestoreResult(size=sizeof(_RestoreResult))
        code = _library.wb_undo(self._open(), os.fsencode(path), byref(options), byref(result))
        return self._result(code, result, raised)

    def snapshots(self, name: Optional[str] = None) -> Iterator[Snapshot]:
        """The snapshots that the caller can see, oldest first; all of them, or those called `name`."""
        iterator = c_void_p()
        _check(_library.wb_snapshots_begin(self._open(), None if name is None else os.fsencode(name), byref(iterator)))
        return _Items(self, "snapshots", _SnapshotInfo, _snapshot, iterator)

    def create_snapshot(self, path: Path, name: str, text: str = "") -> int:
        """Creates a snapshot of the directory `path` and returns its time."""
        when = c_int64()
        _check(_library.wb_snapshots_create(self._open(), os.fsencode(path), os.fsencode(name), os.fsencode(text),
                                            byref(when)))
        return when.value

    def remove_snapshot(self, name: str) -> None:
        """Removes the snapshot `name`."""
        _check(_library.wb_snapshots_remove(self._open(), os.fsencode(name)))

    def usage(self, path: Path) -> Usage:
        """The space of the history of `path` and everything below it."""
        info = _UsageInfo(size=sizeof(_UsageInfo))
        _check(_library.wb_usage_get(self._open(), os.fsencode(path), byref(info)))
        return Usage(info.files, info.bytes, info.disk, info.oldest, info.newest, bool(info.flags & 1))
