"""The build hook of wheels: with $KERNELS_OF_WHEEL a wheel holds kernels, and is for one platform.

Without the variable the wheel is pure, and kernels are compiled where it is installed.
"""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "KERNELS_OF_WHEEL"
"""A directory of kernels as xylem_store.compiled.cache files
them: one for each level of processors.
"""

PLATFORM = f"manylinux_2_17_{platform.machine()}"


class KernelHook(BuildHookInterface[Any]):
    """Adds kernels to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the kernels, and say which Python and platform they are for."""
        kernels = os.environ.get(VARIABLE)
        if not kernels or version == "editable":
            return
        python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        build_data["pure_python"] = False
        build_data["tag"] = f"{python}-{python}-{PLATFORM}"
        build_data["force_include"][kernels] = "xylem_store/compiled/shipped"
