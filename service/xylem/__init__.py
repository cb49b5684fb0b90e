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
    from xylem.client._async.client import AsyncClient as AsyncClient
    from xylem.client._sync.client import Client as Client
    from xylem.client.events import ServerEvent as ServerEvent
    from xylem.client.results import DataFile as DataFile
    from xylem.client.results import Feedback as Feedback
    from xylem.client.results import FeedbackVerdict as FeedbackVerdict
    from xylem.client.results import InstanceScores as InstanceScores
    from xylem.client.results import Job as Job
    from xylem.client.results import Label as Label
    from xylem.client.results import LabelScore as LabelScore
    from xylem.client.results import LabelThreshold as LabelThreshold
    from xylem.client.results import LineError as LineError
    from xylem.client.results import ModelDetails as ModelDetails
    from xylem.client.results import ModelInfo as ModelInfo
    from xylem.client.results import Prediction as Prediction
    from xylem.client.results import Predictions as Predictions
    from xylem.client.results import Progress as Progress
    from xylem.client.results import Promotion as Promotion
    from xylem.client.results import Scores as Scores
    from xylem.client.results import Thresholds as Thresholds
    from xylem.errors import BadAnswer as BadAnswer
    from xylem.errors import ClientError as ClientError
    from xylem.errors import ConnectionFailed as ConnectionFailed
    from xylem.errors import FieldError as FieldError
    from xylem.errors import ProblemError as ProblemError
    from xylem.errors import Retries as Retries
    from xylem.errors import WaitTimeout as WaitTimeout
    from xylem.python.asked import ScoredLabel as ScoredLabel
    from xylem.python.estimators import LabelTreeClassifier as LabelTreeClassifier
    from xylem.python.making import combine as combine
    from xylem.python.making import load as load
    from xylem.python.making import train as train
    from xylem.python.making import tune as tune
    from xylem.python.model import Model as Model

_NAMES = {
    "client._async.client": "AsyncClient",
    "client._sync.client": "Client",
    "errors": "BadAnswer ClientError ConnectionFailed FieldError ProblemError Retries WaitTimeout",
    "python.estimators": "LabelTreeClassifier",
    "client.events": "ServerEvent",
    "python.asked": "ScoredLabel",
    "python.making": "combine load train tune",
    "python.model": "Model",
    "client.results": """
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
