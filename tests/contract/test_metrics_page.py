"""docs/metrics.md names every figure, its kind, its labels and what it says, no less and no more."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.metrics_core import Metric

from service.base.settings import read_settings
from service.server.app import create_app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
FOREIGN = ("process_", "python_")
"""What the names of figures begin with that are not ours."""


def families(store: Path) -> list[Metric]:
    """Every kind of figure of a service that has answered nothing yet."""
    app = create_app(read_settings(store=store))
    return [family for family in app.state.metrics.registry.collect() if not family.name.startswith(FOREIGN)]


def name_of(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def test_every_figure_is_documented(tmp_path: Path) -> None:
    rows = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `"):
            name, kind, labels, says = (cell.strip() for cell in line.strip("|").split("|"))
            rows[name.strip("`")] = kind, says
            assert re.fullmatch(r"([a-z]+(, [a-z]+)*)?", labels)
    found = {name_of(family): (family.type, family.documentation) for family in families(tmp_path)}
    assert rows == found
