"""What others may use of this package, and the module that each name is in."""

from .application import main as main
from .application import run as run
