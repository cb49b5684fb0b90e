"""docs/settings.md, docs/errors.md and the OpenAPI document say what the code does, no less and no more."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate

import model_store.errors
import service.api.door.problems as problems
import service.base.errors
from service.base.settings import ELSEWHERE, Limits, read_settings, variables
from service.jobs.kinds import KINDS
from service.serving.parse import parse_options
from service.serving.schemas.predict import Options
from tests.schemas import fault_of, openapi, openapi_under

DOCS = Path(__file__).resolve().parents[2] / "docs"


def table_rows(file: str) -> dict[str, list[str]]:
    """The cells of every row of a page's tables, by the name in its first cell."""
    rows = {}
    for line in (DOCS / file).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            name = cells[0].strip("`")
            assert name not in rows, f"{file}: {name} stands twice"
            rows[name] = cells[1:]
    return rows


def error_classes(module: Any) -> list[type[Exception]]:
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Exception) and value.__module__ == module.__name__
    ]


OF_THE_MACHINE = {"threads_max", "job_threads_max", "job_memory_bytes_max"}
"""Settings whose default is a figure of the machine."""


def test_every_setting_is_documented() -> None:
    rows = table_rows("settings.md")
    assert rows.keys() == variables().keys() | ELSEWHERE
    for name, says in variables().items():
        assert rows[name][1] == says


def test_the_documented_defaults_are_the_defaults() -> None:
    settings = read_settings()
    for name, (default, _) in table_rows("settings.md").items():
        field = name.removeprefix("XYLEM_").lower()
        if name not in ELSEWHERE and field not in OF_THE_MACHINE:
            value = getattr(settings if hasattr(settings, field) else settings.limits, field)
            assert default in (str(value), f"{value:g}" if isinstance(value, float) else str(value).lower())


def test_every_code_is_documented_with_its_status_and_title() -> None:
    documented = {code: cells[:2] for code, cells in table_rows("errors.md").items()}
    assert documented == {code: [str(p.status), p.title] for code, p in problems.PROBLEMS.items()}


@pytest.mark.parametrize(
    "module", [service.base.errors, model_store.errors, problems], ids=lambda m: m.__name__
)
def test_every_error_class_has_a_status(module: Any) -> None:
    classes = [cls for cls in error_classes(module) if issubclass(cls, Exception)]
    assert classes
    for cls in classes:
        assert cls.code in problems.PROBLEMS, cls  # type: ignore[attr-defined]


def test_codes_are_unique_and_input_faults_are_4xx() -> None:
    classes = [
        *error_classes(service.base.errors),
        *error_classes(model_store.errors),
        *error_classes(problems),
    ]
    codes = [cls.__dict__["code"] for cls in classes if "code" in cls.__dict__]  # others have their base's
    assert len(codes) == len(set(codes))
    for cls in classes:
        status = problems.PROBLEMS[cls.code].status  # type: ignore[attr-defined]
        assert (400 <= status < 500) == issubclass(
            cls,
            service.base.errors.BadInput
            | model_store.errors.NotFound
            | model_store.errors.Conflict
            | model_store.errors.InvalidName
            | model_store.errors.BadNames
            | model_store.errors.BadSplit,
        )


def test_the_openapi_document_is_valid() -> None:
    validate(openapi())


def test_the_openapi_document_has_every_route_that_the_contract_names() -> None:
    model, ways = "/v1/models/{model}", ("", "/versions/{version}", "/aliases/{alias}")
    expected = {
        f"{model}{way}/{what}" for way in ways for what in ("predict", "batch", "feedback", "thresholds")
    }
    changes = ("restore", "switch", "drop", "tune")
    expected |= {f"/v1/admin/models/{{model}}/thresholds/{change}" for change in changes}
    expected |= {"/v1/models", model, "/livez", "/readyz", "/metrics", "/openapi.json"}
    tensors = {f"/v2/models/{{model}}{way}" for way in ways[:2]}
    expected |= tensors | {f"{path}/{what}" for path in tensors for what in ("ready", "infer")}
    expected |= {"/v2", "/v2/health/live", "/v2/health/ready"}
    expected |= {f"/v1/admin/{kind}-jobs" for kind in KINDS}
    paths = openapi()["paths"]
    assert expected <= paths.keys()
    operations = [operation["operationId"] for item in paths.values() for operation in item.values()]
    assert len(operations) == len(set(operations))


