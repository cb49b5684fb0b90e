"""The names that other packages may import from this one, and the module of each."""

from .application import main as main
from .application import run as run
