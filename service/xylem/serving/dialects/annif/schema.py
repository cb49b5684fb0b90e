"""The requests and answers of Annif's REST API."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, RootModel
from typing_extensions import TypedDict

from xylem.serving.dialects.predict.schema import Float32
from xylem.serving.schemas.fields import LIMIT_KEY, AtMost, utf8_length

DOCUMENTS_MAX = 32  # documents of a request, as in Annif

Text = Annotated[str, AtMost("text_bytes_max", "bytes of text", utf8_length)]


class SuggestOptions(BaseModel):
    """Options to suggest. As in Annif, unknown fields are ignored, and numbers may be texts."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    limit: Annotated[int, Field(ge=0), AtMost("top_r_max", "subjects")] = Field(
        default=10,
        description="the most subjects of a text",
        json_schema_extra={LIMIT_KEY: "top_r_max"},
    )
    threshold: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, description="the least score of a subject; above 0 the search is exact"
    )
    language: (
        Annotated[str, AtMost("name_bytes_max", "bytes of a language", utf8_length)] | None
    ) = Field(
        default=None,
        description="of names, or an order as fi,sv,*; by default that of the label info",
    )


class SuggestForm(SuggestOptions):
    """A form with a text to suggest subjects for."""

    text: Text


class SuggestDocument(BaseModel):
    """A text, perhaps with an id, which the answer repeats; `metadata` is ignored."""

    text: Text
    document_id: str | None = None


class SuggestBatchRequest(BaseModel):
    """Texts to suggest subjects for."""

    documents: Annotated[list[SuggestDocument], Field(max_length=DOCUMENTS_MAX)]


class LearnSubject(BaseModel):
    """A true subject of a document, by its URI or, where it has none, its label."""

    uri: str | None = None
    label: str | None = None


class LearnDocument(BaseModel):
    """A text and its true subjects; `metadata` is ignored."""

    text: Text
    subjects: Annotated[list[LearnSubject], AtMost("label_list_max", "subjects")]


class LearnDocuments(RootModel[Annotated[list[LearnDocument], AtMost("events_max", "documents")]]):
    """Documents to learn from."""


class Suggestion(TypedDict):
    """A subject. Without label info, `uri` and `label` are both the label's name in training."""

    uri: str
    label: str
    notation: str | None
    score: Float32


class Suggestions(TypedDict):
    """The subjects of a text, the best first."""

    results: list[Suggestion]


class DocumentSuggestions(Suggestions):
    """The subjects of one of several texts."""

    document_id: str | None
