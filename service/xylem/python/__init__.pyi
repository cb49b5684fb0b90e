"""The names that other packages may import from this one, and the module of each."""

from .estimators import LabelTreeClassifier as LabelTreeClassifier
from .making import combine as combine
from .making import load as load
from .making import train as train
from .making import tune as tune
from .model import Model as Model
from .predicting import ScoredLabel as ScoredLabel
