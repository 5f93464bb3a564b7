# SPDX-License-Identifier: LGPL-2.1-or-later
"""Copies made with fewer rights, and of stores whose daemon was killed."""
import errno
import os
import shutil
import stat
import subprocess

import pytest
from copies import Copy
from mounts import NOBODY
from preload import preloaded
from treestate import differences, state_of


def test_set_id_programs_do_not_run_as_the_receiver(maker):
    """A set-user-ID program loses the bit if its owner cannot be set, and if it would run as the ordinary user who
    receives."""
    copy = Copy(maker, maker.mount("allow_other"))
    for name, owner in (("program", (0, 0)), ("own", NOBODY)):
        path = copy.source.path / name
        path.write_bytes(b"#!/bin/sh\n")
        os.chown(path, *owner)
        path.chmod(0o6755)
    stream = copy.tool("vsend", copy.source.path).stdout
    copy.path.chmod(0o755)
    copy.received_by(*NOBODY)
    result = copy.receive(stream)
    assert result.returncode == 0 and b"could not be set" in result.stderr, result.stderr
    for name in ("program", "own"):
        st = os.stat(copy.path / name)
        assert st.st_uid == NOBODY[0] and stat.S_IMODE(st.st_mode) == 0o755, (name, oct(st.st_mode))


