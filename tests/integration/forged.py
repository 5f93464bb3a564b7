# SPDX-License-Identifier: LGPL-2.1-or-later
"""A mount of an ordinary user that everybody may enter, whose server is no Wayback: it answers HELLO as it likes.

The kernel takes it for one that fusermount3 made with allow_other (user_allow_other in fuse.conf).
"""
import contextlib
import ctypes
import json
import os
import struct
import subprocess
import sys
import time

from mounts import NOBODY, mounted_at, run

LIBC = ctypes.CDLL(None, use_errno=True)
NOSUID_NODEV = 2 | 4
PATH = 4096
HELLO, IDENTIFY = 1, 3
LOOKUP, GETATTR, OPEN, RELEASE, FLUSH, INIT, OPENDIR, RELEASEDIR, IOCTL = 1, 3, 14, 18, 25, 26, 27, 29, 39
FORGET, BATCH_FORGET = 2, 42
ENOENT, ENOSYS = 2, 38
OPENED = 100  # the first descriptor of what a server has open


def hello(said):
    pid = os.getpid() if said["pid"] == "self" else said["pid"]
    return struct.pack("=4096s16sIIqIiiIqqII", os.fsencode(said["source"]), b"u" * 16, 1, 0, 0, pid,
                       said["source_fd"], said["store_fd"], 0, 1, time.time_ns(), 0, 0)


def identity():
    return struct.pack(f"=QqqIIIIQ{PATH}x", 1, 1, 2**63 - 1, 0o40755, 1, 0, 0, 1)


def answer_control(said, asked):
    version, command = struct.unpack_from("=II", asked)
    data = {HELLO: hello, IDENTIFY: lambda _: identity()}.get(command)
    if version != 1 or not data:
        return None
    reply = bytearray(asked)
    body = data(said)[:8192]
    reply[len(asked) - 8192:len(asked) - 8192 + len(body)] = body
    return struct.pack("=iIII", 0, 0, 0, 0) + bytes(reply)


def answer(said, code, body):
    """What follows the header, or None: not implemented."""
    if code == INIT:
        return struct.pack("=IIIIHHIIHHI28x", 7, 31, 0, 0, 0, 0, 1 << 17, 1, 0, 0, 0)
    if code == GETATTR:
        return struct.pack("=QII6Q10I", 1, 0, 0, said["ino"], 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, *NOBODY, 0, 4096, 0)
    if code in (OPEN, OPENDIR):
        return bytes(16)
    if code == IOCTL:
        return answer_control(said, body[32:])
    return b"" if code in (RELEASE, RELEASEDIR, FLUSH) else None


def serve(device, said):
    for number, path in enumerate(said["open"], OPENED):
        os.dup2(os.open(path, os.O_PATH), number)
    while True:
        try:
            request = os.read(device, 1 << 20)
        except OSError:
            return
        _, code, unique = struct.unpack_from("=IIQ", request)
        if code in (FORGET, BATCH_FORGET):
            continue
        body = answer(said, code, request[40:])
        error = 0 if body is not None else -ENOENT if code == LOOKUP else -ENOSYS
        os.write(device, struct.pack("=IiQ", 16 + len(body or b""), error, unique) + (body or b""))


@contextlib.contextmanager
def forged_mount(maker, tree, pid="self", source=None, source_fd=OPENED, store_fd=-1, **more):
    """The path of a mount of NOBODY's. Its server shows the inode number of `tree`, and names that directory, or the
    descriptors `source_fd` and `store_fd` of `pid` ("self": the server). It has the directories `opened`: OPENED, ..."""
    point = more.get("point") or maker.point()
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id={NOBODY[0]},group_id={NOBODY[1]},allow_other"
    if LIBC.mount(os.fsencode(more.get("listed", "forged")), os.fsencode(point), b"fuse.wayback", NOSUID_NODEV,
                  options.encode()) < 0:
        raise OSError(ctypes.get_errno(), "mount")
    said = {"source": str(source or tree), "pid": pid, "source_fd": source_fd, "store_fd": store_fd,
            "ino": os.stat(tree).st_ino, "open": [str(path) for path in more.get("opened", [])]}
    server = subprocess.Popen([sys.executable, __file__, str(device), json.dumps(said)], pass_fds=[device],
                              user=NOBODY[0], group=NOBODY[1], extra_groups=[], stdin=subprocess.DEVNULL)
    os.close(device)
    try:
        yield point
    finally:
        server.kill()
        server.wait()
        if mounted_at(point):
            run("umount", "-l", point)


if __name__ == "__main__":
    serve(int(sys.argv[1]), json.loads(sys.argv[2]))
