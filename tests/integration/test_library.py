# SPDX-License-Identifier: LGPL-2.1-or-later
"""libwayback: the Python binding on real mounts, and docs/example.c against the installed header."""
import contextlib
import ctypes
import errno
import gc
import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mounts import BUILD, NOBODY, nanoseconds, run
from test_clock import HOUR, Shifted

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = BUILD / "src/libwayback.so.0"

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="only a static library was built")


@pytest.fixture(name="wayback", scope="module")
def fixture_wayback():
    """The binding, with the library of this build."""
    os.environ["WAYBACK_LIBRARY"] = str(LIBRARY)
    spec = importlib.util.spec_from_file_location("wayback", ROOT / "bindings/python/wayback.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["wayback"] = module
    spec.loader.exec_module(module)
    yield module
    del os.environ["WAYBACK_LIBRARY"]


@pytest.fixture(name="client")
def fixture_client(wayback, mount):
    with wayback.Client(mount.path) as client:
        yield client


def write(path, text):
    """Through one open file, so that the change is one version of the content."""
    with open(path, "wb", buffering=0) as stream:
        stream.write(text)


def test_versions_of_a_file_newest_first(client, mount):
    path = mount.path / "f"
    write(path, b"one")
    with open(path, "r+b", buffering=0) as stream:
        stream.write(b"three")
    versions = list(client.versions(path))
    assert [v.operation for v in versions][-1] == "create"
    assert (versions[0].operation, versions[0].size_before, versions[0].size) == ("write", 3, 5)
    assert [v.number for v in versions] == list(range(1, len(versions) + 1))
    assert [v.when for v in versions] == sorted((v.when for v in versions), reverse=True)
    assert all(v.pid == os.getpid() and v.uid == os.getuid() and "py" in v.command for v in versions)
    last = versions[0].when
    assert [v.when for v in client.versions(path, since=last)] == [last]
    assert [v.when for v in client.versions(path, until=last - 1)] == [v.when for v in versions[1:]]


def test_a_file_is_read_as_of_a_time(client, mount):
    path = mount.path / "f"
    write(path, b"one")
    one = client.info().now
    write(path, b"two and more")
    two = client.info().now
    path.unlink()
    with client.open_at(path, one) as stream:
        assert stream.read() == b"one"
    with client.open_at(path, two) as stream:
        assert stream.read() == b"two and more"
    assert Path(client.name_at(path, one)).read_bytes() == b"one"
    with pytest.raises(FileNotFoundError, match="nothing was there at that time"):
        client.open_at(path, client.info().now)
    with pytest.raises(ValueError):
        client.open_at(path, one, "wb")


def test_a_directory_is_listed_as_of_a_time(client, mount):
    folder = mount.path / "d"
    folder.mkdir()
    write(folder / "b", b"12345")
    (folder / "a").symlink_to("b")
    then = client.info().now
    shutil.rmtree(folder)
    entries = list(client.list_at(folder, then))
    assert [(e.name, e.size) for e in entries] == [("a", 1), ("b", 5)]
    assert stat.S_ISLNK(entries[0].mode) and stat.S_ISREG(entries[1].mode)
    with pytest.raises(OSError, match="symbolic link") as raised:
        client.open_at(folder / "a", then)
    assert raised.value.errno == errno.ELOOP
    with pytest.raises(NotADirectoryError):
        list(client.list_at(folder / "b", then))


def test_a_fifo_of_the_past_is_not_opened(client, mount):
    os.mkfifo(mount.path / "fifo")
    with pytest.raises(OSError, match="neither a file nor a directory") as raised:
        client.open_at(mount.path / "fifo", client.info().now)
    assert raised.value.errno == errno.ENXIO


def test_restore_and_its_reversal(client, mount, wayback):
    folder = mount.path / "d"
    folder.mkdir()
    write(folder / "kept", b"old")
    write(folder / "deleted", b"bytes")
    then = client.info().now
    write(folder / "kept", b"newer")
    (folder / "deleted").unlink()
    write(folder / "later", b"x")
    events = []
    planned = client.restore(folder, then, dry_run=True, event=events.append)
    assert planned.actions == len(events) > 0
    assert (folder / "kept").read_bytes() == b"newer"
    events.clear()
    result = client.restore(folder, then, event=events.append)
    assert result.when == then and result.failures == 0 and result.actions == len(events)
    assert {e.path: e.action for e in events if e.path != "d"} == {
        "d/kept": wayback.Action.REWRITTEN, "d/deleted": wayback.Action.RESTORED, "d/later": wayback.Action.REMOVED}
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {"kept": b"old", "deleted": b"bytes"}
    client.restore(folder, result.before)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {"kept": b"newer", "later": b"x"}
    assert client.restore(folder, result.before).actions == 0


def test_it_restores_as_vrevert_does(client, mount):
    """Two trees with the same changes: one is restored by the library, the other by the tool."""
    trees = [mount.path / "library", mount.path / "tool"]
    for tree in trees:
        tree.mkdir()
        write(tree / "f", b"old")
        os.link(tree / "f", tree / "g")
        (tree / "sub").mkdir()
        write(tree / "sub/h", b"deep")
    then = client.info().now
    for tree in trees:
        write(tree / "f", b"new")
        (tree / "sub").rename(tree / "moved")
        (tree / "g").unlink()
        write(tree / "extra", b"")
    client.restore(trees[0], then)
    mount.tool("vrevert", trees[1], "--time", f"{then // 10**9}.{then % 10**9:09}")

    def state(tree):
        return sorted((str(p.relative_to(tree)), p.stat().st_mode, p.stat().st_nlink,
                       p.read_bytes() if p.is_file() else None) for p in tree.rglob("*"))

    assert state(trees[0]) == state(trees[1])
    assert (trees[0] / "g").read_bytes() == b"old" and (trees[0] / "sub/h").read_bytes() == b"deep"


def test_undo_restores_the_state_before_the_last_change(client, mount):
    path = mount.path / "f"
    write(path, b"precious")
    path.unlink()
    result = client.undo(path)
    assert path.read_bytes() == b"precious"
    client.restore(path, result.before)
    assert not path.exists()
    with pytest.raises(FileNotFoundError, match="at any time recorded"):
        client.undo(mount.path / "never")


def test_a_restore_that_is_stopped_is_finished_by_the_next(client, mount):
    folder = mount.path / "d"
    folder.mkdir()
    for name in "abcdef":
        write(folder / name, b"old")
    then = client.info().now
    for name in "abcdef":
        write(folder / name, b"new")
    with pytest.raises(InterruptedError):
        client.restore(folder, then, event=lambda event: True)
    left = [p.read_bytes() for p in sorted(folder.iterdir())]
    assert b"old" in left and b"new" in left
    client.restore(folder, then)
    assert [p.read_bytes() for p in sorted(folder.iterdir())] == [b"old"] * 6

    def fail(event):
        raise KeyError(event.path)

    with pytest.raises(KeyError):
        client.restore(folder, client.time("~1", folder / "a"), event=fail)


def test_snapshots(client, mount):
    folder = mount.path / "d"
    folder.mkdir()
    write(folder / "f", b"then")
    when = client.create_snapshot(folder, "release", "the first one")
    write(folder / "f", b"now")
    found = list(client.snapshots())
    assert [(s.name, s.text, s.path, s.when, s.automatic) for s in found] == [
        ("release", "the first one", "d", when, False)]
    assert list(client.snapshots("release")) == found and not list(client.snapshots("other"))
    assert client.time("release", folder / "f") == when
    with client.open_at(folder / "f", "release") as stream:
        assert stream.read() == b"then"
    with pytest.raises(FileExistsError, match="choose another name"):
        client.create_snapshot(folder, "release")
    with pytest.raises(OSError, match="not a valid|name") as raised:
        client.create_snapshot(folder, "a/b")
    assert raised.value.errno == errno.EINVAL
    with pytest.raises(OSError, match="does not cover"):
        client.time("release", mount.path)
    client.remove_snapshot("release")
    assert not list(client.snapshots())
    with pytest.raises(FileNotFoundError):
        client.remove_snapshot("release")


def test_usage_counts_what_was_overwritten(client, mount):
    path = mount.path / "f"
    write(path, os.urandom(1 << 20))
    write(path, os.urandom(1 << 20))
    usage = client.usage(path)
    assert usage.bytes >= 1 << 20 and usage.disk > 0 and usage.files >= 1
    assert 0 < usage.oldest <= usage.newest and not usage.partial


def test_times(client, mount, wayback):
    path = mount.path / "f"
    write(path, b"one")
    write(path, b"two")
    newest = json.loads(mount.tool("vstat", "--json", path, merge=False).stdout)["versions"][0]
    assert client.time("~1", path) == nanoseconds(newest["began"]) - 1
    assert next(iter(client.versions(path))).when == nanoseconds(newest) > nanoseconds(newest["began"])
    with client.open_at(path, "~1") as stream:
        assert stream.read() == b"one"
    assert client.time("1700000000") == 1700000000 * 10**9
    assert abs(client.time("1h") + 3600 * 10**9 - client.info().now) < 60 * 10**9
    assert wayback.format_time(1700000000123456789, "epoch") == "1700000000.123456789"
    assert wayback.format_time(1700000000123456789, "iso")[:4] == "2023"
    assert re.fullmatch(r"2023-11-1\d \d\d:\d\d:20.123456 [+-]\d{4}", wayback.format_time(1700000000123456789))
    with pytest.raises(OSError, match="neither a time nor a snapshot") as raised:
        client.time("gibberish!")
    assert raised.value.errno == errno.EINVAL


def test_errors_name_the_path_and_the_remedy(client, mount, wayback, tmp_path):
    with pytest.raises(OSError, match="not in a Wayback mount; mount the tree") as raised:
        wayback.Client(tmp_path)
    assert raised.value.errno == errno.ENOTTY and str(tmp_path) in str(raised.value)
    with pytest.raises(OSError, match="not in the mount") as raised:
        list(client.versions(tmp_path))
    assert raised.value.errno == errno.EXDEV
    write(mount.path / "f", b"x")
    with pytest.raises(OSError, match="before the history begins") as raised:
        client.open_at(mount.path / "f", 10**18)
    assert raised.value.errno == errno.ENODATA
    with pytest.raises(OSError, match="before the history begins"):
        client.restore(mount.path / "f", 10**18)
    with pytest.raises(OSError, match="in the future"):
        client.restore(mount.path / "f", client.info().now + 3600 * 10**9)
    assert (mount.path / "f").read_bytes() == b"x"
    with pytest.raises(FileNotFoundError, match=r"a\\nb: no such file or directory, now or at any time recorded"):
        list(client.versions(mount.path / "a\nb"))
    client.close()
    with pytest.raises(ValueError):
        client.info()


def test_a_read_only_mount_is_read_and_not_restored(maker, wayback):
    mount = maker.mount("allow_other")
    write(mount.path / "f", b"old")
    mount.remount("ro")
    with wayback.Client(mount.path) as client:
        assert client.info().read_only
        now = client.info().now
        assert [v.operation for v in client.versions(mount.path / "f")][-1] == "create"
        with pytest.raises(OSError, match="read-only") as raised:
            client.restore(mount.path / "f", now)
        assert raised.value.errno == errno.EROFS


def test_structures_of_other_versions(client, mount, wayback):
    """A program built with a newer header gets zeros for what this library does not know; options must be known."""
    class Longer(ctypes.Structure):
        _fields_ = wayback._ClientInfo._fields_ + [("later", ctypes.c_uint64)]

    library, handle = wayback._library, client._handle
    info = Longer(size=ctypes.sizeof(Longer), later=99)
    pointer = ctypes.cast(ctypes.pointer(info), ctypes.POINTER(wayback._ClientInfo))
    assert library.wb_client_info(handle, pointer) == 0
    assert info.later == 0 and info.began > 0 and info.size == ctypes.sizeof(Longer)
    shorter = wayback._ClientInfo(size=wayback._ClientInfo.began.offset, now=7)
    assert library.wb_client_info(handle, ctypes.byref(shorter)) == 0
    assert shorter.at_sign == b"@" and shorter.now == 7
    assert library.wb_client_info(handle, ctypes.byref(wayback._ClientInfo(size=0))) == -errno.EINVAL

    class MoreOptions(ctypes.Structure):
        _fields_ = wayback._RestoreOptions._fields_ + [("later", ctypes.c_uint64)]

    write(mount.path / "f", b"x")
    for later, expected in ((0, 0), (1, -errno.EINVAL)):
        options = MoreOptions(size=ctypes.sizeof(MoreOptions), flags=1, later=later)
        pointer = ctypes.cast(ctypes.pointer(options), ctypes.POINTER(wayback._RestoreOptions))
        assert library.wb_undo(handle, os.fsencode(mount.path / "f"), pointer, None) == expected
    options = wayback._RestoreOptions(size=ctypes.sizeof(wayback._RestoreOptions), flags=1 << 30)
    assert library.wb_undo(handle, os.fsencode(mount.path / "f"), ctypes.byref(options), None) == -errno.EINVAL
    assert (mount.path / "f").read_bytes() == b"x"


def test_each_thread_has_its_client_and_its_error(mount, wayback):
    """Many clients at the same time, half of which fail, each in its own way."""
    for number in range(4):
        write(mount.path / f"f{number}", b"%d" % number)
    wrong = []

    def work(number):
        with wayback.Client(mount.path) as client:
            for turn in range(20):
                with client.open_at(mount.path / f"f{number}", client.info().now) as stream:
                    if stream.read() != b"%d" % number:
                        wrong.append((number, turn))
                try:
                    list(client.versions(mount.path / f"none-{number}-{turn}"))
                    wrong.append((number, turn))
                except FileNotFoundError as error:
                    if f"none-{number}-{turn}: " not in str(error):
                        wrong.append(str(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


AS_USER = """
import sys, wayback
from pathlib import Path
top = Path(sys.argv[1])
client = wayback.Client(top / "open/f")
print(client.info().point)
print([v.operation for v in client.versions(top / "open/f")][-1])
print(client.open_at(top / "open/f", int(sys.argv[2])).read())
for call in (lambda: client.open_at(top / "open/closed", int(sys.argv[2])),
             lambda: client.restore(top / "open/f", int(sys.argv[2])),
             lambda: client.create_snapshot(top / "open", "mine"),
             lambda: list(client.versions(top / "other"))):
    try:
        call()
        print("done")
    except OSError as error:
        print(type(error).__name__, error.errno)
"""


def test_a_user_who_cannot_read_the_root_of_the_mount(maker, wayback):
    """The library enters at the first directory that the user can read, and the mount checks every permission."""
    mount = maker.mount("allow_other")
    (mount.path / "open").mkdir()
    for name in ("f", "closed"):
        write(mount.path / "open" / name, b"old")
    (mount.path / "open/closed").chmod(0o600)
    mount.path.chmod(0o711)
    with wayback.Client(mount.path) as client:
        then = client.info().now
    write(mount.path / "open/f", b"new")
    shutil.copy(ROOT / "bindings/python/wayback.py", mount.programs.directory)
    done = mount.run_tool(sys.executable, "-c", AS_USER, mount.path, then, user=NOBODY, env=dict(
        mount.programs.environment(), PYTHONPATH=str(mount.programs.directory), PYTHONDONTWRITEBYTECODE="1",
        WAYBACK_LIBRARY=str(mount.programs.directory / "libwayback.so.0")))
    assert done.stdout.splitlines() == [
        str(mount.path / "open"), "create", "b'old'", f"PermissionError {errno.EACCES}",
        f"PermissionError {errno.EACCES}", f"PermissionError {errno.EPERM}", f"OSError {errno.EXDEV}"]
    assert (mount.path / "open/f").read_bytes() == b"new"


@pytest.fixture(name="installed", scope="module")
def fixture_installed(tmp_path_factory):
    """The build, installed below a directory: (the directory, the environment for pkg-config and the program)."""
    top = tmp_path_factory.mktemp("installed")
    top.chmod(0o755)
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--skip-subprojects", "--destdir", top],
                   check=True, stdout=subprocess.DEVNULL)
    module = next(top.rglob("wayback.pc"))
    environment = dict(os.environ, PKG_CONFIG_PATH=str(module.parent), PKG_CONFIG_SYSROOT_DIR=str(top),
                       LD_LIBRARY_PATH=str(module.parents[1]))
    return top, environment


def test_one_header_is_installed(installed):
    assert [path.name for path in installed[0].rglob("include/wayback/*")] == ["wayback.h"]


def test_installed_tools_find_the_library(installed):
    """Without a run of ldconfig, and below any prefix."""
    tools = sorted(path for path in installed[0].rglob("bin/v*"))
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    assert len(tools) > 12
    for tool in tools:
        done = subprocess.run([tool, "--version"], env=environment, check=False, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        assert (done.returncode, done.stdout.split()[:1]) == (0, [tool.name]), done.stdout


@pytest.mark.parametrize("compiler", [["cc", "-std=c11"], ["c++", "-x", "c++"]], ids=["c", "cxx"])
def test_the_example_runs_with_the_installed_library(compiler, installed, mount, tmp_path, wayback):
    if not shutil.which(compiler[0]) or not shutil.which("pkg-config"):
        pytest.skip("no compiler or no pkg-config")
    _, environment = installed
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "wayback"], env=environment, check=True, text=True,
                           stdout=subprocess.PIPE).stdout.split()
    assert [flag for flag in flags if "glib" in flag] == []
    example = tmp_path / "example"
    subprocess.run([*compiler, "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-o", example, ROOT / "docs/example.c",
                    "-x", "none", *flags], check=True, env=environment)
    path = mount.path / "f"
    write(path, b"first\n")
    with wayback.Client(mount.path) as client:
        then = wayback.format_time(client.info().now, "epoch")
    write(path, b"second\n")
    done = subprocess.run([example, path, then], env=environment, text=True, check=True, stdout=subprocess.PIPE).stdout
    lines = done.splitlines()
    assert lines[-2] == "first" and lines[-1].startswith("restored in ")
    assert re.search(r"  create +\d+ bytes$", lines[-3]) and path.read_bytes() == b"first\n"
    failed = subprocess.run([example, mount.path / "none", then], env=environment, text=True, check=False,
                            stderr=subprocess.PIPE)
    assert failed.returncode == 1 and "at any time recorded" in failed.stderr
    (mount.path / "later").write_bytes(b"x")
    unread = subprocess.run([example, mount.path, then], env=environment, text=True, check=False,
                            stderr=subprocess.PIPE)
    assert unread.returncode == 1 and "Is a directory" in unread.stderr and (mount.path / "later").exists()


@contextlib.contextmanager
def mounted(*arguments):
    """Another mount, at the last of the arguments of mount(8)."""
    run("mount", *arguments)
    try:
        yield
    finally:
        run("umount", arguments[-1])


@contextlib.contextmanager
def covered(kind, data, maker):
    """Another file system, another Wayback or a part of the same one is mounted at `data`, and has a file x."""
    if kind == "wayback":
        inner = maker.mount("allow_other", path=data)
        write(data / "x", b"present")
        yield
        inner.stop()
    elif kind == "tmpfs":
        with mounted("-t", "tmpfs", "tmpfs", data):
            write(data / "x", b"present")
            yield
    else:
        other = data.with_name("other")
        other.mkdir()
        write(other / "x", b"present")
        with mounted("--bind", other, data):
            yield


@pytest.mark.parametrize("kind", ["tmpfs", "wayback", "bind"])
def test_a_path_through_another_mount_is_refused(client, mount, maker, kind):
    data = mount.path / "data"
    data.mkdir()
    then = client.info().now
    with covered(kind, data, maker):
        for path in (data, data / "x", data / "none/deeper"):
            for call in (lambda: client.restore(path, then), lambda: client.undo(path),
                         lambda: client.open_at(path, then), lambda: client.name_at(path, then),
                         lambda: client.list_at(path, then), lambda: client.versions(path),
                         lambda: client.time("~1", path), lambda: client.create_snapshot(path, "s"),
                         lambda: client.usage(path)):
                with pytest.raises(OSError, match="not in the mount .*unmount it") as raised:
                    call()
                assert raised.value.errno == errno.EXDEV
        assert (data / "x").read_bytes() == b"present"
    assert data.is_dir() and not list(data.iterdir())


def test_a_restore_leaves_another_mount_alone(client, mount, wayback):
    later = mount.path / "d" / "build"
    (mount.path / "d").mkdir()
    then = client.info().now
    later.mkdir()
    events = []
    with mounted("-t", "tmpfs", "tmpfs", later):
        write(later / "x", b"present")
        for dry in (True, False):
            with pytest.raises(OSError, match="d/build: another file system is mounted here; unmount it") as raised:
                client.restore(mount.path / "d", then, dry_run=dry, event=events.append)
            assert raised.value.errno == errno.EXDEV
        assert (later / "x").read_bytes() == b"present"
    assert (wayback.Action.FAILED, errno.EXDEV) in {(e.action, e.error) for e in events}
    client.restore(mount.path / "d", then)
    assert not later.exists()


def test_a_time_that_is_about_to_come_is_the_future(client, mount):
    """It is compared with the present before the path is looked up: nothing there yet is not "did not exist"."""
    path = mount.path / "f"
    write(path, b"precious")
    refused = 0
    for step in range(200):
        when = client.info().now + 50_000 * step
        try:
            client.restore(path, when)
        except OSError as error:
            assert error.errno == errno.EINVAL and "in the future" in str(error)
            refused += 1
        assert path.read_bytes() == b"precious"
    assert refused
    for read in (client.open_at, client.name_at, client.list_at):
        with pytest.raises(OSError, match="the time is in the future") as raised:
            read(path, client.info().now + 3600 * 10**9)
        assert raised.value.errno == errno.EINVAL


def test_each_store_has_its_own_clock(client, mount, maker, wayback):
    """Another client's store that is an hour ahead changes neither the times nor the results of this one."""
    other = maker.mount("allow_other", start=False)
    other.programs = Shifted(other.programs, maker.tree())
    other.programs.set(HOUR)
    other.start()
    path = mount.path / "f"
    write(path, b"old")
    then = client.info().now
    write(path, b"new")
    with wayback.Client(other.path) as ahead:
        assert ahead.info().now > client.info().now + (HOUR - 60) * 10**9
        assert client.time("5m") < client.info().now
        assert ahead.time("5m") > client.info().now
        result = client.restore(path, then)
    assert result.before < client.info().now
    client.restore(path, result.before)
    assert path.read_bytes() == b"new"


def test_a_restore_that_is_stopped_at_its_last_step_says_so(client, mount):
    path = mount.path / "f"
    then = client.info().now
    write(path, b"later")
    with pytest.raises(InterruptedError, match="stopped on request"):
        client.restore(path, then, event=lambda event: True)
    assert not path.exists()


def test_the_first_failure_is_described_after_others(client, mount):
    """Also if the caller's function uses the library and fails there."""
    folder = mount.path / "d"
    folder.mkdir()
    then = client.info().now
    (folder / "a").mkdir()

    def interfere(_event):
        with pytest.raises(OSError, match="not in a Wayback mount"):
            type(client)("/proc")

    with mounted("-t", "tmpfs", "tmpfs", folder / "a"):
        with pytest.raises(OSError, match="d/a: another file system is mounted here"):
            client.restore(folder, then, event=interfere)


def test_a_result_has_zeros_if_nothing_began(client, mount, wayback):
    result = wayback._RestoreResult(size=ctypes.sizeof(wayback._RestoreResult), when=1, before=2, actions=3, failures=4,
                                    bytes=5)
    assert wayback._library.wb_restore(client._handle, os.fsencode(mount.path / "f"), 1, None,
                                       ctypes.byref(result)) == -errno.ENODATA
    assert [getattr(result, name) for name, _ in result._fields_] == [result.size, 0, 0, 0, 0, 0]


def test_a_size_that_no_version_has_is_refused(client, mount, wayback):
    """Half of a pointer is not copied, and a size that was not set does not reach beyond the structure."""
    library, handle = wayback._library, client._handle
    path = os.fsencode(mount.path / "f")
    write(mount.path / "f", b"x")
    fields = wayback._RestoreOptions
    ends = {fields.flags.offset + 4, fields.event.offset, fields.data.offset, ctypes.sizeof(fields)}
    for size in range(ctypes.sizeof(fields) + 1):
        options = fields(size=size, flags=1)
        assert library.wb_undo(handle, path, ctypes.byref(options), None) == (0 if size in ends else -errno.EINVAL)
    for size, expected in ((4096, 0), (4097, -errno.EINVAL), (1 << 60, -errno.EINVAL)):
        info, options = (ctypes.c_size_t * 1024)(size), (ctypes.c_size_t * 1024)(size)
        assert library.wb_client_info(handle, ctypes.cast(info, ctypes.POINTER(wayback._ClientInfo))) == expected
        assert library.wb_undo(handle, path, ctypes.cast(options, ctypes.POINTER(fields)), None) == expected
        write(mount.path / "f", b"x")


def open_files():
    return len(os.listdir("/proc/self/fd"))


def test_the_binding_leaves_nothing_open(client, mount, wayback):
    (mount.path / "d").mkdir()
    write(mount.path / "d/f", b"x")
    now = client.info().now
    gc.collect()  # of what earlier tests left in this process
    before = open_files()
    with pytest.raises(LookupError):
        client.open_at(mount.path / "d/f", now, "r", encoding="none such")
    with pytest.raises(OSError, match="directory"):
        client.open_at(mount.path / "d", now)
    assert open_files() == before
    with wayback.Client(mount.path) as other:
        begun, unused = other.list_at(mount.path / "d", now), other.list_at(mount.path / "d", now)
        assert next(begun).name == "f"
    with pytest.raises(ValueError, match="the client is closed"):
        next(begun)
    del begun, unused
    gc.collect()
    assert open_files() == before


def test_a_list_goes_on_after_an_entry_that_fails(mount, wayback, client):
    """The entry is named. Its history is deleted between the listing and the look at it."""
    folder = mount.path / "d"
    folder.mkdir()
    for name in "abc":
        write(folder / name, b"x")
    then = client.info().now
    (folder / "b").unlink()
    entries = client.list_at(folder, then)
    mount.tool("vrm", "--yes", folder / "b")
    names = []
    failures = []
    while True:
        try:
            names.append(next(entries).name)
        except StopIteration:
            break
        except OSError as error:
            failures.append(str(error))
            assert len(failures) < 4
    assert names == ["a", "c"] and len(failures) == 1 and "d/b" in failures[0]


def test_wrong_calls_fail_at_once(client, tmp_path):
    for call in (lambda: client.versions(tmp_path), lambda: client.list_at(tmp_path, client.info().now)):
        with pytest.raises(OSError, match="not in the mount"):
            call()
    client.close()
    with pytest.raises(ValueError):
        client.snapshots()
