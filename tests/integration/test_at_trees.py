# SPDX-License-Identifier: LGPL-2.1-or-later
"""Trees full of names with an '@' are made on a mount that has snapshots of these names, by root and by a user."""
import json
import os
import shutil
import zipfile

import pytest

import snapshots
from mounts import SECOND, run

WORDS = ("scope", "v1.2.3", "v", "latest", "types")


def make_names(tree):
    """Fifty names with an '@': scopes, versions, the lists of a module proxy. Returns how many."""
    count = 0
    for word in WORDS:
        for number in range(4):
            for path in (f"@{word}/pkg{number}", f"pkg{number}@{word}"):
                (tree / path).mkdir(parents=True)
                (tree / path / "f").write_text(path)
                count += 1
        (tree / f"module-{word}" / "@v").mkdir(parents=True)
        (tree / f"module-{word}" / "@v" / "list").write_text("v1.2.3\n")
        (tree / f"file@{word}").write_text(word)
        count += 2
    assert count == 50


@pytest.fixture(params=["root", "user"], name="mount")
def fixture_mount(request, maker):
    mount = maker.mount("allow_other")
    mount.path.chmod(0o777)
    mount.who = None if request.param == "root" else SECOND
    for number in range(4):
        (mount.path / f"pkg{number}").mkdir()
    for word in WORDS:
        snapshots.add(mount, word)
    return mount


def shell(mount, script):
    """In a directory that is newer than the snapshots, as a fresh checkout is."""
    return mount.tool("env", "-C", mount.path, f"HOME={mount.path}", "sh", "-ec",
                      f"mkdir -p work; cd work; {script}", user=mount.who).stdout


def test_git_tar_and_cp(mount, maker):
    bare = maker.tree() / "tree"
    bare.mkdir()
    make_names(bare)
    user = ("-c", "user.email=a@b", "-c", "user.name=a", "-c", "safe.directory=*")
    run("git", "-C", bare, "init", "-q")
    run("git", "-C", bare, "add", ".")
    run("git", *user, "-C", bare, "commit", "-qm", "all")
    run("tar", "-C", bare.parent, "-cf", bare.parent / "t.tar", "tree")
    os.chmod(bare.parent / "t.tar", 0o644)
    shell(mount, f"""git config --global --add safe.directory '*'; git clone -q file://{bare} clone
        mkdir tar; tar -C tar -xf {bare.parent}/t.tar; cp -a {bare} copy; cp -a copy again
        for made in clone tar/tree copy again; do diff -r -x .git {bare} $made; done
        git -C clone status --porcelain | wc -l | grep -qx 0
        git -C clone fsck 2>&1""")
    mount.remount()
    for made in ("clone", "tar/tree", "copy", "again"):
        run("diff", "-r", "-x", ".git", bare, mount.path / "work" / made)


@pytest.mark.skipif(not shutil.which("npm"), reason="npm is missing")
def test_npm_installs_a_scoped_package(mount, maker):
    package = maker.tree() / "pkg"
    package.mkdir()
    (package / "package.json").write_text('{"name": "@scope/pkg", "version": "1.2.3", "main": "i.js"}')
    (package / "i.js").write_text("module.exports = 42\n")
    shell(mount, f"""mkdir app; cd app; printf '{{"name": "app", "version": "1.0.0"}}' > package.json
        npm install --offline --no-audit --no-fund --install-links --cache ./cache file:{package}
        grep -q 42 node_modules/@scope/pkg/i.js
        npm pack --silent --cache ./cache --pack-destination . {package}; rm -r node_modules
        npm install --offline --no-audit --no-fund --cache ./cache file:scope-pkg-1.2.3.tgz
        grep -q 42 node_modules/@scope/pkg/i.js; test ! -L node_modules/@scope/pkg
        node -e 'process.exit(require("@scope/pkg") === 42 ? 0 : 1)' """)


def add_module(proxy, module, version, needs=""):
    """A version of a module as a GOPROXY directory holds it."""
    folder = proxy / module / "@v"
    folder.mkdir(parents=True, exist_ok=True)
    text = f"module {module}\n\ngo 1.19\n{needs}"
    with open(folder / "list", "a", encoding="ascii") as stream:
        stream.write(f"{version}\n")
    (folder / f"{version}.info").write_text(json.dumps({"Version": version, "Time": "2026-01-01T00:00:00Z"}))
    (folder / f"{version}.mod").write_text(text)
    with zipfile.ZipFile(folder / f"{version}.zip", "w") as archive:
        archive.writestr(f"{module}@{version}/go.mod", text)
        archive.writestr(f"{module}@{version}/m.go", f'package m\n\nconst Version = "{version}"\n')


