"""Paths of the sources in this checkout, for tests that read them or import them in processes."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ROOT / "service", ROOT / "model_store"
PACKAGES = SOURCE_ROOTS[0] / "xylem", SOURCE_ROOTS[1] / "xylem_store"
PYTHONPATH = os.pathsep.join(map(str, SOURCE_ROOTS))
"""The variable PYTHONPATH of a process that imports the packages of this checkout."""
