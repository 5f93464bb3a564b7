# SPDX-License-Identifier: LGPL-2.1-or-later
"""Tests of other files, over mounts whose kernel opens files without asking the daemon (-o no_open)."""
# pylint: disable=unused-import,wildcard-import
import pytest

from mounts import Mount

from test_below import test_another_file_with_the_same_inode_number, test_a_large_append_after_one_below  # noqa: F401
from test_below import test_open_while_it_grows_below, test_opened_after_an_append_below  # noqa: F401
from test_differential import (test_a_user_mount_behaves_like_the_bare_file_system,  # noqa: F401
                               test_the_mount_behaves_like_the_bare_file_system)
from test_faults import (test_a_daemon_killed_in_the_middle_of_work, test_a_full_disk_loses_nothing,  # noqa: F401
                         test_a_killed_daemon_loses_nothing, test_changes_under_way_are_completed_at_the_next_start)
from test_cuts import fixture_bench_of, test_synced_content_is_there_and_no_version_is_wrong  # noqa: F401
from test_crash import (fixture_bench, test_a_call_that_fails_is_an_error_and_no_more,  # noqa: F401
                        test_killed_at_any_system_call_it_loses_nothing)
from test_model import test_every_state_is_found_again  # noqa: F401
from test_seeks_and_limits import *  # noqa: F401,F403
from test_walk import (fixture_walk_of, test_no_state_is_wrong_whatever_happened,  # noqa: F401
                       test_nothing_is_refused_if_everything_was_recorded)
from test_shares import test_a_synchronous_write_is_synced_before_it_returns, test_other_writes_are_not_synced  # noqa: F401

EXCLUDED = ("history=close", "at=", "branch=")


@pytest.fixture(autouse=True)
def fixture_no_open(monkeypatch):
    """All mounts have the option, except where another one excludes it."""
    original = Mount.command

    def command(mount, *extra):
        words = ",".join([*mount.options, *extra]).split(",")
        if any(word.startswith(EXCLUDED) for word in words):
            return original(mount, *extra)
        given, mount.options = mount.options, ["no_open"] + [word for word in words if word not in ("", "allow_other")]
        try:
            return original(mount)
        finally:
            mount.options = given

    monkeypatch.setattr(Mount, "command", command)