WRITES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
static FILE *output;
/* Once it is confined to the copy, it can open nothing else. */
__attribute__((constructor)) static void begin(void)
{
    output = fopen(getenv("WRITES_FILE"), "a");
}
ssize_t pwritev64(int fd, const struct iovec *iov, int count, off64_t offset)
{
    ssize_t (*real)(int, const struct iovec *, int, off64_t) = dlsym(RTLD_NEXT, "pwritev64");
    struct stat st;
    if (count == 1 && iov->iov_len == 6 && memcmp(iov->iov_base, "secret", 6) == 0 && fstat(fd, &st) == 0) {
        fprintf(output, "%o\n", st.st_mode & 07777);
        fflush(output);
    }
    return real(fd, iov, count, offset);
}
"""


def test_content_arrives_when_nobody_else_may_read_it(maker, tmp_path):
    """A file that was open to all and is closed now is closed before it gets its present content."""
    copy = Copy(maker, maker.mount("allow_other"))
    path = copy.source.path / "file"
    path.write_bytes(b"public")
    path.chmod(0o4755)
    copy.follow()
    path.chmod(0o640)
    path.write_bytes(b"secret")
    stream = copy.stream()
    with preloaded(tmp_path, WRITES, WRITES_FILE=tmp_path / "writes"):
        assert copy.receive(stream).returncode == 0
    assert (copy.path / "file").read_bytes() == b"secret" and stat.S_IMODE((copy.path / "file").stat().st_mode) == 0o640
    modes = [int(line, 8) for line in (tmp_path / "writes").read_text().split()]
    assert modes and not [mode for mode in modes if mode & ~0o640], modes


def peak(copy, stream):
    """Its peak memory, in KiB. It is read after the stream, while the receiver waits for another."""
    with subprocess.Popen([copy.source.programs.directory / "vreceive", "--json", copy.path], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, env=copy.source.programs.environment()) as receiver:
        receiver.stdin.write(stream)
        receiver.stdin.flush()
        assert receiver.stdout.readline()
        with open(f"/proc/{receiver.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def test_memory_does_not_grow_with_the_tree(maker):
    """Nor on an update, when files that no longer exist have to be found among many."""
    source = maker.tree()
    for name in range(1500):
        (source / f"{name:04}").touch()
    copy = Copy(maker, maker.mount("allow_other", source=source))
    small = Copy(maker, maker.mount("allow_other"))
    (small.source.path / "file").touch()
    peaks = [peak(small, small.stream()), peak(copy, copy.stream())]
    for name in range(0, 1500, 3):
        (copy.source.path / f"{name:04}").unlink()
    copy.note_state()
    peaks.append(peak(copy, copy.stream()))
    # The sanitizers keep freed memory.
    assert copy.source.programs.sanitized or max(peaks) - peaks[0] < 512, peaks
    copy.check()


def test_an_attribute_that_is_too_large_here(maker):
    """xfs has larger ones than ext4: an attribute that cannot be set is reported, and the copy is usable."""
    source = maker.tree("xfs")
    copy = Copy(maker, maker.mount("allow_other", source=source))
    copy.path = maker.tree("ext4")
    path = copy.source.path / "file"
    path.write_bytes(b"one")
    copy.note_state()
    copy.follow()
    os.setxattr(path, "user.large", b"x" * 20000)
    path.write_bytes(b"two")
    result = copy.receive(copy.stream())
    assert result.returncode == 0 and b"could not be set" in result.stderr, result.stderr
    mount = copy.mounted()
    assert (mount.path / "file").read_bytes() == b"two"


def test_invalid_input_leaves_nothing(maker):
    """Neither a directory that would have been made for it nor anything in an existing one; and a stream is accepted
    then."""
    copy = Copy(maker, maker.mount("allow_other"))
    (copy.source.path / "file").write_bytes(b"one")
    copy.note_state()
    whole = copy.stream()
    copy.follow()
    since = copy.status()
    (copy.source.path / "file").write_bytes(b"two")
    later = copy.tool("vsend", "--since", since, copy.source.path).stdout
    empty = maker.tree()
    new = empty.parent / f"{empty.name}-new"
    for stream, words in ((b"", b"standard input was empty"), (b"no stream, but more than a head of one" * 9, b"altered"), (whole[:50], b"cut off"),
                          (later, b"nothing here yet")):
        for path in (new, empty):
            result = copy.tool("vreceive", path, input=stream)
            assert result.returncode == 1 and words in result.stderr, result.stderr
        assert not new.exists() and not set(os.listdir(empty)) - {"lost+found"}
    for path in (new, empty):
        assert copy.tool("vreceive", path, input=whole).returncode == 0
        assert (path / "file").read_bytes() == b"one"
    shutil.rmtree(new)


def test_a_deleted_file_that_cannot_be_read_is_not_left_unchanged(maker):
    """The copy has the file, and would show its earlier state as its last. A file that the copy never had is
    reported."""
    copy = Copy(maker, maker.mount("allow_other"))
    path = copy.source.path / "file"
    path.write_bytes(b"one")
    copy.note_state()
    copy.follow()
    path.write_bytes(b"two")
    copy.note_state()
    path.unlink()
    copy.note_state()
    (body,) = copy.source.source.glob(".wayback/objects/*/*.data")
    body.rename(body.with_suffix(".away"))
    result = copy.tool("vsend", "--since", copy.status(), copy.source.path)
    assert result.returncode == 1 and b"'file'" in result.stderr, result.stderr
    copy.refuses(result.stdout, "")
    other = Copy(maker, copy.source)
    result = copy.tool("vsend", copy.source.path)
    assert result.returncode == 0 and b"1 deleted files are no longer in the store" in result.stderr
    assert other.receive(result.stdout).returncode == 0
    # The returned object counts as changed past the mount: only content that is sent again is known.
    body.with_suffix(".away").rename(body)
    copy.source.expect("changed while Wayback did not record")
    result = copy.tool("vsend", "--since", copy.status(), copy.source.path)
    assert result.returncode == 1 and b"create the copy again" in result.stderr


PRELOAD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>
#include <stdlib.h>
int renameat2(int a, const char *b, int c, const char *d, unsigned flags)
{
    int (*real)(int, const char *, int, const char *, unsigned) = dlsym(RTLD_NEXT, "renameat2");
    if (access(getenv("DIE_FILE"), F_OK) == 0)
        kill(getpid(), SIGKILL);
    return real(a, b, c, d, flags);
}
"""


@pytest.fixture(name="killed_rename")
def fixture_killed_rename(maker, tmp_path):
    """A copy, and how to rename something in its source while the daemon is killed: only the record of that is
    written."""
    die = tmp_path / "die"
    with preloaded(tmp_path, PRELOAD, DIE_FILE=die):
        copy = Copy(maker, maker.mount("allow_other"))
    mount = copy.source

    def rename(old, new):
        die.touch()
        mount.expect(".")
        with pytest.raises(OSError):
            os.rename(mount.path / old, mount.path / new)
        die.unlink()
        mount.kill(check=False)

    return copy, rename


