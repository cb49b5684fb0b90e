"""What others may use of this package, and the module that each name is in."""

from .app import create_app as create_app
from .door.neighbours import WorkerPlace as WorkerPlace
from .door.protocol import bounded_protocol as bounded_protocol
