"""The names that other packages may import from this one, and the module of each."""

from ._sync.client import Client as Client
