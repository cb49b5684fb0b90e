"""Commands that list or look, on a store without a database: they make none."""

import pytest

from model_store.store import Store
from service.db import FILE_NAME
from tests.conftest import Command, answer


@pytest.mark.parametrize(("name", "found"), [("jobs", {"jobs": []}), ("schedules", {"schedules": []})])
def test_a_listing_makes_no_database(
    command: Command, versions_of_m: Store, name: str, found: dict[str, object]
) -> None:
    assert answer(command(name, "list", "--json")) == found
    assert not (versions_of_m.root / FILE_NAME).exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("jobs", "show", "0123456789ab"), "expected the id of a job, found '0123456789ab'"),
        (("schedules", "delete", "0123456789ab"), "expected the id of a schedule, found '0123456789ab'"),
        (("schedules", "create", "--job", "no.json", "--rows", "5"), "no.json: expected a readable file"),
        (("feedback", "delete", "none", "--day", "2026-11-23"), "none"),
    ],
)
def test_what_is_not_there_makes_no_database(
    command: Command, versions_of_m: Store, arguments: tuple[str, ...], expected: str
) -> None:
    status, _, err = command(*arguments)
    assert (status, expected in err) == (2, True), err
    assert not (versions_of_m.root / FILE_NAME).exists()
