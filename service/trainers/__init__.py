"""Trainers: from rows and their labels to a TreeEnsemble."""

from service.trainers.registry import TRAINERS, estimate, fit, parse_parameters, train
from service.trainers.source import TrainingSet
from service.trainers.spec import Trained, TrainerSpec

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
