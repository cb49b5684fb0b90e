"""Trainers: from rows and their labels to a TreeEnsemble."""

from service.trainers.registry import TRAINERS, estimate, parse_parameters, train, train_stream
from service.trainers.spec import Trained, TrainerSpec, TrainingSet

__all__ = [
    "TRAINERS",
    "Trained",
    "TrainerSpec",
    "TrainingSet",
    "estimate",
    "parse_parameters",
    "train",
    "train_stream",
]
