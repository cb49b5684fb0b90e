"""What tables show of parameters is what the option -p takes."""

import pytest

from service.base.parameters import scalar_of
from service.cli.console import as_option


@pytest.mark.parametrize("value", [True, False, None, 3, 0.25, 1e-05, "auto"])
def test_a_shown_parameter_can_be_given(value: object) -> None:
    assert scalar_of(as_option(value)) == value
