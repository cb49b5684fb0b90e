"""The console in a real browser: one for all tests, in the order in which somebody would go."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from model_store.label_info import Subject, build_label_info
from model_store.store import Store
from tests.browser import CHROMIUM, Browser
from tests.servers import ServerProcess, wait_for

KEY = "correct-horse-battery-staple"
WORDS = ("red", "green", "blue", "black", "white", "brown")
HOSTILE = (
    "<script>window.stolen = 1</script>",
    "\u202egnp.exe\u202c",
    "x" * 4000,
    '<img src=x onerror="stolen=1">',
)
AXE = Path(__file__).resolve().parents[1] / "typescript" / "node_modules" / "axe-core" / "axe.min.js"
FILLED = {
    "predict": "document.querySelector('#predictions li')",
    "versions": "['#label-differences td', '#history td'].every(e => document.querySelector(e))",
    "labels": "document.querySelector('#page-labels tbody tr')",
    "train": "document.querySelector('#page-train table')",
    "keys": "document.querySelectorAll('#page-keys table').length === 2",
    "health": "document.querySelector('#figures svg')",
}
"""When a page shows all that it has to show."""
REFUSALS = (
    "(Unauthorized)",
    "(Not Found)",
    "(Conflict)",
    "(Unprocessable",
    "ERR_CONNECTION_REFUSED",
    "(Service Un",
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
    home = tmp_path_factory.mktemp("console")
    for name in ("store", "data"):
        (home / name).mkdir()
    settings = {"jobs": 1, "job_nice": 0, "data_dir": home / "data", "admin_key": KEY}
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with ServerProcess(home / "store", before=SLOW_TO_OPEN, **settings) as process:
        yield process


@pytest.fixture(scope="module")
def browser(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        found.look()
        found.open(f"http://127.0.0.1:{server.port}/")
        yield found


def go(browser: Browser, page: str) -> None:
    browser.run(f"location.hash = '#/{page}'")
    browser.wait(
        f"!document.querySelector('#page-{page}').hidden && document.querySelector('#page-{page} h1')"
    )


def ask_text(browser: Browser, text: str) -> list[str]:
    """Type a text; the labels that the page shows for it."""
    browser.fill("#text", "")
    browser.wait("!document.querySelectorAll('#predictions > *').length")
    browser.fill("#text", text)
    browser.wait(
        "document.querySelectorAll('#predictions > *').length && !document.querySelector('#why').hidden"
    )
    found: list[str] = browser.run(
        "[...document.querySelectorAll('#predictions .name')].map(e => e.textContent)"
    )
    return found


def train(browser: Browser, model: str, file: Path) -> None:
    """Train a model from a file of this machine, and wait for the verdict."""
    browser.fill("#train-model", model)
    browser.fill("#train-data", "")
    browser.choose_files("#train-data-file", file)
    browser.click("#train-submit")
    browser.wait("document.querySelector('#verdict')")


def wrong(browser: Browser) -> list[str]:
    """What the browser logged that these tests do not provoke."""
    return [line for line in browser.console if not any(known in line for known in REFUSALS)]


def an_empty_service_says_what_to_do(browser: Browser) -> None:
    browser.wait("document.querySelector('#predict-status').textContent.includes('train one')")


def a_key_is_asked_for_and_a_wrong_one_is_told(browser: Browser) -> None:
    browser.press("Train")
    browser.fill("#notice input", "not the key")
    browser.click("#notice button")
    browser.wait("document.querySelector('#notice .fault').textContent.includes('spaces')")
    browser.fill("#notice input", "not-the-key")
    browser.click("#notice button")
    browser.wait("document.querySelector('#notice').textContent.includes('refused')")
    browser.fill("#notice input", KEY)
    browser.click("#notice button")
    browser.wait("document.querySelector('#train-submit')")
    assert browser.run("document.querySelector('#notice').textContent") == ""
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
    browser.wait("document.querySelector('#job .failed')")
    assert "broken.jsonl" in browser.text("#job .notice")
    first = broken_job(server)["started"]
    browser.press("Retry")
    deadline = time.monotonic() + 60
    while (job := broken_job(server))["state"] != "failed" or job["started"] == first:
        assert time.monotonic() < deadline, job
        time.sleep(0.05)
    browser.wait("document.querySelector('#job .failed')")


def broken_job(server: ServerProcess) -> dict[str, Any]:
    """The job of the model that cannot be trained."""
    _, found = server.ask("GET", "/v1/admin/jobs?model=broken", authorization=f"Bearer {KEY}")
    job: dict[str, Any] = found["jobs"][0]
    return job


def a_version_is_trained_from_an_uploaded_file_and_promoted(
    browser: Browser, server: ServerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "my colours.jsonl"
    file.write_bytes(rows(WORDS))
    train(browser, "colours", file)
    assert "Version 1 is promoted" in browser.text("#verdict")
    browser.press("Log")
    browser.wait("document.querySelector('#job pre').textContent.includes('succeeded')")
    browser.click("#rule input[value=keep]")
    browser.press("Parameters (their defaults are good)")
    trees = "[...document.querySelectorAll('#parameters label')].find(e => e.textContent === 'trees').htmlFor"
    browser.fill(f"#{browser.run(trees)}", "2")
    browser.run("document.querySelector('#job').remove()")
    train(browser, "colours", file)
    assert "Version 2 is kept, and not promoted" in browser.text("#verdict")
    _, jobs = server.ask("GET", "/v1/admin/jobs", authorization=f"Bearer {KEY}")
    assert jobs["jobs"][0]["request"]["parameters"] == {"trees": 2}
    assert jobs["jobs"][0]["request"]["data"] == "my_colours.jsonl"


def a_text_is_predicted_and_explained(browser: Browser) -> None:
    browser.press("Try it")
    browser.wait("document.querySelector('#version').value === 'version:2' && location.hash === '#/predict'")
    assert ask_text(browser, "a GREEN thing\nof no other colour")[0] == "green"
    assert browser.run("document.querySelector('#predictions').children.length") == len(WORDS)
    browser.wait("document.querySelector('#why .marked .adds-4')?.textContent === 'GREEN'")
    browser.click("#predictions li:nth-child(2) .label-name")
    browser.wait("!document.querySelector('#why-heading').textContent.includes('green')")
    browser.wait("document.querySelector('#why .marked .takes-4')?.textContent === 'GREEN'")
    browser.fill("#deny", "GREEN")
    browser.click("#deny-button")
    browser.wait("document.querySelector('#predictions').children.length === 5")
    browser.click("#deny-chosen button")
    browser.wait("document.querySelector('#predictions').children.length === 6")
    browser.fill("#threshold", "tuned")
    browser.wait("document.querySelector('#predictions').children.length === 1")
    browser.fill("#threshold", "")
    browser.wait("document.querySelector('#predictions').children.length === 6")
    browser.fill("#weigh", "own")
    browser.fill("#weights", "green: 5")
    browser.wait("Number(document.querySelector('#predictions .score').textContent) > 2")
    assert browser.run("document.querySelector('#correct').hidden")
    browser.fill("#weigh", "")
    browser.wait("Number(document.querySelector('#predictions .score').textContent) <= 1")


def each_key_stroke_changes_what_is_shown(browser: Browser) -> None:
    browser.fill("#text", "")
    browser.run("document.querySelector('#text').focus()")
    for letter in "a blue thing":
        browser.call("Input.insertText", text=letter)
    browser.wait("document.querySelector('#predictions .name').textContent === 'blue'")


def a_request_is_copied_without_the_key(browser: Browser, server: ServerProcess) -> None:
    for way in ("curl", "Python", "JSON"):
        browser.press(way)
        text = browser.text("dialog pre")
        assert "a blue thing" in text
        assert KEY not in text
        assert ("XYLEM_KEY" in text) == (way != "JSON")
        browser.click("dialog .close")
        browser.wait("!document.querySelector('dialog')")
    status, _ = server.ask("POST", "/v1/models/colours/predict", json.loads(text))
    assert status == 200


def a_correction_moves_thresholds(browser: Browser, server: ServerProcess) -> None:
    path = "/v1/models/colours/versions/2/thresholds"
    before = server.ask("GET", path)[1]
    browser.click("#predictions li:first-child input")
    browser.fill("#add-label", "wh")
    browser.wait("document.querySelector('#add-label-names option')?.value === 'white'")
    browser.fill("#add-label", "white")
    browser.click("#add-label-button")
    browser.click("#send-correction")
    browser.wait("document.querySelector('#moved table tbody tr')")
    after = server.ask("GET", path)[1]
    assert after["n_events"] == before["n_events"] + 1
    marks = {label["label"]: label["marks"] for label in after["labels"]}
    gained = {label["label"]: marks[label["label"]] - label["marks"] for label in before["labels"]}
    assert gained == {**dict.fromkeys(WORDS, 0), "blue": 1, "white": 1}
    browser.fill("#add-label", "no such label")
    browser.click("#send-correction")
    browser.wait("document.querySelector('#moved').textContent.includes('Not counted')")


def a_version_is_promoted_and_rolled_back_with_a_reason(browser: Browser, server: ServerProcess) -> None:
    go(browser, "versions")
    browser.press("Promote…")
    browser.fill("dialog input[maxlength]", "better <b>colours</b>")
    browser.press("Promote")
    browser.wait("document.querySelector('dialog').textContent.includes('latest names version 2 now')")
    browser.press("Done")
    browser.press("Roll back…")
    browser.press("Roll back")
    browser.wait("document.querySelector('dialog').textContent.includes('latest names version 1 now')")
    browser.press("Done")
    browser.wait("document.querySelector('#page-versions').textContent.includes('better <b>colours</b>')")
    browser.press("Origin")
    browser.wait("document.querySelector('dialog').textContent.includes('my_colours.jsonl')")
    browser.click("dialog .close")
    assert server.ask("GET", "/v1/models/colours")[1]["aliases"] == {"latest": 1}


def two_versions_are_compared(browser: Browser, server: ServerProcess) -> None:
    """The page says of two versions what the server has of each."""
    go(browser, "versions")
    browser.wait("document.querySelector('#compare-old option:checked').textContent === '1 (latest)'")
    browser.wait("document.querySelector('#label-differences tbody tr')")
    assert browser.run(
        "[...document.querySelectorAll('#page-versions select')].map(e => e.value).slice(0, 2)"
    ) == ["2", "1"]
    one, two = (server.ask("GET", f"/v1/models/colours/versions/{version}")[1] for version in (1, 2))
    rows = browser.run(
        "Object.fromEntries([...document.querySelector('#comparison table').querySelectorAll('tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.textContent)).map(([name, ...rest]) => [name, rest]))"
    )
    assert rows["P@1"][:2] == [f"{version['metrics']['P@1']:.2f}" for version in (one, two)]
    bands = browser.run(
        "document.querySelectorAll('#comparison svg.chart')[0].querySelectorAll('rect').length"
    )
    assert bands == 2 * len(one["validation"]["bands"])
    points = browser.run(
        "document.querySelectorAll('#comparison svg.chart')[1].querySelectorAll('circle').length"
    )
    assert points == len(one["validation"]["reliability"])
    assert "Apart on average: version 1 " in browser.text("#comparison")
    assert browser.run("document.querySelectorAll('#label-differences tbody tr').length") == len(WORDS)
    browser.fill("#label-differences input", "BL")
    browser.wait("document.querySelectorAll('#label-differences tbody tr').length === 2")
    browser.fill("#compare-old", "2")
    browser.wait("document.querySelector('#comparison').textContent.includes('two different versions')")


def labels_are_searched_and_explained(browser: Browser, server: ServerProcess) -> None:
    go(browser, "labels")
    browser.wait("document.querySelectorAll('#page-labels tbody tr').length === 6")
    browser.fill("#version", "version:2")
    browser.wait("document.querySelector('#page-labels .tiles')")
    browser.fill("#page-labels input[type=search]", "BL")
    browser.wait("document.querySelectorAll('#page-labels tbody tr').length === 2")
    browser.fill("#page-labels select", "by name")
    browser.wait("document.querySelector('#page-labels tbody .name').textContent === 'black'")
    browser.fill("#page-labels input[type=search]", "blue")
    browser.wait("document.querySelector('#page-labels tbody .name').textContent === 'blue'")
    browser.click("#page-labels tbody .label-name")
    browser.wait(
        "document.querySelector('dialog .bar-adds') && document.querySelector('dialog svg.chart path')"
    )
    assert browser.run("document.querySelector('dialog td').textContent") == "blue"  # the word speaks for it
    label = next(i for i, word in enumerate(server_labels(server)) if word == "blue")
    points = server.ask("GET", f"/v1/models/colours/versions/2/threshold-history?id={label}")[1]["points"]
    assert [point["kind"] for point in points] == ["tuned", "feedback"]
    assert browser.run("document.querySelectorAll('dialog svg.chart circle').length") == len(points)
    browser.click("dialog .close")
    browser.fill("#page-labels input[type=search]", "")
    browser.wait("document.querySelectorAll('#page-labels tbody tr').length === 6")
    few = server.ask("GET", "/v1/models/colours/versions/2/labels?marks_below=10")[1]["labels"]
    browser.click("#page-labels input[type=checkbox]")
    browser.wait(f"document.querySelectorAll('#page-labels tbody tr').length === {len(few)}")
    assert browser.run("document.querySelectorAll('#page-labels .badge').length") == len(few)


def labels_are_called_by_their_names(browser: Browser, server: ServerProcess) -> None:
    """Names are found, shown and denied; what is sent are labels, which stand where the pointer is."""
    assert isinstance(server.process.args, list)
    store = Store(Path(str(server.process.args[3])))
    hues = ("hue 0", "hue 1", "hue 2", "hue 3", "hue 4")
    names = [{"fi": f"v\u00e4ri {word}", "en": f"the colour {word}"} for word in WORDS]
    subjects = [
        Subject(word, None, called, others=[("en", False, hue)])
        for word, called, hue in zip(WORDS, names, hues, strict=False)
    ]
    store.put_label_info("colours", build_label_info(subjects))
    wait_for(lambda: bool(server.ask("GET", "/v1/models/colours/labels?limit=1")[1]["languages"]))
    go(browser, "predict")
    browser.fill("#model", "colours")
    browser.wait("!document.querySelector('#language-field').hidden")
    browser.fill("#language", "fi")
    browser.fill("#text", "a black thing")
    browser.wait("document.querySelector('#predictions .name').textContent === 'v\u00e4ri black'")
    assert browser.run("document.querySelector('#predictions .label-name').title").startswith("black: ")
    browser.click("#predictions li:first-child .label-name")
    browser.wait("document.querySelector('#why-heading').textContent === 'Why v\u00e4ri black'")
    assert browser.run("document.querySelector('#why-text code').textContent") == "black"
    browser.fill("#language", "en")
    browser.wait("document.querySelector('#predictions .name').textContent === 'the colour black'")
    browser.fill("#deny", "hue 3")  # another name of black
    browser.wait("document.querySelector('#deny-names option')?.value === 'the colour black'")
    browser.fill("#deny", "The colour BLACK")
    browser.click("#deny-button")
    browser.wait("document.querySelector('#deny-chosen .name')?.textContent === 'the colour black'")
    browser.wait("document.querySelector('#predictions').children.length === 5")
    browser.fill("#top", "2")
    browser.wait("document.querySelector('#predictions').children.length === 2")
    browser.fill("#add-label", "colour blue")
    browser.wait("document.querySelector('#add-label-names option')?.value === 'the colour blue'")
    browser.fill("#add-label", "the colour blue")
    browser.click("#add-label-button")
    browser.wait("document.querySelector('#add-label').value === ''")
    browser.press("JSON")
    body = json.loads(browser.text("dialog pre"))
    assert (body["deny_labels"], body["language"]) == (["black"], "en")
    browser.click("dialog .close")
    browser.click("#deny-chosen button")
    browser.fill("#top", "10")
    browser.fill("#language", "")
    browser.wait("document.querySelector('#predictions .name').textContent === 'black'")


def server_labels(server: ServerProcess) -> list[str]:
    """The labels of version 2 of the model, by id."""
    return [
        label["label"] for label in server.ask("GET", "/v1/models/colours/versions/2/labels")[1]["labels"]
    ]


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
    browser.wait("document.querySelector('#page-keys').textContent.includes('revoked')")
    assert server.ask("GET", "/v1/admin/keys", **asked)[0] in (401, 403)
    browser.wait("document.querySelector('#page-keys').textContent.includes('revokeKey')")
    assert made not in browser.run("document.documentElement.outerHTML")


def health_draws_the_latencies(browser: Browser) -> None:
    go(browser, "health")
    browser.wait("document.querySelectorAll('#figures svg rect').length")
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
    browser.wait("document.querySelector('#verdict [role=status]').textContent.includes('opens version 1')")
    browser.wait("document.querySelector('#model').value === 'hostile' && location.hash === '#/predict'")
    text = "a red thing <script>stolen = 1</script> \u202e\u0007\ud83d\ude00 " + "y" * 10_000
    assert set(ask_text(browser, text)) == set(HOSTILE)
    assert browser.run("document.querySelector('#why .marked').textContent.includes('<script>stolen')")
    for width in (1200, 390, 320):
        browser.look(width)
        assert browser.run("document.documentElement.scrollWidth") <= width
    browser.look()
    go(browser, "labels")
    browser.wait("document.querySelectorAll('#page-labels tbody tr').length === 4")
    assert browser.run("typeof window.stolen") == "undefined"
    assert browser.run("document.querySelectorAll('main script, main img').length") == 0


def pages_are_accessible(browser: Browser, page: str, dark: bool) -> None:
    browser.look(dark=dark)
    if page == "versions":  # of a model that has two
        browser.fill("#model", "colours")
    go(browser, page)
    browser.wait(FILLED[page])
    no_rule_of_accessibility_is_broken(browser)
    if page == "labels":
        browser.click("#page-labels tbody .label-name")
        browser.wait(
            "document.querySelector('dialog .bar-adds') && document.querySelector('dialog svg.chart')"
        )
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
    browser.wait("document.querySelector('#predictions').children.length")
    key = {"authorization": f"Bearer {KEY}"}
    assert server.ask("DELETE", "/v1/admin/models/hostile?confirm=hostile", **key)[0] == 200
    browser.fill("#text", "a red thing")
    browser.wait("document.querySelector('#notice').textContent.includes('The model hostile is gone')")
    browser.wait("document.querySelector('#predictions .name').textContent === 'red'")
    assert browser.run("document.querySelector('#model').value") == "colours"


def it_asks_nobody_else_and_no_rule_was_broken(browser: Browser, server: ServerProcess) -> None:
    origin = f"http://127.0.0.1:{server.port}/"
    others = {url for url in browser.requests if not url.startswith((origin, "about:"))}
    assert others == set()
    assert not any(KEY in url for url in browser.requests)
    assert wrong(browser) == []


def a_server_that_is_gone_is_told(browser: Browser, server: ServerProcess) -> None:
    server.terminate()
    browser.fill("#text", "a black thing")
    browser.wait("document.querySelector('#notice').textContent.includes('does not answer')")
    assert browser.run("document.querySelector('#text').value") == "a black thing"
    found: Any = browser.run("document.querySelector('#predictions').children.length")
    assert found == 0


def test_a_visit(browser: Browser, server: ServerProcess, tmp_path: Path) -> None:
    """Each step goes on where the one before it has ended: so they are one test, on one processor."""
    an_empty_service_says_what_to_do(browser)
    a_key_is_asked_for_and_a_wrong_one_is_told(browser)
    a_training_that_fails_says_why_and_is_retried(browser, server, tmp_path)
    a_version_is_trained_from_an_uploaded_file_and_promoted(browser, server, tmp_path)
    a_text_is_predicted_and_explained(browser)
    each_key_stroke_changes_what_is_shown(browser)
    a_request_is_copied_without_the_key(browser, server)
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
