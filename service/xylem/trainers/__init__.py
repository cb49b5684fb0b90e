"""Trainers: from rows and their labels to a TreeEnsemble."""

from xylem.trainers.registry import TRAINERS, estimate, fit, parse_parameters, train
from xylem.trainers.source import TrainingSet
from xylem.trainers.spec import Trained, TrainerSpec

__all__ = [
    "TRAINERS",
    "Trained",
    "TrainerSpec",
    "TrainingSet",
    "estimate",
    "fit",
    "parse_parameters",
    "train",
]
