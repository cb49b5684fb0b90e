"""The OpenAPI document.

Bodies are parsed by our own code, so it is written here and not derived; tests hold it against the routes,
the parser and real answers.
"""

from __future__ import annotations

import json
from typing import Any, get_args

from model_store.version import code_version
from service.inference.explain import FEATURES_MAX
from service.serving.parse import PREDICT_ONLY
from service.serving.problems import PROBLEMS
from service.serving.schemas.predict import WEIGHT_MAX, WEIGHT_MIN, Options
from service.settings import Limits
from service.thresholds.live.feedback import Result
from service.thresholds.store.tuned import METHODS

Json = dict[str, Any]

_F_MEASURES = ("macro", "micro", "instance")
_MODEL: Json = {
    "name": "model",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,62}$"},
    "description": "the model's name",
}
_VERSION: Json = {
    "name": "version",
    "in": "path",
    "required": True,
    "schema": {"type": "integer", "minimum": 1},
    "description": "the version's number",
}
_ALIAS: Json = {
    "name": "alias",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,62}$"},
    "description": "the alias's name; without one, `latest` answers",
}
_NO_KNOWN_FEATURES: Json = {
    "type": "boolean",
    "description": "there, and true, if the model knows nothing of the text or the named features: the "
    "labels are those of an empty instance",
}
_EXAMPLE_LABEL: Json = {"label": "role::program", "id": 12, "score": 0.93}
_EXAMPLE_PREDICTION: Json = {
    "labels": [_EXAMPLE_LABEL],
    "prediction_id": "5f0c1d2e3a4b5c6d-1",
    "exact": False,
}


