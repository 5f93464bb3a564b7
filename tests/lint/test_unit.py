# SPDX-License-Identifier: LGPL-2.1-or-later
"""wayback@.service limits the daemon, and by nothing that would hide the mount or forbid permitted actions of users."""
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parents[2] / "scripts/wayback@.service.in"
LIMITS = {
    "NoNewPrivileges": "yes", "LockPersonality": "yes", "MemoryDenyWriteExecute": "yes", "RestrictRealtime": "yes",
    "RestrictAddressFamilies": "AF_UNIX", "RestrictNamespaces": "mnt", "IPAddressDeny": "any", "DevicePolicy": "closed",
    "SystemCallArchitectures": "native", "SystemCallErrorNumber": "ENOSYS", "UMask": "0077", "LimitNOFILE": "524288",
    "MemoryMax": "50%", "OOMScoreAdjust": "-500",
}
# The ten that the daemon keeps (privileges.c), and the one for a /proc that hides processes.
CAPABILITIES = {"DAC_OVERRIDE", "DAC_READ_SEARCH", "CHOWN", "FOWNER", "FSETID", "SETUID", "SETGID", "MKNOD", "SETFCAP",
                "LINUX_IMMUTABLE", "SYS_ADMIN", "SYS_PTRACE"}
# Each gives a mount namespace of its own, or forbids a change that users may make.
HARMFUL = ("Private", "ProtectSystem", "ProtectHome", "ProtectKernel", "ProtectControlGroups", "ProtectProc", "ProcSubset",
           "ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths", "Bind", "TemporaryFileSystem", "Mount", "Root", "Dynamic",
           "StateDirectory", "RestrictSUIDSGID", "User", "Group")
EXPOSURE = 5.0  # docs/security.md says so


def settings():
    """{key: [values]} of the section that starts the daemon."""
    found = {}
    section = ""
    for line in UNIT.read_text(encoding="ascii").splitlines():
        if line.startswith("["):
            section = line
        elif "=" in line and not line.startswith("#") and section == "[Service]":
            key, value = line.split("=", 1)
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("key", LIMITS)
def test_the_daemon_is_limited(key):
    assert settings()[key] == [LIMITS[key]]


def test_no_capability_is_left_that_is_not_needed():
    kept = {word.removeprefix("CAP_") for line in settings()["CapabilityBoundingSet"] for word in line.split()}
    assert kept == CAPABILITIES


def test_system_calls_are_allowed_by_name():
    allowed, landlock, forbidden = settings()["SystemCallFilter"]
    assert landlock.split() == ["landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"]
    assert allowed.startswith("@system-service ") and forbidden.startswith("~")
    # To mount, to mount again over a dead mount, to open the tree below it, and to filter calls further.
    assert {"mount", "umount2", "open_tree", "move_mount", "open_by_handle_at", "seccomp"} <= set(allowed.split())


def test_nothing_hides_the_mount_or_forbids_permitted_actions():
    assert [key for key in settings() if key.startswith(HARMFUL)] == []


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is missing")
def test_the_exposure_is_as_documented(tmp_path):
    unit = tmp_path / "wayback@.service"
    unit.write_text(UNIT.read_text(encoding="ascii").replace("@bindir@", "/usr/bin"), encoding="ascii")
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={round(10 * EXPOSURE)}", unit]
    result = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if "--offline" in result.stdout and "unrecognized" in result.stdout:
        pytest.skip("this systemd-analyze reads no files")
    assert result.returncode == 0, result.stdout.strip().splitlines()[-1]
    text = (UNIT.parents[1] / "docs/security.md").read_text(encoding="utf-8")
    assert f"{EXPOSURE} of 10" in text
