"""Manifests and the chart: valid by Kubernetes's own schemas, and the same from both."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.charts import (
    CHART,
    DEPLOY,
    EXAMPLES,
    KUBERNETES,
    PLAIN,
    RAY,
    ROOT,
    Document,
    by_name,
    is_valid,
    kustomized,
    of_files,
    pods,
    render,
    rendered,
    yaml,
)


def test_plain_manifests_and_the_pods_of_examples_are_valid(tmp_path: Path) -> None:
    found = of_files(*PLAIN)
    made = []
    for name, pod in pods(of_files(*EXAMPLES, *RAY)):
        made.append({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod})
    assert len(made) == len(EXAMPLES) + 2 * len(RAY) == 6
    is_valid([*found, *made], tmp_path)


def without_image(document: Document) -> Document:
    """A document as its manifest has it: the image by its name alone,
    no note to helm on how to delete it, no digest of the configuration.
    """
    pod_metadata = document.get("spec", {}).get("template", {}).get("metadata", {})
    if "annotations" in pod_metadata:
        assert pod_metadata.pop("annotations").keys() == {"checksum/config"}
    for _, pod in pods([document]):
        for container in pod["containers"]:
            container["image"] = "xylem"
    annotations = document["metadata"].pop("annotations", {})
    assert annotations.keys() <= {"helm.sh/resource-policy"}
    return document


def test_the_chart_with_default_values_is_the_plain_manifests(tmp_path: Path) -> None:
    """So whoever changes one is told to change the other. The namespace is not the chart's."""
    manifests = of_files(*(file for file in PLAIN if file.stem != "namespace"))
    for each in manifests:
        if "generateName" in each["metadata"]:
            each["metadata"]["name"] = each["metadata"].pop("generateName").removesuffix("-")
    plain, chart = (
        {name: without_image(each) for name, each in by_name(found).items()}
        for found in (
            manifests,
            rendered(tmp_path, monitor={"enabled": True}, train={"enabled": True}),
        )
    )
    assert chart == plain


VARIANTS = yaml.safe_load("""
default: {}
object store:
  store: {remote: {url: "s3://models/xylem", secret: xylem-object-store}}
in flight:
  replicas: {autoscaling: {requestsInFlight: 8}}
all else:
  image: {pullSecrets: [{name: mine}], tag: 1.2.3}
  store: {existingClaim: models, storageClass: fast}
  data: {storageClass: slow}
  replicas: {autoscaling: {enabled: false}, count: 5}
  admin: {enabled: false}
  workers: {count: 0}
  networkPolicy: {enabled: false}
  train: {enabled: true}
placed:
  serviceAccount: {create: true, annotations: {eks.amazonaws.com/role-arn: "arn:x"}}
  podAnnotations: {team: search}
  priorityClassName: high
  extraVolumes: [{name: mine, emptyDir: {}}]
  extraVolumeMounts: [{name: mine, mountPath: /mine}]
  nodeSelector: {disk: fast}
  tolerations: [{key: only, operator: Exists}]
  affinity: {podAntiAffinity: {}}
  extraEnv: [{name: OTEL_SERVICE_NAME, value: x}]
  workers: {nodeSelector: {memory: much}, extraEnv: [{name: OMP_NUM_THREADS, value: "2"}]}
  train: {enabled: true}
  ingress:
    enabled: true
    className: nginx
    annotations: {a: b}
    hosts: [one.example.com, two.example.com]
    tls: [{secretName: tls, hosts: [one.example.com]}]
""")
"""Values that users may write into a file."""


@pytest.mark.parametrize("name", VARIANTS)
def test_the_chart_is_valid_with_other_values(tmp_path: Path, name: str) -> None:
    found = rendered(tmp_path, **VARIANTS[name])
    is_valid(found, tmp_path)
    guarded(found)
    replicas = by_name(found)["Deployment", "xylem"]["spec"]
    volumes = {each["name"]: each for each in replicas["template"]["spec"]["volumes"]}
    if name == "all else":
        assert replicas["replicas"] == 5
        assert volumes["store"]["persistentVolumeClaim"] == {
            "claimName": "models",
            "readOnly": True,
        }
        assert not {"HorizontalPodAutoscaler", "NetworkPolicy"} & {each["kind"] for each in found}


