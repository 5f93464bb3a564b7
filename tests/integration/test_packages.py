# SPDX-License-Identifier: LGPL-2.1-or-later
"""Packages: they install, replace a former one under an open mount, and leave histories alone when they go.

In a view of this system that is thrown away: its files below, and a directory in memory above.
"""
import os
import shutil
from pathlib import Path

import pytest

from mounts import BUILD, run

TOP = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.skipif(not (BUILD / "src/libwayback.so.0").exists(),
                                 reason="packages are built in their own way, whatever is tested")]

SYSTEM = """
mount -t tmpfs tmpfs {base}
mkdir {base}/over {base}/work {base}/view
mount -t overlay overlay -o lowerdir=/,upperdir={base}/over,workdir={base}/work {base}/view
for dir in dev proc sys; do mount --rbind /$dir {base}/view/$dir; done
mount -t tmpfs tmpfs {base}/view/run
mount -t tmpfs tmpfs {base}/view/tmp
cp -a {packages}/. {base}/view/tmp/
exec chroot {base}/view /bin/sh -e /tmp/story
"""

STORY = """
cd /tmp
{install} 1/*
wayback --version
mkdir SRC MNT
wayback SRC MNT
echo one > MNT/f
when=$(date +%s.%N)
echo two > MNT/f
wayback restore --help > /dev/null
man -w wayback vlog libwayback wayback.conf mount.wayback > /dev/null
ls /usr/share/bash-completion/completions/wayback /usr/lib/systemd/system/wayback@.service /usr/sbin/mount.wayback
cat > program.c <<END
#include <wayback/wayback.h>
int main(void) {{ return wb_library_version() == 0; }}
END
cc program.c -o program $(pkg-config --cflags --libs wayback)
./program
{install_again} 2/* 2> upgraded
cat upgraded
grep -q "until they are mounted again" upgraded
grep -q /tmp/MNT upgraded
echo three > MNT/f
[ "$(cat MNT/f@$when)" = one ]
wayback log MNT | grep -q write
umount MNT
wayback SRC MNT
[ "$(cat MNT/f@$when)" = one ]
{list} > installed
{remove} 2> removed
cat removed
grep -q "until they are unmounted" removed
! command -v wayback
echo four > MNT/f
[ "$(cat MNT/f)" = four ]
umount MNT
{purge}
[ -f SRC/.wayback/header ]
while read -r name; do
    if [ ! -d "$name" ] && [ -e "$name" ]; then echo "left: $name"; exit 1; fi
done < installed
echo all of it
"""

COMMANDS = {
    "deb": {"install": "dpkg -i", "install_again": "dpkg -i", "list": "dpkg -L wayback wayback-dev",
            "remove": "dpkg -r wayback-dev wayback", "purge": "dpkg -P wayback wayback-dev"},
    "rpm": {"install": "rpm -i --nodeps", "install_again": "rpm -U --nodeps", "list": "rpm -ql wayback wayback-devel",
            "remove": "rpm -e wayback-devel wayback", "purge": "true"},
}


def package(top, kind, revision, output):
    output.mkdir(parents=True, exist_ok=True)
    run(top / "scripts/package", kind, "--revision", revision, "--output", output,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})


def copy_of_sources(path):
    """Elsewhere, so that nothing of the place may get into a package."""
    def built(directory, names):
        return [name for name in names if Path(directory) == TOP and name.startswith(("build", ".git"))]

    shutil.copytree(TOP, path, symlinks=True, ignore=built)
    return path


def content_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def play(base, packages, kind):
    """Installs, replaces and removes them in a copy of this system."""
    (packages / "story").write_text(STORY.format(**COMMANDS[kind]))
    script = SYSTEM.format(base=base, packages=packages)
    result = run("unshare", "-m", "--propagation", "private", "sh", "-ec", script, check=False)
    if "wrong fs type" in result.stdout and "overlay" in result.stdout:
        pytest.skip("this kernel makes no overlay of the root file system")
    assert result.returncode == 0 and result.stdout.endswith("all of it\n"), result.stdout


def test_packages(tmp_path):
    """Two builds in different directories are equal, and their packages come and go."""
    system = tmp_path / "system"
    system.mkdir()
    first, second = copy_of_sources(tmp_path / "first"), copy_of_sources(tmp_path / "the second/place")
    kinds = [kind for kind, tool in (("deb", "dpkg-deb"), ("rpm", "rpmbuild")) if shutil.which(tool)]
    for kind in kinds:
        for revision in ("1", "2"):
            package(first, kind, revision, tmp_path / kind / revision)
        package(second, kind, "1", tmp_path / kind / "again")
        assert content_of(tmp_path / kind / "again") == content_of(tmp_path / kind / "1")
        play(system, tmp_path / kind, kind)
    assert "deb" in kinds
