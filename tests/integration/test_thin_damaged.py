# SPDX-License-Identifier: LGPL-2.1-or-later
"""Single versions are removed also if a catalog is damaged or incomplete: but not those that it may refer to."""
import json
import time

import pytest
from mounts import moment
from test_keeper import configure, wait_for
from test_onfull import Device, mounted
from thinning import at, check_newest, shows, thin, write_versions


def put(path, offset, data):
    with open(path, "r+b") as stream:
        stream.seek(offset)
        stream.write(data)


def damage(mount, name, kind="NAME"):
    """The record of a catalog, of this kind, that has this name, which no other has; returns a function that repairs
    it."""
    for path in sorted(mount.store().rglob("*.cat")):
        for line in mount.run_tool("vdump", "--json", path, merge=False).stdout.splitlines():
            if f'"{name}"' in line and f'"{kind}"' in line:
                sound = path.read_bytes()
                offset = json.loads(line)["at"] + 50
                put(path, offset, b"damaged")
                return lambda: put(path, offset, sound[offset:offset + 7])
    raise AssertionError(name)


def asked(mount, path=""):
    """The report of vprune, and whether it warned of `bad`."""
    result = mount.run_tool("vprune", "-y", "--json", "--keep-versions", "..1", mount.path / path, merge=False)
    warned = "damaged catalog of the directory 'bad'" in result.stderr
    assert result.returncode == (1 if warned else 0), result.stderr
    return json.loads(result.stdout), warned


@pytest.fixture(name="broken")
def _broken(maker):
    """Its directory `bad` has a catalog in which the record of a name is damaged; the known states of each file, and a
    function that repairs it."""
    mount = maker.mount("allow_other")
    mount.expect("damaged")
    for name in ("bad", "bad/below", "good"):
        (mount.path / name).mkdir()
    seen = {"bad/early": write_versions(mount.path / "bad/early", 4)}
    (mount.path / "bad/victim").touch()
    (mount.path / "bad/stray").touch()
    (mount.path / "bad/stray").rename(mount.path / "good/came")
    (mount.path / "bad/next").touch()
    for name in ("bad/late", "bad/moved", "bad/below/file", "good/file", "good/came"):
        seen[name] = write_versions(mount.path / name, 4)
    (mount.path / "bad/moved").rename(mount.path / "good/moved")
    (mount.path / "good/moved").rename(mount.path / "good/again")
    mount.stop()
    mends = [damage(mount, "victim"), damage(mount, "stray", "moved")]
    mount.start()

    def mended():
        """Otherwise states older than the damage are refused."""
        mount.stop()
        for mend in mends:
            mend()
        mount.start()

    return mount, seen, mended


def test_one_file_is_kept_for_as_long_as_it_may_be_meant(broken):
    mount, seen, mended = broken
    report, warned = asked(mount, "bad/early")
    assert warned and report["held"] == 1 and report["versions"] == 0
    for name in ("bad/late", "good/again"):
        report, warned = asked(mount, name)
        assert not warned and report["versions"] > 0, name
    mended()
    check_newest(mount, seen["bad/early"], 9, "bad/early")
    check_newest(mount, seen["bad/late"], 1, "bad/late")
    check_newest(mount, seen["bad/moved"], 1, "bad/moved")


def test_other_directories_are_thinned(broken):
    """By path, a lost name counts: of a file that was in that directory, or came from it, nothing is removed."""
    mount, seen, mended = broken
    report, warned = asked(mount)
    assert warned and report["held"] == 4 and report["kept"] == 0
    configure(mount, "# all of it stays")
    mended()
    check_newest(mount, seen["good/file"], 1, "good/file")
    check_newest(mount, seen["bad/below/file"], 1, "bad/below/file")
    for name in ("bad/early", "bad/late", "bad/moved", "good/came"):
        check_newest(mount, seen[name], 9, name)


def test_a_lost_place_is_looked_for(maker):
    """By an older one, files below a directory would be taken for those of its former name."""
    mount = maker.mount("allow_other")
    mount.expect("damaged")
    (mount.path / "bad/below").mkdir(parents=True)
    seen = write_versions(mount.path / "bad/below/file", 4)
    (mount.path / "bad").rename(mount.path / "renamed")
    mount.stop()
    mend = damage(mount, "renamed", "PLACE")
    mount.start()
    assert thin(mount, "--keep-versions", "..1", "--pattern", "/bad/")["versions"] == 0
    assert thin(mount, "--keep-versions", "..1", "--pattern", "/renamed/")["versions"] == 3
    mount.stop()
    mend()
    mount.start()
    check_newest(mount, seen, 1, "renamed/below/file")


def test_the_daemon_reports_it_once(broken):
    mount, seen, mended = broken
    configure(mount, '[path "file" "early"]', "keep = 2s")
    wait_for(lambda: 'damaged catalog of the directory "bad"' in mount.log(), "it is reported", mount)
    wait_for(lambda: shows(mount, seen["good/file"][3][0], seen["good/file"][0][1], "good/file"), "they are removed",
             mount)
    time.sleep(2)  # for it to look again
    assert mount.log().count('damaged catalog of the directory "bad"') == 1
    configure(mount, "# all of it stays")
    mended()
    check_newest(mount, seen["good/file"], 1, "good/file")
    assert at(mount, seen["bad/early"][2][0], "bad/early") == seen["bad/early"][2][1]


def test_a_gap_protects_files_of_its_directory(maker):
    """Versions in another directory are removed, also those of the unknown time."""
    device = Device(maker)
    mount = mounted(maker, device, "onfull=continue")
    (mount.path / "d").mkdir()
    seen = {name: write_versions(mount.path / name, 2, 40) for name in ("file", "d/file")}
    device.fill()
    for number in range(100):  # until the last block of the catalog is full
        (mount.path / "d" / f"n{number}").touch()

    def change_more():
        for name in seen:
            for number in range(2):
                with open(mount.path / name, "r+b", buffering=0) as stream:
                    stream.write(b"%d" % number * 40)
                seen[name].append((moment(), b"%d" % number * 40))
                moment()

    change_more()  # there is space for it in the last block of the undo logs
    device.empty()
    (mount.path / "d" / "after").touch()
    change_more()
    assert thin(mount, "--keep-versions", "..1", path="file")["versions"] == 5
    check_newest(mount, seen["file"], 1)
    # from the first change to the second, and from the fifth to the sixth
    assert thin(mount, "--keep-versions", "..1", path="d/file")["versions"] == 2
    mount.check_store()
