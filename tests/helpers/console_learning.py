"""Steps of a visit to the console's page Learning, with a model that has a recipe."""

import json
from pathlib import Path

from tests.helpers.combined_models import NAMES
from tests.helpers.console import Console
from tests.helpers.console_accessibility import AXE, no_rule_of_accessibility_is_broken
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.distinct_documents import distinct_documents
from tests.helpers.servers import KEY, wait_for

RECIPE = {
    "vocabulary": "names.csv",
    "language": "en",
    "sources": [{"file": "documents.jsonl"}],
    "parameters": {"features.kind": "tfidf"},
    "beam_width": 3,
    "near": False,
    "rows": 500,
}
"""A recipe whose run takes seconds; corrections alone would start it, 500 of them."""

N_SHOP = 23
"""Corrections of one sender: more than the page shows at once."""

TEXT = "An old snow owl <b>above</b> a quiet paper mill"


def write_vocabulary(file: Path, names: list[str]) -> None:
    """Write a table of concepts l0, l1, ... with names in two languages; "" leaves one out."""
    rows = [f"l{i},{name},suomen {name}\n" for i, name in enumerate(names) if name]
    file.write_text("uri,label_en,label_fi\n" + "".join(rows))


def a_recipe_is_learnt(page: Console) -> None:
    """Set a recipe over HTTP, learn it once, and open the page with the admin key."""
    data = page.directory / "data"
    write_vocabulary(data / "names.csv", NAMES)
    write_lines(data / "documents.jsonl", distinct_documents(340, 1))
    assert page.server.admin("PUT", "/models/m/recipe", RECIPE)[0] == 200
    assert page.server.admin("POST", "/learn-jobs", {"model": "m"})[0] == 202
    wait_for(lambda: page.newest_job()["state"] == "succeeded")
    wait_for(lambda: page.server.ask("GET", "/v1/models/m")[0] == 200)
    page.run(f"sessionStorage.setItem('xylem-key', '{KEY}')")
    page.open(f"{page.server.url}/#/learning")


def a_model_without_a_recipe_says_how_to_get_one(page: Console) -> None:
    page.wait("$('#model').value && $('#page-learning h1')")
    page.fill("#model", "bare")
    page.shows("#no-recipe", "xylem learn bare --vocabulary")
    page.shows("#corrections-told", "0 corrections are stored")
    assert not page.run("$('#run-now')")
    page.fill("#model", "m")
    page.shows("#waiting", "0 corrections wait for the next run. It comes by itself when 500 wait")
    page.shows("#runs tbody", "it is the first version of the model")
    page.count("#runs svg circle", 1)


def a_correction_says_that_its_text_is_stored(page: Console) -> None:
    for text in (TEXT, f"{TEXT} again"):
        page.go("predict")
        assert "snow owl" in page.ask_text(text)
        page.shows("#text-stored", "The text is stored with its labels")
        page.wait("$('#correct').checkVisibility()")
        page.click("#send-correction")
        page.shows("#moved", "this is counted")
    page.go("learning")
    page.shows("#waiting", "2 corrections wait for the next run")
    page.count("#corrections li > .danger, #corrections .row .danger", 2)
    assert page.text("#corrections bdi") == f"{TEXT} again"
    assert page.run("$$('#corrections b').length") == 0  # a text is no markup


def corrections_are_filtered_and_deleted(page: Console) -> None:
    n_events = page.server.ask("GET", "/v1/models/m/thresholds")[1]["n_events"]
    page.fill("#correction-label", "no such label")
    page.click("#correction-label-button")
    page.shows("#correction-label-fault", "No label is called")
    page.fill("#correction-label", "apple tree")
    page.click("#correction-label-button")
    page.shows("#correction-filter", "apple tree")
    page.shows("#corrections", "No correction fits.")
    page.click("#correction-filter button")
    page.count("#corrections .danger", 2)
    page.fill("#correction-key", "nobody")
    page.shows("#corrections", "No correction fits.")
    page.fill("#correction-key", "")
    page.count("#corrections .danger", 2)
    page.click("#corrections .danger")
    page.shows("dialog", "Thresholds keep what they have learnt")
    page.close_dialog()
    assert page.run("$$('#corrections .danger').length") == 2
    page.click("#corrections .danger")
    page.click("dialog .danger")
    page.count("dialog", 0)
    page.count("#corrections .danger", 1)
    page.shows("#waiting", "1 correction waits")
    assert page.server.ask("GET", "/v1/models/m/thresholds")[1]["n_events"] == n_events