def test_a_killed_change_is_not_sent_before_recovery(killed_rename):
    """Its record must not get into a copy."""
    copy, rename = killed_rename
    mount = copy.source
    (mount.path / "file").write_bytes(b"content")
    copy.note_state()
    rename("file", "other")
    sent = copy.tool("vsend", mount.source)
    if sent.returncode == 0:
        assert copy.receive(sent.stdout).returncode == 0
    mount.start()
    if sent.returncode != 0:
        copy.follow()
    assert differences(copy.expected[0][1], state_of(mount.at(copy.expected[0][0]))) == []
    copy.check()


def test_a_directory_whose_rename_was_killed(killed_rename):
    copy, rename = killed_rename
    mount = copy.source
    (mount.path / "a/b").mkdir(parents=True)
    (mount.path / "c").mkdir()
    (mount.path / "a/b/file").write_bytes(b"content")
    (mount.path / "gone").write_bytes(b"what is replaced")
    (mount.path / "new").write_bytes(b"what replaces")
    copy.note_state()
    (mount.path / "a/b/file").write_bytes(b"other content")
    copy.note_state()
    rename("a/b", "c/b")
    sent = copy.tool("vsend", mount.source)
    assert copy.receive(sent.stdout).returncode == 0
    mount.start()
    for when, state in copy.expected:
        assert differences(state, state_of(mount.at(when))) == []
    copy.check()
    (mount.path / "a/b/file").unlink()
    copy.note_state()
    os.rename(mount.path / "a/b", mount.path / "c/b2")
    copy.note_state()
    copy.follow()
    copy.check()


def test_a_directory_that_was_removed_behind_the_mount(maker):
    """No record shows that its entries left it; an entry that was moved is in its new place in the copy, and only
    there."""
    copy = Copy(maker, maker.mount("allow_other"))
    mount = copy.source
    for path in ("gone/below/deep/moved", "other"):
        (mount.path / path).mkdir(parents=True)
    for path in ("gone/file", "gone/below/file", "gone/below/lost", "gone/below/deep/moved/file", "other/file"):
        (mount.path / path).write_text(path)
    os.link(mount.path / "gone/file", mount.path / "other/linked")
    copy.note_state()
    copy.follow()
    mount.stop()
    mount.expect("changed while Wayback did not record")
    tree = mount.source
    for old, new in (("file", "other/1"), ("below/file", "other/2"), ("below/deep/moved", "other/moved")):
        os.rename(tree / "gone" / old, tree / new)
    shutil.rmtree(tree / "gone")
    mount.start()
    # For the directories that it left and came to, records show something else.
    for path in ("new", "other/new"):
        (mount.path / path).write_text(path)
    # Its earlier state is not known any more, here or there.
    for when, _state in copy.expected:
        with pytest.raises(OSError) as caught:
            state_of(mount.at(when))
        assert caught.value.errno == errno.EIO
    copy.expected = []
    copy.note_state()
    copy.follow()
    copy.check()
    assert not [path for path in copy.path.glob(".wayback/objects/*/*.dir") if os.listdir(path)]
    (mount.path / "other/moved/file").write_text("changed")
    os.rename(mount.path / "other/moved", mount.path / "moved")
    copy.note_state()
    copy.follow()
    copy.check()


def test_a_file_without_any_record(maker):
    """It existed before the history, and was removed behind the mount: nobody can ask for it, so the copy does not keep
    it."""
    source = maker.tree()
    for path in ("below/deep", "kept"):
        (source / path).mkdir(parents=True)
    for path in ("file", "kept/file", "below/file", "below/deep/file"):
        (source / path).write_text(path)
    copy = Copy(maker, maker.mount("allow_other", source=source))
    mount = copy.source
    (mount.path / "kept/file").rename(mount.path / "moved")
    copy.note_state()
    copy.follow()
    mount.stop()
    mount.expect("changed while Wayback did not record")
    for path in ("file", "moved"):
        (source / path).unlink()
    shutil.rmtree(source / "below")
    mount.start()
    (mount.path / "new").write_text("new")
    copy.expected = []
    copy.note_state()
    copy.follow()
    copy.check()
    buried = [path.read_text() for path in copy.path.glob(".wayback/objects/*/*.data")]
    assert buried == ["kept/file"] and not list(copy.path.glob(".wayback/objects/*/*.dir"))
