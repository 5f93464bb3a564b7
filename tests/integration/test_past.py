# SPDX-License-Identifier: LGPL-2.1-or-later
"""name@TIME: every way to write a time, for files that changed, were deleted or moved."""
import datetime
import errno
import os
import random
import stat
import time

import pytest

from mounts import epoch, moment, run
from treestate import differences, state_of


def refused(error, function, *arguments, **options):
    with pytest.raises(OSError) as caught:
        function(*arguments, **options)
    assert caught.value.errno == error


def then(path, when):
    """The path of a file as it was, by its own name."""
    return path.with_name(f"{path.name}@{epoch(when)}")


def printed(begin, end):
    """That second as programs print it."""
    whole = int(begin) + 1
    assert begin < whole < end
    for form in (["+%c"], [], ["-R"], ["+%d.%m.%Y, %H:%M:%S"], ["+%d/%b/%Y:%H:%M:%S %z"], ["+%H:%M:%S on %A, %d %B %Y"]):
        yield run("date", f"--date=@{whole}", *form, env=dict(os.environ, LC_ALL="C")).stdout.strip()


@pytest.fixture(name="second", scope="module")
def fixture_second(base, programs, file_systems):
    """A file of three versions more than two seconds apart, and a second between two of them."""
    from conftest import Maker  # pylint: disable=import-outside-toplevel
    maker = Maker(base, programs, file_systems)
    mount = maker.mount("allow_other")
    path = mount.path / "f"
    path.write_bytes(b"first")
    begin = time.time()
    time.sleep(2.3)
    path.write_bytes(b"second")
    end = time.time()
    yield mount, path, begin, end
    maker.close()


def forms(begin, end):
    whole = int(begin) + 1
    assert begin < whole < end
    utc = datetime.datetime.fromtimestamp(whole, datetime.timezone.utc)
    local = datetime.datetime.fromtimestamp(whole)
    east = utc.astimezone(datetime.timezone(datetime.timedelta(hours=5, minutes=30)))
    yield str(whole)
    yield f"{whole}.0"
    yield f"{whole}.123456789" if whole + .2 < end else f"{whole}.000000001"
    for separator in ("T", " "):
        yield local.strftime(f"%Y-%m-%d{separator}%H:%M:%S")
        yield local.strftime(f"%Y-%m-%d{separator}%H:%M:%S.000001")
        yield utc.strftime(f"%Y-%m-%d{separator}%H:%M:%SZ")
        yield east.strftime(f"%Y-%m-%d{separator}%H:%M:%S") + "+05:30"
        yield east.strftime(f"%Y-%m-%d{separator}%H:%M:%S") + "+0530"
    if local.date() == datetime.date.today():
        yield local.strftime("%H:%M:%S")


def test_every_form_of_an_instant_means_that_instant(second):
    mount, path, begin, end = second
    tried = list(forms(begin, end))
    for form in tried:
        assert path.with_name(f"f@{form}").read_bytes() == b"first", form
        assert (mount.path / f"@{form}" / "f").read_bytes() == b"first", form
        assert mount.tool("vextract", path, "--time", form, "-o", "-").stdout == "first", form
    assert len(tried) >= 13
    for form in printed(begin, end):
        assert mount.tool("vextract", path, "--time", form, "-o", "-").stdout == "first", form


def test_ages(second):
    mount, path, begin, end = second

    def at_age(form, look):
        """The result of `look` at an age that was between begin and end during the whole look."""
        for _ in range(100):
            started = time.time()
            age = round(started - (begin + end) / 2)
            found = look(form.format(age))
            if begin < started - age and time.time() - age < end:
                return found
        assert False, "no look was quick enough"

    for form in ("{}s", "0h0m{}s"):
        assert at_age(form, lambda age: path.with_name(f"f@{age}").read_bytes()) == b"first", form
    for form in ("{} seconds ago", "{}s", "{} sec", "0.0h, {}.0 s"):
        assert at_age(form, lambda age: mount.tool("vextract", path, "--time", age, "-o", "-").stdout) == "first", form
    assert path.with_name("f@now").read_bytes() == b"second"
    assert path.with_name("f@0s").read_bytes() == b"second"
    for form in ("3d", "1w", "2h30m", "5m", "90m", "yesterday"):
        refused(errno.ENOENT, path.with_name(f"f@{form}").read_bytes)


