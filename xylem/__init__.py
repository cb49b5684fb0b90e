"""Xylem in Python: models in this process, and clients of a server.

    model = xylem.train(texts, labels)
    model.predict(["a text editor for the terminal"], top_r=3)
    model.save("store", "debtags")

    import xylem

    with xylem.Client("http://127.0.0.1:8080") as client:
        answer = client.predict("debtags", ["a text editor for the terminal"], top_r=3)

The import is fast: what a name needs is imported at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xylem._async.client import AsyncClient as AsyncClient
    from xylem._sync.client import Client as Client
    from xylem.errors import BadAnswer as BadAnswer
    from xylem.errors import ClientError as ClientError
    from xylem.errors import ConnectionFailed as ConnectionFailed
    from xylem.errors import FieldError as FieldError
    from xylem.errors import ProblemError as ProblemError
    from xylem.errors import Retries as Retries
    from xylem.errors import WaitTimeout as WaitTimeout
    from xylem.estimators import LabelTreeClassifier as LabelTreeClassifier
    from xylem.events import ServerEvent as ServerEvent
    from xylem.local import Model as Model
    from xylem.local import ScoredLabel as ScoredLabel
    from xylem.local import combine as combine
    from xylem.local import load as load
    from xylem.local import train as train
    from xylem.local import tune as tune
    from xylem.results import DataFile as DataFile
    from xylem.results import Feedback as Feedback
    from xylem.results import FeedbackVerdict as FeedbackVerdict
    from xylem.results import InstanceScores as InstanceScores
    from xylem.results import Job as Job
    from xylem.results import Label as Label
    from xylem.results import LabelScore as LabelScore
    from xylem.results import LabelThreshold as LabelThreshold
    from xylem.results import LineError as LineError
    from xylem.results import ModelDetails as ModelDetails
    from xylem.results import ModelInfo as ModelInfo
    from xylem.results import Prediction as Prediction
    from xylem.results import Predictions as Predictions
    from xylem.results import Progress as Progress
    from xylem.results import Promotion as Promotion
    from xylem.results import Scores as Scores
    from xylem.results import Thresholds as Thresholds

_NAMES = {
    "_async.client": "AsyncClient",
    "_sync.client": "Client",
    "errors": "BadAnswer ClientError ConnectionFailed FieldError ProblemError Retries WaitTimeout",
    "estimators": "LabelTreeClassifier",
    "events": "ServerEvent",
    "local": "Model ScoredLabel combine load train tune",
    "results": """
        DataFile Feedback FeedbackVerdict InstanceScores Job Label LabelScore LabelThreshold LineError
        ModelDetails ModelInfo Prediction Predictions Progress Promotion Scores Thresholds
    """,
}
_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import what `name` is, at its first use."""
    if name == "errors":
        return import_module("xylem.errors")
    if name not in _PLACES:
        raise AttributeError(f"module 'xylem' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"xylem.{_PLACES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "sklearn":
            raise
        raise ImportError(f"xylem.{name} needs scikit-learn: pip install 'xylem-serve[sklearn]'") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*_PLACES, "errors"])
