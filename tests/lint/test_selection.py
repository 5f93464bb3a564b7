# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which tests a run with sanitizers leaves out: each runs on one kind of file system, none on no kind."""
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

INTEGRATION = Path(__file__).resolve().parents[1] / "integration"


@pytest.fixture(name="chosen", scope="module")
def fixture_chosen():
    """The kinds of file systems on which a test runs that has these other parameters."""
    before = list(sys.path)
    sys.path.insert(0, str(INTEGRATION))
    spec = importlib.util.spec_from_file_location("conftest_of_integration", INTEGRATION / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path[:] = before

    def kinds(others, markers=()):
        found = []
        for number, kind in enumerate(module.KINDS):
            params = {"kind": kind, **others}
            indices = {name: number if name == "kind" else index for index, name in enumerate(params)}
            spec = SimpleNamespace(params=params, indices=indices, id="-".join(params.values()))
            item = SimpleNamespace(callspec=spec, path=Path(__file__), originalname="test_x",
                                   iter_markers=lambda name: iter(markers))
            if module.is_chosen(item):
                found.append(kind)
        return found, list(module.KINDS)
    return kinds


@pytest.mark.parametrize("other", ["a", "ext4", "xfs", "btrfs", "ext4-seconds", "tmpfs", "from xfs to ext4"])
def test_one_kind_whatever_the_other_parameters_are(chosen, other):
    assert len(chosen({"other": other})[0]) == 1


@pytest.mark.parametrize("marker", [SimpleNamespace(args=("kind", ["ext4", "xfs"]), kwargs={}),
                                    SimpleNamespace(args=(["other", "kind"], []), kwargs={}),
                                    SimpleNamespace(args=(), kwargs={"argnames": "kind", "argvalues": []})])
def test_a_test_that_lists_its_kinds_meets_all(chosen, marker):
    found, kinds = chosen({"other": "a"}, [marker])
    assert found == kinds