@pytest.mark.parametrize("form", ["now", "0s", "~1"])
def test_a_name_that_existed_then_cannot_be_made(mount, form):
    (mount.path / "f").write_bytes(b"x")
    (mount.path / "f").write_bytes(b"y")
    (mount.path / "g").write_bytes(b"z")
    past = mount.path / f"f@{form}"
    refused(errno.EROFS, os.open, past, os.O_CREAT | os.O_WRONLY)
    refused(errno.EROFS, os.rename, mount.path / "g", past)
    refused(errno.EROFS, os.unlink, past)
    refused(errno.EEXIST, os.mkdir, past)


@pytest.mark.parametrize("form", ["5m", "90s", "2h30m", "3d", "1w", "2026-01-31", "3", "4.17",
                                  "2026-01-31T10:00", "~99", "2026-01-31 10:00:00.5+02:00"])
def test_a_name_that_did_not_exist_then_is_free(mount, form):
    """Archives and package managers make such names; the new entry is real, and wins."""
    (mount.path / "f").write_bytes(b"x")
    for name in (f"f@{form}", f"nothing@{form}"):
        path = mount.path / name
        refused(errno.ENOENT, path.stat)
        path.write_bytes(b"real")
        assert path.read_bytes() == b"real" and name in os.listdir(mount.path)
        path.unlink()
        path.mkdir()
        path.rmdir()
        os.rename(mount.path / "f", path)
        os.rename(path, mount.path / "f")


@pytest.mark.parametrize("form", ["", "x", "5 m", "2026-13-01", "25:00", "~", "~0", "~x", "1e5",
                                  "2026-02-30", "m5", "tomorrowish", "5m~"])
def test_a_name_without_a_valid_time_is_just_a_name(mount, form):
    path = mount.path / f"f@{form}"
    refused(errno.ENOENT, path.stat)
    path.write_bytes(b"a real file")
    assert path.read_bytes() == b"a real file" and os.listdir(mount.path) == [path.name]
    path.unlink()


def test_a_real_file_with_such_a_name_wins(maker):
    source = maker.tree()
    (source / "f").write_bytes(b"plain")
    (source / "f@5m").write_bytes(b"real")
    mount = maker.mount(source=source)
    assert (mount.path / "f@5m").read_bytes() == b"real"
    assert sorted(os.listdir(mount.path)) == ["f", "f@5m"]
    when = moment()
    (mount.path / "f@5m").write_bytes(b"real and changed")
    assert then(mount.path / "f@5m", when).read_bytes() == b"real"


def test_changes_count_back(mount):
    path = mount.path / "f"
    for i in range(5):
        fd = os.open(path, os.O_CREAT | os.O_RDWR)
        os.pwrite(fd, b"%d" % i, 0)
        os.close(fd)
    assert [(mount.path / f"f@~{n}").read_bytes() for n in range(1, 5)] == [b"3", b"2", b"1", b"0"]
    refused(errno.ENOENT, (mount.path / "f@~5").stat)  # before it was made
    refused(errno.ENOENT, (mount.path / "f@~6").stat)


def test_the_future_is_the_present_or_refused(mount):
    path = mount.path / "f"
    path.write_bytes(b"now")
    late = str(int(time.time()) + 100_000)
    try:
        assert path.with_name(f"f@{late}").read_bytes() == b"now"
    except OSError as error:
        assert error.errno in (errno.ENOENT, errno.EINVAL)
    result = mount.tool("vextract", path, "--time", late, "-o", "-", status=2)
    assert "future" in result.stdout and result.stdout.count("\n") <= 2


