"""The console's page Learning in a real browser: a recipe, corrections, a concept, a run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.browser import CHROMIUM
from tests.helpers.console import Console
from tests.helpers.console_accessibility import AXE
from tests.helpers.console_learning import (
    a_concept_is_removed_while_the_vocabulary_is_there,
    a_correction_says_that_its_text_is_stored,
    a_model_without_a_recipe_says_how_to_get_one,
    a_new_concept_is_answered_by_its_name,
    a_recipe_is_learnt,
    a_run_now_shows_its_progress_and_the_new_version,
    another_vocabulary_shows_its_changes_and_is_used,
    corrections_are_filtered_and_deleted,
    keys_that_may_not_see_it_are_told,
    the_page_fits_and_is_accessible,
)
from tests.helpers.servers import KEY, ServerProcess
from tests.helpers.small_models import small_draft

from xylem_store.store import Store

REFUSALS = ("(Unauthorized)", "(Forbidden)", "(Not Found)", "(Conflict)", "(Unprocessable")
"""Of what the browser logs, what these tests provoke: answers that refuse."""


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Console]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    for name in ("data", "profile"):
        (tmp_path / name).mkdir()
    store = Store(tmp_path / "store")
    store.prepare()
    store.publish("bare", small_draft(8))
    settings = {"jobs": 1, "job_nice": 0, "data_dir": tmp_path / "data", "admin_key": KEY}
    with (
        ServerProcess(store.root, feedback_rows=1, **settings) as server,
        Console(tmp_path, server) as console,
    ):
        yield console


def test_a_visit_to_the_page_learning(page: Console) -> None:
    """Each step goes on where the one before it has ended: so they are one test."""
    a_recipe_is_learnt(page)
    a_model_without_a_recipe_says_how_to_get_one(page)
    a_correction_says_that_its_text_is_stored(page)
    corrections_are_filtered_and_deleted(page)
    a_new_concept_is_answered_by_its_name(page)
    a_run_now_shows_its_progress_and_the_new_version(page)
    another_vocabulary_shows_its_changes_and_is_used(page)
    the_page_fits_and_is_accessible(page)
    a_concept_is_removed_while_the_vocabulary_is_there(page)
    keys_that_may_not_see_it_are_told(page)
    logged = [line for line in page.console if not any(refusal in line for refusal in REFUSALS)]
    assert logged == []
    if not AXE.exists():
        pytest.skip("all but accessibility was tested: axe-core is missing")
