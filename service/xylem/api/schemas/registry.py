"""The JSON of the registry, of keys and of the audit log: requests and answers."""

from typing import Annotated, Any

from pydantic import BaseModel, FailFast, Field

from xylem.api.schemas.labels import INTEGER_MAX, VersionNumber
from xylem.api.schemas.models import AliasSplit, ServedAlias, TrainerSummary
from xylem.base import AuditEntry
from xylem.serving import LabelItems, RequestModel
from xylem_store import DENIED_MAX

PAGE_MAX = 1000  # rows of one answer, at most
_YEARS_100 = 100 * 366 * 86_400


class AliasRequest(RequestModel):
    """A change of an alias, with its reason."""

    reason: str = Field(default="", max_length=1024, description="kept in the history")


class PromoteRequest(AliasRequest):
    """The version that an alias should name."""

    version: VersionNumber | None = Field(default=None, description="null: the canary of the alias")
    alias: str = Field(default="latest", description="the alias; it is created if there is none")


class RollbackRequest(AliasRequest):
    """The alias that should go back, and the version to go back to."""

    alias: str = "latest"
    to: VersionNumber | None = Field(
        default=None, description="a version that it named before; null: the one that it named last"
    )


class CanaryRequest(AliasRequest):
    """The version that should answer a part of the requests to an alias."""

    version: VersionNumber
    weight: float = Field(ge=0.0001, le=0.9999, description="the part: a multiple of 0.0001")
    stable_weight: float | None = Field(
        default=None,
        ge=0.0001,
        le=0.9999,
        description="the share of the alias's version; both add up to 1",
    )


class ShadowRequest(AliasRequest):
    """The version that should answer copies of a part of the requests to an alias."""

    version: VersionNumber
    share: float = Field(default=1.0, ge=0.0001, le=1, description="the part: a multiple of 0.0001")


class SplitChanged(ServedAlias, AliasSplit):
    """An alias after a change: its version, its canary and its shadow."""


class DeniedRequest(AliasRequest):
    """The labels that the answers of an alias must not have."""

    labels: Annotated[LabelItems, Field(max_length=DENIED_MAX)] = Field(
        description="the whole list, which replaces the present one: labels or names of the label "
        "info; {under} is a concept and all below it"
    )


class AliasMoved(BaseModel):
    """The version that an alias names now, and the one before.

    Null means that there is, or was, no such alias.
    """

    model: str
    alias: str
    version: int | None
    previous_version: int | None


class HistoryQuery(RequestModel):
    """Selects moves of the history."""

    alias: str | None = Field(default=None, description="only moves of this alias")
    before: int | None = Field(
        default=None, ge=0, le=INTEGER_MAX, description="only rows with a lower id: the next page"
    )
    limit: int = Field(default=100, ge=1, le=PAGE_MAX, description="how many to return at most")


class AliasChanged(BaseModel):
    """A move of an alias, or a move that a promotion rule refused."""

    id: int
    model: str
    alias: str
    action: str = Field(
        examples=[
            "promoted",
            "rolled-back",
            "published",
            "removed",
            "refused",
            "split",
            "denied",
            "found",
        ]
    )
    from_version: int | None
    to_version: int | None
    at: str
    who: str
    why: str
    job: str | None
    verdict: dict[str, Any] | None


class History(BaseModel):
    """Moves of the aliases of a model, the newest first."""

    model: str
    changes: list[AliasChanged]


class DataOrigin(BaseModel):
    """The data that a version was trained on."""

    source: str
    rows: int
    sha256: str


class Provenance(BaseModel):
    """The origin of a version, and its later promotions."""

    model: str
    version: int
    created: str
    content: str = Field(description="a digest of the arrays, which does not depend on the name")
    code_version: str
    trainer: TrainerSummary
    features: dict[str, Any]
    seed: int
    data: DataOrigin
    metrics: dict[str, float]
    parent: dict[str, Any] | None
    job: str | None
    rule: dict[str, Any] | None
    calibration: dict[str, Any] | None = Field(
        default=None,
        description="what its scores were fitted to, and how well; null: not calibrated",
    )
    promotions: list[AliasChanged]


class Published(BaseModel):
    """A version that was imported."""

    model: str
    version: int