def openapi_document(limits: Limits) -> Json:
    """Return the document of the service under these limits."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Xylem",
            "version": code_version(),
            "description": "Online prediction for label spaces of thousands to millions of labels.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": _tagged(_paths()),
        "tags": [{"name": name, "description": says} for name, says in _TAGS.items()],
        "components": {
            "schemas": {
                **_option_schemas(limits),
                **_request_schemas(limits),
                **_feedback_schemas(limits),
                **_threshold_schemas(),
                **_answer_schemas(),
            },
            "securitySchemes": {"adminKey": {"type": "http", "scheme": "bearer"}},
        },
        "x-problems": {code: problem._asdict() for code, problem in PROBLEMS.items()},
    }


_TAGS = {
    "predict": "Labels of instances: a request, or lines streamed both ways",
    "feedback": "True labels, from which thresholds learn",
    "thresholds": "Thresholds in force, and what they rest on",
    "admin": "For those with the admin key",
    "models": "What is in the store",
    "service": "State, figures and this document",
}


def _tagged(paths: Json) -> Json:
    """Return the paths, each operation with its tag."""
    for path, item in paths.items():
        for operation in item.values():
            operation["tags"] = [_tag_of(path)]
    return paths


def _tag_of(path: str) -> str:
    if path.startswith("/v1/admin"):
        return "admin"
    if not path.startswith("/v1"):
        return "service"
    last = path.rsplit("/", 1)[1]
    return {"predict": "predict", "batch": "predict", "feedback": "feedback", "thresholds": "thresholds"}.get(
        last, "models"
    )


def _paths() -> Json:
    model = "/v1/models/{model}"
    version, alias = f"{model}/versions/{{version}}", f"{model}/aliases/{{alias}}"
    return {
        f"{model}/predict": {
            "post": _predict("predict", [_MODEL], "Predict with the version `latest` names")
        },
        f"{version}/predict": {
            "post": _predict("predictWithVersion", [_MODEL, _VERSION], "Predict with a version")
        },
        f"{alias}/predict": {
            "post": _predict("predictWithAlias", [_MODEL, _ALIAS], "Predict with the version an alias names")
        },
        f"{model}/batch": {
            "post": _batch("batch", [_MODEL], "Predict lines with the version `latest` names")
        },
        f"{version}/batch": {
            "post": _batch("batchWithVersion", [_MODEL, _VERSION], "Predict lines with a version")
        },
        f"{alias}/batch": {
            "post": _batch(
                "batchWithAlias", [_MODEL, _ALIAS], "Predict lines with the version an alias names"
            )
        },
        f"{model}/feedback": {
            "post": _feedback("feedback", [_MODEL], "True labels, for the version `latest` names")
        },
        f"{version}/feedback": {
            "post": _feedback("feedbackWithVersion", [_MODEL, _VERSION], "True labels, for a version")
        },
        f"{alias}/feedback": {
            "post": _feedback(
                "feedbackWithAlias", [_MODEL, _ALIAS], "True labels, for the version an alias names"
            )
        },
        f"{model}/thresholds": {"get": _thresholds("thresholds", [_MODEL])},
        f"{version}/thresholds": {"get": _thresholds("thresholdsOfVersion", [_MODEL, _VERSION])},
        f"{alias}/thresholds": {"get": _thresholds("thresholdsOfAlias", [_MODEL, _ALIAS])},
        "/v1/admin/models/{model}/thresholds/restore": {"post": _restore()},
        "/v1/admin/models/{model}/thresholds/switch": {
            "post": _of_candidate("switchThresholds", "Put the candidate's thresholds in force")
        },
        "/v1/admin/models/{model}/thresholds/drop": {
            "post": _of_candidate("dropThresholds", "Take the candidate's thresholds away")
        },
        "/v1/admin/models/{model}/thresholds/tune": {"post": _tune()},
        "/v1/models": {"get": _get("listModels", "The models", "ModelList", 503)},
        model: {"get": {**_get("showModel", "A model", "ModelDetails", 404, 503), "parameters": [_MODEL]}},
        "/livez": {"get": _get("livez", "Whether the process runs", "Alive")},
        "/readyz": {"get": _readyz()},
        "/metrics": {"get": _text("metrics", "Figures in Prometheus's text format", "text/plain")},
        "/openapi.json": {"get": _text("openapi", "This document", "application/json")},
        "/docs": {"get": _text("docs", "This document as a page", "text/html")},
        "/docs/docs.js": {"get": _text("docsScript", "The page's script", "text/javascript")},
        "/docs/docs.css": {"get": _text("docsStyle", "The page's style", "text/css")},
        "/docs/swagger-ui-bundle.js": {"get": _text("swaggerScript", "Swagger UI", "text/javascript")},
        "/docs/swagger-ui.css": {"get": _text("swaggerStyle", "Swagger UI's style", "text/css")},
    }


def _predict(operation_id: str, parameters: list[Json], summary: str) -> Json:
    return {
        "operationId": operation_id,
        "summary": summary,
        "description": "Instances are texts, sparse vectors or named features, as the model was trained on.",
        "parameters": parameters,
        "requestBody": _body(
            "application/json", "PredictRequest", {"instances": [{"text": "a text editor"}]}
        ),
        "responses": {
            "200": _answer("application/json", "PredictAnswer", "A prediction an instance, in their order"),
            **_problems(400, 404, 408, 409, 413, 415, 422, 503),
        },
    }


def _batch(operation_id: str, parameters: list[Json], summary: str) -> Json:
    answer = _answer(
        "application/x-ndjson", "BatchAnswerLine", "An answer line for each line, in their order"
    )
    answer["headers"] = {
        "xylem-model": {"schema": {"type": "string"}, "description": "the model"},
        "xylem-version": {"schema": {"type": "integer"}, "description": "the version of the whole batch"},
    }
    return {
        "operationId": operation_id,
        "summary": summary,
        "description": "NDJSON both ways, streamed: a line of the body is an instance, a line answers it. "
        "Read answers while you write, or the service stops reading. A line that cannot be used is answered "
        "by an error in its place. A connection that ends without the last chunk was cut off.",
        "parameters": [*parameters, *_query_parameters()],
        "requestBody": _body(
            "application/x-ndjson", "BatchLine", '{"text": "a text editor"}\n{"text": "a game of chess"}\n'
        ),
        "responses": {"200": answer, **_problems(404, 409, 415, 422, 503)},
    }


def _feedback(operation_id: str, parameters: list[Json], summary: str) -> Json:
    event = {"event_id": "order-7", "instance": {"text": "a text editor"}, "labels": ["role::program"]}
    request = _body("application/json", "FeedbackRequest", {"events": [event]})
    request["content"] |= _body("application/x-ndjson", "FeedbackEvent", f"{json.dumps(event)}\n")["content"]
    answer = _answer("application/json", "FeedbackAnswer", "What became of each event, in their order")
    answer["content"] |= _answer("application/x-ndjson", "FeedbackLine", "")["content"]
    return {
        "operationId": operation_id,
        "summary": summary,
        "description": "Each event moves the thresholds that `threshold: tuned` predicts at. It counts once, "
        "however often it is sent, and is durable once the answer says `applied`. An event with an instance "
        "belongs to the version of the path, one with a prediction_id to the version that predicted. NDJSON "
        "is streamed both ways and has no limit of length: read answers while you write.",
        "parameters": parameters,
        "requestBody": request,
        "responses": {"200": answer, **_problems(400, 404, 408, 413, 415, 422, 503)},
    }


def _thresholds(operation_id: str, parameters: list[Json]) -> Json:
    query = {
        "offset": "labels to skip",
        "limit": "labels to show; 0: none, and no page follows",
        "marks_below": "only labels with fewer marks: those that rest on too little feedback; 0: all",
    }
    asked = [
        {"name": name, "in": "query", "schema": {"type": "integer", "minimum": 0}, "description": says}
        for name, says in query.items()
    ]
    answer = _get(operation_id, "Thresholds, and what they rest on", "Thresholds", 404, 409, 422, 503)
    return {**answer, "parameters": [*parameters, *asked]}


def _restore() -> Json:
    return {
        "operationId": "restoreThresholds",
        "summary": "Put the thresholds of an earlier epoch in place again",
        "parameters": [_MODEL],
        "security": [{"adminKey": []}],
        "requestBody": _body("application/json", "RestoreRequest", {"epoch": 41}),
        "responses": {
            "200": _answer("application/json", "RestoreAnswer", "The new epoch"),
            **_problems(400, 401, 404, 408, 409, 413, 415, 422, 503),
        },
    }


def _of_candidate(operation_id: str, summary: str) -> Json:
    return {
        "operationId": operation_id,
        "summary": summary,
        "parameters": [_MODEL],
        "security": [{"adminKey": []}],
        "requestBody": _body("application/json", "CandidateRequest", {}),
        "responses": {
            "200": _answer("application/json", "RestoreAnswer", "The new epoch"),
            **_problems(400, 401, 404, 408, 409, 413, 415, 422, 503),
        },
    }


def _tune() -> Json:
    example = {"data": "valid.jsonl", "method": "ofo", "shadow": True}
    return {
        "operationId": "tuneThresholds",
        "summary": "Tune thresholds on a labelled file, and put them in force or, as a candidate, beside",
        "description": "The file is one below the service's data directory (`XYLEM_DATA_DIR`). One call at a "
        "time. The answer is that of `xylem thresholds --json`.",
        "parameters": [_MODEL],
        "security": [{"adminKey": []}],
        "requestBody": _body("application/json", "TuneRequest", example),
        "responses": {
            "200": _answer("application/json", "TuneAnswer", "What was found, and the new epoch"),
            **_problems(400, 401, 404, 408, 409, 413, 415, 422, 503),
        },
    }


def _tune_schemas() -> Json:
    text, integer, number = {"type": "string"}, {"type": "integer"}, {"type": "number"}
    version = {"type": "integer", "minimum": 1}
    request: Json = {
        "data": {"type": "string", "description": "a labelled file below the data directory"},
        "method": {
            "enum": [*METHODS, "all"],
            "description": "ofo if left out; all: ofo is kept, the others are reported",
        },
        "version": version,
        "test": {"type": "string", "description": "another file, to measure on"},
        "empty_labels": {"enum": ["one", "zero"]},
        "kappa": number,
        "start": _array(number, minItems=2, maxItems=2),
        "shadow": {"type": "boolean", "description": "score it on feedback beside what is in force"},
    }
    measured = {f"{part}_{f}_f": number for part in ("validation", "test") for f in _F_MEASURES}
    found: Json = {
        "method": text,
        **measured,
        "empty_label_convention": text,
        "labels": integer,
        "start": _array(number),
        "power": number,
    }
    required = [name for name in found if not name.startswith("test")]
    kept: Json = {"model": text, "version": integer, "epoch": integer, "shadow": {"type": "boolean"}}
    methods = _array(_object(required, found))
    return {
        "TuneRequest": _object(["data"], request),
        "TuneAnswer": _object([*kept, *required, "methods"], {**kept, **found, "methods": methods}),
        "CandidateRequest": _object([], {"version": version}),
    }


def _threshold_schemas() -> Json:
    text, integer, number = {"type": "string"}, {"type": "integer"}, {"type": "number"}
    label: Json = {
        "label": text,
        "id": integer,
        "threshold": number,
        "hits": {"type": "integer", "description": "rows in which it was true and predicted"},
        "marks": {"type": "integer", "description": "rows in which it was true, plus those it was predicted"},
    }
    checkpoint: Json = {"epoch": integer, "kind": text, "created_at": number}
    shadow: Json = {
        "since_epoch": integer,
        "created_at": number,
        "method": text,
        "start": _map(number),
        "n_events": integer,
        "macro_f": {"type": "number", "description": "percent"},
        "served_macro_f": {"type": "number", "description": "percent"},
        "empty_label_convention": text,
    }
    answer: Json = {
        "model": text,
        "version": integer,
        "threshold_epoch": integer,
        "method": text,
        "start": _map(number),
        "n_events": {"type": "integer", "description": "events of feedback that were counted"},
        "macro_f": {"type": "number", "description": "mean F-measure, percent, of the labels with marks"},
        "shadow": {
            "oneOf": [_ref("Shadow"), {"type": "null"}],
            "description": "the candidate, and macro-F of both on the events that it was scored on",
        },
        "checkpoints": _array(_ref("ThresholdCheckpoint")),
        "n_labels": {"type": "integer", "description": "labels that the query selects"},
        "labels": _array(_ref("LabelThreshold")),
        "next_offset": {"type": ["integer", "null"]},
    }
    epoch = {"type": "integer", "minimum": 1}
    restored: Json = {"model": text, "version": integer, "threshold_epoch": integer}
    return {
        **_tune_schemas(),
        "Thresholds": _object(list(answer), answer),
        "Shadow": _object(list(shadow), shadow),
        "ThresholdCheckpoint": _object(list(checkpoint), checkpoint),
        "LabelThreshold": _object(list(label), label),
        "RestoreRequest": _object(["epoch"], {"epoch": epoch, "version": epoch}),
        "RestoreAnswer": _object(list(restored), restored),
    }


def _feedback_schemas(limits: Limits) -> Json:
    text = {"type": "string"}
    identity = {"type": "string", "minLength": 1, "description": f"at most {limits.event_id_bytes_max} bytes"}
    labels = _array(text, maxItems=limits.label_list_max, description="the true labels, all of them")
    event = {"event_id": identity, "labels": labels}
    verdict = {
        "event_id": text,
        "result": {"enum": list(get_args(Result))},
        "reason": {"type": "string", "description": "a code, of what was rejected or came too late"},
        "detail": text,
    }
    line = {**verdict, "line": {"type": "integer", "description": "from 1"}}
    return {
        "FeedbackEvent": _one_of("InstanceEvent", "PredictionEvent"),
        "InstanceEvent": _object(["event_id", "instance", "labels"], {**event, "instance": _ref("Instance")}),
        "PredictionEvent": _object(["event_id", "prediction_id", "labels"], {**event, "prediction_id": text}),
        "FeedbackRequest": _one_of("InstanceEvent", "PredictionEvent", "FeedbackEvents"),
        "FeedbackEvents": _object(
            ["events"], {"events": _array(_ref("FeedbackEvent"), maxItems=limits.events_max)}
        ),
        "FeedbackResult": _object(["result"], verdict),
        "FeedbackLine": {
            **_one_of("FeedbackLineResult", "FeedbackLineError"),
            "description": "an error ends the answer: send what has none again",
        },
        "FeedbackLineResult": _object(["result"], line),
        "FeedbackLineError": _object(["error"], {"error": _ref("LineError")}),
        "FeedbackAnswer": _object(
            ["model", "version", "threshold_epoch", "results"],
            {
                "model": text,
                "version": {"type": "integer"},
                "threshold_epoch": {"type": ["integer", "null"]},
                "results": _array(_ref("FeedbackResult")),
            },
        ),
    }


def _query_parameters() -> list[Json]:
    said = {
        "allow_labels": "repeat it for each label",
        "deny_labels": "repeat it for each label",
        "label_weights": "for every line: propensity, or the object as JSON",
    }
    return [
        {
            "name": name,
            "in": "query",
            "schema": {"$ref": f"#/components/schemas/{name}"},
            "description": said.get(name, "for every line"),
        }
        for name in Options.model_fields
        if name not in PREDICT_ONLY
    ]


def _get(operation_id: str, summary: str, schema: str, *statuses: int) -> Json:
    return {
        "operationId": operation_id,
        "summary": summary,
        "responses": {"200": _answer("application/json", schema, summary), **_problems(*statuses)},
    }


def _readyz() -> Json:
    return {
        "operationId": "readyz",
        "summary": "Whether requests should be sent here, and what is served and what is not",
        "description": "Ready once the kernels are compiled and the models verified; so is an empty store. "
        "Not ready: before that, when no model at all can be served, and from SIGTERM on.",
        "responses": {
            "200": _answer("application/json", "Readiness", "Ready"),
            "503": _answer("application/json", "Readiness", "Not ready"),
        },
    }


def _text(operation_id: str, summary: str, media: str) -> Json:
    content = {media: {"schema": {"type": "object" if media == "application/json" else "string"}}}
    return {
        "operationId": operation_id,
        "summary": summary,
        "responses": {"200": {"description": summary, "content": content}},
    }


def _body(media: str, schema: str, example: object) -> Json:
    content = {media: {"schema": {"$ref": f"#/components/schemas/{schema}"}, "example": example}}
    return {"required": True, "content": content}


def _answer(media: str, schema: str, description: str) -> Json:
    content = {media: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"description": description, "content": content}


def _problems(*statuses: int) -> Json:
    answers = {}
    for status in statuses:
        codes = ", ".join(code for code, problem in PROBLEMS.items() if problem.status == status)
        answers[str(status)] = _answer("application/problem+json", "Problem", f"One of: {codes}")
    return answers


def _array(items: Json, **more: object) -> Json:
    return {"type": "array", "items": items, **more}


def _object(required: list[str], properties: Json, **more: object) -> Json:
    return {
        "type": "object",
        "required": required,
        "additionalProperties": False,
        "properties": properties,
        **more,
    }


def _one_of(*names: str) -> Json:
    """Return the schema of a value that is one of some components, each with a name for generated clients."""
    return {"oneOf": [_ref(name) for name in names]}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _option_schemas(limits: Limits) -> Json:
    labels = _array({"type": "string"}, maxItems=limits.label_list_max)
    listed: Json = {"oneOf": [{"type": "null"}, labels], "default": None}
    return {
        "top_r": {
            "type": "integer",
            "minimum": 1,
            "maximum": limits.top_r_max,
            "default": 5,
            "description": "labels an instance gets, at most",
        },
        "threshold": {
            "oneOf": [{"type": "null"}, {"type": "number", "minimum": 0, "maximum": 1}, {"const": "tuned"}],
            "default": None,
            "description": "labels of at least this score; tuned: each label's own; then top_r only caps",
        },
        "beam_width": {
            "type": "integer",
            "minimum": 1,
            "maximum": limits.beam_width_max,
            "default": 10,
            "description": "nodes kept a level; wider is slower and closer to exact. With tuned "
            "thresholds only nodes that lead to labels that pass, so many a level on average",
        },
        "exact": {
            "type": "boolean",
            "default": False,
            "description": "whether the labels must be those of the highest scores, and all that reach their "
            "thresholds, however long it takes; a number as threshold is always exact",
        },
        "allow_labels": {**listed, "description": "the only labels that may be predicted"},
        "deny_labels": {**listed, "description": "labels that may not be predicted"},
        "explain": {
            "type": "boolean",
            "default": False,
            "description": "whether each label gets the nodes on its paths and the features that counted; "
            f"for instances times top_r of at most {limits.explained_labels_max}",
        },
        "deadline_ms": {
            "oneOf": [
                {"type": "null"},
                {"type": "integer", "minimum": 1, "maximum": int(limits.request_seconds_max * 1000)},
            ],
            "default": None,
            "description": "milliseconds after which the search stops; the answer is then what is sure, with "
            "exact: false",
        },
        "label_weights": {
            "oneOf": [
                {"type": "null"},
                {"const": "propensity"},
                _map({"type": "number", "minimum": WEIGHT_MIN, "maximum": WEIGHT_MAX}),
            ],
            "default": None,
            "description": "labels are ranked by probability times weight, and that is their score; labels "
            "not named weigh 1; propensity: the inverse of how likely a true label is to be written down, "
            "which favours rare labels. Thresholds apply to the probability",
        },
        "statistics": {
            "type": "boolean",
            "default": False,
            "description": "whether a prediction says how many nodes were scored, and how many bytes of "
            "their weights were read",
        },
    }


def _request_schemas(limits: Limits) -> Json:
    options = {name: _ref(name) for name in _option_schemas(limits)}
    line: Json = {
        "id": {"type": ["string", "integer", "null"], "description": "repeated by the answer"},
        "labels": {"description": "of a labelled file: ignored"},
    }
    texts, sparse, named = _instance_properties(limits)
    return {
        "PredictRequest": _object(
            ["instances"],
            {
                "instances": _array(_ref("Instance"), minItems=1, maxItems=limits.instances_max),
                **options,
            },
        ),
        "Instance": _one_of("TextInstance", "SparseInstance", "NamedInstance"),
        "TextInstance": _object(["text"], texts),
        "SparseInstance": _object(["indices", "values"], sparse),
        "NamedInstance": _object(["features"], named),
        "BatchLine": _one_of("TextLine", "SparseLine", "NamedLine"),
        "TextLine": _object(["text"], {**texts, **line}),
        "SparseLine": _object(["indices", "values"], {**sparse, **line}),
        "NamedLine": _object(["features"], {**named, **line}),
    }


def _instance_properties(limits: Limits) -> tuple[Json, Json, Json]:
    number = {"type": "number"}
    texts = {"text": {"type": "string", "description": f"at most {limits.text_bytes_max} bytes of UTF-8"}}
    sparse = {
        "indices": _array({"type": "integer", "minimum": 0}, maxItems=limits.features_max),
        "values": _array(number, maxItems=limits.features_max, description="one for each of the indices"),
    }
    named = {
        "features": {
            "type": "object",
            "additionalProperties": number,
            "maxProperties": limits.features_max,
        }
    }
    return texts, sparse, named


def _answer_schemas() -> Json:
    text, integer, number = {"type": "string"}, {"type": "integer"}, {"type": "number"}
    prediction: Json = {
        "labels": _array(_ref("NamedLabel"), description="the best first; of equal scores the smaller id"),
        "prediction_id": {"type": "string", "description": "opaque, and unique"},
        "exact": {
            "type": "boolean",
            "description": "whether these are surely the labels that an exact search finds",
        },
    }
    told = {**prediction, "statistics": _ref("Statistics"), "no_known_features": _NO_KNOWN_FEATURES}
    fault = _object(["path", "detail"], {"path": text, "detail": text})
    summary = {"name": text, "versions": _array(integer), "aliases": _map(integer)}
    return {
        "NamedLabel": _object(
            ["label", "id", "score"],
            {"label": text, "id": integer, "score": number, "explanation": _ref("LabelExplanation")},
        ),
        **_explanation_schemas(),
        "Prediction": _object(list(prediction), told, example=_EXAMPLE_PREDICTION),
        "Statistics": _object(["nodes", "weight_bytes"], {"nodes": integer, "weight_bytes": integer}),
        "PredictAnswer": _object(
            ["model", "version", "threshold_epoch", "predictions"],
            {
                "model": text,
                "version": integer,
                "threshold_epoch": {"type": ["integer", "null"], "description": "null: no tuned thresholds"},
                "predictions": _array(_ref("Prediction")),
            },
        ),
        "BatchAnswerLine": _one_of("BatchPrediction", "BatchError"),
        "BatchPrediction": _object(list(prediction), {"id": {"type": ["string", "integer"]}, **told}),
        "BatchError": _object(["error"], {"id": {"type": ["string", "integer"]}, "error": _ref("LineError")}),
        "LineError": _object(
            ["code", "detail"],
            {"code": text, "detail": text, "line": integer, "errors": _array(fault)},
            description="`line` counts from 1; without one, the error ended the batch",
        ),
        "Problem": _object(
            ["type", "title", "status", "detail", "code", "instance", "request_id"],
            {
                "type": text,
                "title": text,
                "status": integer,
                "detail": text,
                "code": text,
                "instance": text,
                "request_id": text,
                "errors": _array(fault),
            },
        ),
        "ModelList": _object(["models"], {"models": _array(_ref("ModelSummary"))}),
        "ModelSummary": _object(list(summary), summary),
        "ModelDetails": _object(
            [*summary, "version_details"], {**summary, "version_details": _array(_ref("VersionSummary"))}
        ),
        **_version_schemas(),
        "Alive": _object(["status"], {"status": {"const": "alive"}}),
        "Readiness": _readiness_schema(),
    }


def _explanation_schemas() -> Json:
    number = {"type": "number"}
    share = {"feature": {"type": "string", "description": "name, or id if nameless"}, "contribution": number}
    node: Json = {
        "node": {"type": "integer"},
        "probability": {**number, "description": "of the node given its parent"},
        "score": {**number, "description": "the product of the probabilities down to here"},
        "features": _array(
            _ref("FeatureContribution"),
            maxItems=FEATURES_MAX,
            description="what added most to the node's margin, or took most away: value times weight",
        ),
    }
    tree = {
        "path": _array(
            _ref("ExplainedNode"), description="from below the root; empty if the tree lacks the label"
        )
    }
    routed = {
        "node": {"type": "integer"},
        "margin": {**number, "description": "by which the instance was sent to the node"},
        "features": node["features"],
    }
    leaf = {
        "tree": {"type": "integer"},
        "leaf": {"type": "integer"},
        "value": {**number, "description": "of the label in the leaf"},
        "weight": {**number, "description": "of the leaf; the sum of weight * value is the score"},
        "path": _array(_ref("RoutedNode"), description="from below the root"),
    }
    return {
        "LabelExplanation": {
            **_one_of("TreesExplanation", "LeavesExplanation"),
            "description": "trees for a model of label trees, leaves for one of decision trees",
        },
        "TreesExplanation": _object(["trees"], {"trees": _array(_ref("ExplainedTree"))}),
        "LeavesExplanation": _object(["leaves"], {"leaves": _array(_ref("ExplainedLeaf"))}),
        "ExplainedLeaf": _object(list(leaf), leaf),
        "RoutedNode": _object(list(routed), routed),
        "ExplainedTree": _object(["path"], tree),
        "ExplainedNode": _object(list(node), node),
        "FeatureContribution": _object(list(share), share),
    }


def _map(values: Json) -> Json:
    return {"type": "object", "additionalProperties": values}


def _version_schemas() -> Json:
    text, integer = {"type": "string"}, {"type": "integer"}
    trainer = _object(["name", "parameters"], {"name": text, "parameters": {"type": "object"}})
    properties = {
        "version": integer,
        "created_at": {"type": "string", "format": "date-time"},
        "kind": {"enum": ["label-tree", "decision-tree"]},
        "trainer": trainer,
        "features": {"type": "object"},
        "n_labels": integer,
        "n_features": integer,
        "n_trees": integer,
        "model_bytes": integer,
        "metrics": _map({"type": "number"}),
    }
    fault = _object(["code", "detail"], {"code": text, "detail": text})
    unreadable = _object(["version", "error"], {"version": integer, "error": fault})
    return {
        "VersionSummary": _one_of("ReadableVersion", "UnreadableVersion"),
        "ReadableVersion": _object(list(properties), properties),
        "UnreadableVersion": unreadable,
    }


def _readiness_schema() -> Json:
    text, integer = {"type": "string"}, {"type": "integer"}
    pointer = _object(["model", "alias", "version"], {"model": text, "alias": text, "version": integer})
    failure = _object(["model", "ref", "detail"], {"model": text, "ref": text, "detail": text})
    properties = {
        "status": {"enum": ["ready", "not ready", "draining"]},
        "models": _array(pointer),
        "failures": _array(failure),
        "store_error": {"type": ["string", "null"]},
    }
    return _object(list(properties), properties)