def test_grpc_has_its_port_everywhere_if_the_values_say_so(tmp_path: Path) -> None:
    plain, found = (
        by_name(rendered(tmp_path, replicas=values)) for values in ({}, {"grpcPort": 8081})
    )
    changed = {key for key in plain if plain[key] != found[key]}
    assert changed == {
        ("Deployment", "xylem"),
        ("Service", "xylem"),
        ("NetworkPolicy", "xylem-replicas"),
    }
    is_valid(list(found.values()), tmp_path)
    (container,) = found["Deployment", "xylem"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "grpc", "containerPort": 8081} in container["ports"]
    assert {"name": "XYLEM_GRPC_PORT", "value": "8081"} in container["env"]
    port = {"name": "grpc", "port": 8081, "targetPort": "grpc", "appProtocol": "grpc"}
    assert port in found["Service", "xylem"]["spec"]["ports"]
    (rule,) = found["NetworkPolicy", "xylem-replicas"]["spec"]["ingress"]
    assert {"protocol": "TCP", "port": 8081} in rule["ports"]


def test_pods_are_where_and_as_the_values_say(tmp_path: Path) -> None:
    values = VARIANTS["placed"]
    found = by_name(rendered(tmp_path, **values))
    account = found["ServiceAccount", "xylem"]
    assert account["metadata"]["annotations"] == values["serviceAccount"]["annotations"]
    of_workers = {"xylem-worker", "xylem-train"}
    made = dict(pods(list(found.values())))
    assert made.keys() == {"xylem", "xylem-admin"} | of_workers
    for name, pod in made.items():
        assert pod["nodeSelector"] == (
            {"memory": "much"} if name in of_workers else {"disk": "fast"}
        ), name
        assert (pod["tolerations"], pod["affinity"]) == (
            values["tolerations"],
            values["affinity"],
        ), name
        assert pod["serviceAccountName"] == "xylem", name
        told = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
        assert told["OTEL_SERVICE_NAME"] == "x", name
        assert ("OMP_NUM_THREADS" in told) == (name in of_workers), name
    for kind, name in (("Deployment", "xylem"), ("Job", "xylem-train")):
        metadata = found[kind, name]["spec"]["template"]["metadata"]
        assert metadata["annotations"].items() > values["podAnnotations"].items()
        pod = made[name]
        assert pod["priorityClassName"] == "high"
        assert {"name": "mine", "emptyDir": {}} in pod["volumes"]
        assert {"name": "mine", "mountPath": "/mine"} in pod["containers"][0]["volumeMounts"]


