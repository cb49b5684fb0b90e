"""The console in a real browser: one for all tests, in the order in which somebody would go."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from model_store.label_info import Subject, build_label_info
from model_store.store import Store
from tests.browser import CHROMIUM, Browser
from tests.servers import KEY, ServerProcess, wait_for

WORDS = ("red", "green", "blue", "black", "white", "brown")
HOSTILE = (
    *("<script>window.stolen = 1</script>", '<img src=x onerror="stolen=1">'),
    *("\u202egnp.exe\u202c", "x" * 4000),
)
AXE = Path(__file__).resolve().parents[1] / "typescript" / "node_modules" / "axe-core" / "axe.min.js"
FILLED = {
    "predict": "$('#predictions li')",
    "versions": "['#label-differences td', '#history td'].every(e => $(e))",
    "labels": "$('#page-labels tbody tr')",
    "train": "$('#page-train table')",
    "keys": "$$('#page-keys table').length === 2",
    "health": "$('#figures svg')",
}
"""When a page shows all that it has to show."""
REFUSALS = (
    *("(Unauthorized)", "(Not Found)", "(Conflict)", "(Unprocessable", "(Service Un"),
    "ERR_CONNECTION_REFUSED",
)
"""Of what the browser logs, what these tests provoke: answers that refuse."""
SLOW_TO_OPEN = (
    "import time; from service.serving.live import LiveModels; opened = LiveModels._open;"
    "LiveModels._open = lambda self, key: (time.sleep(6 * (key[0] == 'hostile')), opened(self, key))[1];"
)
"""A server that opens one model as slowly as where its kernels have to be compiled."""


def rows(names: tuple[str, ...], n: int = 240) -> bytes:
    """Lines of a data set in which a word means a label."""
    k = len(names)
    lines = ({"text": f"a {WORDS[i % k]} thing {i % 7}", "labels": [names[i % k]]} for i in range(n))
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    store, data = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("data")
    settings = {"jobs": 1, "job_nice": 0, "data_dir": data, "admin_key": KEY}
    with ServerProcess(store, before=SLOW_TO_OPEN, **settings) as process:
        yield process


@pytest.fixture(scope="module")
def browser(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        found.look()
        found.open(f"{server.url}/")
        yield found


def go(browser: Browser, page: str) -> None:
    browser.run(f"location.hash = '#/{page}'")
    browser.wait(f"!$('#page-{page}').hidden && $('#page-{page} h1')")


def ask_text(browser: Browser, text: str) -> list[str]:
    """Type a text; the labels that the page shows for it."""
    browser.fill("#text", "")
    browser.count("#predictions > *", 0)
    browser.fill("#text", text)
    browser.wait("$$('#predictions > *').length && !$('#why').hidden")
    return browser.run("$$('#predictions .name').map(e => e.textContent)")  # type: ignore[no-any-return]


def train(browser: Browser, model: str, file: Path) -> None:
    """Train a model from a file of this machine, and wait for the verdict."""
    browser.fill("#train-model", model)
    browser.fill("#train-data", "")
    browser.choose_files("#train-data-file", file)
    browser.click("#train-submit")
    browser.wait("$('#verdict')")


def an_empty_service_says_what_to_do_and_asks_for_a_key(browser: Browser) -> None:
    browser.shows("#predict-status", "train one")
    browser.press("Train")
    for wrong, said in (("not the key", "spaces"), ("not-the-key", "refused")):
        browser.fill("#notice input", wrong)
        browser.click("#notice button")
        browser.shows("#notice", said)
    browser.fill("#notice input", KEY)
    browser.click("#notice button")
    browser.wait("$('#train-submit')")
    assert browser.run("$('#notice').textContent") == ""
    assert browser.run("sessionStorage.getItem('xylem-key')") == KEY
    assert KEY not in browser.run("location.href + document.cookie + JSON.stringify(localStorage)")


def a_training_that_fails_says_why_and_is_retried(
    browser: Browser, server: ServerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_bytes(b'{"text": "no end"\n' * 9)
    browser.fill("#train-model", "broken")
    browser.choose_files("#train-data-file", file)
    browser.click("#train-submit")
    browser.wait("$('#job .failed')")
    assert "broken.jsonl" in browser.text("#job .notice")
    first = newest_job(server)["started"]
    browser.press("Retry")
    wait_for(lambda: newest_job(server)["state"] == "failed" and newest_job(server)["started"] != first)
    browser.wait("$('#job .failed')")


def newest_job(server: ServerProcess) -> dict[str, Any]:
    return server.admin("GET", "/jobs")[1]["jobs"][0]  # type: ignore[no-any-return]


def a_version_is_trained_from_an_uploaded_file_and_promoted(
    browser: Browser, server: ServerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "my colours.jsonl"
    file.write_bytes(rows(WORDS))
    train(browser, "colours", file)
    assert "Version 1 is promoted" in browser.text("#verdict")
    browser.press("Log")
    browser.shows("#job pre", "succeeded")
    browser.click("#rule input[value=keep]")
    browser.press("Parameters (their defaults are good)")
    trees = "$$('#parameters label').find(e => e.textContent === 'trees').htmlFor"
    browser.fill(f"#{browser.run(trees)}", "2")
    browser.run("$('#job').remove()")
    train(browser, "colours", file)
    assert "Version 2 is kept, and not promoted" in browser.text("#verdict")
    request = newest_job(server)["request"]
    assert (request["parameters"], request["data"]) == ({"trees": 2}, "my_colours.jsonl")


def a_text_is_predicted_and_explained(browser: Browser) -> None:
    browser.press("Try it")
    browser.wait("$('#version').value === 'version:2' && location.hash === '#/predict'")
    assert ask_text(browser, "a GREEN thing\nof no other colour")[0] == "green"
    assert browser.run("$('#predictions').children.length") == len(WORDS)
    browser.wait("$('#why .marked .adds-4')?.textContent === 'GREEN'")
    browser.click("#predictions li:nth-child(2) .label-name")
    browser.wait("!$('#why-heading').textContent.includes('green')")
    browser.wait("$('#why .marked .takes-4')?.textContent === 'GREEN'")
    browser.fill("#deny", "GREEN")
    browser.click("#deny-button")
    browser.count("#predictions > *", 5)
    browser.click("#deny-chosen button")
    browser.count("#predictions > *", 6)
    browser.fill("#threshold", "tuned")
    browser.count("#predictions > *", 1)
    browser.fill("#threshold", "")
    browser.count("#predictions > *", 6)
    browser.fill("#weigh", "own")
    browser.fill("#weights", "green: 5")
    browser.wait("Number($('#predictions .score').textContent) > 2")
    assert browser.run("$('#correct').hidden")
    browser.fill("#weigh", "")
    browser.wait("Number($('#predictions .score').textContent) <= 1")


def each_key_stroke_is_answered_and_a_request_is_copied_without_the_key(
    browser: Browser, server: ServerProcess
) -> None:
    browser.fill("#text", "")
    browser.run("$('#text').focus()")
    for letter in "a blue thing":
        browser.call("Input.insertText", text=letter)
    browser.wait("$('#predictions .name').textContent === 'blue'")
    for way in ("curl", "Python", "JSON"):
        browser.press(way)
        text = browser.text("dialog pre")
        assert "a blue thing" in text
        assert KEY not in text
        assert ("XYLEM_KEY" in text) == (way != "JSON")
        browser.click("dialog .close")
        browser.wait("!$('dialog')")
    assert server.ask("POST", "/v1/models/colours/predict", json.loads(text))[0] == 200


def a_correction_moves_thresholds(browser: Browser, server: ServerProcess) -> None:
    path = "/v1/models/colours/versions/2/thresholds"
    before = server.ask("GET", path)[1]
    browser.click("#predictions li:first-child input")
    browser.fill("#add-label", "wh")
    browser.wait("$('#add-label-names option')?.value === 'white'")
    browser.fill("#add-label", "white")
    browser.click("#add-label-button")
    browser.click("#send-correction")
    browser.wait("$('#moved table tbody tr')")
    after = server.ask("GET", path)[1]
    assert after["n_events"] == before["n_events"] + 1
    marks = {label["label"]: label["marks"] for label in after["labels"]}
    gained = {label["label"]: marks[label["label"]] - label["marks"] for label in before["labels"]}
    assert gained == {**dict.fromkeys(WORDS, 0), "blue": 1, "white": 1}
    browser.fill("#add-label", "no such label")
    browser.click("#send-correction")
    browser.shows("#moved", "Not counted")


def a_version_is_promoted_and_rolled_back_with_a_reason(browser: Browser, server: ServerProcess) -> None:
    go(browser, "versions")
    browser.press("Promote…")
    browser.fill("dialog input[maxlength]", "better <b>colours</b>")
    browser.press("Promote")
    browser.shows("dialog", "latest names version 2 now")
    browser.press("Done")
    browser.press("Roll back…")
    browser.press("Roll back")
    browser.shows("dialog", "latest names version 1 now")
    browser.press("Done")
    browser.shows("#page-versions", "better <b>colours</b>")
    browser.press("Origin")
    browser.shows("dialog", "my_colours.jsonl")
    browser.click("dialog .close")
    assert server.ask("GET", "/v1/models/colours")[1]["aliases"] == {"latest": 1}


def two_versions_are_compared(browser: Browser, server: ServerProcess) -> None:
    """The page says of two versions what the server has of each."""
    go(browser, "versions")
    browser.wait("$('#compare-old option:checked').textContent === '1 (latest)'")
    browser.wait("$('#label-differences tbody tr')")
    assert browser.run("$$('#page-versions select').map(e => e.value).slice(0, 2)") == ["2", "1"]
    one, two = (server.ask("GET", f"/v1/models/colours/versions/{version}")[1] for version in (1, 2))
    rows = browser.run(
        "Object.fromEntries([...$('#comparison table').querySelectorAll('tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.textContent)).map(([name, ...rest]) => [name, rest]))"
    )
    assert rows["P@1"][:2] == [f"{version['metrics']['P@1']:.2f}" for version in (one, two)]
    bands = browser.run("$$('#comparison svg.chart')[0].querySelectorAll('rect').length")
    assert bands == 2 * len(one["validation"]["bands"])
    points = browser.run("$$('#comparison svg.chart')[1].querySelectorAll('circle').length")
    assert points == len(one["validation"]["reliability"])
    assert "Apart on average: version 1 " in browser.text("#comparison")
    assert browser.run("$$('#label-differences tbody tr').length") == len(WORDS)
    browser.fill("#label-differences input", "BL")
    browser.count("#label-differences tbody tr", 2)
    browser.fill("#compare-old", "2")
    browser.shows("#comparison", "two different versions")


def labels_are_searched_and_explained(browser: Browser, server: ServerProcess) -> None:
    go(browser, "labels")
    browser.count("#page-labels tbody tr", 6)
    browser.fill("#version", "version:2")
    browser.wait("$('#page-labels .tiles')")
    browser.fill("#page-labels input[type=search]", "BL")
    browser.count("#page-labels tbody tr", 2)
    browser.fill("#page-labels select", "by name")
    browser.wait("$('#page-labels tbody .name').textContent === 'black'")
    browser.fill("#page-labels input[type=search]", "blue")
    browser.wait("$('#page-labels tbody .name').textContent === 'blue'")
    browser.click("#page-labels tbody .label-name")
    browser.wait("$('dialog .bar-adds') && $('dialog svg.chart path')")
    assert browser.run("$('dialog td').textContent") == "blue"  # the word speaks for it
    labels = server.ask("GET", "/v1/models/colours/versions/2/labels")[1]["labels"]
    label = [found["label"] for found in labels].index("blue")
    points = server.ask("GET", f"/v1/models/colours/versions/2/threshold-history?id={label}")[1]["points"]
    assert [point["kind"] for point in points] == ["tuned", "feedback"]
    assert browser.run("$$('dialog svg.chart circle').length") == len(points)
    browser.click("dialog .close")
    browser.fill("#page-labels input[type=search]", "")
    browser.count("#page-labels tbody tr", 6)
    few = server.ask("GET", "/v1/models/colours/versions/2/labels?marks_below=10")[1]["labels"]
    browser.click("#page-labels input[type=checkbox]")
    browser.count("#page-labels tbody tr", len(few))
    assert browser.run("$$('#page-labels .badge').length") == len(few)


def labels_are_called_by_their_names(browser: Browser, server: ServerProcess) -> None:
    """Names are found, shown and denied; what is sent are labels, which stand where the pointer is."""
    subjects = []
    for i, word in enumerate(WORDS[:5]):
        names = {"fi": f"v\u00e4ri {word}", "en": f"the colour {word}"}
        subjects.append(Subject(word, None, names, others=[("en", False, f"hue {i}")]))
    Store(server.store).put_label_info("colours", build_label_info(subjects))
    wait_for(lambda: bool(server.ask("GET", "/v1/models/colours/labels?limit=1")[1]["languages"]))
    go(browser, "predict")
    browser.fill("#model", "colours")
    browser.wait("!$('#language-field').hidden")
    browser.fill("#language", "fi")
    browser.fill("#text", "a black thing")
    browser.wait("$('#predictions .name').textContent === 'v\u00e4ri black'")
    assert browser.run("$('#predictions .label-name').title").startswith("black: ")
    browser.click("#predictions li:first-child .label-name")
    browser.wait("$('#why-heading').textContent === 'Why v\u00e4ri black'")
    assert browser.run("$('#why-text code').textContent") == "black"
    browser.fill("#language", "en")
    browser.wait("$('#predictions .name').textContent === 'the colour black'")
    browser.fill("#deny", "hue 3")  # another name of black
    browser.wait("$('#deny-names option')?.value === 'the colour black'")
    browser.fill("#deny", "The colour BLACK")
    browser.click("#deny-button")
    browser.wait("$('#deny-chosen .name')?.textContent === 'the colour black'")
    browser.count("#predictions > *", 5)
    browser.fill("#top", "2")
    browser.count("#predictions > *", 2)
    browser.fill("#add-label", "colour blue")
    browser.wait("$('#add-label-names option')?.value === 'the colour blue'")
    browser.fill("#add-label", "the colour blue")
    browser.click("#add-label-button")
    browser.wait("$('#add-label').value === ''")
    browser.press("JSON")
    body = json.loads(browser.text("dialog pre"))
    assert (body["deny_labels"], body["language"]) == (["black"], "en")
    browser.click("dialog .close")
    browser.click("#deny-chosen button")
    browser.fill("#top", "10")
    browser.fill("#language", "")
    browser.wait("$('#predictions .name').textContent === 'black'")


def a_key_is_made_and_revoked(browser: Browser, server: ServerProcess) -> None:
    go(browser, "keys")
    browser.fill("#page-keys form input", "shop")
    browser.press("Make")
    made = browser.text("dialog pre")
    asked = {"authorization": f"Bearer {made}"}
    assert server.ask("GET", "/v1/admin/keys", **asked)[0] == 403
    browser.click("dialog .close")
    browser.press("Revoke…")
    browser.press("Revoke")
    browser.shows("#page-keys", "revoked")
    assert server.ask("GET", "/v1/admin/keys", **asked)[0] in (401, 403)
    browser.shows("#page-keys", "revokeKey")
    assert made not in browser.run("document.documentElement.outerHTML")


def health_draws_the_latencies(browser: Browser) -> None:
    go(browser, "health")
    browser.wait("$$('#figures svg rect').length")
    assert "ready" in browser.text("#ready")
    assert "colours" in browser.text("#ready")


def fields_become_instances_and_figures_are_read(browser: Browser) -> None:
    script = """Promise.all(
        ["instance", "metrics", "snippets", "explain", "versions"].map(n => import(`/console/${n}.js`))
    ).then(([{instanceOf}, {samples, histogram, quantile}, {python}, {wordsOf}, {others}]) => {
            const fault = (kind, text) => {
                try { return instanceOf(kind, text) } catch (e) { return e.message }
            };
            const text = ["0.1", "1.0", "+Inf"].flatMap((le, i) => ["a", "b"].map(
                m => `t_bucket{le="${le}",model="${m}",route="/x/predict"} ${[3, 5, 6][i]}.0`)).join("\\n");
            const buckets = histogram(samples(text), "t", l => l.route.endsWith("/predict"));
            return [fault("indices", "3:0.5 17:-1e2"), fault("indices", "3"), fault("features", "a: b: 2"),
                fault("features", '{"red": 1}'), fault("features", "red"), fault("text", " "),
                buckets.map(b => b.n), quantile(buckets, 0.5), quantile([], 0.9),
                python({a: [true, null, 1.5, "x\\"y"]}),
                wordsOf("Not a BIG cat", new Map([["big cat", 2], ["not", -1]])).map(w => w.added),
                others({splits: {latest: {canary: {version: 4, weight: 0.1}, shadow: null}}}).textContent,
                others({name: "m", versions: [1], splits: {}})];
        })"""
    assert browser.run(script) == [
        {"indices": [3, 17], "values": [0.5, -100]},
        'Expected id:value, found "3".',
        {"features": {"a: b": 2}},
        {"features": {"red": 1}},
        'Expected name: number, found "red".',
        None,
        [6, 4, 2],
        0.1,
        None,
        '{"a": [True, None, 1.5, "x\\"y"]}',
        [-1, 1, 1],
        "Beside the aliasesWhatOfSayssplitslatestcanary: (version: 4, weight: 0.1)",
        "",
    ]


def hostile_texts_and_labels_are_shown_as_they_are(
    browser: Browser, server: ServerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "hostile.jsonl"
    file.write_bytes(rows(HOSTILE))
    go(browser, "train")
    train(browser, "hostile", file)
    browser.press("Try it")
    browser.shows("#verdict [role=status]", "opens version 1")
    browser.wait("$('#model').value === 'hostile' && location.hash === '#/predict'")
    text = "a red thing <script>stolen = 1</script> \u202e\u0007\ud83d\ude00 " + "y" * 10_000
    assert set(ask_text(browser, text)) == set(HOSTILE)
    assert browser.run("$('#why .marked').textContent.includes('<script>stolen')")
    for width in (1200, 390, 320):
        browser.look(width)
        assert browser.run("document.documentElement.scrollWidth") <= width
    browser.look()
    go(browser, "labels")
    browser.count("#page-labels tbody tr", 4)
    assert browser.run("typeof window.stolen") == "undefined"
    assert browser.run("$$('main script, main img').length") == 0


def pages_are_accessible(browser: Browser, page: str, dark: bool) -> None:
    browser.look(dark=dark)
    if page == "versions":  # of a model that has two
        browser.fill("#model", "colours")
    go(browser, page)
    browser.wait(FILLED[page])
    no_rule_of_accessibility_is_broken(browser)
    if page == "labels":
        browser.click("#page-labels tbody .label-name")
        browser.wait("$('dialog .bar-adds') && $('dialog svg.chart')")
        no_rule_of_accessibility_is_broken(browser)
        browser.click("dialog .close")
    browser.look()
    browser.fill("#model", "hostile")


def no_rule_of_accessibility_is_broken(browser: Browser) -> None:
    if not browser.run("Boolean(window.axe)"):
        browser.run(AXE.read_text() + "; 0")
    found = browser.run("axe.run().then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html)]))")
    assert found == [], json.dumps(found, indent=1)


def a_model_that_goes_while_it_is_shown_is_told(browser: Browser, server: ServerProcess) -> None:
    go(browser, "predict")
    browser.wait("$('#predictions').children.length")
    assert server.admin("DELETE", "/models/hostile?confirm=hostile")[0] == 200
    browser.fill("#text", "a red thing")
    browser.shows("#notice", "The model hostile is gone")
    browser.wait("$('#predictions .name').textContent === 'red'")
    assert browser.run("$('#model').value") == "colours"


def it_asks_nobody_else_and_no_rule_was_broken(browser: Browser, server: ServerProcess) -> None:
    others = {url for url in browser.requests if not url.startswith((f"{server.url}/", "about:"))}
    assert others == set()
    assert not any(KEY in url for url in browser.requests)
    wrong = [line for line in browser.console if not any(known in line for known in REFUSALS)]
    assert wrong == []


def a_server_that_is_gone_is_told(browser: Browser, server: ServerProcess) -> None:
    server.terminate()
    browser.fill("#text", "a black thing")
    browser.shows("#notice", "does not answer")
    assert browser.run("$('#text').value") == "a black thing"
    assert browser.run("$('#predictions').children.length") == 0


def test_a_visit(browser: Browser, server: ServerProcess, tmp_path: Path) -> None:
    """Each step goes on where the one before it has ended: so they are one test, on one processor."""
    an_empty_service_says_what_to_do_and_asks_for_a_key(browser)
    a_training_that_fails_says_why_and_is_retried(browser, server, tmp_path)
    a_version_is_trained_from_an_uploaded_file_and_promoted(browser, server, tmp_path)
    a_text_is_predicted_and_explained(browser)
    each_key_stroke_is_answered_and_a_request_is_copied_without_the_key(browser, server)
    a_correction_moves_thresholds(browser, server)
    a_version_is_promoted_and_rolled_back_with_a_reason(browser, server)
    two_versions_are_compared(browser, server)
    labels_are_searched_and_explained(browser, server)
    labels_are_called_by_their_names(browser, server)
    a_key_is_made_and_revoked(browser, server)
    health_draws_the_latencies(browser)
    fields_become_instances_and_figures_are_read(browser)
    hostile_texts_and_labels_are_shown_as_they_are(browser, server, tmp_path)
    if AXE.exists():
        for dark in (False, True):
            for page in FILLED:
                pages_are_accessible(browser, page, dark)
    a_model_that_goes_while_it_is_shown_is_told(browser, server)
    it_asks_nobody_else_and_no_rule_was_broken(browser, server)
    a_server_that_is_gone_is_told(browser, server)
    if not AXE.exists():
        pytest.skip("all but accessibility was tested: axe-core is missing (make test-system has it, by npm)")
