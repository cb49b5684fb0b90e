"""What of a training request does not go together: refused before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.errors import BadParameter
from service.trainers.registry import TRAINERS

if TYPE_CHECKING:
    from service.workflows.train import TrainRequest


def check_together(request: TrainRequest, is_standard_input: bool, finds_thresholds: bool) -> None:
    """Raise BadParameter for calibration or thresholds that cannot be had with the rest.

    finds_thresholds  beside the training
    """
    if request.calibrate:
        _check_calibrated(request, is_standard_input)
    if finds_thresholds:
        _check_thresholds(request)


def _check_calibrated(request: TrainRequest, is_standard_input: bool) -> None:
    """Raise BadParameter where there is nothing to calibrate on, or nothing to calibrate."""
    if request.valid is None:
        raise BadParameter("calibrate: expected a validation file to fit to, found none")
    if is_standard_input or (request.trainer in TRAINERS and TRAINERS[request.trainer].is_exact):
        found = "standard input" if is_standard_input else f"{request.trainer}, whose sum to 1"
        raise BadParameter(f"calibrate: expected a file, and a trainer of scores a label, found {found}")


def _check_thresholds(request: TrainRequest) -> None:
    """Raise BadParameter where thresholds cannot be found beside the training."""
    if not request.stream:
        raise BadParameter("thresholds: expected --stream, found training in memory: use xylem thresholds")
    if request.calibrate:
        raise BadParameter("thresholds: expected scores as they are trained, found --calibrate")