def a_sender_has_more_corrections_than_are_shown(page: Console) -> None:
    """A key sends more than a page of them; a later one than theirs is from somebody else."""
    body = {"name": "shop", "scopes": ["feedback"]}
    key = page.server.admin("POST", "/keys", body)[1]["key"]
    for sender, n in ((key, N_SHOP), (KEY, 1)):
        events = [
            {
                "event_id": f"{sender[-4:]}-{i}",
                "instance": {"text": f"A snow owl of the shelf {i}"},
                "labels": ["l4"],
            }
            for i in range(n)
        ]
        headers = {"authorization": f"Bearer {sender}"}
        answer = page.server.ask("POST", "/v1/models/m/feedback", {"events": events}, **headers)[1]
        assert {result["result"] for result in answer["results"]} == {"applied"}
    page.open(f"{page.server.url}/#/learning")
    page.wait("$('#run-now') && $('#vocabulary-file') && $('#runs svg')")
    page.shows("#corrections-told", f"20 are shown. {N_SHOP + 2} corrections are stored.")


def a_new_concept_is_answered_by_its_name(page: Console) -> None:
    page.click("#concept-submit")  # the browser asks for a URI
    page.fill("#concept-key", "l1")
    page.click("#concept-submit")
    page.shows("#concept-said", "Write at least one name.")
    page.fill("#concept-names textarea", "solar kiln\nsun oven")
    page.click("#concept-submit")
    page.wait("$('#concept-said [role=alert]')")  # a concept of the file has this key
    page.fill("#concept-key", "l9")
    page.press("Another language")
    page.fill("#concept-names > :last-child input", "fi")
    page.fill("#concept-names > :last-child textarea", "aurinkouuni")
    page.fill("#concept-broader", "salt mine")
    page.click("#concept-broader-button")
    page.shows("#concept-broader-chosen", "salt mine")
    page.fill("#concept-examples", "A kiln in the sun.\n\nAnother one.")
    page.click("#concept-submit")
    page.shows("#own-concepts", "solar kiln")
    page.wait("$('#concept-job .badge.succeeded')")
    page.shows("#own-concepts", "version 2")
    stored = page.server.admin("GET", "/models/m/concepts")[1]["concepts"][0]
    assert stored["broader"] == ["l6"] and len(stored["examples"]) == 2
    page.wait("$('#version').selectedOptions[0].text === 'latest (version 2)'")
    page.go("predict")
    for language, said in ("en", "solar kiln"), ("fi", "aurinkouuni"):
        page.fill("#language", language)
        page.wait(f"$('#language').value === '{language}'")
        assert said in page.ask_text("A solar kiln in the yard")
    page.fill("#language", "en")


def a_run_now_shows_its_progress_and_the_new_version(page: Console) -> None:
    page.go("learning")
    page.click("#run-now")
    page.shows("#page-learning", "The run is the job")
    page.wait("$('#learn-job .badge.succeeded')")
    page.shows("#runs tbody tr", "F1@5: expected an upper end of the change's interval")
    page.count("#runs svg circle", 2)
    page.shows("#waiting", "0 corrections wait")
    page.shows("#own-concepts", "solar kiln")
    page.click("#runs tbody button")
    page.shows("dialog", "Learnt for the first time")
    page.shows("dialog", "Figures on")
    page.shows("dialog table", "nDCG@5")
    page.close_dialog()
    page.fill("#run-figure", "P@1")
    page.shows("#runs thead", "P@1 before")


