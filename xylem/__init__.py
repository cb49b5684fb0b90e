"""The public Python face of Xylem: models in this process, and the clients of a server.

    model = xylem.train(texts, labels)
    model.predict(["a text editor for the terminal"], top_r=3)
    model.save("store", "debtags")

    import xylem

    with xylem.Client("http://127.0.0.1:8080") as client:
        answer = client.predict("debtags", ["a text editor for the terminal"], top_r=3)

Importing this costs next to nothing: what a name needs is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xylem._async.client import AsyncClient
    from xylem._sync.client import Client
    from xylem.errors import BadAnswer, ClientError, ConnectionFailed, FieldError, ProblemError, WaitTimeout
    from xylem.estimators import LabelTreeClassifier
    from xylem.events import ServerEvent
    from xylem.local import Model, ScoredLabel, load, train
    from xylem.results import (
        DataFile,
        Feedback,
        FeedbackVerdict,
        InstanceScores,
        Job,
        Label,
        LabelScore,
        LabelThreshold,
        LineError,
        ModelDetails,
        ModelInfo,
        Prediction,
        Predictions,
        Progress,
        Promotion,
        Scores,
        Thresholds,
    )
    from xylem.retries import Retries

_PLACES = {
    "AsyncClient": "_async.client",
    "BadAnswer": "errors",
    "Client": "_sync.client",
    "ClientError": "errors",
    "ConnectionFailed": "errors",
    "DataFile": "results",
    "Feedback": "results",
    "FeedbackVerdict": "results",
    "FieldError": "errors",
    "InstanceScores": "results",
    "Job": "results",
    "Label": "results",
    "LabelScore": "results",
    "LabelThreshold": "results",
    "LabelTreeClassifier": "estimators",
    "LineError": "results",
    "Model": "local",
    "ModelDetails": "results",
    "ModelInfo": "results",
    "Prediction": "results",
    "Predictions": "results",
    "ProblemError": "errors",
    "Progress": "results",
    "Promotion": "results",
    "Retries": "retries",
    "ScoredLabel": "local",
    "Scores": "results",
    "ServerEvent": "events",
    "Thresholds": "results",
    "WaitTimeout": "errors",
    "load": "local",
    "train": "local",
}

__all__ = [
    "AsyncClient",
    "BadAnswer",
    "Client",
    "ClientError",
    "ConnectionFailed",
    "DataFile",
    "Feedback",
    "FeedbackVerdict",
    "FieldError",
    "InstanceScores",
    "Job",
    "Label",
    "LabelScore",
    "LabelThreshold",
    "LabelTreeClassifier",
    "LineError",
    "Model",
    "ModelDetails",
    "ModelInfo",
    "Prediction",
    "Predictions",
    "ProblemError",
    "Progress",
    "Promotion",
    "Retries",
    "ScoredLabel",
    "Scores",
    "ServerEvent",
    "Thresholds",
    "WaitTimeout",
    "load",
    "train",
]


def __getattr__(name: str) -> object:
    """Import what `name` is, at its first use."""
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
    return __all__