def test_every_version_of_a_file_is_exact(any_mount):
    path = any_mount.path / "f"
    rng = random.Random(3)
    seen = []
    path.write_bytes(rng.randbytes(50_000))
    for step in range(60):
        status = path.stat()
        seen.append((moment(), path.read_bytes(), status.st_mtime_ns, status.st_mode, status.st_uid))
        choice = step % 6
        if choice < 3:
            with open(path, "r+b", buffering=0) as stream:
                os.pwrite(stream.fileno(), rng.randbytes(rng.randrange(1, 9000)),
                          rng.randrange(60_000))
        elif choice == 3:
            os.truncate(path, rng.randrange(60_000))
        elif choice == 4:
            path.chmod(rng.choice([0o644, 0o600, 0o755]))
            os.chown(path, rng.randrange(5), 0)
        else:
            temporary = path.with_name("f.tmp")
            temporary.write_bytes(rng.randbytes(30_000))
            os.rename(temporary, path)
    rng.shuffle(seen)
    for when, data, mtime, mode, owner in seen:
        old = then(path, when)
        status = old.stat()
        assert old.read_bytes() == data
        assert (status.st_size, status.st_mtime_ns, status.st_mode, status.st_uid) == \
            (len(data), mtime, mode, owner)
        offset = rng.randrange(len(data) + 10)
        with open(old, "rb", buffering=0) as stream:
            assert os.pread(stream.fileno(), 5000, offset) == data[offset:offset + 5000]


def test_deleted_and_replaced_files_are_there(any_mount):
    root = any_mount.path
    (root / "d" / "e").mkdir(parents=True)
    (root / "d" / "f").write_bytes(b"content")
    (root / "d" / "e" / "g").write_bytes(b"deeper")
    (root / "d" / "l").symlink_to("f")
    inode = (root / "d" / "f").stat().st_ino
    when, before = moment(), state_of(root)
    any_mount.tool("rm", "-r", root / "d")
    (root / "d").write_bytes(b"a file now")
    after = moment()
    assert differences(before, state_of(any_mount.at(when))) == []
    assert (then(root / "d", when) / "e" / "g").read_bytes() == b"deeper"
    assert os.readlink(then(root / "d", when) / "l") == "f"
    assert then(root / "d", after).read_bytes() == b"a file now"
    assert then(root / "d", when).joinpath("f").stat().st_ino != inode


def test_renamed_files_have_their_former_paths(any_mount):
    root = any_mount.path
    (root / "a").mkdir()
    (root / "a" / "f").write_bytes(b"one")
    first = moment()
    os.rename(root / "a", root / "b")
    (root / "b" / "f").write_bytes(b"two")
    second = moment()
    os.rename(root / "b" / "f", root / "g")
    (root / "g").write_bytes(b"three")
    third = moment()
    os.rename(root / "b", root / "a")
    assert (then(root / "a", first) / "f").read_bytes() == b"one"
    refused(errno.ENOENT, then(root / "b", first).stat)
    assert (then(root / "b", second) / "f").read_bytes() == b"two"
    refused(errno.ENOENT, then(root / "a", second).stat)
    refused(errno.ENOENT, then(root / "g", second).stat)
    assert then(root / "g", third).read_bytes() == b"three"
    assert os.listdir(then(root / "b", third)) == []
    assert sorted(os.listdir(any_mount.at(first))) == ["a"]
    assert sorted(os.listdir(any_mount.at(third))) == ["b", "g"]


def test_a_change_count_follows_the_file_through_a_rename(mount):
    root = mount.path
    (root / "old").write_bytes(b"v1")
    (root / "old").write_bytes(b"version two")
    os.rename(root / "old", root / "new")
    with open(root / "new", "r+b") as stream:
        stream.write(b"VERSION")
    assert (root / "new@~1").read_bytes() == b"version two"
    # The rename belongs to the version that the same process wrote just before.
    assert (root / "new@~2").read_bytes() == b"v1"
    refused(errno.ENOENT, (root / "new@~3").stat)


