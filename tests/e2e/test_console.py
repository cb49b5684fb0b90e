"""The console in a real browser: one for all tests, in the order in which somebody would go."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.browser import CHROMIUM
from tests.helpers.console import WORDS, Console, rows
from tests.helpers.console_accessibility import AXE, FILLED, pages_are_accessible
from tests.helpers.console_combined import a_combined_version_is_explained_and_corrected
from tests.helpers.console_fields import each_field_has_a_text_of_its_own
from tests.helpers.console_labels import (
    hostile_texts_and_labels_are_shown_as_they_are,
    labels_are_called_by_their_names,
    labels_are_searched_and_explained,
)
from tests.helpers.servers import KEY, ServerProcess, wait_for

REFUSALS = (
    "(Unauthorized)",
    "(Not Found)",
    "(Conflict)",
    "(Unprocessable",
    "(Service Un",
    "ERR_CONNECTION",
)
"""Of what the browser logs, what these tests provoke: answers that refuse."""
SLOW_TO_OPEN = (
    "import time; from xylem.serving.live.opener import VersionOpener; opened = VersionOpener.open;"
    "VersionOpener.open = lambda self, key: (time.sleep(6 * (key[0] == 'hostile')), "
    "opened(self, key))[1];"
)
"""A server that opens one model as slowly as where its kernels have to be compiled."""


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Console]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    for name in ("store", "data", "profile"):
        (tmp_path / name).mkdir()
    settings = {"jobs": 1, "job_nice": 0, "data_dir": tmp_path / "data", "admin_key": KEY}
    with (
        ServerProcess(tmp_path / "store", prelude=SLOW_TO_OPEN, **settings) as server,
        Console(tmp_path, server) as console,
    ):
        yield console


def an_empty_service_says_what_to_do_and_asks_for_a_key(page: Console) -> None:
    page.shows("#predict-status", "train one")
    page.press("Train")
    for wrong, said in (("not the key", "spaces"), ("not-the-key", "refused")):
        page.fill("#notice input", wrong)
        page.click("#notice button")
        page.shows("#notice", said)
    page.fill("#notice input", KEY)
    page.click("#notice button")
    page.wait("$('#train-submit')")
    assert page.run("$('#notice').textContent") == ""
    assert page.run("sessionStorage.getItem('xylem-key')") == KEY
    assert KEY not in page.run("location.href + document.cookie + JSON.stringify(localStorage)")


def a_training_that_fails_says_why_and_is_retried(page: Console) -> None:
    page.train("broken", "broken.jsonl", b'{"text": "no end"\n' * 9, ends_with="#job .failed")
    assert "broken.jsonl" in page.text("#job .notice")
    first = page.newest_job()["started"]
    page.press("Retry")
    wait_for(
        lambda: page.newest_job()["state"] == "failed" and page.newest_job()["started"] != first
    )
    page.wait("$('#job .failed')")


def a_version_is_trained_from_an_uploaded_file_and_promoted(page: Console) -> None:
    page.train("colours", "my colours.jsonl", rows(WORDS))
    assert "Version 1 is promoted" in page.text("#verdict")
    page.press("Log")
    page.shows("#job pre", "succeeded")
    page.click("#rule input[value=keep]")
    page.press("Parameters (their defaults are good)")
    trees = "$$('#parameters label').find(e => e.textContent === 'trees').htmlFor"
    page.fill(f"#{page.run(trees)}", "2")
    page.run("$('#job').remove()")
    page.train("colours", "my colours.jsonl", rows(WORDS))
    assert "Version 2 is kept, and not promoted" in page.text("#verdict")
    request = page.newest_job()["request"]
    assert (request["parameters"], request["data"]) == ({"trees": 2}, "my_colours.jsonl")


def a_text_is_predicted_and_explained(page: Console) -> None:
    page.press("Try it")
    page.wait("$('#version').value === 'version:2' && location.hash === '#/predict'")
    assert page.ask_text("a GREEN thing\nof no other colour")[0] == "green"
    assert page.run("$('#predictions').children.length") == len(WORDS)
    page.wait("$('#why .marked .adds-4')?.textContent === 'GREEN'")
    page.click("#predictions li:nth-child(2) .label-name")
    page.wait("!$('#why-heading').textContent.includes('green')")
    page.wait("$('#why .marked .takes-4')?.textContent === 'GREEN'")
    page.fill("#deny", "GREEN")
    page.click("#deny-button")
    page.count("#predictions > *", 5)
    page.click("#deny-chosen button")
    page.count("#predictions > *", 6)
    page.fill("#threshold", "tuned")
    page.count("#predictions > *", 1)
    page.fill("#threshold", "")
    page.count("#predictions > *", 6)
    page.fill("#weigh", "own")
    page.fill("#weights", "green: 5")
    page.wait("Number($('#predictions .score').textContent) > 2")
    assert page.run("$('#correct').hidden")
    page.fill("#weigh", "")
    page.wait("Number($('#predictions .score').textContent) <= 1")


def each_key_stroke_is_answered_and_a_request_copied(page: Console) -> None:
    page.fill("#text", "")
    page.run("$('#text').focus()")
    for letter in "a blue thing":
        page.call("Input.insertText", text=letter)
    page.is_first("blue")
    for way in ("curl", "Python", "JSON"):
        page.press(way)
        text = page.text("dialog pre")
        assert "a blue thing" in text
        assert KEY not in text
        assert ("XYLEM_KEY" in text) == (way != "JSON")
        page.close_dialog()
    assert page.server.ask("POST", "/v1/models/colours/predict", json.loads(text))[0] == 200


def a_correction_moves_thresholds(page: Console) -> None:
    before = page.ask("/versions/2/thresholds")
    page.click("#predictions li:first-child input")
    page.fill("#add-label", "wh")
    page.wait("$('#add-label-names [role=option]')?.textContent === 'white'")
    page.fill("#add-label", "white")
    page.click("#add-label-button")
    page.wait("$('#add-label').value === ''")
    page.click("#send-correction")
    # one threshold for all labels, for instance-F: it need not move
    page.shows("#moved", "this is counted")
    after = page.ask("/versions/2/thresholds")
    assert after["n_events"] == before["n_events"] + 1
    marks = {label["label"]: label["marks"] for label in after["labels"]}
    gained = {label["label"]: marks[label["label"]] - label["marks"] for label in before["labels"]}
    assert gained == {**dict.fromkeys(WORDS, 0), "blue": 1, "white": 1}
    page.fill("#add-label", "no such label")
    page.click("#add-label-button")
    page.shows("#add-label-fault", "No label is called “no such label”")
    page.click("#send-correction")  # nothing is sent, and what was typed stays
    page.fill("#add-label", "bl")
    page.wait("$$('#add-label-names [role=option]').length === 2")
    page.click("#add-label-button")
    page.shows("#add-label-fault", "choose one of the list")
    page.fill("#add-label", "")
    page.wait("$('#add-label-fault').textContent === '' && $('#add-label-names').hidden")
    assert page.run("$('#add-label-chosen').children.length") == 0
    assert page.ask("/versions/2/thresholds")["n_events"] == after["n_events"]


def a_version_is_promoted_and_rolled_back_with_a_reason(page: Console) -> None:
    page.go("versions")
    page.press("Promote…")
    page.fill("dialog input[maxlength]", "better <b>colours</b>")
    page.press("Promote")
    page.shows("dialog", "latest names version 2 now")
    page.press("Done")
    page.press("Roll back…")
    page.press("Roll back")
    page.shows("dialog", "latest names version 1 now")
    page.press("Done")
    page.shows("#page-versions", "better <b>colours</b>")
    page.press("Origin")
    page.shows("dialog", "my_colours.jsonl")
    page.close_dialog()
    assert page.ask("")["aliases"] == {"latest": 1}


def two_versions_are_compared(page: Console) -> None:
    """The page says of two versions what the server has of each."""
    page.go("versions")
    page.wait("$('#compare-old option:checked').textContent === '1 (latest)'")
    page.wait("$('#label-differences tbody tr')")
    assert page.run("$$('#page-versions select').map(e => e.value).slice(0, 2)") == ["2", "1"]
    one, two = (page.ask(f"/versions/{version}") for version in (1, 2))
    rows = page.run(
        "Object.fromEntries([...$('#comparison table').querySelectorAll('tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.textContent)).map(([name, ...rest]) => "
        "[name, rest]))"
    )
    assert rows["P@1"][:2] == [f"{version['metrics']['P@1']:.2f}" for version in (one, two)]
    bands = page.run("$$('#comparison svg.chart')[0].querySelectorAll('rect').length")
    assert bands == 2 * len(one["validation"]["bands"])
    points = page.run("$$('#comparison svg.chart')[1].querySelectorAll('circle').length")
    assert points == len(one["validation"]["reliability"])
    assert "Apart on average: version 1 " in page.text("#comparison")
    assert page.run("$$('#label-differences tbody tr').length") == len(WORDS)
    page.fill("#label-differences input", "BL")
    page.count("#label-differences tbody tr", 2)
    page.fill("#compare-old", "2")
    page.shows("#comparison", "two different versions")


def a_key_is_made_and_revoked(page: Console) -> None:
    page.go("keys")
    page.fill("#page-keys form input", "shop")
    page.press("Make")
    made = page.text("dialog pre")
    asked = {"authorization": f"Bearer {made}"}
    assert page.server.ask("GET", "/v1/admin/keys", **asked)[0] == 403
    page.close_dialog()
    page.press("Revoke…")
    page.press("Revoke")
    page.shows("#page-keys", "revoked")
    assert page.server.ask("GET", "/v1/admin/keys", **asked)[0] in (401, 403)
    page.shows("#page-keys", "revokeKey")
    assert made not in page.run("document.documentElement.outerHTML")


def health_draws_the_latencies(page: Console) -> None:
    page.go("health")
    page.wait("$$('#figures svg rect').length")
    assert "ready" in page.text("#ready")
    assert "colours" in page.text("#ready")


def health_closes_and_opens_a_model(page: Console) -> None:
    page.shows("#open-versions", "colours")
    n_open = page.run("$$('#open-versions tbody tr').length")
    page.click("#open-versions [aria-label='Close colours']")
    page.wait("!$('#open-versions').textContent.includes('colours')")
    status, index = page.server.ask("POST", "/v2/repository/index", authorization=f"Bearer {KEY}")
    assert status == 200
    assert {"READY"} & {e["state"] for e in index if e["name"] == "colours"} == set()
    page.fill("#open-models input", "colours")
    page.press("Open")
    page.wait(f"$$('#open-versions tbody tr').length <= {n_open}")
    page.shows("#open-versions", "colours")
    page.fill("#open-models input", "colors")
    page.press("Open")
    page.shows("#open-models", "expected one of the store")


def fields_become_instances_and_figures_are_read(page: Console) -> None:
    script = """Promise.all(
        ["instance", "metrics", "snippets", "explain",
            "versions"].map(n => import(`/console/${n}.js`))
    ).then(([{instanceOf}, {samples, histogram, quantile}, {python}, {wordsOf}, {others}]) => {
            const fault = (kind, text) => {
                try { return instanceOf(kind, text) } catch (e) { return e.message }
            };
            const text = ["0.1", "1.0", "+Inf"].flatMap((le, i) => ["a", "b"].map(
                m => `t_bucket{le="${le}",model="${m}",`
                    + `route="/x/predict"} ${[3, 5, 6][i]}.0`)).join("\\n");
            const buckets = histogram(samples(text), "t", l => l.route.endsWith("/predict"));
            return [fault("indices", "3:0.5 17:-1e2"), fault("indices", "3"),
                fault("features", "a: b: 2"),
                fault("features", '{"red": 1}'), fault("features", "red"), fault("text", " "),
                buckets.map(b => b.n), quantile(buckets, 0.5), quantile([], 0.9),
                python({a: [true, null, 1.5, "x\\"y"]}),
                wordsOf("Not a BIG cat", new Map([["big cat", 2], ["not", -1]])).map(w => w.added),
                others({splits: {latest: {canary: {version: 4, weight: 0.1},
                shadow: null}}}).textContent,
                others({name: "m", versions: [1], splits: {}})];
        })"""
    assert page.run(script) == [
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


def a_model_that_goes_while_it_is_shown_is_told(page: Console) -> None:
    page.go("predict")
    page.wait("$('#predictions').children.length")
    assert page.server.admin("DELETE", "/models/hostile?confirm=hostile")[0] == 200
    page.fill("#text", "a red thing")
    page.shows("#notice", "The model hostile is gone")
    page.is_first("red")
    assert page.run("$('#model').value") == "colours"


def it_asks_nobody_else_and_no_rule_was_broken(page: Console) -> None:
    others = {url for url in page.requests if not url.startswith((f"{page.server.url}/", "about:"))}
    assert others == set()
    assert not any(KEY in url for url in page.requests)
    wrong = [line for line in page.console if not any(known in line for known in REFUSALS)]
    assert wrong == []


def a_server_that_is_gone_is_told(page: Console) -> None:
    page.server.terminate()
    page.fill("#text", "a black thing")
    page.shows("#notice", "does not answer")
    assert page.run("$('#text').value") == "a black thing"
    assert page.run("$('#predictions').children.length") == 0


def test_a_visit(page: Console) -> None:
    """Each step goes on where the one before it has ended: so they are one test, on
    one processor.
    """
    an_empty_service_says_what_to_do_and_asks_for_a_key(page)
    a_training_that_fails_says_why_and_is_retried(page)
    a_version_is_trained_from_an_uploaded_file_and_promoted(page)
    a_text_is_predicted_and_explained(page)
    each_key_stroke_is_answered_and_a_request_copied(page)
    a_correction_moves_thresholds(page)
    a_version_is_promoted_and_rolled_back_with_a_reason(page)
    two_versions_are_compared(page)
    labels_are_searched_and_explained(page)
    labels_are_called_by_their_names(page)
    a_key_is_made_and_revoked(page)
    health_draws_the_latencies(page)
    health_closes_and_opens_a_model(page)
    fields_become_instances_and_figures_are_read(page)
    hostile_texts_and_labels_are_shown_as_they_are(page)
    if AXE.exists():
        for dark, name in itertools.product((False, True), FILLED):
            pages_are_accessible(page, name, dark)
    a_model_that_goes_while_it_is_shown_is_told(page)
    it_asks_nobody_else_and_no_rule_was_broken(page)
    a_server_that_is_gone_is_told(page)
    if not AXE.exists():
        pytest.skip(
            "all but accessibility was tested: axe-core is missing (make test-system has it, "
            "by npm)"
        )


def test_a_combined_version_is_explained_and_corrected(page: Console) -> None:
    a_combined_version_is_explained_and_corrected(page)
    assert page.console == []


def test_a_version_with_fields_has_a_text_for_each(page: Console) -> None:
    each_field_has_a_text_of_its_own(page)
    assert page.console == []
