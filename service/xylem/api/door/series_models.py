"""SeriesModels: which models have series of their own in /metrics, so that series stay bounded."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from prometheus_client.core import Metric, Sample

# gauges that are counts; any other gauge of a model that has no series says nothing in a sum
_SUMMED_GAUGES = ("xylem_model_failed", "xylem_feedback_rows")

_MODEL_LABELS = ("model", "version", "alias", "ref", "answered")


class SeriesModels:
    """The models that have series of their own. The others count together, with empty labels.

    setting  `all`, `none`, or patterns of names with a comma between two
    """

    def __init__(self, setting: str) -> None:
        self._is_all = setting == "all"
        self._patterns = [] if setting == "none" else setting.replace(" ", "").split(",")

    def __contains__(self, model: str) -> bool:
        return self._is_all or any(fnmatchcase(model, pattern) for pattern in self._patterns)

    def fold(self, families: Iterable[Metric]) -> list[Metric]:
        """Return families of figures in which the models without series count together."""
        folded = list(families)
        if not self._is_all:
            for family in folded:
                family.samples = self._fold_samples(family)
        return folded

    def _fold_samples(self, family: Metric) -> list[Sample]:
        is_sum = family.type != "gauge" or family.name in _SUMMED_GAUGES
        samples: dict[tuple[str, ...], Sample] = {}
        for sample in family.samples:
            model = sample.labels.get("model")
            if model and model not in self:
                if not is_sum:
                    continue
                sample = sample._replace(
                    labels=sample.labels
                    | {label: "" for label in _MODEL_LABELS if label in sample.labels},
                    exemplar=None,
                )
            key = sample.name, *sample.labels.values()
            if (other := samples.get(key)) is not None:
                sample = other._replace(value=other.value + sample.value)
            samples[key] = sample
        return list(samples.values())
