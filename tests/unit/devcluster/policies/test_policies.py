"""Admission policies of a server in memory: from when on, until when, and over what they are in force."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from kubeloop.devcluster.admission.policies import validating_admission_policy
from kubeloop.devcluster.storage.data_directory import DataDirectory
from support.api_requests import InProcessApi

JSON = dict[str, Any]
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
RULES = {"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]}
NO_A: JSON = {"validations": [{"expression": "object == null || object.metadata.name != 'a'", "message": "no a"}]}


class Cluster:
    """A server, and requests to it that must succeed unless another status is expected."""

    def __init__(self, data_directory: DataDirectory | None = None) -> None:
        self._api = InProcessApi(data_directory=data_directory)

    def request(self, method: str, path: str, body: Any = None, expect: int | None = None) -> Any:
        status, content = self._api(method, path, body)
        assert status in ((200, 201, 202) if expect is None else (expect,)), content
        return content

    def policy(self, spec: JSON, binding: JSON | None = None, *, kind: str = "validating", name: str = "p") -> None:
        spec = {"matchConstraints": RULES, **spec}
        self.request("POST", f"{ADMISSION}/{kind}admissionpolicies", {"metadata": {"name": name}, "spec": spec})
        self.bind(binding, kind=kind, name=name)

    def bind(self, binding: JSON | None = None, *, kind: str = "validating", name: str = "p") -> None:
        spec = {"policyName": name, **(binding or {})}
        if kind == "validating":
            spec.setdefault("validationActions", ["Deny"])
        self.request("POST", f"{ADMISSION}/{kind}admissionpolicybindings", {"metadata": {"name": name}, "spec": spec})

    def config_map(self, name: str, expect: int = 201, **more: Any) -> Any:
        return self.request("POST", CONFIG_MAPS, {"metadata": {"name": name}, **more}, expect)


async def test_a_policy_is_in_force_from_the_request_after_its_binding_until_either_goes():
    cluster = Cluster()
    cluster.config_map("a")
    cluster.request("DELETE", f"{CONFIG_MAPS}/a")
    cluster.policy(NO_A)
    assert cluster.config_map("a", 422)["message"].endswith("denied request: no a")
    cluster.request("DELETE", f"{ADMISSION}/validatingadmissionpolicybindings/p")
    cluster.config_map("a")
    cluster.request("DELETE", f"{CONFIG_MAPS}/a")
    cluster.bind()
    cluster.config_map("a", 422)
    cluster.request(
        "PATCH", f"{ADMISSION}/validatingadmissionpolicies/p", {"spec": {"validations": [{"expression": "true"}]}}
    )
    cluster.config_map("a")
    cluster.request("DELETE", f"{ADMISSION}/validatingadmissionpolicies/p")
    cluster.config_map("b")


async def test_policies_are_in_force_after_a_restart(tmp_path):
    data_directory = DataDirectory(tmp_path)
    Cluster(data_directory).policy(NO_A)
    data_directory.close()
    data_directory = DataDirectory(tmp_path)
    Cluster(data_directory).config_map("a", 422)
    data_directory.close()


async def test_a_policy_is_compiled_once_however_its_status_and_other_policies_change(monkeypatch):
    compiled = []

    class Counted(validating_admission_policy.ValidatingPolicy):
        def __init__(self, obj: JSON) -> None:
            compiled.append(obj["metadata"]["name"])
            super().__init__(obj)

    monkeypatch.setattr(validating_admission_policy, "ValidatingPolicy", Counted)
    cluster = Cluster()
    cluster.policy(NO_A)
    cluster.config_map("b")
    cluster.request("PATCH", f"{ADMISSION}/validatingadmissionpolicies/p/status", {"status": {"observedGeneration": 1}})
    cluster.policy(NO_A, name="q")
    cluster.config_map("c")
    assert compiled == ["p", "q"]


async def test_parameters_are_objects_of_any_definition_and_there_at_once():
    cluster = Cluster()
    schema = {"type": "object", "properties": {"forbidden": {"type": "string"}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "limits", "singular": "limit", "kind": "Limit", "listKind": "LimitList"}
    definition = {
        "metadata": {"name": "limits.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]},
    }
    spec = {
        "paramKind": {"apiVersion": "example.com/v1", "kind": "Limit"},
        "matchConstraints": {"resourceRules": [{**RULES["resourceRules"][0], "resources": ["configmaps"]}]},
        "validations": [{"expression": "object.metadata.name != params.forbidden"}],
    }
    cluster.policy(spec, {"paramRef": {"name": "l", "parameterNotFoundAction": "Allow"}})
    told = cluster.config_map("a", 422)["message"]
    assert told.endswith("failed to find resource referenced by paramKind: 'example.com/v1, Kind=Limit'")
    cluster.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    cluster.config_map("a")
    limit = {"apiVersion": "example.com/v1", "kind": "Limit", "metadata": {"name": "l"}, "forbidden": "b"}
    cluster.request("POST", "/apis/example.com/v1/limits", limit)
    cluster.config_map("b", 422)
    cluster.config_map("c")
    # what the server deletes because its definition goes, no policy can keep
    cluster.policy({"validations": [{"expression": "request.resource.resource != 'limits'"}]}, name="q")
    cluster.request("DELETE", "/apis/example.com/v1/limits/l", expect=422)
    cluster.request("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/limits.example.com")
    assert cluster.request("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"] == []


def _labels(expression: str, name: str = "l") -> JSON:
    text = f"Object{{metadata: Object.metadata{{labels: {{'{name}': {expression}}}}}}}"
    return {"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}]}


@pytest.mark.parametrize(
    ("reinvocation", "seen"), [("Never", "none"), ("IfNeeded", "late")], ids=["never again", "once more"]
)
async def test_a_policy_sees_what_later_ones_change_only_if_it_is_run_again(reinvocation, seen):
    cluster = Cluster()
    earlier = "has(object.metadata.labels) ? object.metadata.labels.?late.orValue('none') : 'none'"
    cluster.policy({**_labels(f"string({earlier})"), "reinvocationPolicy": reinvocation}, kind="mutating", name="a")
    cluster.policy({**_labels("'late'", "late"), "reinvocationPolicy": "Never"}, kind="mutating", name="b")
    assert cluster.config_map("x")["metadata"]["labels"] == {"l": seen, "late": "late"}


async def test_what_policies_change_is_defaulted_and_validated_and_changed_by_the_server_again():
    cluster = Cluster()
    limits = {"type": "Container", "default": {"cpu": "1"}}
    cluster.request(
        "POST", "/api/v1/namespaces/default/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [limits]}}
    )
    text = "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'added', image: object.metadata.name}]}}"
    match = {"resourceRules": [{**RULES["resourceRules"][0], "operations": ["CREATE"], "resources": ["pods"]}]}
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}
    spec = {"matchConstraints": match, "mutations": [mutation], "reinvocationPolicy": "Never"}
    cluster.policy(spec, kind="mutating")
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    added = cluster.request("POST", "/api/v1/namespaces/default/pods", pod)["spec"]["containers"][-1]
    assert added["name"] == "added"
    assert added["imagePullPolicy"] == "Always"
    assert added["resources"]["limits"] == {"cpu": "1"}


async def test_an_object_keeps_its_identity_whatever_a_policy_says():
    cluster = Cluster()
    patch = "[JSONPatch{op: 'add', path: '/metadata/uid', value: 'mine'}]"
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}
    cluster.policy({"mutations": [mutation], "reinvocationPolicy": "Never"}, kind="mutating")
    assert cluster.config_map("x")["metadata"]["uid"] != "mine"


def test_while_there_are_no_policies_nothing_that_runs_them_is_loaded():
    code = """
import asyncio, random, sys
from kubeloop.devcluster.api.request import Request
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.kube.clock import SystemClock

async def main():
    server = ApiServer(clock=SystemClock(), rng=random.Random(1), token=None)
    body = b'{"metadata": {"name": "a"}}'
    answer = server.handle_now(Request.of("POST", "/api/v1/namespaces/default/configmaps", {}, body))
    assert answer.status == 201, answer
    print([name for name in sys.modules if name.startswith("kubeloop.devcluster.admission.policies.")])

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "['kubeloop.devcluster.admission.policies.policy_plugin']", done.stderr
