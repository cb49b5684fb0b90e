"""The number of processors that this process may use, and the number of threads for its work."""

import math
import os
import re
from functools import cache
from pathlib import Path

# A line of a control group: of version 2 without controllers, of version 1 with a list of them
# that has `cpu`, such as `cpu,cpuacct`.
_GROUP = re.compile(r"^\d+:(|.*\bcpu\b.*):/(.*)$", re.MULTILINE)


@cache
def n_processors(
    groups: Path = Path("/proc/self/cgroup"), mount_point: Path = Path("/sys/fs/cgroup")
) -> int:
    """Return the number of processors of this process: the smaller of its affinity and its quota.

    The quotas of the groups around a control group limit it too. In a container the names may be
    those that the host sees, while the container's own group is mounted as the root: a group whose
    folder does not exist has no quota. A part of a processor counts as a whole one: with a quota of
    1.5, one thread would leave a third of it unused.

    groups   the file that names the control groups of this process
    mount_point  where control groups are mounted, of version 1, 2 or both
    """
    quotas = [float(len(os.sched_getaffinity(0)))]
    for controllers, name in _GROUP.findall(groups.read_text() if groups.exists() else ""):
        for group in (Path(name), *Path(name).parents):
            folder = mount_point / ("cpu" if controllers else "") / group
            files = [folder / file for file in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")]
            numbers = " ".join(file.read_text() for file in files if file.is_file()).split()
            if len(numbers) == 2 and all(map(str.isdecimal, numbers)):  # not max or -1: no quota
                quotas.append(int(numbers[0]) / int(numbers[1]))
    return max(1, math.ceil(min(quotas)))


def n_threads(requested: int | None, n_items: int | None = None) -> int:
    """Return the number of threads for a piece of work.

    requested  the number that the caller wants; None: one for each processor
    n_items    the number of items of the work: there is no use for more threads; None: many
    """
    n = requested or n_processors()
    return n if n_items is None else max(1, min(n, n_items))
