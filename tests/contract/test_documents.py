"""The documents say what the code does, no less and no more: commands, parameters, figures,
settings, errors, and the OpenAPI document.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from openapi_spec_validator import validate
from prometheus_client.metrics_core import Metric
from tests.helpers.schemas import fault_of, openapi, openapi_under

import xylem.api.door.problems as problems
import xylem.base.errors
import xylem_store.errors
from xylem.admin.jobs.kinds import KINDS
from xylem.admin.jobs.leases import ClaimLost
from xylem.api.app import create_app
from xylem.base.errors import BadInput, TooManyRequests
from xylem.base.parameters import Parameters, expected_of
from xylem.base.settings import ELSEWHERE, Limits, read_settings, variables
from xylem.cli.application import application
from xylem.cli.options import TRAINER_NAMES
from xylem.engine.features.parameters import PARAMETERS
from xylem.engine.features.vectors import VectorParameters
from xylem.serving.dialects.predict.schema import Options
from xylem.serving.parse import parse_options
from xylem.trainers import TRAINERS
from xylem_store.errors import BadNames, BadSplit, Conflict, InvalidName, NotFound

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
COMMANDS_PAGE = (DOCS / "commands.md").read_text()


def commands(group: Any, prefix: str = "") -> dict[str, list[str]]:
    """Every command of a group with the long names of its options."""
    found: dict[str, list[str]] = {}
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found |= commands(command, f"{prefix}{name} ")
        else:
            found[prefix + name] = [
                option for parameter in command.params for option in parameter.opts
            ]
    return found


COMMANDS = commands(typer.main.get_command(application()))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_its_page_and_answers_in_json(command: str) -> None:
    assert f"| `xylem {command}" in COMMANDS_PAGE
    assert "--json" in COMMANDS[command]


def test_the_page_of_commands_names_none_that_is_not_there() -> None:
    groups = ("models", "encoders", "jobs", "keys", "feedback", "schedules")
    command = rf"`xylem ((?:(?:{'|'.join(groups)}) )?[a-z]+(?:-[a-z]+)*)"
    named = set(re.findall(command, COMMANDS_PAGE)) - set(groups)
    assert named <= COMMANDS.keys()
    assert len(named) > 10


def test_the_help_names_every_trainer_and_each_has_a_page() -> None:
    assert set(TRAINER_NAMES) == TRAINERS.keys()
    assert {page.stem for page in (DOCS / "trainers").glob("*.md")} == TRAINERS.keys()


def rows_of(parameters: type[Parameters]) -> list[str]:
    """The rows of the page of parameters: name, default, what it takes, what it does."""
    rows = []
    for name, field in parameters.model_fields.items():
        default = json.dumps(field.default).strip('"')
        expected = expected_of(parameters, name)
        rows.append(
            f"| `{parameters.name_prefix}{name}` | {default} | {expected} | {field.description} |"
        )
    return rows


PARAMETERS_OF = {
    **{name: spec.parameters for name, spec in TRAINERS.items()},
    **PARAMETERS,
    "vectors.dims": VectorParameters,
}


@pytest.mark.parametrize("name", PARAMETERS_OF)
def test_every_parameter_is_documented_with_its_default(name: str) -> None:
    page = (DOCS / "parameters.md").read_text()
    assert f"`{name}`" in page
    missing = [row for row in rows_of(PARAMETERS_OF[name]) if row not in page]
    assert not missing, "expected the rows:\n" + "\n".join(missing)


def test_the_tutorial_says_of_feedback_what_its_plot_shows() -> None:
    plot = (DOCS / "feedback.svg").read_text()
    drawn = {
        int(n): value for n, value in re.findall(r"<title>(\d+) events: ([\d.]+)</title>", plot)
    }
    first, *_, last = drawn.values()
    assert float(first) < float(last), "the plot shows no rise"
    page = (DOCS / "tutorial.md").read_text().split("feedback_demo.py", 1)[1]
    told = re.findall(r"([\d.]+) after (?:all )?(\d+)", page)
    assert len(told) == 4
    assert all(drawn[int(n)] == value for value, n in told)
    for fixed in re.findall(r">(?:threshold 0.5|the best 5|tuned): ([\d.]+)</text>", plot):
        assert fixed in page


FOREIGN = ("process_", "python_")
"""What the names of figures begin with that are not ours."""


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


def families(store: Path) -> list[Metric]:
    """Every kind of figure of a service that has answered nothing yet."""
    app = create_app(read_settings(store=store, metrics_keys=True))
    return [
        family
        for family in app.state.metrics.registry.collect()
        if not family.name.startswith(FOREIGN)
    ]


def name_of(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def test_every_figure_is_documented(tmp_path: Path) -> None:
    rows = table_rows("metrics.md")
    assert all(re.fullmatch(r"([a-z]+(, [a-z]+)*)?", labels) for _, labels, _ in rows.values())
    documented = {name: (kind, says) for name, (kind, _, says) in rows.items()}
    assert documented == {
        name_of(each): (each.type, each.documentation) for each in families(tmp_path)
    }


def test_the_page_has_the_five_papers_with_a_place_for_each_line() -> None:
    page = (DOCS / "papers.md").read_text()
    assert page.count("\n## ") == 5
    paths = re.findall(r"`([\w./]+/[\w./]+\.(?:py|md))`", page)
    faults = [path for path in paths if not (ROOT / path).is_file()]
    for line in page.split("\n### ")[0].splitlines():
        if line.startswith("| ") and not line.startswith("| paper"):
            where = line.split("|")[2]
            if "`" not in where and "](" not in where and where.strip() != "not built":
                faults.append(line)
    assert not faults, "\n".join(faults)


OF_THE_MACHINE = {
    "threads_max",
    "job_threads_max",
    "job_memory_bytes_max",
    "bodies_bytes_max",
    "answers_bytes_max",
}
"""Settings whose default is a figure of the machine."""


def test_every_setting_is_documented_with_its_default() -> None:
    rows = table_rows("settings.md")
    assert rows.keys() == variables().keys() | ELSEWHERE
    assert {name: rows[name][1] for name in variables()} == variables()
    settings = read_settings()
    faults = []
    for name, (default, _) in rows.items():
        field = name.removeprefix("XYLEM_").lower()
        if name not in ELSEWHERE and field not in OF_THE_MACHINE:
            value = getattr(settings if hasattr(settings, field) else settings.limits, field)
            short = f"{value:g}" if isinstance(value, float) else str(value).lower()
            if default not in (str(value), short):
                faults.append(f"{name}: {default}, not {value}")
    assert not faults, "\n".join(faults)


def test_every_code_is_documented_with_its_status_and_title() -> None:
    documented = {code: cells[:2] for code, cells in table_rows("errors.md").items()}
    assert documented == {code: [str(p.status), p.title] for code, p in problems.PROBLEMS.items()}


def errors_from(base: type[Exception]) -> list[Any]:
    """Return a class of errors and all that derive from it."""
    return [base, *(each for derived in base.__subclasses__() for each in errors_from(derived))]


ERRORS = [
    each
    for base in (xylem.base.errors.XylemError, xylem_store.errors.StoreError)
    for each in errors_from(base)
    if each.__module__.split(".")[0] in ("xylem", "xylem_store") and each is not ClaimLost
]
"""The errors that an answer may tell; ClaimLost never leaves a worker."""
FAULTS_OF_THE_CALLER = (
    BadInput,
    TooManyRequests,
    NotFound,
    Conflict,
    InvalidName,
    BadNames,
    BadSplit,
)


def test_every_error_has_a_status_and_a_code_of_its_own() -> None:
    codes = [
        cls.__dict__["code"] for cls in ERRORS if "code" in cls.__dict__
    ]  # others have their base's
    assert len(codes) == len(set(codes)) > 20
    assert {cls.code for cls in ERRORS} <= problems.PROBLEMS.keys()
    wrong = [
        cls
        for cls in ERRORS
        if (400 <= problems.PROBLEMS[cls.code].status < 500)
        != issubclass(cls, FAULTS_OF_THE_CALLER)
    ]
    assert wrong == []


def test_the_openapi_document_is_valid_and_references_resolve() -> None:
    document = openapi()
    validate(document)
    names = re.findall(r"'#/components/schemas/(\w+)'", str(document))
    assert set() < set(names) <= document["components"]["schemas"].keys()


def test_the_openapi_document_has_every_route_of_the_contract() -> None:
    model, ways = "/v1/models/{model}", ("", "/versions/{version}", "/aliases/{alias}")
    expected = {
        f"{model}{way}/{what}"
        for way in ways
        for what in ("predict", "batch", "feedback", "thresholds")
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
    operations = [
        operation["operationId"] for item in paths.values() for operation in item.values()
    ]
    assert len(operations) == len(set(operations))


def faults_of_operation(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    """What an operation of the OpenAPI document lacks."""
    for field in ("summary", "description"):
        if not operation[field]:
            yield f"no {field}"
    if len(operation["tags"]) != 1:
        yield f"tags {operation['tags']}"
    bodiless = "retryJob", "loadModel", "unloadModel"
    takes = method in ("post", "put") and operation["operationId"] not in bodiless
    if takes != ("requestBody" in operation):
        yield f"expected {'a' if takes else 'no'} body: each POST and PUT has one, but {bodiless}"
    responses = operation["responses"]
    if len({"200", "202", "204"} & responses.keys()) != 1:
        yield f"statuses {[*responses]}"
    for status, answer in responses.items():
        is_problem = status >= "400" and path != "/readyz"
        if is_problem and answer["content"].keys() != {"application/problem+json"}:
            yield f"{status} answers {[*answer['content']]}"
    declared = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
    if declared != set(re.findall(r"{(\w+)}", path)):
        yield f"parameters of the path {sorted(declared)}"


def test_every_operation_documents_input_answers_and_refusals() -> None:
    faults = [
        f"{method} {path}: {fault}"
        for path, item in openapi()["paths"].items()
        for method, operation in item.items()
        for fault in faults_of_operation(path, method, operation)
    ]
    assert not faults, "\n".join(faults)


def test_the_examples_of_requests_are_true() -> None:
    document = openapi()
    n_examples = 0
    faults = []
    for path, item in document["paths"].items():
        for method, operation in item.items():
            for media, said in operation.get("requestBody", {}).get("content", {}).items():
                if said["schema"].get("format") == "binary":
                    continue
                lines = (
                    said["example"].splitlines()
                    if "ndjson" in media
                    else [json.dumps(said["example"])]
                )
                n_examples += len(lines)
                for line in lines:
                    fault = fault_of(document, said["schema"], json.loads(line))
                    if fault is not None:
                        faults.append(f"{method} {path}: {line}: {fault}")
    assert not faults, "\n".join(faults)
    assert n_examples > 10


def test_answers_may_get_new_fields_and_requests_may_not() -> None:
    schemas = openapi()["components"]["schemas"]
    answers = (
        "PredictAnswer",
        "Prediction",
        "NamedLabel",
        "Problem",
        "ModelDetails",
        "Thresholds",
        "SparseLine",  # of a batch: a labelled file may have other fields
    )
    requests = ("PredictRequest", "TextInstance", "FeedbackEvent", "RestoreRequest")
    assert [name for name in answers if "additionalProperties" in schemas[name]] == []
    assert [name for name in requests if schemas[name]["additionalProperties"] is not False] == []
    assert "enum" not in schemas["Problem"]["properties"]["code"]


def test_defaults_are_told_and_make_no_field_look_required() -> None:
    schema = openapi()["components"]["schemas"]["PredictRequest"]
    assert schema["required"] == ["instances"]
    faults = []
    for name, default in Options().model_dump().items():
        field = schema["properties"][name]
        said = f"({json.dumps(default)} if left out)"
        is_told = default is None or field["description"].endswith(said)
        if "default" in field or not is_told:
            faults.append(f"{name}: {field}")
    assert not faults, "\n".join(faults)


def test_a_batch_takes_the_documented_options_and_no_others() -> None:
    given = {
        "top_r": "3",
        "threshold": "0.5",
        "beam_width": "4",
        "exact": "true",
        "allow_labels": "a",
    }
    given |= {
        "deny_labels": "b",
        "label_weights": "propensity",
        "explain": "true",
        "deadline_ms": "5",
    }
    given |= {
        "statistics": "true",
        "language": "fi",
        "label_info": "true",
        "chunk_characters": "500",
    }
    assert given.keys() == set(Options.model_fields)
    parameters = openapi()["paths"]["/v1/models/{model}/batch"]["post"]["parameters"]
    documented = {parameter["name"] for parameter in parameters if parameter["in"] == "query"}
    refused = set()
    for name, value in given.items():
        try:
            parse_options(f"{name}={value}".encode(), Limits())
        except xylem.base.errors.UnsupportedOption:
            refused.add(name)
    assert refused == given.keys() - documented


def test_the_document_has_the_limits_in_force() -> None:
    limits = Limits().model_copy(update={"top_r_max": 17, "instances_max": 3})
    schemas = openapi_under(limits)["components"]["schemas"]
    assert schemas["PredictRequest"]["properties"]["top_r"]["maximum"] == 17
    assert schemas["PredictRequest"]["properties"]["instances"]["maxItems"] == 3


TRAINING_MODULES_MAX = 24
"""The most modules that a reader opens on the way of a training."""


def test_the_way_of_a_training_is_short_and_its_files_are_there() -> None:
    page = (DOCS / "architecture.md").read_text()
    section = page.partition("## One training, from the command to its version")[2]
    table = section.partition("\n\n| ")[2].partition("\n\n")[0]
    files = set(re.findall(r"`([a-z_/]+\.py)`", table))
    sources = (ROOT / "service" / "xylem", ROOT / "model_store")
    missing = [name for name in files if not any((source / name).is_file() for source in sources)]
    assert missing == []
    assert 15 < len(files) <= TRAINING_MODULES_MAX
