"""What is open, and what CORS allows: from settings."""

import pytest

from service.access.scopes import AccessScope, describe_access, is_loopback, open_scopes, parse_scopes
from service.base.errors import BadParameter
from service.base.settings import OPENABLE, Settings, read_settings

NAMES = ["predict", "feedback", "metrics"]


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
        ("127.0.0.1.example.org", False),
    ],
)
def test_what_is_open_follows_the_address(host: str, is_own: bool) -> None:
    assert is_loopback(host) == is_own
    settings = Settings(host=host)
    assert open_scopes(settings) == (set(NAMES) if is_own else set())
    facts = describe_access(settings)
    assert sorted(facts["open"] + facts["keys"]) == sorted(AccessScope)
    assert host in facts["because"]


@pytest.mark.parametrize(
    ("text", "scopes"),
    [
        ("predict", {"predict"}),
        ("metrics, predict", {"predict", "metrics"}),
        ("none", set()),
        ("predict,feedback,metrics", set(NAMES)),
    ],
)
def test_the_setting_wins_over_the_address(
    monkeypatch: pytest.MonkeyPatch, text: str, scopes: set[str]
) -> None:
    monkeypatch.setenv("XYLEM_OPEN_SCOPES", text)
    for host in ("127.0.0.1", "0.0.0.0"):
        settings = read_settings(host=host)
        assert open_scopes(settings) == scopes
        assert describe_access(settings)["because"] == "XYLEM_OPEN_SCOPES"


@pytest.mark.parametrize(
    "text", ["admin", "predict,admin", "all", "*", "none,predict", "predict;metrics", ","]
)
def test_admin_is_never_open_and_misspelt_scopes_are_refused(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("XYLEM_OPEN_SCOPES", text)
    with pytest.raises(BadParameter, match=r"XYLEM_OPEN_SCOPES: .*expected none, or some of predict"):
        read_settings()


def test_names_of_scopes() -> None:
    assert set(OPENABLE) | {"admin"} == set(AccessScope)
    assert parse_scopes(["admin", "predict", "admin"]) == {"admin", "predict"}
    for bad in ([], ["Admin"], ["predict", ""]):
        with pytest.raises(BadParameter, match="scopes: expected some of predict"):
            parse_scopes(bad)
