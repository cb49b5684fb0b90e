"""Manifests and the chart: valid by Kubernetes's own schemas, and the same from both."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
CHART = DEPLOY / "helm" / "xylem"
CLIENTS = ROOT / ".venv-clients" / "bin"
VALIDATE = shutil.which("kubernetes-validate") or str(CLIENTS / "kubernetes-validate")

Document = dict[str, Any]

_RENDER = """
import json, sys
import helm_python
with helm_python.Chart.load(sys.argv[1]) as chart:
    files = chart.render(json.loads(sys.argv[2]), name="xylem", namespace="xylem")
print("\\n---\\n".join(files.values()))
"""
"""Helm's own library, from a package of Python's index, where there is no command."""


def documents(text: str) -> list[Document]:
    return [each for each in yaml.safe_load_all(text) if each]


def of_files(*files: Path) -> list[Document]:
    return [each for file in files for each in documents(file.read_text())]


def by_name(found: list[Document]) -> dict[tuple[str, str], Document]:
    named = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert len(named) == len(found)
    return named


def rendered(tmp_path: Path, **values: Any) -> list[Document]:
    """What the chart makes with these values, by helm or by its library."""
    helm = shutil.which("helm")
    if helm:
        file = tmp_path / "values.json"
        file.write_text(json.dumps(values))
        command = [helm, "template", "xylem", str(CHART), "--namespace", "xylem", "--values", str(file)]
    else:
        command = [str(CLIENTS / "python"), "-c", _RENDER, str(CHART), json.dumps(values)]
        if (
            not Path(command[0]).exists()
            or subprocess.run(
                [command[0], "-c", "import helm_python"], capture_output=True, check=False
            ).returncode
        ):
            pytest.skip("neither helm nor its library (helm-python-sdk in .venv-clients) is installed")
    environment = {**os.environ, "HELM_CACHE_HOME": str(tmp_path / "helm")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def kustomized(directory: Path) -> list[Document]:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    command = [kubectl, "kustomize", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def is_valid(found: list[Document], tmp_path: Path) -> None:
    """Hold documents to Kubernetes's schemas: an unknown field is a fault. Operators' have no schema here."""
    if not Path(VALIDATE).exists():
        pytest.skip("kubernetes-validate is not installed (make test-system does)")
    known = [
        each
        for each in found
        if "." not in each["apiVersion"].partition("/")[0] or "k8s.io" in each["apiVersion"]
    ]
    for each in known:
        each["metadata"].setdefault("name", "generated")
    file = tmp_path / "documents.yaml"
    file.write_text(yaml.safe_dump_all(known))
    command = [VALIDATE, "--strict", "-k", "1.34", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert known


def pods(found: list[Document]) -> Iterator[tuple[str, Document]]:
    """The specification of each pod, with the name of what makes it."""
    for each in found:
        name, spec = each["metadata"].get("name", "train"), each.get("spec", {})
        if each["kind"] in ("Deployment", "Job"):
            yield name, spec["template"]["spec"]
        elif each["kind"] == "InferenceService":
            inner = {"minReplicas", "maxReplicas", "scaleMetric", "scaleTarget"}
            yield name, {key: value for key, value in spec["predictor"].items() if key not in inner}
        elif each["kind"] == "SeldonDeployment":
            yield from ((name, part["spec"]) for pod in spec["predictors"] for part in pod["componentSpecs"])


PLAIN = sorted(file for file in KUBERNETES.glob("*.yaml") if file.stem != "kustomization")
EXAMPLES = sorted((KUBERNETES / "examples").glob("*.yaml"))


def test_plain_manifests_and_the_pods_of_examples_are_valid(tmp_path: Path) -> None:
    found = of_files(*PLAIN)
    made = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod}
        for name, pod in pods(of_files(*EXAMPLES))
    ]
    assert len(made) == len(EXAMPLES) == 2
    is_valid([*found, *made], tmp_path)


def without_image(document: Document) -> Document:
    """A document as its manifest has it: the image by its name alone, no note to helm on how to delete it."""
    for _, pod in pods([document]):
        for container in pod["containers"]:
            container["image"] = "xylem"
    annotations = document["metadata"].pop("annotations", {})
    assert annotations.keys() <= {"helm.sh/resource-policy"}
    return document


def test_the_chart_with_its_default_values_is_the_plain_manifests(tmp_path: Path) -> None:
    """So whoever changes one is told to change the other. The namespace is not the chart's."""
    plain = {
        name: without_image(each)
        for name, each in by_name(of_files(*(file for file in PLAIN if file.stem != "train"))).items()
        if name[0] != "Namespace"
    }
    chart = {
        name: without_image(each)
        for name, each in by_name(rendered(tmp_path, monitor={"enabled": True})).items()
    }
    assert chart.keys() == plain.keys()
    for name, document in plain.items():
        assert chart[name] == document, name


