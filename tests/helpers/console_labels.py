"""Steps of a visit to the console that look at labels, their names, and hostile ones."""

import json

from tests.helpers.console import WORDS, Console, rows
from tests.helpers.servers import wait_for
from xylem_store.label_info import Subject, build_label_info
from xylem_store.store import Store

HOSTILE = (
    *("<script>window.stolen = 1</script>", '<img src=x onerror="stolen=1">'),
    *("\u202egnp.exe\u202c", "x" * 4000),
)


def labels_are_searched_and_explained(page: Console) -> None:
    page.go("labels")
    page.count("#page-labels tbody tr", 6)
    page.fill("#version", "version:2")
    page.wait("$('#page-labels .tiles')")
    page.fill("#page-labels input[type=search]", "BL")
    page.count("#page-labels tbody tr", 2)
    page.fill("#page-labels select", "by name")
    page.wait("$('#page-labels tbody .name').textContent === 'black'")
    page.fill("#page-labels input[type=search]", "blue")
    page.wait("$('#page-labels tbody .name').textContent === 'blue'")
    page.click("#page-labels tbody .label-name")
    page.wait("$('dialog .bar-adds') && $('dialog svg.chart path')")
    assert page.run("$('dialog td').textContent") == "blue"  # the word speaks for it
    labels = page.ask("/versions/2/labels")["labels"]
    label = [found["label"] for found in labels].index("blue")
    points = page.ask(f"/versions/2/threshold-history?id={label}")["points"]
    assert [point["kind"] for point in points] == ["tuned", "feedback"]
    assert page.run("$$('dialog svg.chart circle').length") == len(points)
    page.close_dialog()
    page.fill("#page-labels input[type=search]", "")
    page.count("#page-labels tbody tr", 6)
    few = page.ask("/versions/2/labels?marks_below=10")["labels"]
    page.click("#page-labels input[type=checkbox]")
    page.count("#page-labels tbody tr", len(few))
    assert page.run("$$('#page-labels .badge').length") == len(few)


def labels_are_called_by_their_names(page: Console) -> None:
    """Names are found, shown and denied; what is sent are labels, which stand where
    the pointer is.
    """
    subjects = []
    for i, word in enumerate(WORDS[:5]):
        names = {"fi": f"v\u00e4ri {word}", "en": f"the colour {word}"}
        subjects.append(Subject(word, None, names, other_names=[("en", False, f"hue {i}")]))
    Store(page.server.store).put_label_info("colours", build_label_info(subjects))
    wait_for(lambda: bool(page.ask("/labels?limit=1")["languages"]))
    page.go("predict")
    page.fill("#model", "colours")
    page.wait("!$('#language-field').hidden")
    page.fill("#language", "fi")
    page.fill("#text", "a black thing")
    page.is_first("v\u00e4ri black")
    assert page.run("$('#predictions .label-name').title").startswith("black: ")
    page.click("#predictions li:first-child .label-name")
    page.wait("$('#why-heading').textContent === 'Why v\u00e4ri black'")
    assert page.run("$('#why-text code').textContent") == "black"
    page.fill("#language", "en")
    page.is_first("the colour black")
    page.run("$('#options').open = true")  # what is hidden has no focus, and no suggestions
    page.fill("#deny", "hue 3")  # another name of black
    page.wait("$('#deny-names [role=option]')?.textContent === 'the colour black'")
    page.wait("$('#deny-names').checkVisibility()")
    page.fill("#deny", "The colour BLACK")
    page.click("#deny-button")
    page.wait("$('#deny-chosen .name')?.textContent === 'the colour black'")
    page.count("#predictions > *", 5)
    page.fill("#top", "2")
    page.count("#predictions > *", 2)
    page.fill("#add-label", "colour blue")
    page.wait("$('#add-label-names [role=option]')?.textContent === 'the colour blue'")
    page.fill("#add-label", "the colour blue")
    page.click("#add-label-button")
    page.wait("$('#add-label').value === ''")
    page.press("JSON")
    body = json.loads(page.text("dialog pre"))
    assert (body["deny_labels"], body["language"]) == (["black"], "en")
    page.close_dialog()
    page.click("#deny-chosen button")
    page.fill("#top", "10")
    page.fill("#language", "")
    page.is_first("black")


def hostile_texts_and_labels_are_shown_as_they_are(page: Console) -> None:
    page.go("train")
    page.train("hostile", "hostile.jsonl", rows(HOSTILE))
    page.press("Try it")
    page.shows("#verdict [role=status]", "opens version 1")
    page.wait("$('#model').value === 'hostile' && location.hash === '#/predict'")
    text = "a red thing <script>stolen = 1</script> \u202e\u0007\ud83d\ude00 " + "y" * 10_000
    assert set(page.ask_text(text)) == set(HOSTILE)
    assert page.run("$('#why .marked').textContent.includes('<script>stolen')")
    for width in (1200, 390, 320):
        page.look(width)
        assert page.run("document.documentElement.scrollWidth") <= width
    page.look()
    page.go("labels")
    page.count("#page-labels tbody tr", 4)
    assert page.run("typeof window.stolen") == "undefined"
    assert page.run("$$('main script, main img').length") == 0
