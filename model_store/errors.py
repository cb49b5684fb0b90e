"""Errors of the store. `code` is stable: clients and scripts may rely on it.

StoreError
├── NotFound                 model-not-found, version-not-found, alias-not-found
├── InvalidName              invalid-name
├── BadNames                 bad-names: a table of label or feature names
├── Corrupt                  model-corrupt
└── StoreUnwritable          store-unwritable (no space, no permission, read-only)
"""

from __future__ import annotations


class StoreError(Exception):
    """Anything the store refuses or fails at; the message says what was expected and what was found."""

    code = "store-error"


class BadNames(StoreError, ValueError):
    """Names that cannot make a table: empty, repeated, too long, with control characters, or not text."""

    code = "bad-names"
