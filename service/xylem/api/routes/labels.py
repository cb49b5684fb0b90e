"""GET /v1/models/{model}/labels; and for one label, its features and its threshold over time."""

from fastapi import Request, Response

from xylem.api.descriptions import describe_features, describe_history, describe_labels
from xylem.api.door.responses import json_response
from xylem.api.routes.admins import RawRoute, router_of
from xylem.api.routes.operations import of_version, problems, query_parameters
from xylem.api.routes.requests import Wired, find_served
from xylem.api.schemas.labels import (
    LabelFeatures,
    LabelFeaturesQuery,
    LabelPage,
    LabelQuery,
    LabelsQuery,
    ThresholdHistory,
)
from xylem.serving import parse_query

router = router_of("models", "predict", RawRoute)


@of_version(
    router,
    "GET",
    "labels",
    "The labels, some at a time, of",
    response_model=LabelPage,
    openapi_extra=query_parameters(LabelsQuery),
)
async def labels(request: Request, services: Wired) -> Response:
    """Finds labels by a part of their names.

    Each label has its training rows, its threshold, and the counts behind the threshold.
    """
    query = parse_query(request.scope["query_string"], LabelsQuery, services.limits)
    return json_response(
        await services.threshold_work.run(
            describe_labels, await find_served(request, services.live), query
        )
    )


@of_version(
    router,
    "GET",
    "label-features",
    "Features for and against a label, in",
    response_model=LabelFeatures,
    openapi_extra=query_parameters(LabelFeaturesQuery),
)
async def label_features(request: Request, services: Wired) -> Response:
    """The features with the largest weights in the label's own classifiers, the largest first.

    Models whose labels have no weights of features are refused: decision trees, and softmax nodes.
    """
    query = parse_query(request.scope["query_string"], LabelFeaturesQuery, services.limits)
    return json_response(
        await services.threshold_work.run(
            describe_features, await find_served(request, services.live), query
        )
    )


@of_version(
    router,
    "GET",
    "threshold-history",
    "A label's threshold over time, in",
    response_model=ThresholdHistory,
    responses=problems(409),
    openapi_extra=query_parameters(LabelQuery),
)
async def threshold_history(request: Request, services: Wired) -> Response:
    """The changes that the database still has: the last thousands, and some earlier states.

    At most 200 points: if there are more, you get the first, the last, and points at even distances
    between them.
    """
    query = parse_query(request.scope["query_string"], LabelQuery, services.limits)
    served = await find_served(request, services.live)
    services.learning.follower.check()
    return json_response(
        await services.threshold_work.run(
            describe_history, served, services.learning.database, query
        )
    )
