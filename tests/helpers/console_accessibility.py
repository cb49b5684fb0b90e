"""Steps of a visit to the console that look for faults of accessibility, with axe-core."""

import json
from pathlib import Path

from tests.helpers.console import Console

AXE = (
    Path(__file__).resolve().parents[1] / "typescript" / "node_modules" / "axe-core" / "axe.min.js"
)
FILLED = {
    "predict": "$('#predictions li')",
    "versions": "['#label-differences td', '#history td'].every(e => $(e))",
    "labels": "$('#page-labels tbody tr')",
    "train": "$('#page-train table')",
    "keys": "$$('#page-keys table').length === 2",
    "health": "$('#figures svg')",
}
"""When a page shows all that it has to show."""


def pages_are_accessible(page: Console, name: str, dark: bool) -> None:
    page.look(dark=dark)
    if name == "versions":  # of a model that has two
        page.fill("#model", "colours")
    page.go(name)
    page.wait(FILLED[name])
    no_rule_of_accessibility_is_broken(page)
    if name == "labels":
        page.click("#page-labels tbody .label-name")
        page.wait("$('dialog .bar-adds') && $('dialog svg.chart')")
        no_rule_of_accessibility_is_broken(page)
        page.close_dialog()
    page.look()
    page.fill("#model", "hostile")


def no_rule_of_accessibility_is_broken(page: Console) -> None:
    if not page.run("Boolean(window.axe)"):
        page.run(AXE.read_text() + "; 0")
    found = page.run("axe.run().then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html)]))")
    assert found == [], json.dumps(found, indent=1)
