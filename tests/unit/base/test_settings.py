import os
import pickle
from pathlib import Path

import pytest
from pydantic import ByteSize, ValidationError

from xylem.base.errors import BadParameter
from xylem.base.settings import Limits, Settings, read_settings, variables


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("XYLEM_"):
            monkeypatch.delenv(name)


def test_defaults_without_any_variable_or_with_an_empty_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert read_settings() == Settings()
    monkeypatch.setenv("XYLEM_STORE", "")
    assert read_settings().store == Path("store")


VARIABLES = {
    "XYLEM_STORE": "/models",
    "XYLEM_TOP_R_MAX": "7",
    "XYLEM_ACCESS_LOG": "false",
    "XYLEM_HOST": "::1",
    "XYLEM_PORT": "9000",
    "XYLEM_WORKERS": "3",
    "XYLEM_TOKEN_KEY": "new,old",
    "XYLEM_ADMIN_KEY": "sha256:" + "aF" * 32,
    "XYLEM_KERNEL_CACHE": "/cache",  # which others read
}


def test_variables_and_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    found = read_settings()
    assert (found.store, found.limits.top_r_max, found.access_log) == (Path("/models"), 7, False)
    assert (found.host, found.port, found.workers) == ("::1", 9000, 3)
    assert found.token_key is not None and found.token_key.get_secret_value() == "new,old"
    assert (
        found.admin_key is not None and found.admin_key.get_secret_value() == "sha256:" + "aF" * 32
    )
    overridden = read_settings(store="elsewhere", port=0)
    assert (overridden.store, overridden.port, overridden.workers) == (Path("elsewhere"), 0, 3)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("XYLEM_TOPR_MAX", "1", r"expected .*did you mean XYLEM_TOP_R_MAX\?"),
        ("XYLEM_LIMITS", "1", "expected a variable .* an unknown one"),
        ("xylem_store", "1", r"expected .*did you mean XYLEM_STORE\?"),
        ("XYLEM_", "1", "expected a variable .* an unknown one"),
        ("XYLEM_FEATURES_MAX", "3", "expected a variable"),  # a limit that is fixed
        # what only looks like what Kubernetes puts beside a service
        ("XYLEM_STORE_PORT", "8080", "expected "),
        ("XYLEM_SERVICE_PORT", "http", "expected "),
        ("XYLEM_PORT_8080", "8080", "expected "),
        ("XYLEM_SERVICE", "x", "expected "),
        # keys: an empty one would sign, too, and anyone could forge what it signs
        ("XYLEM_TOKEN_KEY", "hidden,", "expected .*found an empty one"),
        ("XYLEM_TOKEN_KEY", ",", "expected .*found an empty one"),
        ("XYLEM_TOKEN_KEY", "hidden,,hidden", "expected .*found an empty one"),
        ("XYLEM_ADMIN_KEY", "sha256:hidden", "expected .*found 6 characters"),
        ("XYLEM_ADMIN_KEY", "sha256:", "expected .*found 0 characters"),
        ("XYLEM_ADMIN_KEY", "sha256:" + "0" * 63 + "g", "expected .*found 64 characters"),
        *(
            ("XYLEM_PORT", value, f".*found '{value}'$")
            for value in ("65536", "http", "http://x:80")
        ),
        *(("XYLEM_WORKERS", value, f".*found '{value}'$") for value in ("0", "257")),
        *(("XYLEM_TOP_R_MAX", value, f".*found '{value}'$") for value in ("0", "many", "1.5")),
        *(
            ("XYLEM_STORE_POLL_SECONDS", value, f".*found '{value}'$")
            for value in ("nan", "inf", "0")
        ),
        ("XYLEM_BODY_BYTES_MAX", "1e30", ".*found '1e30'$"),
        ("XYLEM_DRAIN_SECONDS", "-1", ".*found '-1'$"),
        *(
            ("XYLEM_MODELS_LOADED", value, f"expected all, a number .*found '{value}'$")
            for value in ("0", "-1", "0MB", "many", "ALL", "1e3", "9" * 30)
        ),
        ("XYLEM_PRELOAD", "shop-*", "cannot be used without XYLEM_MODELS_LOADED as a number"),
        ("XYLEM_LOG_LEVEL", "loud", ".*found 'loud'$"),
        ("XYLEM_ACCESS_LOG", "perhaps", ".*found 'perhaps'$"),
        ("XYLEM_OPEN_SCOPES", "foo", "expected none, or some of .*, found 'foo'$"),
    ],
)
def test_a_wrong_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(BadParameter, match=f"^{name}: {says}") as caught:
        read_settings()
    assert "hidden" not in str(caught.value)


