# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The three modes of Wayback's comparison with RCS (Cornell, Dinda, Bustamante: Wayback, USENIX 2004,
section 5): how many bytes of history a hundred changes of one file leave, and how long they take.
The same changes are made in the tree, and committed by RCS and by git after each.
"""
import os
import random
import subprocess
import time

SIZE = 1 << 20


def random_writes(data, rng):
    """1 MiB of binary, one piece of 1 KiB overwritten in place."""
    at = rng.randrange(0, SIZE - 1024)
    return [(at, rng.randbytes(1024))]


def rewritten_whole(data, rng):
    """The same, 5 to 20 pieces changed, then written anew from beginning to end."""
    changed = bytearray(data)
    for _ in range(rng.randint(5, 20)):
        at = rng.randrange(0, SIZE - 1024)
        changed[at:at + 1024] = rng.randbytes(1024)
    return [(0, bytes(changed))]


def text_lines(data, rng):
    """2,000 lines of text, 1 to 5 of them changed; everything behind the first is written again."""
    lines = bytes(data).split(b"\n")
    places = sorted(rng.sample(range(len(lines) - 1), rng.randint(1, 5)))
    for place in places:
        lines[place] = text_line(rng)
    changed = b"\n".join(lines)
    first = sum(len(line) + 1 for line in bytes(data).split(b"\n")[:places[0]])
    return [(first, changed[first:])]


def text_line(rng):
    return b" ".join(rng.choice(WORDS) for _ in range(rng.randint(4, 14)))


WORDS = [b"undo", b"log", b"catalog", b"version", b"the", b"a", b"of", b"to", b"file", b"system", b"time", b"before",
         b"image", b"name", b"object", b"directory", b"revert", b"extract", b"and", b"moment"]


def beginning(mode, rng):
    return b"\n".join(text_line(rng) for _ in range(2000)) + b"\n" if mode is text_lines else rng.randbytes(SIZE)


def apply(path, data, writes, truncate):
    with open(path, "r+b", buffering=0) as stream:
        for at, piece in writes:
            stream.seek(at)
            stream.write(piece)
            data[at:at + len(piece)] = piece
        if truncate:
            end = writes[-1][0] + len(writes[-1][1])
            stream.truncate(end)
            del data[end:]


def commit(command, directory):
    subprocess.run(command, cwd=directory, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def bytes_below(path):
    return sum(os.lstat(os.path.join(top, name)).st_blocks * 512
               for top, _, names in os.walk(path) for name in names)


def modes(root, lower, iterations, tools):
    """In `root`; the history of a Wayback mount is in lower/.wayback. It is measured as it was written, and again after
    vcompact, which does at once what is otherwise done in the background when the file is idle."""
    for mode in (random_writes, rewritten_whole, text_lines):
        for keeper in ("", "rcs", "git"):
            yield from one(root, lower, mode, keeper, iterations, tools)


def one(root, lower, mode, keeper, iterations, tools):
    rng = random.Random(mode.__name__)
    directory = root / f"{mode.__name__}-{keeper or 'plain'}"
    directory.mkdir()
    path = directory / "file"
    data = bytearray(beginning(mode, rng))
    path.write_bytes(data)
    command = prepare(directory, keeper)
    store = lower / ".wayback"
    before = bytes_below(store) if store.exists() else 0
    begin = time.monotonic()
    for _ in range(iterations):
        apply(path, data, mode(data, rng), mode is text_lines)
        if command:
            commit(command, directory)
    seconds = time.monotonic() - begin
    name = f"{mode.__name__.replace('_', ' ')}{', ' + keeper if keeper else ''}"
    if keeper == "rcs":
        size = bytes_below(directory / "RCS")
    elif keeper == "git":
        commit(["git", "gc", "-q"], directory)
        size = bytes_below(directory / ".git")
    else:
        size = bytes_below(store) - before if store.exists() else 0
    yield {"phase": name, "seconds": seconds}
    yield {"phase": f"{name}: bytes of history", "size": size}
    if not keeper and store.exists():
        begin = time.monotonic()
        commit([str(tools / "vcompact"), path], directory)
        yield {"phase": f"{name}, vcompact", "seconds": time.monotonic() - begin}
        yield {"phase": f"{name}: bytes of history after vcompact", "size": bytes_below(store) - before}


def prepare(directory, keeper):
    if keeper == "rcs":
        (directory / "RCS").mkdir()
        commit(["ci", "-l", "-q", "-t-x", "-mx", "file"], directory)
        return ["ci", "-l", "-q", "-mx", "file"]
    if keeper == "git":
        commit(["git", "init", "-q"], directory)
        commit(["git", "add", "file"], directory)
        commit(["git", "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "x"], directory)
        return ["git", "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qam", "x"]
    return None
