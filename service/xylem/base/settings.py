"""Settings and limits: frozen, with finite numbers; each comes from an XYLEM_ variable.

`docs/settings.md` lists them; a test compares the two.
"""

import contextlib
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    PlainValidator,
    SecretStr,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from xylem.base.access.patterns import check_patterns
from xylem.base.errors import BadParameter
from xylem.base.faults import did_you_mean
from xylem.base.processors import n_processors

PREFIX = "XYLEM_"

# Variables that other modules read: the folder of compiled kernels, the processors that they are
# compiled for, and the key of `xylem predict --url`.
ELSEWHERE = frozenset({"XYLEM_KERNEL_CACHE", "XYLEM_KERNEL_CPU", "XYLEM_KEY"})

_CONFIG = SettingsConfigDict(
    env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", allow_inf_nan=False
)

Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Rate = Annotated[float, Field(ge=0.001, le=1e9)]
Bytes = Annotated[int, Field(ge=1, le=1 << 50)]
Duration = Annotated[float, Field(gt=0, le=100 * 86_400)]

_PORT = 8080

_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://.*")
# Variables that Kubernetes puts into the environment of pods for a service named `xylem...`.
_SERVICE_VARIABLE = re.compile(
    r"XYLEM_(\w+_)?("
    r"SERVICE_HOST=.*|SERVICE_PORT(_\w+)?=\d+|"
    r"PORT(_\d+_(TCP|UDP|SCTP))?=(tcp|udp|sctp)://.*|PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)=.*)"
)

Port = Annotated[
    int,
    Field(ge=0, le=65535),
    # Kubernetes sets XYLEM_PORT to a URL if a service is called `xylem`
    BeforeValidator(lambda port: _PORT if _SERVICE_URL.fullmatch(str(port)) else port),
]

GrpcPort = Annotated[
    int | None,
    Field(ge=0, le=65535),
    # Kubernetes sets XYLEM_GRPC_PORT to a URL if a service is called `xylem-grpc`
    BeforeValidator(lambda port: None if _SERVICE_URL.fullmatch(str(port)) else port),
]

_SECRET = "secret"  # the type of errors whose message must not show the value

KEY_BYTES_MAX = 4096  # a longer key is refused without a look at it

_KEY = re.compile(f"[!-~]{{1,{KEY_BYTES_MAX}}}")
_STRAY = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]|\A\s|\s\Z")


def _check_text(value: object) -> object:
    """Return the value of a setting; refuse a text with a line end, or with a blank at an end.

    A key with one never matches, and a URL or path with one leads elsewhere. The message does not
    show the text: it may be secret.
    """
    if isinstance(value, str | Path) and _STRAY.search(str(value)):
        raise PydanticCustomError(
            _SECRET,
            "expected no line end, and no blank at an end, found one: a secret's file often has it",
        )
    return value


def _check_signing_keys(keys: SecretStr) -> SecretStr:
    if not all(keys.get_secret_value().split(",")):
        raise PydanticCustomError(_SECRET, "expected keys, a comma between two, found an empty one")
    return keys


def _check_admin_key(key: SecretStr) -> SecretStr:
    text = key.get_secret_value()
    if not _KEY.fullmatch(text):
        raise PydanticCustomError(
            _SECRET,
            f"expected 1 to {KEY_BYTES_MAX} visible characters of ASCII, as a header has, "
            "found others",
        )
    kind, colon, digest = text.partition(":")
    if kind + colon == "sha256:" and not re.fullmatch("[0-9a-fA-F]{64}", digest):
        raise PydanticCustomError(
            _SECRET, f"expected sha256: and 64 hexadecimal digits, found {len(digest)} characters"
        )
    return key


# The scopes that can be open without a key; `admin` never is.
OPENABLE = ("predict", "feedback", "metrics")

_BYTES = TypeAdapter(ByteSize)
_ORIGIN = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:\d{1,5})?")