class DeleteModelQuery(RequestModel):
    """Protects against a deletion by mistake."""

    confirm: str = Field(description="the name of the model, once more")


class DeleteVersionQuery(RequestModel):
    """Options of the deletion of a version."""

    with_aliases: bool = Field(
        default=False, description="the aliases that name the version, but never latest"
    )


class ArchiveQuery(RequestModel):
    """The version to export."""

    version: int | str = Field(default="latest", description="a number or an alias")


class ImportQuery(RequestModel):
    """Whether `latest` moves to the imported version."""

    latest: bool = Field(default=True, description="whether latest is to name it")


def _limit(unit: str) -> Any:
    return Field(default=None, description=f"{unit}, in each process; null: that of the settings")


class CreateKeyRequest(RequestModel):
    """The key to create."""

    name: str
    scopes: Annotated[list[str], FailFast()] = Field(
        description="some of predict, feedback, admin, metrics"
    )
    lifetime_seconds: float | None = Field(
        default=None, gt=0, le=_YEARS_100, description="null: for ever"
    )
    no_rows: Annotated[list[str], FailFast(), Field(max_length=100)] = Field(
        default=[],
        description="models of which no rows are kept of the feedback that it sends; `*` is all",
    )
    models: Annotated[list[str], Field(max_length=100)] | None = Field(
        default=None,
        description="patterns of the models that it sees, as `shop-*`; null: all models",
    )
    data_prefix: str | None = Field(
        default=None,
        description="for admins of some models: how the data files begin that it may use",
    )
    requests_per_second: float | None = _limit("requests a second, from 0.001")
    rows_per_second: float | None = _limit("rows a second, from 0.001")
    in_flight: int | None = _limit("requests in flight, from 1")


class RotateKeyRequest(RequestModel):
    """How a key is replaced by the next one."""

    overlap_seconds: float = Field(
        default=0.0, ge=0, le=_YEARS_100, description="how long both are valid"
    )
    lifetime_seconds: float | None = Field(
        default=None, gt=0, le=_YEARS_100, description="null: that of the old one"
    )


class KeyFacts(BaseModel):
    """A key without its secret. Times are RFC 3339, null means never."""

    id: str
    name: str
    scopes: list[str]
    state: str = Field(examples=["active", "revoked", "expired"])
    created: str
    expires: str | None
    revoked: str | None
    last_used: str | None
    no_rows: list[str]
    models: list[str] | None = Field(description="patterns of the models that it sees; null: all")
    data_prefix: str | None
    requests_per_second: float | None = Field(description="its limit; null: that of the settings")
    rows_per_second: float | None
    in_flight: int | None


class NewKey(KeyFacts):
    """A new key. `key` is the text that requests send; only this answer contains it."""

    key: str
    warnings: list[str] = Field(description="what may be a slip: a pattern without a model")


class KeyList(BaseModel):
    """All keys, the newest first."""

    keys: list[KeyFacts]


class UsageQuery(RequestModel):
    """Selects usage, and what it is summed by."""

    begin: str | None = Field(
        default=None, alias="from", description="the hour to begin with, as 2026-11-29T00:00:00Z"
    )
    end: str | None = Field(
        default=None, alias="to", description="the time before which it ends; null: now"
    )
    groups: str = Field(
        default="key,model", alias="by", description="some of hour, key and model, with commas"
    )


class UsageLine(BaseModel):
    """What a key sent to a model in an hour, or the sum of several."""

    hour: str | None = Field(default=None, description="its begin")
    key: str | None = Field(default=None, description="the id of the key")
    name: str | None = Field(default=None, description="the name of the key, if it is known")
    model: str | None = None
    requests: int
    rows: int
    characters: int = Field(description="of the bodies, as bytes of UTF-8")
    search_seconds: float


class UsageList(BaseModel):
    """Lines of usage."""

    usage: list[UsageLine]


class AuditQuery(RequestModel):
    """Selects entries of the audit log."""

    before: int | None = Field(
        default=None,
        ge=0,
        le=INTEGER_MAX,
        description="only entries with a lower id: the next page",
    )
    limit: int = Field(default=100, ge=1, le=PAGE_MAX, description="how many to return at most")


class AuditPage(BaseModel):
    """Entries of the audit log, the newest first."""

    entries: list[AuditEntry]
