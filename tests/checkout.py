"""Where the sources of this checkout are, for tests that read them
or start processes that import them.
"""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE_ROOTS = ROOT / "service", ROOT / "model_store"
PACKAGES = SOURCE_ROOTS[0] / "xylem", SOURCE_ROOTS[1] / "xylem_store"
PYTHONPATH = os.pathsep.join(map(str, SOURCE_ROOTS))
"""For a process that is to import this checkout and nothing else that is beside it."""
