"""Jobs that combine versions, and that give a combined version another vocabulary."""

from functools import partial
from typing import Any

from model_store.identifiers import LATEST, parse_named
from model_store.label_info import URI
from service.jobs.context import JobContext
from service.jobs.requests import CombineJob, VocabularyJob
from service.jobs.training import Publication, publish
from service.workflows.combine import CombineRequest, combine_and_publish
from service.workflows.label_info import read_label_info
from service.workflows.new_vocabulary import VocabularyRequest, set_vocabulary


def run(context: JobContext, request: CombineJob) -> dict[str, Any]:
    """Combine versions; return the figures of the version that was published."""
    found = publish(context, request, _combine)
    if request.vocabulary is not None and context.store.label_info(request.model) is None:
        # an earlier run died between the two, or somebody removed it since
        file = context.data.path_of(request.vocabulary, "vocabulary")
        info = read_label_info(file, request.by or URI, request.language)
        context.store.put_label_info(request.model, info)
    return found


def _combine(made: Publication, request: CombineJob) -> None:
    assert made.data is not None
    find = made.files.find
    wanted = CombineRequest(
        members=[parse_named(member) for member in request.members],
        data=made.data,
        vocabulary=None if request.vocabulary is None else find(request.vocabulary, "vocabulary"),
        by=request.by or URI,
        rerank=None if request.rerank is None else find(request.rerank, "rerank"),
        columns=request.columns(),
        **request.model_dump(include={"language", "candidates", "beam_width", "ranker", "seed"}),
        **made.marks(request),
    )
    combine_and_publish(made.store, request.model, wanted, made.on_progress)


def _set_vocabulary(made: Publication, request: VocabularyJob) -> None:
    wanted = VocabularyRequest(
        made.files.find(request.vocabulary, "vocabulary"),
        request.language,
        request.by,
        **made.marks(request),
    )
    version = LATEST if request.version is None else request.version
    set_vocabulary(made.store, request.model, version, wanted, made.on_progress)


run_vocabulary = partial(publish, make=_set_vocabulary)
"""Publish a version with another vocabulary; its figures are those of before."""
