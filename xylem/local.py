"""Models in this process: `xylem.train`, `xylem.load` and what they return, which the service has."""

from xylem.command import refuse_shadows

refuse_shadows()  # before the service is imported; a pickle of a model imports this first, too

from service.in_memory import Model as Model  # noqa: E402
from service.in_memory import ScoredLabel as ScoredLabel  # noqa: E402
from service.in_memory import combine as combine  # noqa: E402
from service.in_memory import load as load  # noqa: E402
from service.in_memory import train as train  # noqa: E402
from service.in_memory import tune as tune  # noqa: E402
