# SPDX-License-Identifier: LGPL-2.1-or-later
"""The work, suite by suite. Each yields samples: {"phase", "seconds", ...} or {"phase", "bytes"}."""
import json
import os
import subprocess
import time

from benchlib import rcs, scale
from benchlib.places import drop_caches
from benchlib.systems import client_cpu

ALL = ("small", "large", "tree", "bonnie", "mix", "rcs", "scale")


def touched(suite, options):
    """Of the image: the bytes a suite of large files may write, history included."""
    return max(1 << 30, 7 * options.large << 20) if suite == "large" else 0


def run(suite, system, lower, places, programs, options):
    """All samples of one suite on one system; the last holds the CPU seconds of daemon and client."""
    quick = options.quick
    if suite == "scale" and system.mode in scale.LEFT_OUT:
        return
    with system.mounted(programs, lower, places) as (root, usage):
        before, daemon = client_cpu(), usage.cpu() if usage else 0
        if suite == "scale":
            yield from scale.samples(lambda *words: work(programs, *words), usage, root, quick)
        else:
            yield from globals()[f"suite_{suite}"](root, places, programs, options, lower)
        yield {"phase": "cpu", "client": client_cpu() - before, "daemon": usage.cpu() - daemon if usage else 0,
               "memory": usage.memory() if usage else 0, "descriptors": usage.descriptors() if usage else 0}
    if suite == "scale":
        yield from scale.mounting(system, programs, lower, places)


def work(programs, *words):
    output = subprocess.run([str(programs.work), *map(str, words)], text=True, check=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE).stdout
    return [json.loads(line) for line in output.splitlines()]


def timed(phase, *command, **options):
    begin = time.monotonic()
    subprocess.run([str(w) for w in command], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, **options)
    return {"phase": phase, "seconds": time.monotonic() - begin}


def suite_small(root, _places, programs, options, _lower):
    yield from work(programs, "small", "-f", 400 if options.quick else 4000, "-d", 50, root)


def suite_large(root, _places, programs, options, _lower):
    yield from work(programs, "large", "-l", options.large, root)
    file = root / "cold"
    subprocess.run(["dd", "if=/dev/urandom", f"of={file}", "bs=1M", f"count={max(options.large // 2, 64)}", "status=none"],
                   check=True)
    drop_caches()
    yield timed("cold sequential read", "dd", f"if={file}", "of=/dev/null", "bs=1M")


def suite_tree(root, places, programs, options, _lower):
    """A source tree unpacked, looked at, built and removed; then the five phases of the Andrew benchmark."""
    archive = places.base / "tree.tar"
    subprocess.run(["tar", "-cf", archive, "-C", programs.source.parent, "--exclude=build", programs.source.name],
                   check=True)
    # One is unpacked in a few hundredths of a second: too little to be measured.
    # passthrough_hp keeps a descriptor for each inode that the kernel remembers, and 20,000 are all that some machines
    # let a process have, root's too: 64 trees of 382 inodes ended with "Too many open files".
    trees = [root / f"tree{i}" for i in range(4 if options.quick else 48)]
    for tree in trees:
        tree.mkdir()
    yield timed("untar", "sh", "-c", 'for to; do tar -xf "$ARCHIVE" -C "$to"; done', "sh", *trees,
                env={**os.environ, "ARCHIVE": str(archive)})
    yield timed("stat tree", "find", *trees, "-printf", "%s %m\n")
    yield timed("wc", "sh", "-c", 'for d; do (cd "$d" && find . -type f -print0 | xargs -0 wc); done', "sh", *trees)
    tree = trees[0] / programs.source.name
    build = tree / "build"
    less = ("-Dexamples=false", "-Dtests=false", "-Dutils=false", "-Duseroot=false")
    subprocess.run(["meson", "setup", *less, build, tree], check=True, stdout=subprocess.DEVNULL)
    # The compiler is to work, not its cache.
    yield timed("make", "ninja", "-j2", "-C", build, env={**os.environ, "CCACHE_DISABLE": "1"})
    yield timed("make clean", "ninja", "-C", build, "clean")
    yield timed("rm -r", "rm", "-r", *trees[1:])
    yield from andrew(root, tree, options.quick)


def andrew(root, tree, quick):
    """MakeDir, Copy, ScanDir, ReadAll (Howard et al. 1988); Make is above."""
    copies = 1 if quick else 10
    names = [root / f"copy{i}" for i in range(copies)]
    yield timed("Andrew MakeDir", "sh", "-c", 'for to; do (cd "$TREE" && find . -type d -exec mkdir -p "$to"/{} \\;); done',
                "sh", *names, env={**os.environ, "TREE": str(tree)})
    yield timed("Andrew Copy", "sh", "-c", 'for to; do cp -r "$TREE"/. "$to"; done', "sh", *names,
                env={**os.environ, "TREE": str(tree)})
    yield timed("Andrew ScanDir", "ls", "-lR", *names)
    yield timed("Andrew ReadAll", "sh", "-c", 'for d; do find "$d" -type f -exec grep -c x {} + ; done', "sh", *names)


def suite_bonnie(root, _places, _programs, options, _lower):
    size = 256 if options.quick else 2048
    # -f: without its tests character by character, which take longer than all others and are not looked at
    line = subprocess.run(["bonnie++", "-q", "-f", "-u", "root", "-d", str(root), "-s", f"{size}M", "-r",
                           str(size // 2), "-n", "4" if options.quick else "16", "-m", "x"], check=True, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.strip().splitlines()[-1]
    yield from bonnie_fields(line.split(","))


def bonnie_fields(fields):
    """From its CSV (format 1.98): rates per second, here as seconds for one unit, so that less is better."""
    names = {9: "bonnie write", 11: "bonnie rewrite", 15: "bonnie read", 17: "bonnie seeks", 24: "bonnie create",
             26: "bonnie stat", 28: "bonnie delete"}
    for index, name in names.items():
        try:
            yield {"phase": name, "seconds": 1 / float(fields[index])}
        except (ValueError, IndexError, ZeroDivisionError):
            pass  # too fast to be measured: bonnie++ prints +++++


def suite_mix(root, _places, programs, options, _lower):
    for clients in (1, 8):
        for percent in (12, 24, 48, 96):
            yield from work(programs, "mix", "-u", percent, "-c", clients, "-n", 2000 if options.quick else 40000, root)


def suite_rcs(root, _places, programs, options, lower):
    yield from rcs.modes(root, lower, 10 if options.quick else 100, programs.tools)
