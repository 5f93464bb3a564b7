# SPDX-License-Identifier: LGPL-2.1-or-later
"""Mounts that are refused before anything is made: each message says what to do."""
import os
import shutil
import subprocess

import pytest

from mounts import LIMIT, NOBODY, mounted_at, run


def refuse(programs, *arguments):
    result = run(programs.directory / "wayback", *arguments, check=False, env=programs.environment(), timeout=LIMIT,
                 cwd="/")
    assert result.returncode == 1 and result.stdout.count("\n") == 1, result.stdout
    return result.stdout.removeprefix("wayback: ").strip()


@pytest.mark.parametrize("place", ["/", "/usr", "/usr/bin", "/etc", "/proc", "/sys", "/dev", "/run", "/boot", "/tmp", "/var"])
def test_the_running_system(maker, programs, place):
    """As SRC and as MNT; a look at it is allowed, and harmless."""
    if not os.path.isdir(place):
        pytest.skip(f"there is no {place}")
    real = os.path.realpath(place)
    types = mounted_at(place)
    assert refuse(programs, place).startswith(f"Refusing to mount over {real}. ")
    assert refuse(programs, maker.tree(), place).startswith(f"Refusing to mount over {real}. ")
    assert refuse(programs, "-o", "nonempty", maker.tree(), place).startswith(f"Refusing to mount over {real}. ")
    point = maker.point()
    assert refuse(programs, place, point).startswith(f"Refusing to record {real}. ")
    assert mounted_at(place) == types and not mounted_at(point)
    assert not os.path.exists(os.path.join(place, ".wayback"))


def test_below_the_interfaces_of_the_kernel(programs):
    assert refuse(programs, "/proc/self").startswith("Refusing to mount over /proc/")
    assert refuse(programs, "/sys/kernel").startswith("Refusing to mount over /sys/kernel. ")


def test_the_directory_of_the_program(maker, programs):
    """A dead mount over it would have to be replaced by a program that is behind it."""
    tree = maker.tree()
    (tree / "bin").mkdir()
    for path in programs.directory.iterdir():
        if path.name == "wayback" or path.name.startswith("libwayback"):
            shutil.copy(path, tree / "bin", follow_symlinks=False)
    environment = dict(programs.environment(), LD_LIBRARY_PATH=str(tree / "bin"))
    result = run(tree / "bin/wayback", tree, check=False, env=environment, timeout=LIMIT)
    assert result.returncode == 1
    assert f"Refusing to mount over {tree}. It contains {tree}/bin/" in result.stdout
    assert sorted(os.listdir(tree)) == ["bin"]


def test_a_mount_point_with_files(maker, programs):
    """They would be hidden; a new ext4 file system has lost+found, which counts for nothing."""
    source, point = maker.tree(), maker.point()
    (point / "lost+found").mkdir()
    mount = maker.mount(source=source, path=point)
    mount.stop()
    (point / "a\nb").write_bytes(b"x")
    before = sorted(os.listdir(source))
    said = refuse(programs, source, point)
    assert said.startswith(f"{point} is not empty (it contains a\\nb)") and said.endswith("or use -o nonempty")
    assert not mounted_at(point) and sorted(os.listdir(source)) == before
    assert (point / "a\nb").exists()
    mount = maker.mount("nonempty", source=source, path=point)
    assert not (mount.path / "a\nb").exists()


def test_a_mount_is_no_source(maker, programs):
    mount = maker.mount("allow_other")
    (mount.path / "d").mkdir()
    point = maker.point()
    assert refuse(programs, mount.path, point) == \
        f"{mount.path} is itself a Wayback mount (of {mount.source}). Mount {mount.source} instead."
    assert refuse(programs, mount.path / "d", point).startswith(
        f"{mount.path}/d is in a Wayback mount (of {mount.source}), which records it already.")
    assert refuse(programs, mount.path) == \
        f"{mount.path} is itself a Wayback mount (of {mount.source}). Mount {mount.source} instead."
    assert refuse(programs, maker.tree(), mount.path) == \
        f"{mount.path} is mounted already, and shows {mount.source} (pid {mount.process.pid}). " \
        f"To unmount: umount {mount.path}"
    assert sorted(os.listdir(mount.path)) == ["d"]


def test_a_tree_is_mounted_once(maker, programs):
    """The message has the mount and the command that ends it: it works."""
    mount = maker.mount()
    said = refuse(programs, mount.source, maker.point())
    assert said == f"{mount.source} is mounted at {mount.path} (pid {mount.process.pid}). To unmount: umount {mount.path}"
    mount.stop()
    source = maker.tree()
    mount = maker.mount(source=source, path=source)
    said = refuse(programs, source)
    assert said == f"{source} is mounted already, in place (pid {mount.process.pid}). To unmount: umount {source}"


def test_a_user_unmounts_with_fusermount3(user_mount, maker):
    result = user_mount.run_tool("wayback", user_mount.source, maker.point(NOBODY))
    assert result.returncode == 1
    assert f"is mounted at {user_mount.path} (pid {user_mount.process.pid}). " \
           f"To unmount: fusermount3 -u {user_mount.path}" in result.stdout


def test_a_store_in_another_store(maker, programs):
    """One change would be recorded twice, and each daemon would find changes of the other."""
    source, point = maker.tree(), maker.point()
    (source / "d/e").mkdir(parents=True)
    mount = maker.mount(source=source)
    said = refuse(programs, source / "d/e", point)
    assert said.startswith(f"{source}/d/e is a part of the tree {source}, which has a history.")
    mount.stop()
    assert refuse(programs, source / "d/e", point) == said
    assert os.listdir(source / "d/e") == []
    shutil.rmtree(source / ".wayback")
    inner = maker.mount(source=source / "d/e", path=source / "d/e")
    said = refuse(programs, source, point)
    assert said.startswith(f"{source} contains {source}/d/e, which is mounted with a history of its own.")
    inner.stop()
    # A tree that has a history already stays usable.
    maker.mount(source=source).stop()
    maker.mount(source=source / "d/e").stop()


def test_a_dry_run_mounts_nothing(maker, programs):
    source, point = maker.tree(), maker.point()
    for options in (["-n"], ["--dry-run", "-o", "allow_other"]):
        result = run(programs.directory / "wayback", *options, source, point, env=programs.environment(), timeout=LIMIT)
        assert result.stdout == ""
    assert os.listdir(source) == [] and not mounted_at(point)
    assert refuse(programs, "-n", source, "/etc").startswith("Refusing to mount over /etc. ")
    mount = maker.mount(source=source, path=source)
    assert "mounted already, in place" in refuse(programs, "-n", source)
    mount.process.kill()
    mount.process.wait()
    subprocess.run([programs.directory / "wayback", "-n", source], check=True, env=programs.environment(), timeout=LIMIT)
    assert mounted_at(source)  # the dead mount is still there
    run("umount", "-l", source)
    mount.kill(check=False)


def test_a_dry_run_of_a_user_leaves_a_dead_mount(maker, programs):
    """A mount would take it away first."""
    source = maker.tree(owner=NOBODY)
    mount = maker.mount(source=source, path=source, user=NOBODY)
    mount.process.kill()
    mount.process.wait()
    run("setpriv", f"--reuid={NOBODY[0]}", f"--regid={NOBODY[1]}", "--clear-groups", programs.directory / "wayback", "-n", source, env=programs.environment(), timeout=LIMIT)
    assert mounted_at(source)
    mount.kill(check=False)