def _parts(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _check_scopes(scopes: tuple[str, ...]) -> tuple[str, ...]:
    if scopes == ("none",):
        return ()
    if not set(scopes) <= set(OPENABLE):
        raise ValueError(f"expected none, or some of {', '.join(OPENABLE)}, a comma between two")
    return tuple(name for name in OPENABLE if name in scopes)


def _check_models(patterns: tuple[str, ...]) -> tuple[str, ...]:
    try:
        check_patterns(patterns)
    except BadParameter as error:
        raise ValueError(str(error).removeprefix("models: ")) from None
    return patterns


def _check_series(setting: str) -> str:
    if setting not in ("all", "none"):
        _check_models(tuple(part.strip() for part in setting.split(",")))
    return setting


def _check_origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    if origins == ("*",):
        return origins
    if not all(map(_ORIGIN.fullmatch, origins)):
        raise ValueError(
            "expected * alone, or origins such as https://host or http://host:port, in lower case"
        )
    return tuple(dict.fromkeys(origins))


_OWN_PATHS = "v1|v2|console|docs|livez|readyz|metrics|openapi.json"
_ROOT_PATH = re.compile(rf"(?!/({_OWN_PATHS})(/|\Z))(/(?!\.\.?(/|\Z))[A-Za-z0-9._~-]+)+")


def _check_root_path(path: str) -> str:
    if path and not _ROOT_PATH.fullmatch(path):
        raise ValueError(
            "expected a prefix such as /xylem or /apps/xylem: a slash before each part and none "
            "at the end; parts of letters, digits and ._~-; the first part no path of the service "
            f"({_OWN_PATHS.replace('|', ', ')})"
        )
    return path


def _check_models_loaded(value: object) -> object:
    text = str(value)
    if text == "all":
        return text
    with contextlib.suppress(ValueError):
        amount = int(text) if text.isdecimal() else ByteSize(_BYTES.validate_python(text))
        if 0 < amount < 1 << 63:
            return amount
    raise ValueError("expected all, a number of models from 1, or a size such as 500MiB or 2GiB")


def _check_bound(patterns: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    if patterns and info.data.get("models_loaded") == "all":
        raise ValueError(
            "cannot be used without XYLEM_MODELS_LOADED as a number or a size: all models are "
            "opened at the start"
        )
    return patterns


Text = Annotated[str, BeforeValidator(_check_text)]
Directory = Annotated[Path, BeforeValidator(_check_text)]
Secret = Annotated[SecretStr, BeforeValidator(_check_text)]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_parts)]
PatternsOfModels = Annotated[Names, AfterValidator(_check_models)]


def _field(default: object, description: str, **bounds: Any) -> Any:
    return Field(default, description=description, **bounds)


def memory_bytes() -> int:
    """Return the bytes of memory that this process may use: the machine's or control group's."""
    n_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            n_bytes = min(n_bytes, int(Path(file).read_text()))
    return max(n_bytes, 2)


class Limits(BaseSettings):
    """Limits of one request, and of all requests together: maxima, and minima named `..._min`.

    A limit that is described in a comment is the same everywhere: `read_settings` takes no variable
    for it.
    """

    model_config = _CONFIG

    features_max: Count = 100_000  # features of an instance
    name_bytes_max: Count = 4096  # bytes of a feature's or a label's name in a request, as UTF-8
    beam_width_max: Count = 1000  # `beam_width`
    answer_labels_max: Count = 100_000  # labels of an answer: instances times `top_r`
    explained_labels_max: Count = 100  # labels explained by an answer: instances times `top_r`
    label_list_max: Count = 10_000  # labels in `allow_labels` or `deny_labels`
    # bytes of a request's target and headers; more is answered 431
    head_bytes_max: Count = 64 << 10
    block_rows_max: Count = 2048  # lines of a batch that are predicted together
    block_bytes_max: Count = 1 << 20  # bytes of a batch's lines that are predicted together
    event_streams_max: Count = 64  # streams of a job's events at a time; one more is answered 503
    # the least bytes that a batch must bring, or that a client must read of an answer, in each
    # body_seconds_max of waiting
    batch_bytes_min: Count = 1024
    events_max: Count = 1024  # events of a feedback request (a stream has no such limit)
    event_id_bytes_max: Count = 256  # bytes of an event's id, as UTF-8
    tune_seconds_max: Seconds = 3600.0  # seconds that `.../thresholds/tune` waits for its job
    event_queue_max: Count = 4096  # events that wait to be written; one more is answered 503
    # requests that wait to be answered by shadow versions too; one more is dropped, and counted
    shadow_queue_max: Count = 256
    # share of its time in which the thread of shadow versions works
    shadow_time_share: Annotated[float, Field(gt=0, le=1)] = 0.25
    jobs_queued_max: Count = 100  # jobs that wait; one more is answered 503
    jobs_kept_max: Count = 1000  # jobs that have ended and are remembered; the oldest go first
    job_attempts_max: Count = 3  # workers that may die while they run a job, before it fails
    job_log_bytes_max: Bytes = 1 << 20  # bytes of a job's log; its beginning goes first

    body_bytes_max: Count = _field(
        8 << 20, "bytes of a request's body (a batch's stream has no such limit)"
    )
    bodies_bytes_max: Bytes = _field(
        memory_bytes() // 8, "bytes held of all requests' bodies together, over all workers"
    )
    answers_bytes_max: Bytes = _field(
        memory_bytes() // 8,
        "bytes held of all answers that clients have not read yet, over all workers",
    )
    instances_max: Count = _field(1024, "instances of a predict request")
    text_bytes_max: Count = _field(1 << 20, "bytes of an instance's text, as UTF-8")
    top_r_max: Count = _field(1000, "labels of an answer, `top_r`")
    line_bytes_max: Count = _field(1 << 20, "bytes of a batch's line")
    batches_max: Count = _field(8, "batches answered at a time; one more is answered 503")
    batch_spool_mib: int = _field(
        256,
        "MiB of a batch's answers that may wait in a temporary file for a client that does not "
        "read them yet; 0: no file",
        ge=0,
        le=1 << 20,
    )
    requests_max: Count = _field(
        1024,
        "requests in flight; one more is answered 503, or the slowest whose body is still "
        "waited for",
    )
    threads_max: Count = _field(
        n_processors(), "threads for predictions too long for the event loop"
    )
    queue_max: Count = _field(64, "predictions that wait for a thread; one more is answered 503")
    body_seconds_max: Seconds = _field(
        30.0, "seconds to receive headers, a body, or 1 KiB of a batch"
    )
    request_seconds_max: Seconds = _field(
        30.0, "seconds to answer a predict request once it is received"
    )
    archive_bytes_max: Bytes = _field(
        64 << 30, "bytes of a model's archive that is imported over HTTP"
    )
    data_bytes_max: Bytes = _field(
        16 << 30, "bytes of a file that is uploaded into the data directory"
    )
    feedback_rows_max: Count = _field(
        100_000,
        "rows of feedback of a model that are stored (`XYLEM_FEEDBACK_ROWS`); the oldest go first",
    )
    job_lease_seconds: Seconds = _field(
        30.0, "seconds without a sign of its worker after which another worker takes a job"
    )
    job_threads_max: Count = _field(n_processors(), "threads of a job")
    job_memory_bytes_max: Bytes = _field(
        memory_bytes() // 2, "bytes of memory of a job, mapped files not counted"
    )
    job_cpu_seconds_max: Duration = _field(
        86_400.0, "seconds of processor time of a job, over all threads"
    )
    job_seconds_max: Duration = _field(86_400.0, "seconds that a job may take")
    job_file_bytes_max: Bytes = _field(64 << 30, "bytes of a file that a job writes")
    job_nice: int = _field(
        19, "how much lower the priority of jobs is (nice): 0 no lower, 19 the lowest", ge=0, le=19
    )


