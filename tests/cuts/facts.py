# SPDX-License-Identifier: LGPL-2.1-or-later
"""What was seen through the mount, and what of it may be found after the power failed.

A track is one path whose content is known after each change of it. After a cut, of the states seen before it:

- one that was followed by an fsync, or is older than such a one, is found exactly as it was: as the present, or at the
  moment it was noted. Where changes came after the last fsync, it may be refused instead (EIO): they may have reached
  the disk without what they overwrote. (Of a name, also where other names of its directory changed after that.)
- of others nothing was promised, also where a file was replaced or removed before anybody synced it. At the moment of
  such a state, each block of the file is one that it held between the last fsync and then, or it is refused. Never one
  that it got later: that is a wrong version.
"""
import errno
import random
from dataclasses import dataclass, field

from mounts import moment

BLOCK = 512  # changes are whole blocks, so that a mixture can be recognized
REFUSED = object()
ZEROS = bytes(BLOCK)


def read_past(path):
    """Content, None if there is no such file, or REFUSED."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.EIO:
            return REFUSED
        raise


def blocks_of(content):
    return [content[i:i + BLOCK] for i in range(0, len(content), BLOCK)] if content else []


@dataclass
class Outcome:
    """Of one cut, or of many."""
    checked: int = 0
    refused: int = 0          # states that may be refused, and were
    promised: int = 0         # states that had to be there
    beside: int = 0           # refused because of changes beside them, in the same directory
    failures: list = field(default_factory=list)

    def add(self, other):
        self.checked += other.checked
        self.refused += other.refused
        self.promised += other.promised
        self.beside += other.beside
        self.failures += other.failures


class Track:
    def __init__(self, path, content=None, alone=False):
        self.path = path
        self.alone = alone                   # nothing in its directory is ever left unsynced
        self.states = [(moment(), content)]  # the time of each state, and the state
        self.begun = []                      # when changes began
        self.starts = [0]                    # states with which another file came, or none
        self.synced = [(0, 0, 0)]            # when; from which state on to which they were durable

    @property
    def content(self):
        return self.states[-1][1]

    def begin(self):
        self.begun.append(moment())

    def done(self, content, anew=False):
        if anew or content is None or self.content is None:
            self.starts.append(len(self.states))
        self.states.append((moment(), content))

    def sync(self):
        """The current file, and its name."""
        self.synced.append((moment(), self.starts[-1], len(self.states) - 1))

    # ---- after a cut -------------------------------------------------------------------------

    def known(self, cut):
        """Index of the last state seen before the cut, and of the last durable one."""
        last = max(i for i, (when, _) in enumerate(self.states) if when < cut.begin or i == 0)
        durable = max(state for when, _, state in self.synced if when < cut.begin)
        return last, durable

    def kept(self, cut, index):
        """The last state up to that one, of the same file, that is durable; index: it is itself. None: there is no
        such."""
        start = max(state for state in self.starts if state <= index)
        found = [min(to, index) for when, start_, to in self.synced if when < cut.begin and start_ == start]
        if self.states[index][1] is None and index <= self.known(cut)[1]:
            found.append(index)
        return max(found, default=None), start

    def quiet(self, cut, index):
        """Whether no change began between that state and the cut."""
        when = self.states[index][0]
        return not any(when <= begun < cut.end for begun in self.begun)

    def sample(self, last, durable, random_):
        chosen = {durable, last} | set(random_.sample(range(last + 1), min(last + 1, 3)))
        return sorted(chosen)

    def check(self, cut, mount, outcome):
        last, durable = self.known(cut)
        quiet = self.quiet(cut, durable)
        if quiet:
            self.check_present(mount, durable, outcome)
        for index in self.sample(last, durable, random.Random(f"{cut.seed}{self.path}")):
            when, expected = self.states[index]
            found = read_past(mount.at(when, self.path))
            kept, start = self.kept(cut, index)
            promised = kept == index
            outcome.checked += 1
            outcome.promised += promised and quiet
            if found is REFUSED:
                outcome.refused += 1
                outcome.beside += promised and quiet and not self.alone
                if promised and quiet and self.alone:
                    outcome.failures.append(f"{self.path} at {when}: refused, though nothing came after its fsync")
            elif promised:
                if found != expected:
                    outcome.failures.append(f"{self.path} at {when} (state {index} of {last}, durable {durable}): "
                                            f"{self.describe(expected, found, last)}")
            else:
                low = start if kept is None else kept
                self.check_mixture(index, min(low, durable) if index > durable else low, last, found, outcome)

    def check_present(self, mount, durable, outcome):
        expected = self.states[durable][1]
        found = read_past(mount.path / self.path)
        if found is REFUSED or found != expected:
            outcome.failures.append(f"{self.path}: the present is not what was synced: "
                                    f"{'EIO' if found is REFUSED else self.describe(expected, found, durable)}")

    def describe(self, expected, found, last):
        """Which other state it looks like."""
        if found is None or expected is None:
            return f"expected {expected and len(expected)} bytes, found {found and len(found)}"
        wrong = [i for i, (a, b) in enumerate(zip(blocks_of(expected), blocks_of(found))) if a != b]
        where = [(i, [s for s, (_, c) in enumerate(self.states[:last + 2]) if blocks_of(found)[i] in blocks_of(c)])
                 for i in wrong[:4]]
        return f"{len(expected)} bytes expected, {len(found)} found, {len(wrong)} blocks differ; found in states {where}"

    def check_mixture(self, index, durable, last, found, outcome):
        contents = [content for _, content in self.states[durable:index + 1]]
        when = self.states[index][0]
        if found is None:
            if None not in contents:
                outcome.failures.append(f"{self.path} at {when}: not there, though it was all the time")
            return
        if len(found) > max(len(content or b"") for content in contents):
            outcome.failures.append(f"{self.path} at {when}: longer than it was ever until then")
        may = {block for content in contents for block in blocks_of(content)}
        for number, block in enumerate(blocks_of(found)):
            if block not in may and block != ZEROS:
                owner = [i for i, (_, content) in enumerate(self.states) if block in blocks_of(content)]
                outcome.failures.append(f"{self.path} at {when} (state {index} of {last}, durable {durable}): "
                                        f"block {number} is of state {owner or 'none'}")
                return