def test_an_editors_save_keeps_one_history(mount):
    path = mount.path / "text"
    for version in (b"one", b"two", b"three"):
        path.with_name("text.tmp").write_bytes(version)
        os.rename(path.with_name("text.tmp"), path)
    contents = []
    for n in range(1, 12):
        try:
            contents.append((mount.path / f"text@~{n}").read_bytes())
        except FileNotFoundError:
            break
    assert [c for c in contents if c in (b"one", b"two")][0] == b"two"


def test_hard_links_share_a_history_and_are_a_group_in_the_past(any_mount):
    root = any_mount.path
    (root / "a").write_bytes(b"one")
    os.link(root / "a", root / "b")
    both = moment()
    (root / "b").write_bytes(b"two")
    (root / "a").unlink()
    (root / "b").write_bytes(b"three")
    old = any_mount.at(both)
    assert (old / "a").read_bytes() == (old / "b").read_bytes() == b"one"
    assert (old / "a").stat().st_ino == (old / "b").stat().st_ino
    assert (old / "a").stat().st_nlink == 2
    assert (root / "b").stat().st_nlink == 1


def test_the_past_has_stable_inodes_of_its_own(any_mount):
    path = any_mount.path / "f"
    path.write_bytes(b"x")
    when = moment()
    path.write_bytes(b"y")
    first = then(path, when).stat().st_ino
    assert first == then(path, when).stat().st_ino != path.stat().st_ino
    any_mount.remount()
    assert then(path, when).stat().st_ino == first
    assert first >> 63 == 1


def test_a_shift_is_inherited_and_can_be_shifted_again(any_mount):
    root = any_mount.path
    (root / "d" / "e").mkdir(parents=True)
    (root / "d" / "e" / "f").write_bytes(b"one")
    first = moment()
    (root / "d" / "e" / "f").write_bytes(b"two")
    (root / "d" / "e" / "late").write_bytes(b"late")
    second = moment()
    (root / "d" / "e" / "f").write_bytes(b"three")
    (root / "d" / "e" / "late").unlink()
    old = then(root / "d", first)
    assert (old / "e" / "f").read_bytes() == b"one" and os.listdir(old / "e") == ["f"]
    assert (old / f"e@{epoch(second)}" / "f").read_bytes() == b"two"
    assert sorted(os.listdir(old / f"e@{epoch(second)}")) == ["f", "late"]
    assert (old / "e" / f"f@{epoch(second)}").read_bytes() == b"two"
    assert (old / "e" / f"@{epoch(second)}" / "late").read_bytes() == b"late"
    assert (old / f"e@{epoch(second)}" / f"@{epoch(first)}" / "f").read_bytes() == b"one"
    assert (old / "e" / ".." / "e" / "f").read_bytes() == b"one"


def test_the_past_can_be_copied_with_everything(any_mount, maker):
    root = any_mount.path
    (root / "d").mkdir(mode=0o750)
    (root / "d" / "f").write_bytes(os.urandom(20_000))
    os.link(root / "d" / "f", root / "d" / "same")
    (root / "d" / "l").symlink_to("f")
    os.mkfifo(root / "d" / "p")
    os.setxattr(root / "d" / "f", "user.color", b"green")
    os.chown(root / "d" / "f", 12, 34)
    os.utime(root / "d" / "f", ns=(10**18, 10**18 + 1))
    when, before = moment(), state_of(root / "d")
    any_mount.tool("rm", "-r", root / "d")
    copy = maker.scratch / "copy"
    any_mount.tool("cp", "-a", any_mount.at(when) / "d", copy)
    ignore = () if "user.color" in os.listxattr(copy / "f") else ("xattrs",)
    found = state_of(copy)
    before[""] = before[""]._replace(nlink=found[""].nlink)  # btrfs counts no subdirectories
    assert differences(before, found, ignore) == []


