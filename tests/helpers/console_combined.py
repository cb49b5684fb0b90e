"""A visit to the console with a combined version, whose labels have names in two languages."""

from tests.helpers.combined_models import NAMES, publish_combined
from tests.helpers.console import Console
from tests.helpers.console_accessibility import AXE, no_rule_of_accessibility_is_broken
from tests.helpers.servers import wait_for
from xylem_store.label_info import Subject, build_label_info


def press_key(page: Console, selector: str, key: str) -> None:
    page.run(
        f"$('{selector}').dispatchEvent(new KeyboardEvent('keydown', "
        f"{{key: '{key}', bubbles: true, cancelable: true}}))"
    )


def a_combined_version_is_explained_and_corrected(page: Console) -> None:
    """The browser is English; the concept that no training row has is named in Finnish alone."""
    store = publish_combined(page.directory)
    subjects = [Subject(f"l{i}", None, {"en": name}) for i, name in enumerate(NAMES[:6])]
    others = [("fi", False, "kaivoskuilu")]
    subjects.append(Subject("l6", None, {"fi": "suolakaivos"}, ["top"], other_names=others))
    subjects += [
        Subject("top", None, {"en": "mines"}, ["all"]),
        Subject("all", None, {"fi": "kaikki"}),
    ]
    store.put_label_info("both", build_label_info(subjects))
    labels = "/v1/models/both/labels?limit=1"
    wait_for(lambda: "fi" in str(page.server.ask("GET", labels)[1].get("languages")))
    page.open(f"{page.server.url}/#/predict")
    page.wait("$('#version').value")
    page.fill("#model", "both")
    page.wait("$('#language').value === 'en' && !$('#language-field').hidden")
    found = page.ask_text("An old SALT mine above a river boat")
    assert found[0] == "river boat" and "suolakaivos" in found
    page.shows("#why-text", "Proposed it at place 1")
    for member in ("words@1", "chars@1"):
        page.shows("#why-text", member)
    page.wait("$('#why .adds-4')")
    page.click("#predictions li[data-label=l6] .label-name")
    page.wait("$('#why-heading').textContent === 'Why suolakaivos'")
    assert page.text("#why-text .broader") == "Under kaikki › mines"
    assert page.run("$$('#why mark.named').slice(1).map(e => e.textContent)") == ["SALT", "mine"]
    assert "salt mine" in page.text("#why-text table") and "preferred" in page.text("#why-text")
    page.shows("#why-text", "Does not have this label.")
    if AXE.exists():
        no_rule_of_accessibility_is_broken(page)
    page.fill("#top", "1")
    page.count("#predictions > *", 1)
    page.fill("#add-label", "kaivosk")  # another name, in a language that the page does not show
    page.wait("$('#add-label-names [role=option]')?.checkVisibility()")
    assert page.run("$$('#add-label-names [role=option]').map(e => e.textContent)") == [
        "suolakaivos"
    ]
    press_key(page, "#add-label", "ArrowDown")
    assert page.run("$('#add-label').getAttribute('aria-activedescendant')") == "add-label-name-0"
    if AXE.exists():
        no_rule_of_accessibility_is_broken(page)
    press_key(page, "#add-label", "Enter")
    page.wait("$('#add-label-chosen .chip')?.title === 'l6'")
    assert page.run("$('#add-label-names').hidden")
    page.click("#send-correction")
    page.shows("#moved", "Thank you")
    page.wait("$('#moved table tbody tr')")
    thresholds = page.server.ask("GET", "/v1/models/both/thresholds")[1]["labels"]
    marks = {label["label"]: label["marks"] for label in thresholds}
    assert marks["l6"] == 1
