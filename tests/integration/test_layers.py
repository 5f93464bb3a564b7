# SPDX-License-Identifier: LGPL-2.1-or-later
"""A tree on an overlayfs, as containers have it: recorded if files keep their identity, else refused."""
import errno
import os
import shutil

import pytest

from mounts import epoch, moment, run


class Layers:
    """An overlayfs on a lower tree, as an image brings it."""

    def __init__(self, maker, upper=None, options=""):
        place = maker.tree()
        self.lower, self.root = place / "lower", place / "merged"
        self.upper = upper or place
        for path in (self.lower / "app/src", self.root, self.upper / "up", self.upper / "work"):
            path.mkdir(parents=True)
        (self.lower / "app/src/f").write_bytes(b"from the image")
        self.options = f"lowerdir={self.lower},upperdir={self.upper}/up,workdir={self.upper}/work{options}"
        self.begin()

    def begin(self):
        run("mount", "-t", "overlay", "-o", self.options, "overlay", self.root)

    def end(self):
        run("umount", self.root)


@pytest.fixture(name="layers")
def fixture_layers(maker):
    layers = Layers(maker)
    yield layers
    for mount in maker.mounts:
        mount.stop()
    layers.end()


@pytest.mark.parametrize("part", ["", "app", "app/src"])
def test_files_from_an_image_are_refused(maker, layers, part):
    """Its files would be others after their first change, and their recorded history lost."""
    source = layers.root / part
    for options in ((), (f"store={maker.tree()}",)):
        mount = maker.mount(source=source, start=False)
        status, output = mount.refused(*options)
        assert status == 1 and "layer below" in output and "cp -a" in output, output
        assert ".wayback" not in os.listdir(source)
    mount.start("history=none")
    (mount.path / "new").write_bytes(b"new")
    assert (source / "new").read_bytes() == b"new"


def use(mount):
    """Changes of each kind, in a tree that has f; (a moment, the content of f then)."""
    before, content = moment(), (mount.path / "f").read_bytes()
    (mount.path / "f").write_bytes(b"changed")
    (mount.path / "d").mkdir()
    (mount.path / "d").rename(mount.path / "e")
    (mount.path / "g").write_bytes(b"to go")
    (mount.path / "g").unlink()
    (mount.path / "e").rmdir()
    os.chmod(mount.path / "f", 0o600)
    return before, content


def look(mount, before, content):
    assert (mount.path / f"f@{epoch(before)}").read_bytes() == content
    assert (mount.path / "f").read_bytes() == b"changed"
    operations = [line.split()[0] for line in mount.tool("vlog", "--operations", mount.path).stdout.splitlines()
                  if line[:1] == " "]
    for name in ("rmdir", "unlink", "rename", "mkdir", "chmod", "truncate"):
        assert name in operations, operations


@pytest.mark.parametrize("made", ["new", "in its place"])
def test_files_of_the_upper_layer_alone_have_a_history(maker, layers, made):
    """As the refusal advises; also after the container was stopped and is started again."""
    app = layers.root / "app/src"
    shutil.copytree(app, layers.root / "copy")
    if made == "in its place":
        shutil.rmtree(app)
        (layers.root / "copy").rename(app)
    mount = maker.mount(source=app if made == "in its place" else layers.root / "copy")
    then = use(mount)
    look(mount, *then)
    mount.stop()
    layers.end()
    layers.begin()
    mount.start()
    look(mount, *then)
    mount.stop()
    mount.tool("vfsck", mount.source)


def test_layers_on_several_file_systems_are_refused(maker, file_systems):
    """Directories have inode numbers there that are made up at each look."""
    upper = file_systems.make("tmpfs", "layer", 64)
    layers = Layers(maker, upper)
    (layers.root / "new").mkdir()
    mount = maker.mount(source=layers.root / "new", start=False)
    status, output = mount.refused()
    assert status == 1 and "several file systems" in output, output
    assert os.listdir(mount.source) == []
    layers.end()
    file_systems.unmake(upper)


def test_a_directory_of_a_lower_layer_that_was_moved_into_the_tree_is_not_shown(maker):
    layers = Layers(maker, options=",redirect_dir=on")
    (layers.root / "new").mkdir()
    (layers.root / "app").rename(layers.root / "new/app")
    mount = maker.mount(source=layers.root / "new")
    with pytest.raises(OSError) as caught:
        os.listdir(mount.path / "app")
    assert caught.value.errno == errno.EXDEV
    mount.stop()
    layers.end()
