"""Models without series of their own count together; gauges that say nothing in a sum go."""

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from xylem.api.door.series_models import SeriesModels


def _totals(setting: str) -> dict[str, float]:
    counter = CounterMetricFamily("xylem_requests", "", labels=["model", "version"])
    gauge = GaugeMetricFamily("xylem_model_version", "", labels=["model"])
    for number, model in enumerate(("shop-a", "shop-b", "tags", "other"), 1):
        counter.add_metric([model, str(number)], number)
        gauge.add_metric([model], number)
    return {
        f"{sample.name}{{{sample.labels['model']}}}": sample.value
        for family in SeriesModels(setting).fold([counter, gauge])
        for sample in family.samples
    }


@pytest.mark.parametrize(
    ("setting", "models"),
    [
        ("all", ["shop-a", "shop-b", "tags", "other"]),
        ("shop-*, tags", ["shop-a", "shop-b", "tags"]),
    ],
)
def test_models_that_match_have_series(setting: str, models: list[str]) -> None:
    totals = _totals(setting)
    assert [name for name in totals if name.startswith("xylem_model_version")] == [
        f"xylem_model_version{{{model}}}" for model in models
    ]
    assert sum(count for name, count in totals.items() if "requests" in name) == 10
    assert totals.get("xylem_requests_total{}", 4) == 4


def test_no_model_has_series_where_none_is_asked() -> None:
    assert _totals("none") == {"xylem_requests_total{}": 10}
