"""The processors that kernels are compiled for: this machine's, or a level that many machines run.

numba compiles for exactly the processor it runs on, and stores the code under its name. An image is
built on one machine and runs on others. So its kernels are compiled for every processor of the
architecture, and once more for those of the level x86-64-v3 (AVX2, FMA). XYLEM_KERNEL_CPU=portable
takes the best level that a machine can run.
"""

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import llvmlite.binding
from numba import config as _numba_config

from xylem_store.compiled.faults import BadProcessor

# The environment variable: a level, or PORTABLE. If it is not set, this machine's processor.
VARIABLE = "XYLEM_KERNEL_CPU"

PORTABLE = "portable"
GENERIC = "generic"

_V2_FEATURES = frozenset(("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "sahf"))

# LLVM's names of processors, the best first, and the features that each needs.
#
# Features of the architecture itself are not listed.
LEVELS: Mapping[str, frozenset[str]] = {
    "x86-64-v3": _V2_FEATURES
    | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"},
    GENERIC: frozenset(),
}

# numba's configuration. numba sets its attributes at import; its type stubs do not know them.
CONFIG: Any = _numba_config


def levels_of(features: Mapping[str, bool]) -> list[str]:
    """Return the levels that a processor with these features can run, the best first."""
    return [level for level, needed in LEVELS.items() if all(map(features.get, needed))]


@functools.cache
def levels_here() -> tuple[str, ...]:
    """Return the levels that this machine can run, the best first."""
    return tuple(levels_of(llvmlite.binding.get_host_cpu_features()))


def environments_by_level() -> list[dict[str, str]]:
    """Return the environment of a process for each level, if kernels are compiled for all levels.

    That is so if $XYLEM_KERNEL_CPU is PORTABLE; else return none.
    """
    levels = levels_here() if os.environ.get(VARIABLE) == PORTABLE else ()
    return [{**os.environ, VARIABLE: level} for level in levels]


def directory_for(cache: Path, level: str) -> Path:
    """Return the directory of the kernels of a level, beside that of this machine's processor."""
    return cache.with_name(f"{cache.name}-{level}")


def chosen_level(*caches: Path) -> str | None:
    """Return the level that $XYLEM_KERNEL_CPU chooses, None for this machine's processor.

    caches   the directories of kernels for this machine's processor: those that are compiled here,
             and those that came with the installation

    `portable` is the best level that this machine can run and for which there are kernels, else
    generic. If the variable is not set, it is the best level of the kernels that came with the
    installation, if there are any. Raises BadProcessor for a value that is none of these, and for a
    level that this machine cannot run, since its code would end the process.
    """
    setting, *_, shipped = os.environ.get(VARIABLE), *caches
    runnable_levels = levels_here()
    if not setting:
        return next(
            (level for level in runnable_levels if directory_for(shipped, level).is_dir()), None
        )
    if setting == PORTABLE:
        return next(
            (
                level
                for level in runnable_levels
                if any(directory_for(cache, level).is_dir() for cache in caches)
            ),
            GENERIC,
        )
    if setting not in LEVELS:
        raise BadProcessor(
            f"{VARIABLE}: expected {PORTABLE}, {' or '.join(LEVELS)}, found {setting!r}"
        )
    if setting not in runnable_levels:
        expected = " or ".join(runnable_levels)
        raise BadProcessor(
            f"{VARIABLE}: expected a level that this processor can run, {expected}, found {setting}"
        )
    return setting


def compile_for(level: str) -> None:
    """Let numba compile for a level. Call this before the first kernel: numba looks once."""
    CONFIG.CPU_NAME = level
    CONFIG.CPU_FEATURES = ""  # only those of the level, none that this machine has beyond it
