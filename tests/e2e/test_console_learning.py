"""The console's page Learning in a real browser: a recipe, corrections, a concept, a run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.browser import CHROMIUM
from tests.helpers.console import Console
from tests.helpers.console_accessibility import AXE
from tests.helpers.console_learning import (
    N_SHOP,
    a_concept_is_removed_while_the_vocabulary_is_there,
    a_correction_says_that_its_text_is_stored,
    a_model_without_a_recipe_says_how_to_get_one,
    a_new_concept_is_answered_by_its_name,
    a_recipe_is_learnt,
    a_run_now_shows_its_progress_and_the_new_version,
    a_sender_has_more_corrections_than_are_shown,
    a_vocabulary_of_this_computer_is_uploaded,
    another_vocabulary_shows_its_changes_and_is_used,
    corrections_are_filtered_and_deleted,
    keys_that_may_not_see_it_are_told,
    the_page_fits_and_is_accessible,
)
from tests.helpers.console_learning_keys import (
    keys_choose_a_label_and_forget_it,
    keys_open_and_close_what_is_folded,
    keys_read_more_and_delete_a_sender,
    keys_write_a_name_in_another_language,
    tab_goes_through_the_page_in_its_order,
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
    a_sender_has_more_corrections_than_are_shown(page)
    tab_goes_through_the_page_in_its_order(page)
    keys_open_and_close_what_is_folded(page)
    keys_choose_a_label_and_forget_it(page)
    keys_write_a_name_in_another_language(page)
    keys_read_more_and_delete_a_sender(page, N_SHOP, N_SHOP + 2)
    page.open(f"{page.server.url}/#/learning")
    a_new_concept_is_answered_by_its_name(page)
    a_run_now_shows_its_progress_and_the_new_version(page)
    another_vocabulary_shows_its_changes_and_is_used(page)
    a_vocabulary_of_this_computer_is_uploaded(page)
    the_page_fits_and_is_accessible(page)
    a_concept_is_removed_while_the_vocabulary_is_there(page)
    keys_that_may_not_see_it_are_told(page)
    logged = [line for line in page.console if not any(refusal in line for refusal in REFUSALS)]
    assert logged == []
    if not AXE.exists():
        pytest.skip("all but accessibility was tested: axe-core is missing")