def test_the_chart_s_training_is_that_of_the_plain_manifests(tmp_path: Path) -> None:
    made = by_name(rendered(tmp_path, train={"enabled": True}))["Job", "xylem-train"]
    plain = of_files(KUBERNETES / "train.yaml")[0]
    assert plain["metadata"].pop("generateName") == made["metadata"].pop("name") + "-"
    assert without_image(made) == without_image(plain)


VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "object store": {"store": {"remote": {"url": "s3://models/xylem", "secret": "xylem-object-store"}}},
    "in flight": {"replicas": {"autoscaling": {"requestsInFlight": 8}}},
    "all else": {
        "image": {"pullSecrets": [{"name": "mine"}], "tag": "1.2.3"},
        "store": {"existingClaim": "models", "storageClass": "fast"},
        "data": {"storageClass": "slow"},
        "replicas": {"autoscaling": {"enabled": False}, "count": 5},
        "admin": {"enabled": False},
        "workers": {"count": 0},
        "networkPolicy": {"enabled": False},
        "train": {"enabled": True},
    },
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_chart_is_valid_with_other_values(tmp_path: Path, name: str) -> None:
    found = rendered(tmp_path, **VARIANTS[name])
    is_valid(found, tmp_path)
    guarded(found)
    replicas = by_name(found)["Deployment", "xylem"]["spec"]
    volumes = {each["name"]: each for each in replicas["template"]["spec"]["volumes"]}
    if name == "all else":
        assert replicas["replicas"] == 5
        assert volumes["store"]["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
        absent = {"HorizontalPodAutoscaler", "NetworkPolicy"}
        assert not absent & {each["kind"] for each in found}


@pytest.mark.parametrize("name", ["object-store", "in-flight"])
def test_overlays_are_what_the_chart_makes_with_values(tmp_path: Path, name: str) -> None:
    overlay = by_name(kustomized(DEPLOY / "overlays" / name))
    is_valid(list(overlay.values()), tmp_path)
    guarded(list(overlay.values()))
    chart = by_name(rendered(tmp_path, **VARIANTS[name.replace("-", " ")]))
    for kind, named in (
        ("Deployment", "xylem"),
        ("NetworkPolicy", "xylem"),
        ("HorizontalPodAutoscaler", "xylem"),
    ):
        one, other = without_image(overlay[kind, named]), without_image(chart[kind, named])
        assert one["metadata"].pop("namespace") == "xylem"
        assert one == other, kind


def guarded(found: list[Document]) -> None:
    """Hold each pod to what all must have: no links, no root, nothing written but to volumes, time to end."""
    settings = next((each["data"] for each in found if each["kind"] == "ConfigMap"), {})
    for name, pod in pods(found):
        assert pod["enableServiceLinks"] is False and pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        (container,) = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True, name
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
        mounted = {each["name"] for each in container["volumeMounts"]}
        assert mounted == {each["name"] for each in pod["volumes"]}, name
        if container["args"][0] != "serve":
            continue
        told = {**settings, **{each["name"]: each.get("value") for each in container["env"]}}
        drain, shutdown = float(told["XYLEM_DRAIN_SECONDS"]), float(told.get("XYLEM_SHUTDOWN_SECONDS", 30))
        probe, start = container["readinessProbe"], container["startupProbe"]
        assert drain > probe["periodSeconds"] * probe["failureThreshold"], name
        assert pod["terminationGracePeriodSeconds"] > drain + shutdown, name
        assert start["periodSeconds"] * start["failureThreshold"] >= 300, name  # room to compile kernels


def test_every_pod_is_guarded() -> None:
    found = of_files(*PLAIN, *EXAMPLES)
    guarded(found)
    assert len(list(pods(found))) == 6


def test_the_chart_is_of_this_release() -> None:
    import tomllib

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = of_files(CHART / "Chart.yaml")[0]
    assert chart["version"] == chart["appVersion"] == version
    values = of_files(CHART / "values.yaml")[0]
    image = of_files(KUBERNETES / "kustomization.yaml")[0]["images"][0]
    assert (values["image"]["repository"], version) == (image["newName"], image["newTag"])
