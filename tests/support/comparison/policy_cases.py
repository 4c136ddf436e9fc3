"""Requests that test admission policies, read from policy_cases.yaml.

Each case has a namespace of its own, and its policies apply only there. All policies are created before the first
request that they judge, because kube-apiserver reloads its policies asynchronously and one wait suffices for all cases.

Fields of a case; $NS stands for its namespace:
    about              the case's description
    spec               spec of a ValidatingAdmissionPolicy; matchConstraints default to config maps
    mutations          spec of a MutatingAdmissionPolicy
    bindings           specs of bindings, default: one that denies; matchResources default to the namespace
    before, requests   lines as in sequences.py, sent before the policies exist and afterwards
    expressions        each is evaluated on the object of one request, `on`, and the message contains its value or
                       error; expressions that do not compile are sent in policies that are refused
    refused            specs of policies, sent as dry runs
    bindings_refused   specs of bindings, sent as dry runs
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from kubeloop.devcluster.kinds.admissionregistration.validating_admission_policy import validate_validating_policy
from kubeloop.devcluster.validation.common.error_list import ErrorList
from support.apiserver.api_response import ApiResponse
from support.comparison.custom_resource_requests import Step
from support.comparison.sequences import step as sequence_step
from support.objects.token_volumes import masked_token_volumes

JSON = dict[str, Any]
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_CONFIG_MAPS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
_PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
POLICY_DELAY_SECONDS = 4.0
"""kube-apiserver reloads its policies every second, and the resources of new definitions a little later."""


@cache
def _cases() -> tuple[JSON, ...]:
    """Return all cases, with their namespaces."""
    cases = yaml.safe_load((Path(__file__).parent / "policy_cases.yaml").read_text(encoding="utf-8"))
    texts = (json.dumps(case).replace("$NS", f"case{number}") for number, case in enumerate(cases))
    return tuple(
        _with_requests({**json.loads(text), "namespace": f"case{number}"}) for number, text in enumerate(texts)
    )


def _with_requests(case: JSON) -> JSON:
    """Return a case of `expressions` as a case of `requests`."""
    if "expressions" not in case:
        return case
    validations: list[JSON] = []
    refused: list[JSON] = []
    for expression in case["expressions"]:
        validation = {
            "expression": f"request.name != 'e{len(validations)}' || dyn({expression}) == 'never'",
            "messageExpression": f"'%s'.format([{expression}])",
        }
        errors = ErrorList()
        validate_validating_policy(errors, _policy("", "p", {"validations": [validation]}))
        is_valid = all(cause["field"].startswith(("spec.matchConstraints", "spec.failurePolicy")) for cause in errors)
        (validations if is_valid else refused).append(validation)
    spec = {"matchConstraints": {"resourceRules": [case["rule"]]}, "validations": validations}
    requests = [case["on"].replace("$NAME", f"e{n}") for n in range(len(validations))]
    batches = [refused[start : start + 10] for start in range(0, len(refused), 10)]
    labels = dict(zip(requests, (validation["messageExpression"] for validation in validations), strict=True))
    return {
        **case,
        "spec": spec,
        "requests": requests,
        "refused": [{"validations": batch} for batch in batches],
        "labels_of_requests": labels,
    }


def _spec(case: JSON, spec: JSON) -> JSON:
    if "matchConstraints" in spec or case.get("as_is"):
        return spec
    return {**spec, "matchConstraints": {"resourceRules": [_CONFIG_MAPS]}}


def _policy(kind: str, name: str, spec: JSON) -> JSON:
    return {"apiVersion": ADMISSION.removeprefix("/apis/"), "kind": kind, "metadata": {"name": name}, "spec": spec}


def _plural(kind: str) -> str:
    return f"{ADMISSION}/{kind.lower().removesuffix('y')}ies" if kind.endswith("y") else f"{ADMISSION}/{kind.lower()}s"


def _step(about: str, line: str, namespace: str) -> Step:
    parsed = sequence_step(line)
    path = parsed["path"].replace("${ns}", namespace)
    if query := "&".join(f"{name}={value}" for name, values in parsed.get("query", {}).items() for value in values):
        path += f"?{query}"
    content_type = _PATCHES.get(parsed.get("patch", ""), "application/json")
    return Step(f"{about}: {line}", parsed["method"], path, parsed.get("body"), content_type)


def setup_requests() -> Iterator[Step]:
    """Return the requests that create namespaces, other objects, policies and bindings."""
    cases = [case for case in _cases() if "requests" in case]
    for case in cases:
        about, namespace = case["about"], case["namespace"]
        metadata = {"name": namespace, "labels": case.get("labels", {})}
        yield Step(f"{about}: namespace", "POST", "/api/v1/namespaces", {"metadata": metadata})
        for line in case.get("before", ()):
            yield _step(about, line, namespace)
    for case in cases:
        about, namespace = case["about"], case["namespace"]
        is_mutating = "mutations" in case
        kind = "MutatingAdmissionPolicy" if is_mutating else "ValidatingAdmissionPolicy"
        body = _policy(kind, f"{namespace}.example.com", _spec(case, case["mutations" if is_mutating else "spec"]))
        yield Step(f"{about}: policy", "POST", _plural(kind), body)
        in_namespace = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
        for index, spec in enumerate(case.get("bindings", [{}])):
            binding = {"policyName": f"{namespace}.example.com", "matchResources": in_namespace, **spec}
            if not is_mutating:
                binding.setdefault("validationActions", ["Deny"])
            body = _policy(f"{kind}Binding", f"{namespace}-{index}", binding)
            yield Step(f"{about}: binding", "POST", _plural(f"{kind}Binding"), body)


def judged_requests() -> Iterator[Step]:
    """Return the requests that the policies judge, and the policies and bindings that are refused."""
    for case in _cases():
        about, namespace = case["about"], case["namespace"]
        for line in case.get("requests", ()):
            label = case.get("labels_of_requests", {}).get(line)
            step = _step(about, line, namespace)
            yield step if label is None else replace(step, about=f"{about}: {label}")
        for spec in case.get("refused", ()):
            kind = "MutatingAdmissionPolicy" if "mutations" in spec else "ValidatingAdmissionPolicy"
            body = _policy(kind, "refused.example.com", _spec(case, spec))
            yield Step(f"{about}: {json.dumps(spec)}", "POST", f"{_plural(kind)}?dryRun=All", body)
        for spec in case.get("bindings_refused", ()):
            kind = "ValidatingAdmissionPolicyBinding"
            body = _policy(kind, "refused.example.com", spec)
            yield Step(f"{about}: {json.dumps(spec)}", "POST", f"{_plural(kind)}?dryRun=All", body)


_COMPARED_FIELDS = ("data", "spec", "labels", "annotations", "finalizers")
_GENERATED = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}(?=\"|$)")


def comparable(response: ApiResponse) -> JSON:
    """Return the parts of a response that must be equal; of objects, the fields that a policy may change."""
    content, warnings = masked_token_volumes(response.content), sorted(response.warnings)
    if isinstance(content, str):
        content = {"message": content}
    if response.status < 400:
        metadata = content.get("metadata") or {}
        if content.get("kind") == "Service":  # addresses are allocated
            content = {}
        fields = (
            {name: content.get(name, metadata.get(name)) for name in _COMPARED_FIELDS} if content.get("kind") else {}
        )
        return {
            "status": response.status,
            "shown": {name: value for name, value in fields.items() if value},
            "warnings": warnings,
        }
    details = {name: value for name, value in (content.get("details") or {}).items() if name != "uid"}
    message = content.get("message", "")
    if details.get("causes") == [{"message": message.partition(" is forbidden: ")[2]}]:
        details["causes"] = "the message"
    if "name" in details:
        details["name"] = _GENERATED.sub("-*", details["name"])
    return {
        "status": response.status,
        "reason": content.get("reason"),
        "message": _GENERATED.sub("-*", message),
        "details": details,
        "warnings": warnings,
    }
