"""The JSON that Annif's clients read of its projects."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict


class ProjectBackend(TypedDict):
    """The trainer of a project's model."""

    backend_id: str


class ProjectVocabulary(TypedDict):
    """The labels of a project."""

    vocab_id: str
    languages: list[str]
    size: int
    loaded: bool


class Project(TypedDict):
    """An alias of a model, described as Annif describes its projects.

    project_id  NAME for the alias `latest`, NAME@ALIAS for another one
    """

    project_id: str
    name: str
    language: str
    backend: ProjectBackend
    vocab: ProjectVocabulary
    vocab_language: str
    is_trained: bool
    modification_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class Projects(TypedDict):
    """The projects."""

    projects: list[Project]
