"""Limits of a job's process, which the process sets for itself at its start.

Memory is limited twice. RLIMIT_DATA bounds how much the process may allocate (private writable
memory, whether it is used or not; also the stacks of threads and spare memory of the allocator, so
the bound is SLACK_BYTES higher): beyond it, an allocation raises MemoryError at once, however fast
the process grows. The worker also measures the resident memory ten times a second
(`xylem.admin.jobs.process`), which is exact and includes shared memory.

RLIMIT_AS can replace neither limit: it counts reserved addresses, and mapped files, which may be
larger than the memory if the model is large. Measured for a training with 153 MB resident and 109
MB of mapped files: 328 MB for RLIMIT_DATA, 797 MB for RLIMIT_AS.
"""

import contextlib
import ctypes
import math
import os
import resource
import signal
from pathlib import Path

from xylem.base import Limits

# Bytes that a process may allocate beyond job_memory_bytes_max.
#
# They are for libraries, stacks, and spare memory of the allocator.
SLACK_BYTES = 512 << 20

# The most open files of a job.
FILES_MAX = 1024

NICE_MAX = 19

CPU_GRACE_SECONDS = 5  # between the signal at the limit of processor time and the kill
_PR_SET_PDEATHSIG = 1


def confine(limits: Limits, parent: int) -> None:
    """Set the limits of jobs for this process, which then dies with the thread that started it.

    parent  the process that started this one; if it is gone already, this process ends at once
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    _write("/proc/self/oom_score_adj", "1000")  # the first that the system kills if memory runs out
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
    """Lower the priority of a process: its niceness becomes that of this process plus `nice`.

    pid   the process, which leads a session
    nice  0 to 19

    The parent calls this right after it started the process, because starting and importing take a
    good part of a short job.
    """
    with contextlib.suppress(OSError):
        os.setpriority(
            os.PRIO_PROCESS, pid, min(os.getpriority(os.PRIO_PROCESS, 0) + nice, NICE_MAX)
        )
    # where the system schedules by session, the niceness of the whole session counts, too
    _write(f"/proc/{pid}/autogroup", str(nice))


def group_memory_bytes(group: int) -> int:
    """Return the memory of a process group: resident or swapped out, without mapped files.

    Cost: one small file for each process of the machine, and one more for each of the group.
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
    """Return the memory of one process, as `group_memory_bytes` does; 0 if the process is gone."""
    total = 0
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:", "VmSwap:")):
                total += int(line.split()[1]) * 1024
    return total


def _write(path: str, text: str) -> None:
    with contextlib.suppress(OSError):
        Path(path).write_text(text)