def test_the_past_is_read_only(any_mount):
    root = any_mount.path
    (root / "d").mkdir()
    (root / "d" / "f").write_bytes(b"x")
    when = moment()
    old = any_mount.at(when) / "d"
    for function in (lambda: os.open(old / "f", os.O_RDWR), lambda: os.open(old / "f", os.O_WRONLY),
                     lambda: os.truncate(old / "f", 0), lambda: os.unlink(old / "f"),
                     lambda: os.mkdir(old / "new"), lambda: os.rmdir(old),
                     lambda: os.rename(old / "f", old / "g"), lambda: os.chmod(old / "f", 0o600),
                     lambda: os.chown(old / "f", 1, 1), lambda: os.utime(old / "f", (1, 1)),
                     lambda: os.symlink("x", old / "s"), lambda: os.mkfifo(old / "p"),
                     lambda: os.setxattr(old / "f", "user.a", b"1"),
                     lambda: os.open(old / "new", os.O_CREAT | os.O_RDWR)):
        refused(errno.EROFS, function)
    for function in (lambda: os.rename(old / "f", root / "stolen"),
                     lambda: os.link(old / "f", root / "linked"),
                     lambda: os.rename(root / "d" / "f", old / "g")):
        with pytest.raises(OSError) as caught:
            function()
        assert caught.value.errno in (errno.EROFS, errno.EXDEV)
    assert (root / "d" / "f").read_bytes() == b"x"


def test_only_names_of_then_are_listed(any_mount):
    root = any_mount.path
    (root / "d").mkdir()
    (root / "d" / "f").write_bytes(b"x")
    when = moment()
    (root / "d" / "g").write_bytes(b"x")
    then(root / "d" / "f", when).read_bytes()
    os.listdir(any_mount.at(when))
    assert sorted(os.listdir(root)) == ["d"] and sorted(os.listdir(root / "d")) == ["f", "g"]
    assert os.listdir(any_mount.at(when)) == ["d"]
    for place in (root, any_mount.at(when)):
        refused(errno.ENOENT, os.stat, place / f".wayback@{epoch(when)}")
    refused(errno.ENOENT, os.stat, any_mount.at(when) / ".wayback")


def test_the_state_before_the_first_mount_is_the_oldest_version(maker, kind):
    source = maker.tree(kind)
    (source / "d").mkdir()
    (source / "d" / "f").write_bytes(b"long before")
    os.link(source / "d" / "f", source / "second name")
    before = state_of(source)
    mount = maker.mount(kind=kind, source=source)
    assert differences(before, state_of(mount.path)) == []
    when = moment()
    (mount.path / "d" / "f").write_bytes(b"changed")
    os.rename(mount.path / "d", mount.path / "e")
    (mount.path / "second name").unlink()
    assert differences(before, state_of(mount.at(when))) == []


def test_special_files_in_the_past(any_mount):
    root = any_mount.path
    os.mkfifo(root / "p")
    os.mknod(root / "n", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    when, before = moment(), state_of(root)
    (root / "p").unlink()
    (root / "n").unlink()
    assert differences(before, state_of(any_mount.at(when))) == []


def test_an_open_file_of_the_past_does_not_change(any_mount):
    """The view is exact while the present changes under it."""
    path = any_mount.path / "f"
    data = os.urandom(400_000)
    path.write_bytes(data)
    when = moment()
    fd = os.open(then(path, when), os.O_RDONLY)
    for step in range(20):
        with open(path, "r+b", buffering=0) as stream:
            os.pwrite(stream.fileno(), os.urandom(30_000), step * 19_000)
        assert os.pread(fd, 50_000, step * 17_000) == data[step * 17_000:step * 17_000 + 50_000]
    path.unlink()
    assert os.pread(fd, 400_000, 0) == data
    os.close(fd)


def test_a_past_of_many_entries_lists_completely(any_mount):
    root = any_mount.path
    (root / "d").mkdir()
    names = [f"entry{i:05}" for i in range(3000)]
    for name in names:
        (root / "d" / name).touch()
    when = moment()
    any_mount.tool("rm", "-r", root / "d")
    assert sorted(os.listdir(any_mount.at(when) / "d")) == names