def digests(found: list[Document]) -> set[str]:
    return {
        each["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        for each in found
        if each["kind"] == "Deployment"
    }


def test_a_changed_config_makes_new_pods_and_keeps_its_numbers(tmp_path: Path) -> None:
    config = {"XYLEM_BODY_BYTES_MAX": 16777216, "XYLEM_STORE_POLL_SECONDS": 0.5}
    plain = rendered(tmp_path)
    changed = rendered(tmp_path, config={**config, "XYLEM_ACCESS_LOG": False})
    assert len(digests(plain)) == len(digests(changed)) == 1
    assert digests(plain) != digests(changed)
    data = by_name(changed)["ConfigMap", "xylem"]["data"]
    assert data["XYLEM_BODY_BYTES_MAX"] == "16777216"
    assert data["XYLEM_STORE_POLL_SECONDS"] == "0.5"
    assert data["XYLEM_ACCESS_LOG"] == "false"


@pytest.mark.parametrize(
    ("replicas", "has_budget"),
    [
        ({"count": 1, "autoscaling": {"enabled": False}}, False),
        ({"count": 2, "autoscaling": {"enabled": False}}, True),
        ({"autoscaling": {"min": 1}}, False),
        ({"count": 1}, True),
    ],
)
def test_one_replica_has_no_budget_that_keeps_its_node(
    tmp_path: Path, replicas: Any, has_budget: bool
) -> None:
    kinds = {each["kind"] for each in rendered(tmp_path, replicas=replicas)}
    assert ("PodDisruptionBudget" in kinds) == has_budget


def test_monitors_have_labels_and_pods_reach_what_the_values_say(tmp_path: Path) -> None:
    egress = [{"ports": [{"protocol": "TCP", "port": 4318}]}]
    values = {"networkPolicy": {"egress": egress}}
    monitor = {"enabled": True, "labels": {"release": "prometheus"}}
    found = by_name(rendered(tmp_path, monitor=monitor, **values))
    for name in (("ServiceMonitor", "xylem"), ("PodMonitor", "xylem-worker")):
        assert found[name]["metadata"]["labels"] == monitor["labels"]
    assert found["NetworkPolicy", "xylem"]["spec"]["egress"][-1:] == egress


def test_an_ingress_publishes_what_is_for_strangers_and_no_more(tmp_path: Path) -> None:
    ingress = by_name(rendered(tmp_path, **VARIANTS["placed"]))["Ingress", "xylem"]
    assert [rule["host"] for rule in ingress["spec"]["rules"]] == VARIANTS["placed"]["ingress"][
        "hosts"
    ]
    for rule in ingress["spec"]["rules"]:
        published = {path["path"] for path in rule["http"]["paths"]}
        assert "/v1/models" in published
        for hidden in ("/metrics", "/v1/admin/jobs", "/livez"):
            assert not any(
                hidden == path or hidden.startswith(path.rstrip("/") + "/") for path in published
            )


def selectors(found: list[Document]) -> list[dict[str, str]]:
    """The labels by which objects choose pods, or services."""
    specs = [each.get("spec", {}) for each in found]
    chosen = [spec.get("selector") or spec.get("podSelector") for spec in specs]
    return [each.get("matchLabels", each) for each in chosen if each]


def labels(found: list[Document]) -> list[dict[str, str]]:
    """The labels of services and of pods."""
    services = [each for each in found if each["kind"] == "Service"]
    templates = [
        each["spec"]["template"] for each in found if each["kind"] in ("Deployment", "Job")
    ]
    return [each["metadata"]["labels"] for each in (*services, *templates)]


def test_two_releases_in_a_namespace_have_nothing_of_each_other(tmp_path: Path) -> None:
    values = {**VARIANTS["placed"], "monitor": {"enabled": True}}
    one, other = (rendered(tmp_path, release, **values) for release in ("one", "other"))
    assert not by_name(one).keys() & by_name(other).keys()
    assert len(selectors(one)) >= 9
    for selector in selectors(one):
        assert any(selector.items() <= mine.items() for mine in labels(one)), selector
        assert not any(selector.items() <= theirs.items() for theirs in labels(other)), selector


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ("replica: {count: 3}", "replica"),
        ("replicas: {counts: 3}", "counts"),
        ('replicas: {count: "3"}', "count"),
        ("replicas: {count: -1}", "count"),
        ("workers: {nodeselector: {}}", "nodeselector"),
        ('admin: {enabled: "yes"}', "enabled"),
        ("config: {LOG_LEVEL: info}", "LOG_LEVEL"),
        ("config: {XYLEM_LOGLEVEL: info}", "XYLEM_LOGLEVEL"),
        ("config: {XYLEM_LOG_LEVEL: loud}", "XYLEM_LOG_LEVEL"),
        ("config: {XYLEM_BATCHES_MAX: many}", "XYLEM_BATCHES_MAX"),
        ("config: {XYLEM_ACCESS_LOG: 7}", "XYLEM_ACCESS_LOG"),
        ("tolerations: {key: x}", "tolerations"),
        ("extraEnv: {A: b}", "extraEnv"),
        ("extraEnv: [{value: b}]", "extraEnv"),
        ("ingress: {hosts: x.example.com}", "hosts"),
        ("ingress: {enabled: true}", "ingress.hosts: expected"),
        ("store: {remote: {url: https://bucket}}", "url"),
        ("store: {size: twenty}", "size"),
    ],
)
def test_values_that_the_chart_does_not_have_are_refused(
    tmp_path: Path, values: str, says: str
) -> None:
    done = render(tmp_path, yaml.safe_load(values))
    assert done.returncode and says in done.stderr, done.stderr


