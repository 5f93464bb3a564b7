# SPDX-License-Identifier: LGPL-2.1-or-later
"""A name is defined once: a program may be linked with the tools' library and all of the other, as with sanitizers."""
import os
import subprocess
from pathlib import Path

BUILD = Path(os.environ.get("WAYBACK_BUILD") or Path(__file__).resolve().parents[2] / "build")


def defined(archive):
    lines = subprocess.run(["nm", "-g", "--defined-only", "-P", BUILD / archive], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    return {line.split()[0] for line in lines if len(line.split()) > 1}


def test_the_tools_and_the_library_define_no_name_twice():
    tools, core = defined("utils/common/libwayback-tools.a"), defined("src/libwayback-core.a")
    assert len(tools) > 50 and len(core) > 500
    ours = {name for name in tools & core if name.startswith("wb_")}
    assert not ours