class Settings(BaseSettings):
    """The settings of the service. Build them with `read_settings()`."""

    model_config = _CONFIG

    store: Directory = _field(Path("store"), "the directory of the models")
    host: Text = _field(
        "127.0.0.1", "the address that `xylem serve` listens on; `::` or `*`: all, of IPv6 and IPv4"
    )
    port: Port = _field(_PORT, "the port that `xylem serve` listens on; 0: a free one")
    grpc_port: GrpcPort = _field(
        None,
        "the port that `xylem serve` answers gRPC on (the extra `grpc`); 0: a free one; not set: "
        "no gRPC",
    )
    workers: int = _field(
        1, "processes of `xylem serve`; they share the mapped models", ge=1, le=256
    )
    jobs: int = _field(
        1, "jobs that `xylem serve` runs at a time, in processes of their own; 0: none", ge=0, le=64
    )
    store_poll_seconds: Seconds = _field(
        0.5, "seconds between two looks at the store for new versions"
    )
    models_loaded: Annotated[
        int | str, PlainValidator(_check_models_loaded), BeforeValidator(_check_text)
    ] = _field(
        "all",
        "how many models a process has open: `all`, a number of versions, or their size as "
        "`2GiB`; others are opened at their first request, and the least recently used closed",
    )
    preload: Annotated[PatternsOfModels, AfterValidator(_check_bound)] | None = _field(
        None,
        "with a bound of open models, patterns of those that are opened at the start and stay "
        "open, as `shop-*,tags`; not set: none",
    )
    store_remote: Text | None = _field(
        None,
        "the object store, as `s3://bucket/prefix`, whose versions and aliases the store "
        "follows; not set: none",
    )
    store_remote_poll_seconds: Seconds = _field(
        1.0, "seconds between two looks at the object store"
    )
    store_remote_keep: int = _field(
        2,
        "versions of a model that stay in a store that follows, besides those aliases name",
        ge=0,
        le=1000,
    )
    drain_seconds: Annotated[float, Field(ge=0, le=86_400)] = _field(
        1.0, "seconds after SIGTERM in which `/readyz` says no while requests are still accepted"
    )
    shutdown_seconds: Seconds = _field(30.0, "seconds for requests in flight when the service ends")
    keep_alive_seconds: Seconds = _field(75.0, "seconds an idle connection stays open")
    database_url: Text | None = _field(
        None, "the database of thresholds and feedback; none: SQLite beside the models"
    )
    database_connections: int = _field(
        15, "connections to the database that a process has at a time, at most", ge=2, le=1000
    )
    threshold_refresh_ms: Count = _field(
        1000,
        "milliseconds after which a change of thresholds by another process is served here too",
    )
    feedback_days_max: Count = _field(
        30, "days in which feedback to a prediction is accepted, and event ids are remembered"
    )
    feedback_halve_events: Count | None = _field(
        None, "events after which a version's counters are halved; none: nothing is forgotten"
    )
    feedback_rows: bool = _field(
        False, "whether instances of feedback and their true labels are stored, to train on"
    )
    feedback_row_days_max: Count = _field(90, "days for which these rows are stored")
    data_dir: Directory | None = _field(
        None, "the directory of data files for jobs and `/v1/admin`; none: they read no files"
    )
    ray_address: Text | None = _field(
        None,
        "the Ray cluster for trainings with the executor `ray`, `auto` or `HOST:PORT`; not "
        "set: none",
    )
    token_key: Annotated[Secret, AfterValidator(_check_signing_keys)] | None = _field(
        None, "the key that signs prediction ids, or several, separated by commas"
    )
    admin_key: Annotated[Secret, AfterValidator(_check_admin_key)] | None = _field(
        None, "an admin key, or sha256: and its SHA-256 in hex; none: those of the database"
    )
    open_scopes: Annotated[Names, AfterValidator(_check_scopes)] | None = _field(
        None,
        "scopes that need no key, of predict, feedback and metrics, or none; not set: all three "
        "when `XYLEM_HOST` is a loopback address, else none",
    )
    open_models: PatternsOfModels | None = _field(
        None,
        "patterns of the models for which these scopes need no key, as `demo-*,tags`; not set: all",
    )
    key_requests_per_second: Rate | None = _field(
        None, "requests a second of each key that has no such limit of its own; none: no limit"
    )
    key_rows_per_second: Rate | None = _field(
        None, "rows a second of each key that has no such limit of its own; none: no limit"
    )
    key_in_flight: Count | None = _field(
        None, "requests in flight of each key that has no such limit of its own; none: no limit"
    )
    metrics_keys: bool = _field(
        False, "whether `/metrics` has figures of each key and model: their number is not bounded"
    )
    cors_origins: Annotated[Names, AfterValidator(_check_origins)] | None = _field(
        None, "origins whose pages may call the service, or * for any; not set: no CORS"
    )
    root_path: Annotated[str, AfterValidator(_check_root_path)] = _field(
        "", "the prefix under which a proxy shows the service, as `/xylem`; not set: none"
    )
    metrics_models: Annotated[Text, AfterValidator(_check_series)] = _field(
        "all",
        "models that have series of their own in `/metrics`: `all`, `none`, or patterns as "
        "`shop-*,tags`; the others count together",
    )
    log_level: Literal["debug", "info", "warning", "error"] = _field(
        "info", "the least severe events that are logged"
    )
    access_log: bool = _field(True, "whether each request is logged")
    traces: bool = _field(
        False, "whether traces are sent, as the variables `OTEL_...` say (the extra `otel`)"
    )
    limits: Limits = Field(default_factory=Limits)


