"""The names that other packages may import from this one, and the module of each."""

from .app import create_app as create_app
from .door.neighbours import WorkerPlace as WorkerPlace
from .door.protocol import bounded_protocol as bounded_protocol
