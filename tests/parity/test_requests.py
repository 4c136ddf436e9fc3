"""The same requests, odd ones above all, to a real kube-apiserver and to ours: the same answers.

Status, content type, warnings and body, without what each server makes up by itself: uids, times, resource versions,
continue tokens, generated names. After the tables, objects of every kind other than pods and workloads with one field
or several made wrong (those with pod templates are in test_validation.py).
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
import yaml

from support.apiserver_process import TOKEN, apiserver_command, running_apiserver_sync
from support.differential import (
    ApiServer,
    compare,
    create_for_real,
    creations,
    delete_for_real,
    same_but_for_order,
    updates,
    valid_objects,
)
from support.real_apiserver import needs_binaries, real_apiserver

SEED = 20
JSON = "application/json"
REQUESTS = Path(__file__).parent.parent / "support" / "requests"
KINDS = """
Deployment ReplicaSet StatefulSet DaemonSet ControllerRevision ReplicationController PodTemplate Job CronJob Service
Endpoints EndpointSlice Ingress IngressClass NetworkPolicy IPAddress ServiceCIDR Node Namespace ConfigMap Secret
ServiceAccount LimitRange ResourceQuota Event PriorityClass PodDisruptionBudget Lease RuntimeClass
HorizontalPodAutoscaler HorizontalPodAutoscaler/v1 Role ClusterRole RoleBinding ClusterRoleBinding
PersistentVolume PersistentVolumeClaim StorageClass VolumeAttachment CSINode CSIDriver CSIStorageCapacity
VolumeAttributesClass
""".split()  # noqa: SIM905 - forty names in lines
WITH_STATUS = """
CronJob DaemonSet Deployment HorizontalPodAutoscaler Ingress Job Node PersistentVolume PersistentVolumeClaim
PodDisruptionBudget ReplicaSet ReplicationController ResourceQuota Service ServiceCIDR StatefulSet VolumeAttachment
""".split()  # noqa: SIM905 - as above
Servers = tuple[ApiServer, ApiServer]


class Ask(NamedTuple):
    """A request; a body that is text is sent as it is."""

    verb: str
    path: str
    body: Any = None
    content_type: str = JSON
    accept: str = JSON


@pytest.fixture(scope="module")
def servers(tmp_path_factory) -> Iterator[Servers]:
    """A kube-apiserver, and ours."""
    needs_binaries()
    folder = tmp_path_factory.mktemp("beside")
    flags = {"service-cluster-ip-range": "10.0.0.0/24"}
    with (
        real_apiserver(folder / "real", flags=flags) as kubernetes,
        running_apiserver_sync(apiserver_command(folder)) as (url, _),
    ):
        real, ours = ApiServer.from_kubeconfig(kubernetes.kubeconfig), ApiServer(url, TOKEN)
        yield real, ours
        real.close()
        ours.close()


@pytest.fixture(scope="module")
def namespace(servers) -> str:
    """A namespace in both, with what the requests ask for, and one that is going."""
    path = "/api/v1/namespaces/odd"
    given = [Ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}}) for name in ("odd", "going")]
    given.append(Ask("POST", f"{path}/serviceaccounts", {"metadata": {"name": "robot"}}))
    given.append(Ask("POST", f"{path}/secrets", {"metadata": {"name": "s"}}))
    given.append(Ask("POST", "/api/v1/nodes", {"metadata": {"name": "n"}}))
    for name, spec in PODS.items():
        body = {"metadata": {"name": name}, "spec": {"automountServiceAccountToken": False, **spec}}
        given.append(Ask("POST", f"{path}/pods", body))
    held = {"metadata": {"name": "a", "finalizers": ["a.b/c"]}}
    given.append(Ask("POST", "/api/v1/namespaces/going/configmaps", held))
    given.append(Ask("DELETE", "/api/v1/namespaces/going"))
    for name in "abcd":
        body = {"metadata": {"name": name, "labels": {"x": name}, "finalizers": ["a.b/c"]}, "data": {"k": name}}
        given.append(Ask("POST", f"{path}/configmaps", body))
    given.append(Ask("POST", "/apis/apps/v1/namespaces/odd/deployments", DEPLOYMENT))
    agree(servers, given)
    definition = yaml.safe_load((REQUESTS.parent / "scaled_sets.yaml").read_text())
    for server in servers:
        server.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        for _ in range(100):  # a kube-apiserver serves it a moment later
            if server.ask("GET", "/apis/scaled.example.com/v1/sets").status == 200:
                break
            time.sleep(0.1)
    return "odd"


def agree(servers: Servers, requests: Iterable[Ask]) -> None:
    """Raises AssertionError with every request that is answered in two ways."""
    asked = list(requests)

    def answers(server: ApiServer) -> list[Any]:
        return [_comparable(server, each) for each in asked]

    with ThreadPoolExecutor(2) as both:
        told, said = both.map(answers, servers)
    differ = [
        f"{each}\n  real {json.dumps(one)}\n  ours {json.dumps(other)}"
        for each, one, other in zip(asked, told, said, strict=True)
        if one != other
    ]
    assert not differ, f"{len(differ)} of {len(asked)}:\n" + "\n".join(differ)


def _comparable(server: ApiServer, ask: Ask) -> Any:
    path = quote(ask.path, safe="/?&=%,*~()!$;")
    answer = server.ask(ask.verb, path, ask.body, ask.content_type, ask.accept)
    content = answer.content
    if type(content) is str and "json" in answer.media_type:
        content = [json.loads(line) for line in content.splitlines()]
    told = [_masked(warning) for warning in sorted(answer.warnings)]
    return [answer.status, answer.media_type, told, _masked(content)]


_MASKS = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "(uid)"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| \+0000 UTC)"), "(time)"),
    (re.compile(r"127\.0\.0\.1:\d+"), "(server)"),
    (re.compile(r' in scheme "[^"]*"'), ""),
    (re.compile(r"StorageError: invalid object, .*? AdditionalErrorMsg: "), ""),
    (re.compile(r'Invalid value: "\{.*\}": ', re.DOTALL), "Invalid value: (an object): "),
    (re.compile(r"(?<=ResourceVersion in object meta: )\d+|(?<=, current: )\d+|(?<= in record \()\d+"), "(version)"),
    (re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+"), "(token)"),
    (re.compile(r"(g-|y{58})[bcdfghjklmnpqrstvwxz2456789]{5}\b"), r"\1(generated)"),
)


_AGE = re.compile(r"(\d+m)?\d+s")  # one server may be asked a moment later than the other


def _sorted_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _masked(value: Any, field: str = "") -> Any:
    """Without what a server makes up; managed fields and causes in an order of their own."""
    if type(value) is dict:
        return {name: _masked(inner, name) for name, inner in value.items()}
    if type(value) is list:
        inner = [_masked(each, "cell" if field == "cells" else "") for each in value]
        return sorted(inner, key=_sorted_text) if field in ("managedFields", "causes") else inner
    if field in ("resourceVersion", "continue") and value not in ("", "0"):
        return "(version)"
    if field == "cell" and type(value) is str and _AGE.fullmatch(value):
        return "(age)"
    if type(value) is str:
        for pattern, instead in _MASKS:
            value = pattern.sub(instead, value)
    return value


DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d"},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "containers": [
                    {
                        "name": "c",
                        "image": "i",
                        "ports": [{"containerPort": 80, "protocol": "TCP"}],
                        "env": [{"name": "A", "value": "1"}],
                    }
                ],
                "tolerations": [{"key": "k", "operator": "Exists"}],
            },
        },
    },
}


CONTAINER = {"name": "c", "image": "i"}
PODS = {
    "p": {"serviceAccountName": "robot", "containers": [CONTAINER]},
    "other": {"containers": [CONTAINER]},
    "two": {"initContainers": [{"name": "i", "image": "i"}], "containers": [CONTAINER, {"name": "e", "image": "i"}]},
}


def declared() -> dict[str, list[Ask]]:
    """The requests of tests/support/requests, by what they are about."""
    result: dict[str, list[Ask]] = {}
    for file in sorted(REQUESTS.glob("*.yaml")):
        for group in yaml.safe_load(file.read_text()):
            several = product(
                [group["verb"]],
                group["paths"],
                group.get("bodies", [None]),
                group.get("content_types", [JSON]),
                group.get("accepts", [JSON]),
            )
            result.setdefault(group["about"], []).extend(Ask(*each) for each in several)
    return result


DECLARED = declared()


@pytest.mark.parametrize("about", DECLARED)
def test_odd_requests_are_answered_alike(servers, namespace, about: str):
    agree(servers, DECLARED[about])


def test_watches_are_answered_alike(servers, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps?watch=1&timeoutSeconds=1"
    whole = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    options = [
        "sendInitialEvents=true",
        "sendInitialEvents=true&resourceVersionMatch=Exact",
        "sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=NotOlderThan&resourceVersion=1",
        "resourceVersion=abc",
        "resourceVersion=-1",
        "fieldSelector=foo=bar",
        f"{whole}&resourceVersion=abc",
        "fieldSelector=metadata.name=b&resourceVersion=0",
    ]
    agree(servers, [Ask("GET", f"{path}&{each}") for each in options])


@pytest.mark.parametrize("kind", KINDS)
def test_objects_of_every_kind_are_answered_alike(servers, kind: str):
    """New ones, changed ones and changed statuses; of several causes, any may come first."""
    valid, chance = valid_objects(kind), random.Random(SEED)
    outcome = compare(*servers, creations(valid, 40, chance))
    for server in servers:
        create_for_real(server, valid)
    try:
        changed = updates(valid, 30, chance)
        if kind in WITH_STATUS:
            changed += updates(valid, 15, chance, subresource="status")
        later = compare(*servers, changed)
    finally:
        for server in servers:
            delete_for_real(server, valid)
    for each in (outcome, later):
        each.differences = [d for d in each.differences if not same_but_for_order(d.real, d.ours)]
        assert not each.differences, each.report()
    assert outcome.accepted


# --- OpenAPI ----------------------------------------------------------------------------------------------------------

PROSE = ("description", "nullable")
"""Descriptions are those of the installed client library or our own; that a value may be null is said here alone."""


def without_prose(value: Any, shared: Any) -> Any:
    """What an OpenAPI document says. Shared parameters stand where they are used: their names come from their prose."""
    if type(value) is list:
        return [without_prose(each, shared) for each in value]
    if type(value) is not dict:
        return value
    if str(value.get("$ref", "")).startswith("#/parameters/"):
        return without_prose(shared[value["$ref"].removeprefix("#/parameters/")], shared)
    for word in ("allOf", "anyOf"):
        if set(value) - set(PROSE) == {word} and "$ref" in value[word][0]:
            value = value[word][0]  # a reference that says no more; or a Status, or what it tells of
    return {
        name: without_prose(each, shared) for name, each in value.items() if name not in PROSE or type(each) is dict
    }


def differing(real: Any, ours: Any, where: str = "") -> Iterator[str]:
    if type(real) is dict and type(ours) is dict:
        for name in {**real, **ours}:
            yield from differing(real.get(name), ours.get(name), f"{where} {name}")
    elif real != ours:
        yield f"{where}\n  real {str(real)[:300]}\n  ours {str(ours)[:300]}"


@pytest.mark.usefixtures("namespace")
def test_openapi_says_the_same_in_other_words(servers):
    """Paths, operations, parameters, bodies, answers and types, in every document of both versions."""

    def document(server: ApiServer, path: str) -> Any:
        content = server.ask("GET", path).content
        return json.loads(content) if type(content) is str else content

    real, ours = servers
    index = document(ours, "/openapi/v3")["paths"]
    for _ in range(50):  # a kube-apiserver publishes custom resources a moment after it serves them
        if (told := document(real, "/openapi/v3")["paths"].keys()) == index.keys():
            break
        time.sleep(0.1)
    assert index.keys() == told
    differ = []
    # those about OpenID are called texts there, and objects in our version 3, which they are
    names = [name for name in index if "openid" not in name]
    for path in ("/openapi/v2", *(f"/openapi/v3/{name}" for name in names)):
        documents = (document(server, path) for server in servers)
        said = [without_prose({**each, "parameters": {}}, each.get("parameters")) for each in documents]
        differ += [f"{path}{each}" for each in differing(*said)]
    assert not differ, "\n".join(differ)