def variables() -> dict[str, str]:
    """Return the description of each variable of the environment that is a setting or a limit."""
    return {
        f"{PREFIX}{name.upper()}": field.description
        for name, field in {**Settings.model_fields, **Limits.model_fields}.items()
        if field.description
    }


def read_settings(**overrides: object) -> Settings:
    """Return the settings of the environment; `overrides`, from a command line, take precedence.

    Variables of the forms that Kubernetes makes for its services are ignored. Raises BadParameter
    for any other unknown XYLEM_ variable, and for a value of the wrong type or out of range.
    """
    variable_names = variables().keys() | ELSEWHERE
    for name, value in sorted(os.environ.items()):
        is_ours = name.upper().startswith(PREFIX) and not _SERVICE_VARIABLE.fullmatch(
            f"{name}={value}"
        )
        if is_ours and name not in variable_names:
            raise BadParameter(
                f"{name}: expected a variable that docs/settings.md lists, found an unknown one"
                f"{did_you_mean(name.upper(), variable_names)}"
            )
    try:
        return Settings(**overrides)  # type: ignore[arg-type]
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        name = PREFIX + str(fault["loc"][-1]).upper()
        suffix = (
            ""
            if fault["type"] == _SECRET or ", found " in fault["msg"]
            else f", found {str(fault['input'])[:100]!r}"
        )
        raise BadParameter(
            f"{name}: {fault['msg'].removeprefix('Value error, ')}{suffix}"
        ) from None