GO = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")


def go(mount, script):
    return shell(mount, f"""export GOPROXY=file://$PWD/proxy GOSUMDB=off GOFLAGS=-mod=mod GOTOOLCHAIN=local GOENV=off \\
            GOPATH=$PWD/go GOMODCACHE=$PWD/modules GOCACHE=$PWD/cache PATH=$PATH:{os.path.dirname(GO)}
        {script}""")


@pytest.mark.skipif(not GO, reason="go is missing")
def test_go_downloads_modules(mount, maker):
    """From a GOPROXY on the mount into a cache of modules there. Their names have '@v' and '@v1.0.0', and so have
    snapshots, before the trees are made and after it."""
    bare = maker.tree() / "proxy"
    for word in ("v1.0.0", "list", "sdk"):
        snapshots.add(mount, word)
    for version in ("v1.0.0", "v1.1.0"):
        add_module(bare, "corp.test/sdk", version)
    add_module(bare, "corp.test/tool", "v1.0.0", "\nrequire corp.test/sdk v1.0.0\n")
    go(mount, f"""cp -r {bare} proxy; mkdir app; cd app; go mod init corp.test/app; go get corp.test/tool@v1.0.0
        go mod download all; go mod verify; diff -r {bare} ../proxy
        grep -q '"v1.0.0"' ../modules/corp.test/sdk@v1.0.0/m.go; grep -q v1.0.0 ../modules/corp.test/tool@v1.0.0/m.go""")
    # Now the bases of these names exist, too, with their history.
    for word in ("v1.1.0", "go.mod", "proxy"):
        snapshots.add(mount, word)
    go(mount, f"""cd app; go get corp.test/sdk@latest; go mod download all; go mod verify
        printf 'package app\\nimport "corp.test/sdk"\\nvar _ [len("v1.1.0")]int = [len(m.Version)]int{{}}\\n' > app.go
        go build .; go list -m corp.test/sdk | grep -qx 'corp.test/sdk v1.1.0'; diff -r {bare} ../proxy; go clean -modcache; go mod download all; go mod verify
        test -f ../modules/cache/download/corp.test/sdk/@v/v1.1.0.zip""")
    mount.remount()
    run("diff", "-r", bare, mount.path / "work/proxy")


@pytest.mark.skipif(not GO, reason="go is missing")
def test_go_with_another_mark(maker):
    """A program that first asks whether the name exists finds the past of a directory. With another mark there is
    none."""
    mount = maker.mount("allow_other", "at-sign=%")
    mount.path.chmod(0o777)
    mount.who = SECOND
    bare = maker.tree() / "proxy"
    for module in ("corp.test/sdk", "corp.test/sdk/sub"):
        for version in ("v1.0.0", "v1.1.0"):
            add_module(bare, module, version)
    go(mount, f"""cp -r {bare} proxy; mkdir app; cd app; go mod init corp.test/app; go get corp.test/sdk/sub@v1.0.0
        test -d ../modules/corp.test/sdk""")
    for word in ("v1.0.0", "v1.1.0", "v", "latest"):
        snapshots.add(mount, word)
    go(mount, """cd app; go get corp.test/sdk@v1.1.0 corp.test/sdk/sub@latest; go mod download all; go mod verify
        grep -q '"v1.1.0"' ../modules/corp.test/sdk@v1.1.0/m.go
        grep -q '"v1.1.0"' ../modules/corp.test/sdk/sub@v1.1.0/m.go
        test -d ../modules/corp.test/sdk%v1.1.0/sub@v1.0.0""")


def test_a_name_that_programs_use_is_warned_of(maker):
    mount = maker.mount("allow_other", kind="ext4")
    for name, warned in (("v1.2.3", True), ("v", True), ("v2", True), ("2.0.0-rc.1", True), ("types", True),
                         ("latest", True), ("before-upgrade", False), ("vacation", False), ("release", False),
                         ("v1x", False)):
        output = mount.tool("vsnap", "create", name, mount.path).stdout
        assert ("after an '@'" in output) == warned, output
        assert f"{name}\t" in output
    assert "after an '@'" in mount.tool("vsnap", "rename", "release", "v3.0", mount.path).stdout