def another_vocabulary_shows_its_changes_and_is_used(page: Console) -> None:
    data = page.directory / "data"
    # the labels of the correction go, and one is new
    names = [name if i not in (4, 5) else "" for i, name in enumerate(NAMES)]
    write_vocabulary(data / "new.csv", [*names, "glass tower"])
    (data / "gone.csv").write_text("uri,label_en\n")
    page.open(f"{page.server.url}/#/learning")
    page.wait("$('#vocabulary-file')")
    (data / "gone.csv").unlink()
    page.fill("#vocabulary-file", "file:gone.csv")
    page.click("#vocabulary-look")
    page.wait("$('#vocabulary-said [role=alert]')")
    page.fill("#vocabulary-file", "file:new.csv")
    page.click("#vocabulary-look")
    page.shows("#vocabulary-changes", "1 new, 0 changed, 2 gone")
    page.shows("#vocabulary-said .changes-gone", "snow owl")
    page.shows("#vocabulary-said .changes-new", "glass tower")
    page.click("#vocabulary-submit")
    page.wait("$('#vocabulary-job .badge.succeeded')")
    assert page.server.admin("GET", "/models/m/recipe")[1]["recipe"]["vocabulary"] == "new.csv"
    page.wait("$('#corrections .bad-badge')?.textContent === 'gone'")
    page.shows("#own-concepts", "solar kiln")


def a_vocabulary_of_this_computer_is_uploaded(page: Console) -> None:
    """The file gets a name that the service can keep, and takes the place of the one before."""
    file = page.directory / "own words.csv"
    write_vocabulary(file, [*NAMES, "glass tower", "iron bridge"])
    page.fill("#vocabulary-file", "")
    page.click("#vocabulary-look")
    page.shows("#vocabulary-said [role=alert]", "choose a file")
    page.choose_files("#vocabulary-file-file", file)
    page.click("#vocabulary-look")
    page.shows("#vocabulary-changes", "3 new, 0 changed, 0 gone")
    assert (page.directory / "data" / "own_words.csv").read_bytes() == file.read_bytes()
    assert page.server.admin("GET", "/models/m/recipe")[1]["recipe"]["vocabulary"] == "new.csv"
    page.click("#vocabulary-submit")
    page.wait("$('#vocabulary-job .badge.succeeded')")
    recipe = page.server.admin("GET", "/models/m/recipe")[1]["recipe"]
    assert recipe["vocabulary"] == "own_words.csv"
    page.shows("#page-learning", "The recipe reads own_words.csv.")


def a_concept_is_removed_while_the_vocabulary_is_there(page: Console) -> None:
    vocabulary = page.directory / "data" / "own_words.csv"
    content = vocabulary.read_text()
    vocabulary.unlink()
    page.click("#run-now")
    page.shows("#learn-job .notice", "found not: own_words.csv")
    page.click("#own-concepts .danger")
    page.shows("dialog", "Versions that are there keep it")
    page.click("dialog > .danger")
    page.shows("dialog", "expected a file below the data directory, found 'own_words.csv'")
    vocabulary.write_text(content)
    page.click("dialog > .danger")
    page.count("dialog", 0)
    page.wait("document.activeElement === $('#concept-said')")  # the row is gone with its button
    page.shows("#own-concepts", "There are none yet.")
    page.wait("$('#concept-job .badge.succeeded')")
    assert page.server.admin("GET", "/models/m/concepts")[1]["concepts"] == []


def the_page_fits_and_is_accessible(page: Console) -> None:
    page.wait("$('#corrections li') && $('#runs svg') && $('#concept-key')")
    for width in (1280, 390):
        for dark in (False, True):
            page.look(width, dark=dark)
            assert page.run("document.documentElement.scrollWidth") <= width
            if AXE.exists():
                no_rule_of_accessibility_is_broken(page)
    page.look()


def keys_that_may_not_see_it_are_told(page: Console) -> None:
    """One key may not see what admins see, another one has no sight of the model."""
    bodies: list[dict[str, object]] = [
        {"name": "reader", "scopes": ["predict"]},
        {"name": "other", "scopes": ["predict", "admin"], "models": ["bare"], "data_prefix": "x/"},
    ]
    reader, other = (page.server.admin("POST", "/keys", body)[1]["key"] for body in bodies)
    page.run(f"sessionStorage.setItem('xylem-key', {json.dumps(reader)})")
    page.open(f"{page.server.url}/#/learning")
    page.shows("#page-learning", "The key was refused")
    page.run(f"sessionStorage.setItem('xylem-key', {json.dumps(other)})")
    page.open(f"{page.server.url}/#/learning")
    page.shows("#page-learning", "model: expected one of the store, found 'm'")
    page.fill("#model", "bare")
    page.shows("#page-learning h1", "Learning of bare")
    page.shows("#corrections-told", "0 corrections are stored")
    headers = {"authorization": f"Bearer {other}"}
    assert page.server.ask("GET", "/v1/admin/models/m/learning", **headers)[0] == 404
