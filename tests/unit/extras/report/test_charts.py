"""Pictures of reports: which are drawn, and their points."""

from pathlib import Path

import numpy as np
import pytest

from xylem.extras.report.charts import _points_of, draw_report

pytest.importorskip("matplotlib")

CRITERIA = ("shannon", "gini", "modified_gini", "error", "test_error")
MEANS = ("objective", "smaller_side", "purity")
FOREST = {
    "splits": [{"splits": n, **dict.fromkeys(CRITERIA, 1 / n)} for n in (1, 2, 3)],
    "depths": [{"depth": depth, **dict.fromkeys(MEANS, 0.5)} for depth in (0, 1)],
}


def test_pictures_are_drawn_of_what_there_is(tmp_path: Path) -> None:
    drawn = draw_report({"forest": FOREST}, "m@1", tmp_path / "forest")
    assert [file.name for file in drawn] == ["criteria.png", "error.png", "objective.png"]
    depths = [
        {"depth": 0, "nodes": 1, "children": 2, "features_mean": 9.0},
        {"depth": 1, "nodes": 2, "children": 4, "features_mean": 5.0, "alpha": 0.5},
    ]
    drawn += draw_report({"size": {"depths": depths}}, "m@1", tmp_path / "size")
    assert [file.name for file in drawn[3:]] == ["features.png", "alpha.png"]
    updates = [
        {"rows": 10, "labels_moved": 3, "share_moved": 0.3, "levels": [{"level": 0, "share": 0.1}]},
        {
            "rows": 20,
            "labels_moved": 1,
            "share_moved": 0.1,
            "levels": [{"share": 0.4}, {"share": 0.2}],
        },
    ]
    curve = draw_report({"training": {"updates": updates}}, "m@1", tmp_path / "learned")
    assert [file.name for file in curve] == ["updates.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in [*drawn, *curve])
    points, names = _points_of(updates)
    assert names == ["J, level 0", "J, level 1", "labels moved"]
    assert [point["J, level 0"] for point in points] == [0.1, 0.4]
    assert np.isnan(points[0]["J, level 1"])
    assert [point["labels moved"] for point in points] == [0.3, 0.1]
    assert draw_report({}, "m@1", tmp_path / "none") == []