def test_the_schema_has_every_value_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = of_files(CHART / "values.yaml")[0]
    assert schema["properties"].keys() - {"global"} == values.keys()
    for name, value in values.items():
        known = schema["properties"][name]
        if known.get("additionalProperties") is False and name != "config":  # test_deploy.py has it
            optional = {"podAnnotations", "nodeSelector", "tolerations", "affinity", "extraEnv"}
            optional |= {"priorityClassName", "extraVolumes", "extraVolumeMounts"}
            assert known["properties"].keys() - optional == value.keys(), name


def test_kustomize_builds_the_manifests_with_an_image_of_ours() -> None:
    found = by_name(kustomized(KUBERNETES))
    manifests = of_files(*(file for file in PLAIN if file.stem not in ("train", "monitor")))
    assert found.keys() == by_name(manifests).keys()
    images = [
        container["image"]
        for _, pod in pods(list(found.values()))
        for container in pod["containers"]
    ]
    assert len(images) == 3 and "xylem" not in images


@pytest.mark.parametrize("name", ["object-store", "in-flight"])
def test_overlays_are_what_the_chart_makes_with_values(tmp_path: Path, name: str) -> None:
    overlay = by_name(kustomized(DEPLOY / "overlays" / name))
    is_valid(list(overlay.values()), tmp_path)
    guarded(list(overlay.values()))
    chart = by_name(rendered(tmp_path, **VARIANTS[name.replace("-", " ")]))
    for kind in ("Deployment", "NetworkPolicy", "HorizontalPodAutoscaler"):
        one, other = without_image(overlay[kind, "xylem"]), without_image(chart[kind, "xylem"])
        assert one["metadata"].pop("namespace") == "xylem"
        assert one == other, kind


def guarded(found: list[Document]) -> None:
    """Hold each pod to what all must have: no links, no root, nothing
    written but to volumes, time to end.
    """
    settings = next((each["data"] for each in found if each["kind"] == "ConfigMap"), {})
    for name, pod in pods(found):
        assert (
            pod["enableServiceLinks"] is False and pod["automountServiceAccountToken"] is False
        ), name
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        (container,) = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True, name
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
        mounted = {each["name"] for each in container["volumeMounts"]}
        assert mounted == {each["name"] for each in pod["volumes"]}, name
        if container.get("args", [""])[0] != "serve":
            continue
        told = {**settings, **{each["name"]: each.get("value") for each in container["env"]}}
        drain, shutdown = (
            float(told["XYLEM_DRAIN_SECONDS"]),
            float(told.get("XYLEM_SHUTDOWN_SECONDS", 30)),
        )
        probe, start = container["readinessProbe"], container["startupProbe"]
        assert drain > probe["periodSeconds"] * probe["failureThreshold"], name
        assert pod["terminationGracePeriodSeconds"] > drain + shutdown, name
        assert start["periodSeconds"] * start["failureThreshold"] >= 300, (
            name
        )  # room to compile kernels


def test_every_pod_is_guarded() -> None:
    found = of_files(*PLAIN, *EXAMPLES, *RAY)
    guarded(found)
    assert len(list(pods(found))) == 10


def test_nodes_of_ray_are_alike_and_of_one_version() -> None:
    cluster, job = (of_files(file)[0]["spec"] for file in RAY)
    assert job["rayClusterSpec"] == cluster
    head, (workers,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    images = {spec["template"]["spec"]["containers"][0]["image"] for spec in (head, workers)}
    assert (
        len(images) == 1 and workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    )
    dockerfile = (DEPLOY / "ray" / "Dockerfile").read_text()
    assert f'"ray[default]=={cluster["rayVersion"]}"' in dockerfile
    command = job["entrypoint"].split()
    assert command[:2] == ["xylem", "predict"] and {"--out", "--ray", "auto"} <= set(command)
    compose = of_files(DEPLOY / "ray" / "compose.yaml")[0]["services"]
    assert all("ports" not in service and service["read_only"] for service in compose.values())
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
    assert all((ROOT / name).exists() for line in copied for name in line.split())


def test_the_chart_is_of_this_release() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = of_files(CHART / "Chart.yaml")[0]
    assert chart["version"] == chart["appVersion"] == version
    values = of_files(CHART / "values.yaml")[0]
    image = of_files(KUBERNETES / "kustomization.yaml")[0]["images"][0]
    assert (values["image"]["repository"], version) == (image["newName"], image["newTag"])
