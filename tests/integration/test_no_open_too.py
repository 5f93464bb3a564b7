# SPDX-License-Identifier: LGPL-2.1-or-later
"""Tests of other files, over mounts whose kernel opens files without asking the daemon (-o no_open)."""
# pylint: disable=unused-import,wildcard-import
import pytest

from test_below import test_another_file_with_the_same_inode_number, test_a_large_append_after_one_below  # noqa: F401
from test_below import test_open_while_it_grows_below, test_opened_after_an_append_below  # noqa: F401
from test_differential import (test_a_user_mount_behaves_like_the_bare_file_system,  # noqa: F401
                               test_the_mount_behaves_like_the_bare_file_system)
from test_faults import (test_a_daemon_killed_in_the_middle_of_work, test_a_full_disk_loses_nothing,  # noqa: F401
                         test_a_killed_daemon_loses_nothing, test_changes_under_way_are_completed_at_the_next_start)
from test_model import test_every_state_is_found_again  # noqa: F401
from test_seeks_and_limits import *  # noqa: F401,F403
from test_shares import test_a_synchronous_write_is_synced_before_it_returns, test_other_writes_are_not_synced  # noqa: F401

EXCLUDED = ("history=close", "at=", "branch=", "io_uring")


@pytest.fixture(name="maker")
def fixture_maker(maker):
    """All mounts of one user have the option."""
    original = maker.mount

    def mount(*options, **others):
        if not any(option.startswith(EXCLUDED) for option in options):
            options = ("no_open", *(option for option in options if option != "allow_other"))
        return original(*options, **others)

    maker.mount = mount
    return maker
