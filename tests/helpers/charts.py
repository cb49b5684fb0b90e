"""The manifests and the chart, as documents: what Helm and Kustomize make of them."""

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
    files = chart.render(json.loads(sys.argv[2]), name=sys.argv[3], namespace="xylem")
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


def render(tmp_path: Path, values: Any, release: str = "xylem") -> subprocess.CompletedProcess[str]:
    """Have helm, or its library, make what the chart makes with these values."""
    command: list[Any]
    if helm := shutil.which("helm"):
        file = tmp_path / "values.json"
        file.write_text(json.dumps(values))
        command = [helm, "template", release, CHART, "--namespace", "xylem", "--values", file]
    elif any(CLIENTS.parent.glob("lib/python*/site-packages/helm_python")):
        command = [CLIENTS / "python", "-c", _RENDER, CHART, json.dumps(values), release]
    else:
        pytest.skip("neither helm nor its library (helm-python-sdk in .venv-clients) is installed")
    environment = {**os.environ, "HELM_CACHE_HOME": str(tmp_path / "helm")}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env=environment
    )


def rendered(tmp_path: Path, release: str = "xylem", **values: Any) -> list[Document]:
    """What the chart makes with these values."""
    done = render(tmp_path, values, release)
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def kustomized(directory: Path) -> list[Document]:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    return documents(
        subprocess.check_output([kubectl, "kustomize", directory], text=True, timeout=60)
    )


def is_valid(found: list[Document], tmp_path: Path) -> None:
    """Hold documents to Kubernetes's schemas: an unknown field is a
    fault. Operators' have no schema here.
    """
    if not Path(VALIDATE).exists():
        pytest.skip("kubernetes-validate is not installed (make test-system does)")
    known = []
    for each in found:
        group = each["apiVersion"].partition("/")[0]
        if "." not in group or "k8s.io" in group:
            each["metadata"].setdefault("name", "generated")
            known.append(each)
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
            yield from (
                (name, part["spec"]) for pod in spec["predictors"] for part in pod["componentSpecs"]
            )
        elif each["kind"] in ("RayCluster", "RayJob"):
            nodes = spec.get("rayClusterSpec", spec)
            for group in (nodes["headGroupSpec"], *nodes["workerGroupSpecs"]):
                yield name, group["template"]["spec"]


PLAIN = sorted(file for file in KUBERNETES.glob("*.yaml") if file.stem != "kustomization")
EXAMPLES = sorted((KUBERNETES / "examples").glob("*.yaml"))
RAY = [DEPLOY / "ray" / name for name in ("cluster.yaml", "job.yaml")]