def test_every_operation_says_what_it_takes_and_answers_and_how_it_refuses() -> None:
    for path, item in openapi()["paths"].items():
        for method, operation in item.items():
            where = f"{method} {path}"
            assert operation["summary"], where
            assert operation["description"], where
            assert len(operation["tags"]) == 1, where
            takes = method in ("post", "put") and operation["operationId"] != "retryJob"
            assert takes == ("requestBody" in operation), where
            success = [operation["responses"].get(status) for status in ("200", "202", "204")]
            assert sum(one is not None for one in success) == 1, where
            for status, answer in operation["responses"].items():
                if status >= "400" and path != "/readyz":
                    assert answer["content"].keys() == {"application/problem+json"}, where


def test_the_examples_of_requests_are_true() -> None:
    document = openapi()
    n_examples = 0
    for item in document["paths"].values():
        for operation in item.values():
            for media, said in operation.get("requestBody", {}).get("content", {}).items():
                if said["schema"].get("format") == "binary":
                    continue
                lines = said["example"].splitlines() if "ndjson" in media else [json.dumps(said["example"])]
                n_examples += len(lines)
                for line in lines:
                    assert fault_of(document, said["schema"], json.loads(line)) is None
    assert n_examples > 10


def test_answers_may_get_new_fields_and_requests_may_not() -> None:
    schemas = openapi()["components"]["schemas"]
    for name in ("PredictAnswer", "Prediction", "NamedLabel", "Problem", "ModelDetails", "Thresholds"):
        assert "additionalProperties" not in schemas[name]
    for name in ("PredictRequest", "TextInstance", "SparseLine", "FeedbackEvent", "RestoreRequest"):
        assert schemas[name]["additionalProperties"] is False
    assert "enum" not in schemas["Problem"]["properties"]["code"]


def test_path_parameters_are_declared() -> None:
    for path, item in openapi()["paths"].items():
        for operation in item.values():
            declared = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
            assert declared == set(re.findall(r"{(\w+)}", path))


def test_defaults_are_told_and_make_no_field_look_required() -> None:
    schema = openapi()["components"]["schemas"]["PredictRequest"]
    assert schema["required"] == ["instances"]
    for name, default in Options().model_dump().items():
        assert "default" not in schema["properties"][name]
        if default is not None:
            said = f"({json.dumps(default)} if left out)"
            assert schema["properties"][name]["description"].endswith(said)


def test_a_batch_takes_the_options_that_the_document_gives_it_and_refuses_the_others() -> None:
    paths = openapi()["paths"]
    given = {"top_r": "3", "threshold": "0.5", "beam_width": "4", "exact": "true", "allow_labels": "a"}
    given |= {"deny_labels": "b", "label_weights": "propensity", "explain": "true", "deadline_ms": "5"}
    given |= {"statistics": "true", "language": "fi", "label_info": "true", "chunk_characters": "500"}
    assert given.keys() == set(Options.model_fields)
    documented = {
        parameter["name"]
        for parameter in paths["/v1/models/{model}/batch"]["post"]["parameters"]
        if parameter["in"] == "query"
    }
    for name, value in given.items():
        query = f"{name}={value}".encode()
        if name in documented:
            parse_options(query, Limits())
        else:
            with pytest.raises(service.base.errors.UnsupportedOption):
                parse_options(query, Limits())


def test_references_lead_somewhere() -> None:
    document = openapi()
    names = re.findall(r"'#/components/schemas/(\w+)'", str(document))
    assert names
    assert set(names) <= document["components"]["schemas"].keys()


def test_the_document_has_the_limits_in_force() -> None:
    limits = Limits().model_copy(update={"top_r_max": 17, "instances_max": 3})
    schemas = openapi_under(limits)["components"]["schemas"]
    assert schemas["PredictRequest"]["properties"]["top_r"]["maximum"] == 17
    assert schemas["PredictRequest"]["properties"]["instances"]["maxItems"] == 3
