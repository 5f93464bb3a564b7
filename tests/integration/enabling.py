# SPDX-License-Identifier: LGPL-2.1-or-later
"""A machine for `wayback enable`: a root directory with units and fstab, and a systemctl that does what systemd would."""
import contextlib
import os
import subprocess
import time

from mounts import BUILD, LIMIT, mounted_at, run

# Links as `systemctl enable` makes them; a start runs the command of the unit, by the rules of systemd.service(5).
SYSTEMCTL = r'''#!/usr/bin/python3
import os, re, shlex, subprocess, sys
root, config, daemon = {root!r}, {config!r}, {daemon!r}
arguments = sys.argv[1:]
with open(root + "/calls", "a") as log:
    log.write(" ".join(arguments) + "\n")
user = arguments[0] == "--user"
verb, *units = arguments[user:]
if os.path.exists(root + "/fails-" + verb):
    print("Job for the unit failed.", file=sys.stderr)
    sys.exit(1)
if not units:
    sys.exit(0)
instance = re.fullmatch(r"wayback@(.*)\.service", units[0])[1]
path = "/" + re.sub(r"\\x(..)", lambda hexadecimal: chr(int(hexadecimal[1], 16)), instance.replace("-", "/"))
own = root + config + "/systemd/user/" + units[0]
file = own if user else root + "/usr/lib/systemd/system/wayback@.service"
wants = (root + config + "/systemd/user/default.target.wants/" if user
         else root + "/etc/systemd/system/multi-user.target.wants/") + units[0]
if verb == "enable":
    os.makedirs(os.path.dirname(wants), exist_ok=True)
    os.path.lexists(wants) or os.symlink(file, wants)
elif verb == "disable":
    os.path.lexists(wants) and os.unlink(wants)
elif verb == "restart":
    text = open(file).read()
    values = dict(WAYBACK_OPTIONS="allow_other", WAYBACK_SOURCE=path)
    options = root + "/etc/wayback/" + instance + ".env"
    if not user and os.path.exists(options):
        for name, value in re.findall(r'^(WAYBACK_\w+)=(.*)$', open(options).read(), re.M):
            values[name] = re.sub(r"\\(.)", r"\1", value[1:-1]) if value[0] in "\"'" else value
    command = [re.sub(r"\$\{{(\w+)\}}", lambda name: values[name[1]], word).replace("$$", "$").replace("%%", "\0")
               .replace("%f", path).replace("\0", "%") for word in shlex.split(re.search(r"^ExecStart=(.*)$", text, re.M)[1])]
    if not user:
        command[0] = daemon
    sys.exit(subprocess.run(command, stdin=subprocess.DEVNULL).returncode)
'''


def all_of_terminal(mine, theirs):
    """All output on it, with the echo of the input. The kernel passes it on in pieces, and answers EIO once nobody has
    the other end any more."""
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):
        while part := os.read(mine, 4096):
            text += part
    os.close(mine)
    return text.decode()


class Machine:
    """With `systemd`, or as in a container; `user` calls the commands, None: root."""

    config = "/config"

    def __init__(self, maker, systemd=True, user=None):
        self.programs, self.user, self.maker = maker.programs, user, maker
        self.root = maker.tree(owner=user)
        self.directory = maker.tree(owner=user) / "my doc%s"
        self.directory.mkdir()
        if user:
            os.chown(self.directory, *user)
        for name in ("etc", "sbin", "bin", "usr/lib/systemd/system", "config"):
            (self.root / name).mkdir(parents=True)
            if user:
                os.chown(self.root / name, *user)
        if systemd:
            (self.root / "run/systemd/system").mkdir(parents=True)
        (self.root / "usr/lib/systemd/system/wayback@.service").write_bytes(
            (BUILD / "scripts/wayback@.service").read_bytes())
        self.script("sbin/mount.wayback", "#!/bin/sh\n")
        self.script("bin/systemctl", SYSTEMCTL.format(root=str(self.root), config=self.config,
                                                      daemon=str(self.programs.directory / "wayback")))
        self.fstab = self.root / "etc/fstab"

    def script(self, name, text):
        path = self.root / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def environment(self, **more):
        base = self.programs.environment()
        return dict(base, **{"PATH": f"{self.root}/bin:{base['PATH']}", "XDG_CONFIG_HOME": self.config} | more)

    def command(self, *words):
        identity = ["setpriv", f"--reuid={self.user[0]}", f"--regid={self.user[1]}", "--clear-groups"] if self.user else []
        return [*identity, *map(str, words)]

    def call(self, tool, *arguments, status=0, cwd="/", stdin=subprocess.DEVNULL, **more):
        """A tool with --root, or (vconfig) without; its output and errors."""
        root = [] if tool == "vconfig" else ["--root", self.root]
        result = subprocess.run(self.command(self.programs.directory / tool, *root, *arguments), check=False, text=True,
                                stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT, cwd=cwd,
                                env=self.environment(**more))
        assert result.returncode == status, f"{result.returncode}: {result.stdout}"
        return result.stdout

    def tool(self, name, *arguments):
        return run(*self.command(self.programs.directory / name, *arguments), env=self.environment(), cwd="/").stdout

    def enable(self, *arguments, **options):
        return self.call("venable", *arguments, self.directory, **options)

    def disable(self, *arguments, **options):
        return self.call("vdisable", *arguments, self.directory, **options)

    def calls(self):
        path = self.root / "calls"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        path.unlink(missing_ok=True)
        return text.splitlines()

    def files(self):
        """All that was written, as {path: text}; links have their target."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if not name.startswith(("bin/", "sbin/", "usr/", "calls")) and (path.is_file() or path.is_symlink()):
                found[name] = os.readlink(path) if path.is_symlink() else path.read_text(encoding="utf-8")
        return found

    def is_mounted(self):
        return mounted_at(self.directory) == "fuse.wayback"

    def close(self):
        deadline = time.monotonic() + LIMIT
        while mounted_at(self.directory) and time.monotonic() < deadline:
            run("umount", "-l", self.directory, check=False)
        lock = self.directory / ".wayback/lock"
        while lock.exists() and run("flock", "-n", lock, "true", check=False).returncode and time.monotonic() < deadline:
            time.sleep(0.02)