TEXTS = {
    "XYLEM_STORE": "/models",
    "XYLEM_DATA_DIR": "/data",
    "XYLEM_HOST": "::",
    "XYLEM_STORE_REMOTE": "s3://bucket/prefix",
    "XYLEM_DATABASE_URL": "postgresql://user:hidden@host/x",
    "XYLEM_RAY_ADDRESS": "auto",
    "XYLEM_TOKEN_KEY": "hidden,hidden",
    "XYLEM_ADMIN_KEY": "hidden",
    "XYLEM_ROOT_PATH": "/xylem",
    "XYLEM_MODELS_LOADED": "2GiB",
    "XYLEM_METRICS_MODELS": "shop-*",
    "XYLEM_LOG_LEVEL": "info",
}
"""The settings that are texts, with values that are taken."""

STRAYS = ("{}\n", "{}\r\n", " {}", "{} ", "\t{}", "{}\u00a0", "{}\x00", "{}\u2028", "{}\n{}")


def test_every_setting_is_a_text_a_list_or_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new setting of text stands above."""
    lists = {
        "XYLEM_CORS_ORIGINS",
        "XYLEM_OPEN_SCOPES",
        "XYLEM_OPEN_MODELS",
        "XYLEM_PRELOAD",
    }  # whose items are taken without blanks
    for name in set(variables()) - TEXTS.keys() - lists:
        monkeypatch.setenv(name, "a text")
        with pytest.raises(BadParameter, match=f"^{name}: Input should be a valid"):
            read_settings()
        monkeypatch.delenv(name)


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_file_of_a_secret_adds_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, TEXTS[name])
    read_settings()
    for stray in STRAYS:
        if "\0" not in stray:  # which no variable can have
            monkeypatch.setenv(name, stray.format(TEXTS[name], "x"))
            with pytest.raises(BadParameter, match=f"^{name}: ") as caught:
                read_settings()
            assert "hidden" not in str(caught.value)
        with pytest.raises(BadParameter, match=f"^{name}: "):
            read_settings(**{name.removeprefix("XYLEM_").lower(): stray.format(TEXTS[name], "x")})


@pytest.mark.parametrize(
    "key", ["hid den", "hidd\u00e9n", "hidden\u20ac", "hid\x7fden", "h" * 4097]
)
def test_an_admin_key_that_no_header_carries_is_refused(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("XYLEM_ADMIN_KEY", key)
    with pytest.raises(BadParameter, match=r"^XYLEM_ADMIN_KEY: expected .+, found ") as caught:
        read_settings()
    assert key not in str(caught.value)
    monkeypatch.setenv("XYLEM_ADMIN_KEY", "~!" * 2048)
    read_settings()


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
    "XYLEM_GRPC_PORT": "tcp://10.96.3.9:8081",
    "XYLEM_BATCHES_PORT": "udp://10.96.3.8:8081",
}


def test_what_kubernetes_puts_beside_a_service_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in KUBERNETES.items():
        monkeypatch.setenv(name, value)
    assert read_settings() == Settings()
    assert read_settings().port == 8080


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


@pytest.mark.parametrize(
    ("value", "loaded"),
    [("all", "all"), ("200", 200), ("2GiB", ByteSize(2 << 30)), ("1.5 MB", ByteSize(1_500_000))],
)
def test_open_models_are_bounded_by_number_or_size(
    monkeypatch: pytest.MonkeyPatch, value: str, loaded: object
) -> None:
    monkeypatch.setenv("XYLEM_MODELS_LOADED", value)
    models_loaded = read_settings().models_loaded
    assert (models_loaded, type(models_loaded)) == (loaded, type(loaded))


def test_patterns_of_models_to_preload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XYLEM_MODELS_LOADED", "3")
    monkeypatch.setenv("XYLEM_PRELOAD", "shop-*, t[ab]g?")
    assert read_settings().preload == ("shop-*", "t[ab]g?")
    assert read_settings(preload=["a", "b"]).preload == ("a", "b")
    for value in ("Shop", "a/b", "a,,b", "é"):
        with pytest.raises(
            BadParameter, match="XYLEM_PRELOAD: expected patterns of at most 128"
        ) as caught:
            read_settings(preload=value)
        assert str(caught.value).count("found") == 1
