"""The names that other packages may import from this one, and the module of each."""

from .serve import run as run
from .warm.answers import compile_answers as compile_answers
from .warm.kernels import compile_all as compile_all
