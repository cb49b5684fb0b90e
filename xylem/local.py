"""Models in this process: `xylem.train`, `xylem.load` and what they return, which the service has."""

from xylem.command import refuse_shadows

refuse_shadows()  # before the service is imported; a pickle of a model imports this first, too

from service.in_memory.asked import ScoredLabel as ScoredLabel  # noqa: E402
from service.in_memory.making import combine as combine  # noqa: E402
from service.in_memory.making import load as load  # noqa: E402
from service.in_memory.making import train as train  # noqa: E402
from service.in_memory.making import tune as tune  # noqa: E402
from service.in_memory.model import Model as Model  # noqa: E402
