"""What a job's process may take: limits that the system holds it to, set
by the process itself at its start.

Memory is held twice. RLIMIT_DATA bounds what may be asked for (private writable memory, whether it
is used or not; a kernel's stack and spare of the allocator too, so it has SLACK_BYTES more): who
asks for more gets a MemoryError at once, however fast it eats. The worker watches what is resident
(`xylem.admin.jobs.process`), which is exact and also sees shared memory, ten times a second.
RLIMIT_AS would do for neither: it counts mapped files, of which a large model has more than memory,
and reserved addresses. Measured for a training of 153 MB resident beside 109 MB of mapped files:
328 MB for RLIMIT_DATA, 797 MB for RLIMIT_AS.
"""

import contextlib
import ctypes
import math
import os
import resource
import signal
from pathlib import Path

from xylem.base import Limits

SLACK_BYTES = 512 << 20
"""What a process may ask for beyond its memory: libraries, stacks and spare of the allocator."""

FILES_MAX = 1024
"""Open files of a job."""

NICE_MAX = 19

CPU_GRACE_SECONDS = 5  # between the signal at the limit of processor time and the kill
_PR_SET_PDEATHSIG = 1


def confine(limits: Limits, parent: int) -> None:
    """Hold this process to the limits of jobs, and have it die with the thread that started it.

    parent  the process that started this one; this one ends at once if it is gone already
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    _write("/proc/self/oom_score_adj", "1000")  # whom the system kills first when memory is out
    cpu_seconds = math.ceil(limits.job_cpu_seconds_max)
    bounds = {
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_CPU: (cpu_seconds, cpu_seconds + CPU_GRACE_SECONDS),
        resource.RLIMIT_FSIZE: (limits.job_file_bytes_max, limits.job_file_bytes_max),
        resource.RLIMIT_NOFILE: (FILES_MAX, FILES_MAX),
        resource.RLIMIT_DATA: (limits.job_memory_bytes_max + SLACK_BYTES,) * 2,
    }
    for kind, (soft, hard) in bounds.items():
        _, hard_max = resource.getrlimit(kind)
        if hard_max != resource.RLIM_INFINITY:
            soft = min(soft, hard_max)
            hard = min(hard, hard_max)
        resource.setrlimit(kind, (soft, hard))


def stand_back(pid: int, nice: int) -> None:
    """Have a process, which leads its session, stand back for others
    by `nice`, 0 to 19, more than we do.

    Its parent calls it at once: to start and import is a good part of a short job.
    """
    with contextlib.suppress(OSError):
        own_nice = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, pid, min(own_nice + nice, NICE_MAX))
    # a session of its own is a scheduling group of its own, where the system groups by sessions
    _write(f"/proc/{pid}/autogroup", str(nice))


def group_memory_bytes(group: int) -> int:
    """Return the memory that the processes of a group have resident or
    swapped out, mapped files not counted.

    Cost: a small file for each process of the machine, one more for those of the group.
    """
    total = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                stat = Path(entry.path, "stat").read_bytes()
                if int(stat.rpartition(b")")[2].split()[2]) == group:
                    total += memory_bytes(int(entry.name))
    return total


def memory_bytes(pid: int) -> int:
    """Return what `group_memory_bytes` does of one process, 0 when it is gone."""
    total = 0
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:", "VmSwap:")):
                total += int(line.split()[1]) * 1024
    return total


def _write(path: str, text: str) -> None:
    with contextlib.suppress(OSError):
        Path(path).write_text(text)
