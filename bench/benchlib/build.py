# SPDX-License-Identifier: LGPL-2.1-or-later
"""The systems to measure, built for it: Wayback as released, libfuse's example, the work."""
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"


class Programs:
    def __init__(self):
        self.wayback = BUILD / "src/daemon/wayback"
        self.tools = BUILD / "bin"
        self.work = BUILD / "bench/work"
        self.passthrough = BUILD / "bench/passthrough_hp"
        self.source = ROOT / "subprojects/fuse3"  # a real source tree, for the work that builds one


def command(*words, **options):
    result = subprocess.run([str(w) for w in words], text=True, stdin=subprocess.DEVNULL, check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, words))}:\n{result.stdout}")
    return result.stdout


def programs(modes):
    command(ROOT / "scripts/install-deps", "--bench")
    command(ROOT / "scripts/fetch-libfuse")
    command(ROOT / "scripts/build", "build", "-Dbuildtype=release", cwd=ROOT)
    found = Programs()
    (BUILD / "bench").mkdir(exist_ok=True)
    command("cc", "-O2", "-D_GNU_SOURCE", "-o", found.work, *sorted((ROOT / "bench/work").glob("*.c")),
            "-lxxhash")
    if "hp" in modes or "hp-pass" in modes:
        fuse = BUILD / "subprojects/fuse3"
        command("c++", "-O2", "-std=c++17", "-D_FILE_OFFSET_BITS=64", "-DHAVE_LIBFUSE_PRIVATE_CONFIG_H",
                f"-I{found.source}/include", f"-I{fuse}", f"-I{fuse}/include", "-o", found.passthrough,
                found.source / "example/passthrough_hp.cc", fuse / "lib/libfuse3.a", "-lpthread", "-ldl")
    return found
