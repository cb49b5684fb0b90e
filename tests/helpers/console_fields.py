"""A visit to the console with a version that has fields."""

from tests.helpers.console import Console
from tests.helpers.console_accessibility import AXE, no_rule_of_accessibility_is_broken
from tests.helpers.servers import wait_for
from tests.helpers.titled_rows import FIELDS, columns, write_titled
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.store import Store


def each_field_has_a_text_of_its_own(page: Console) -> None:
    write_titled(page.directory, 150)
    data = page.directory / "rows.jsonl"
    request = TrainRequest(trainer="label-tree", data=data, columns=columns(*FIELDS))
    train_and_publish(Store(page.directory / "store"), "titled", request)
    wait_for(lambda: page.server.ask("GET", "/v1/models/titled")[0] == 200)
    page.open(f"{page.server.url}/#/predict")
    page.wait("$('#version').value")
    page.fill("#model", "titled")
    page.wait("$('#text').hidden && !$('#text-fields').hidden")
    names = "$$('#text-fields label').map(e => e.textContent)"
    assert page.run(names) == ["title", "body"]
    page.fill("#field-0", "old HONEY")
    page.is_first("honey")
    page.wait("$('#why .marked .adds-4')?.textContent === 'HONEY'")
    page.fill("#field-1", "quiet new late")
    page.press("JSON")
    assert '"title": "old HONEY"' in page.text("dialog pre")
    page.close_dialog()
    if AXE.exists():
        no_rule_of_accessibility_is_broken(page)
    page.fill("#kind", "text")
    page.wait("$('#text-fields').hidden && !$('#text').hidden")
    page.fill("#text", "a river")
    page.is_first("river")
