"""Optional parts: each is found by its name, and what is missing is reported in a sentence."""

import sys
from collections.abc import Callable

import pytest

from xylem.base.errors import BadParameter
from xylem.base.extras import EXTRAS, PROJECTS, load_extra

LIBRARIES = sorted((name, library) for name, extra in EXTRAS.items() for library in extra.libraries)


@pytest.mark.parametrize("name", EXTRAS)
def test_an_optional_part_is_the_module_that_the_table_names(name: str) -> None:
    for library in EXTRAS[name].libraries:
        pytest.importorskip(library)
    assert load_extra(name) is sys.modules[EXTRAS[name].module]


@pytest.mark.parametrize(("name", "library"), LIBRARIES)
def test_a_missing_library_is_reported_with_how_to_get_it(
    name: str, library: str, hide_module: Callable[[str], None]
) -> None:
    extra = EXTRAS[name]
    hide_module(library)
    project = PROJECTS.get(library, library)
    fault = f"{extra.purpose} needs {project}: pip install 'xylem-serve[{extra.option}]'"
    with pytest.raises(BadParameter) as refused:
        load_extra(name)
    assert str(refused.value).startswith(fault)


@pytest.mark.parametrize("name", EXTRAS)
@pytest.mark.parametrize("missing", ["xylem.extras", "its package"])
def test_a_missing_folder_is_reported(
    name: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = EXTRAS[name].module.rpartition(".")[0]
    monkeypatch.setitem(sys.modules, package if missing == "its package" else missing, None)
    if missing == "xylem.extras":
        monkeypatch.delitem(sys.modules, package, raising=False)
    with pytest.raises(BadParameter, match=f"needs {package}, which this installation of "):
        load_extra(name)
