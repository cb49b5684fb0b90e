"""Metrics of rankings and of decisions, and the report of an evaluation."""

from service.evaluation.fmeasure import USUAL_EMPTY, EmptyConvention, FMeasures, f_measures
from service.evaluation.propensity import propensities
from service.evaluation.ranking import PredictedRows, Truth, ranking_metrics
from service.evaluation.report import Report, evaluation_report

__all__ = [
    "USUAL_EMPTY",
    "EmptyConvention",
    "FMeasures",
    "PredictedRows",
    "Report",
    "Truth",
    "evaluation_report",
    "f_measures",
    "propensities",
    "ranking_metrics",
]
