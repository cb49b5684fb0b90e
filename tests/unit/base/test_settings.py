import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from service.base.errors import BadParameter
from service.base.settings import Limits, Settings, read_settings, variables


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.upper().startswith("XYLEM_"):
            monkeypatch.delenv(name)


def test_defaults_without_any_variable() -> None:
    assert read_settings() == Settings()
    assert read_settings().store == Path("store")


def test_a_variable_and_an_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XYLEM_STORE", "/models")
    monkeypatch.setenv("XYLEM_TOP_R_MAX", "7")
    monkeypatch.setenv("XYLEM_ACCESS_LOG", "false")
    settings = read_settings()
    assert (settings.store, settings.limits.top_r_max, settings.access_log) == (Path("/models"), 7, False)
    assert read_settings(store="elsewhere").store == Path("elsewhere")


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XYLEM_STORE", "")
    assert read_settings().store == Path("store")


def test_the_kernel_cache_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XYLEM_KERNEL_CACHE", "/cache")
    read_settings()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("XYLEM_TOPR_MAX", "did you mean XYLEM_TOP_R_MAX?"),
        ("XYLEM_LIMITS", "no such one"),
        ("xylem_store", "did you mean XYLEM_STORE?"),
        ("XYLEM_", "no such one"),
    ],
)
def test_an_unknown_variable_refuses_to_start(monkeypatch: pytest.MonkeyPatch, name: str, says: str) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(BadParameter) as caught:
        read_settings()
    assert str(caught.value).startswith(f"{name}: expected")
    assert says in str(caught.value)


KUBERNETES = {
    "XYLEM_PORT": "tcp://10.96.3.7:8080",
    "XYLEM_SERVICE_HOST": "10.96.3.7",
    "XYLEM_SERVICE_PORT": "8080",
    "XYLEM_SERVICE_PORT_HTTP": "8080",
    "XYLEM_PORT_8080_TCP": "tcp://10.96.3.7:8080",
    "XYLEM_PORT_8080_TCP_PROTO": "tcp",
    "XYLEM_PORT_8080_TCP_PORT": "8080",
    "XYLEM_PORT_8080_TCP_ADDR": "10.96.3.7",
    "XYLEM_BATCHES_SERVICE_HOST": "10.96.3.8",
    "XYLEM_BATCHES_PORT": "udp://10.96.3.8:8081",
}


def test_what_kubernetes_puts_beside_a_service_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KUBERNETES.items():
        monkeypatch.setenv(name, value)
    assert read_settings() == Settings()
    assert read_settings().port == 8080


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("XYLEM_STORE_PORT", "8080"),
        ("XYLEM_SERVICE_PORT", "http"),
        ("XYLEM_PORT_8080", "8080"),
        ("XYLEM_SERVICE", "x"),
    ],
)
def test_what_only_looks_like_it_is_not(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(BadParameter, match=f"^{name}: expected"):
        read_settings()


def test_where_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XYLEM_HOST", "::1")
    monkeypatch.setenv("XYLEM_PORT", "9000")
    monkeypatch.setenv("XYLEM_WORKERS", "3")
    settings = read_settings()
    assert (settings.host, settings.port, settings.workers) == ("::1", 9000, 3)
    assert read_settings(port=0).port == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("XYLEM_PORT", value) for value in ("65536", "http", "http://x:80")),
        *(("XYLEM_WORKERS", value) for value in ("0", "257")),
        *(("XYLEM_TOP_R_MAX", value) for value in ("0", "many", "1.5")),
        *(("XYLEM_STORE_POLL_SECONDS", value) for value in ("nan", "inf", "0")),
        ("XYLEM_BODY_BYTES_MAX", "1e30"),
        ("XYLEM_DRAIN_SECONDS", "-1"),
        ("XYLEM_LOG_LEVEL", "loud"),
        ("XYLEM_ACCESS_LOG", "perhaps"),
    ],
)
def test_a_bad_value_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(BadParameter) as caught:
        read_settings()
    assert str(caught.value).startswith(f"{name}: ")
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("XYLEM_TOKEN_KEY", "hidden,", "found an empty one"),
        ("XYLEM_TOKEN_KEY", ",", "found an empty one"),
        ("XYLEM_TOKEN_KEY", "hidden,,hidden", "found an empty one"),
        ("XYLEM_ADMIN_KEY", "sha256:hidden", "found 6 characters"),
        ("XYLEM_ADMIN_KEY", "sha256:", "found 0 characters"),
        ("XYLEM_ADMIN_KEY", "sha256:" + "0" * 63 + "g", "found 64 characters"),
    ],
)
def test_a_bad_key_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    """An empty key would sign, too: anyone could forge what it signs."""
    monkeypatch.setenv(name, value)
    with pytest.raises(BadParameter, match=f"^{name}: expected .*{says}") as caught:
        read_settings()
    assert "hidden" not in str(caught.value)


def test_good_keys_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XYLEM_TOKEN_KEY", "new,old")
    monkeypatch.setenv("XYLEM_ADMIN_KEY", "sha256:" + "aF" * 32)
    settings = read_settings()
    assert settings.token_key is not None
    assert settings.admin_key is not None
    assert settings.token_key.get_secret_value() == "new,old"
    assert settings.admin_key.get_secret_value() == "sha256:" + "aF" * 32


def test_settings_are_frozen_and_survive_a_spawn() -> None:
    settings = read_settings()
    with pytest.raises(ValidationError):
        settings.store = Path("x")
    with pytest.raises(ValidationError):
        settings.limits.top_r_max = 1
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301


def test_every_limit_is_finite_and_no_two_settings_share_a_name() -> None:
    for field in Limits.model_fields.values():
        assert any(getattr(bound, "le", None) for bound in field.metadata), field
    told = [name for name, field in Limits.model_fields.items() if field.description]
    assert 0 < len(told) < len(Limits.model_fields)
    assert len(variables()) == len(Settings.model_fields) - 1 + len(told)


def test_a_value_that_a_check_refuses_is_told_in_the_words_of_the_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XYLEM_OPEN_SCOPES", "foo")
    with pytest.raises(BadParameter, match=r"^XYLEM_OPEN_SCOPES: expected none, or some of .*, found 'foo'$"):
        read_settings()


def test_a_fixed_limit_has_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XYLEM_FEATURES_MAX", "3")
    with pytest.raises(BadParameter, match="XYLEM_FEATURES_MAX: expected a setting"):
        read_settings()
