# SPDX-License-Identifier: LGPL-2.1-or-later
"""Programs whose daemon only pretends to sync."""
import copy
import os
import shutil
from pathlib import Path

from mounts import run


def without_sync(programs, base, only=None):
    """`only`: it pretends for the file whose path ends with this alone."""
    library = base / "nosync.so"
    run("cc", "-shared", "-fPIC", *([f'-DONLY="{only}"'] if only else []), "-o", library, Path(__file__).with_name("nosync.c"))
    broken = copy.copy(programs)
    broken.directory = base / "bin-nosync"
    shutil.copytree(programs.directory, broken.directory, symlinks=True)
    os.rename(broken.directory / "wayback", broken.directory / "wayback.real")
    script = broken.directory / "wayback"
    script.write_text(f"#!/bin/sh\nLD_PRELOAD={library} exec {broken.directory}/wayback.real \"$@\"\n", encoding="utf-8")
    script.chmod(0o755)
    return broken
