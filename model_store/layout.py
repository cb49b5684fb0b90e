"""Where in a store things are: see FORMAT.md."""

from __future__ import annotations

from model_store.aliases import ALIAS_BYTES_MAX
from model_store.denied import DENIED_BYTES_MAX
from model_store.splits import SPLIT_BYTES_MAX

LATEST = "latest"
"""The alias that every publication moves."""

MODELS, VERSIONS, ALIASES, SPLITS, DENIED = "models", "versions", "aliases", "splits", "denied"
LAST = "last_version"

OF_ALIASES = ((ALIASES, ALIAS_BYTES_MAX), (SPLITS, SPLIT_BYTES_MAX), (DENIED, DENIED_BYTES_MAX))
"""The directories that have a file an alias, and the most bytes of one."""
