"""What others may use of this package, and the module that each name is in."""

from .serve import run as run
from .warm.answers import compile_answers as compile_answers
from .warm.kernels import compile_all as compile_all
