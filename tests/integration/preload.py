# SPDX-License-Identifier: LGPL-2.1-or-later
"""A library in C that is loaded before others, into whatever is started meanwhile."""
import contextlib
import os
import subprocess


@contextlib.contextmanager
def preloaded(directory, code, **environment):
    """`code` is told, by environment variables of its own, which files to look at."""
    (directory / "preload.c").write_text(code)
    library = directory / "preload.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, directory / "preload.c", "-ldl"], check=True)
    environment = {"LD_PRELOAD": str(library), **{name: str(value) for name, value in environment.items()}}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name in environment:
            del os.environ[name]
