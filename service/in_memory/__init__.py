"""Models of this process: what the Python face does. `xylem.local` shows it to callers."""

from service.in_memory.asked import ScoredLabel as ScoredLabel
from service.in_memory.making import combine as combine
from service.in_memory.making import load as load
from service.in_memory.making import train as train
from service.in_memory.making import tune as tune
from service.in_memory.model import Model as Model
