"""Admission policies as requests that mean the same to every API server: see policy_cases.yaml.

Every case has a namespace of its own, and its policies are in force there alone. All policies are made before the first
request that they are to judge: a real server takes a moment to notice them, and one moment is enough for all.

A case has `spec` (a ValidatingAdmissionPolicy's; matchConstraints are config maps', if it has none) or `mutations`
(a MutatingAdmissionPolicy's spec), `bindings` (one that denies, if there are none; in its namespace, if matchResources
do not say where), `before` and `requests`, which are lines as in sequences.py. $NS is the case's namespace.
`expressions` are worked out on the object of one request each, `on`, and their values or errors told; those that do not
compile here are sent to be refused.
`refused` are specs of policies, `bindings_refused` those of bindings, which are sent as dry runs.
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

from kubeloop.devcluster.validation.admission_policies import validate_validating_policy
from kubeloop.devcluster.validation.common.error_list import ErrorList
from support.custom_resource_requests import Step
from support.sequences import step as sequence_step

JSON = dict[str, Any]
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_CONFIG_MAPS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
_PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
SETTLING_SECONDS = 4.0
"""A real server reads its policies again every second, and resources that definitions add a little later."""


@cache
def _cases() -> tuple[JSON, ...]:
    """All of them, each with its namespace."""
    found = yaml.safe_load((Path(__file__).parent / "policy_cases.yaml").read_text(encoding="utf-8"))
    texts = (json.dumps(each).replace("$NS", f"case{number}") for number, each in enumerate(found))
    return tuple(_written_out({**json.loads(text), "namespace": f"case{number}"}) for number, text in enumerate(texts))


def _written_out(case: JSON) -> JSON:
    """A case of expressions as one of requests."""
    if "expressions" not in case:
        return case
    validations: list[JSON] = []
    refused: list[JSON] = []
    for each in case["expressions"]:
        expression = f"request.name != 'e{len(validations)}' || dyn({each}) == 'never'"
        validation = {"expression": expression, "messageExpression": f"'%s'.format([{each}])"}
        wrong = ErrorList()
        validate_validating_policy(wrong, _policy("", "p", {"validations": [validation]}))
        is_valid = all(cause["field"].startswith(("spec.matchConstraints", "spec.failurePolicy")) for cause in wrong)
        (validations if is_valid else refused).append(validation)
    spec = {"matchConstraints": {"resourceRules": [case["rule"]]}, "validations": validations}
    requests = [case["on"].replace("$NAME", f"e{n}") for n in range(len(validations))]
    tens = [refused[start : start + 10] for start in range(0, len(refused), 10)]
    lines = dict(zip(requests, (each["messageExpression"] for each in validations), strict=True))
    return {
        **case,
        "spec": spec,
        "requests": requests,
        "refused": [{"validations": ten} for ten in tens],
        "told": lines,
    }


def _spec(case: JSON, given: JSON) -> JSON:
    if "matchConstraints" in given or case.get("as_is"):
        return given
    return {**given, "matchConstraints": {"resourceRules": [_CONFIG_MAPS]}}


def _policy(kind: str, name: str, spec: JSON) -> JSON:
    return {"apiVersion": ADMISSION.removeprefix("/apis/"), "kind": kind, "metadata": {"name": name}, "spec": spec}


def _plural(kind: str) -> str:
    return f"{ADMISSION}/{kind.lower().removesuffix('y')}ies" if kind.endswith("y") else f"{ADMISSION}/{kind.lower()}s"


def _line(about: str, line: str, namespace: str) -> Step:
    found = sequence_step(line)
    path = found["path"].replace("${ns}", namespace)
    if query := "&".join(f"{name}={value}" for name, values in found.get("query", {}).items() for value in values):
        path += f"?{query}"
    content_type = _PATCHES.get(found.get("patch", ""), "application/json")
    return Step(f"{about}: {line}", found["method"], path, found.get("body"), content_type)


def preparing() -> Iterator[Step]:
    """What is there before policies are asked; policies and bindings."""
    cases = [each for each in _cases() if "requests" in each]
    for case in cases:
        about, namespace = case["about"], case["namespace"]
        metadata = {"name": namespace, "labels": case.get("labels", {})}
        yield Step(f"{about}: namespace", "POST", "/api/v1/namespaces", {"metadata": metadata})
        for line in case.get("before", ()):
            yield _line(about, line, namespace)
    for case in cases:
        about, namespace = case["about"], case["namespace"]
        is_mutating = "mutations" in case
        kind = "MutatingAdmissionPolicy" if is_mutating else "ValidatingAdmissionPolicy"
        body = _policy(kind, f"{namespace}.example.com", _spec(case, case["mutations" if is_mutating else "spec"]))
        yield Step(f"{about}: policy", "POST", _plural(kind), body)
        within = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
        for index, given in enumerate(case.get("bindings", [{}])):
            binding = {"policyName": f"{namespace}.example.com", "matchResources": within, **given}
            if not is_mutating:
                binding.setdefault("validationActions", ["Deny"])
            body = _policy(f"{kind}Binding", f"{namespace}-{index}", binding)
            yield Step(f"{about}: binding", "POST", _plural(f"{kind}Binding"), body)


def asking() -> Iterator[Step]:
    """What policies are asked about, and policies that cannot be."""
    for case in _cases():
        about, namespace = case["about"], case["namespace"]
        for line in case.get("requests", ()):
            told = case.get("told", {}).get(line)
            found = _line(about, line, namespace)
            yield found if told is None else replace(found, about=f"{about}: {told}")
        for given in case.get("refused", ()):
            kind = "MutatingAdmissionPolicy" if "mutations" in given else "ValidatingAdmissionPolicy"
            body = _policy(kind, "refused.example.com", _spec(case, given))
            yield Step(f"{about}: {json.dumps(given)}", "POST", f"{_plural(kind)}?dryRun=All", body)
        for given in case.get("bindings_refused", ()):
            kind = "ValidatingAdmissionPolicyBinding"
            body = _policy(kind, "refused.example.com", given)
            yield Step(f"{about}: {json.dumps(given)}", "POST", f"{_plural(kind)}?dryRun=All", body)


_SHOWN = ("data", "spec", "labels", "annotations", "finalizers")
_GENERATED = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}(?=\"|$)")


def comparable(status: int, content: Any, warnings: list[str]) -> JSON:
    """What must be the same of an answer; of objects, what a policy may change."""
    if status < 400:
        metadata = content.get("metadata") or {}
        if content.get("kind") == "Service":  # whose addresses are the server's choice
            content = {}
        shown = {name: content.get(name, metadata.get(name)) for name in _SHOWN} if content.get("kind") else {}
        return {
            "status": status,
            "shown": {name: each for name, each in shown.items() if each},
            "warnings": sorted(warnings),
        }
    details = {name: each for name, each in (content.get("details") or {}).items() if name != "uid"}
    message = content.get("message", "")
    if details.get("causes") == [{"message": message.partition(" is forbidden: ")[2]}]:
        details["causes"] = "the message"
    if "name" in details:
        details["name"] = _GENERATED.sub("-*", details["name"])
    return {
        "status": status,
        "reason": content.get("reason"),
        "message": _GENERATED.sub("-*", message),
        "details": details,
        "warnings": sorted(warnings),
    }
