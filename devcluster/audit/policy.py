"""Audit policies: which requests are logged, at which level and in which stages.

Sources: apiserver pkg/audit/policy/{checker,reader}.go, pkg/apis/audit/validation of v1.36.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from kubeloop.devcluster.api.request_attributes import RequestAttributes
from kubeloop.kube.json_object import JSON
from kubeloop.kube.user_error import UserError
from kubeloop.kube.validation.name_checks import dns_subdomain

log = logging.getLogger(__name__)

Level = Literal["None", "Metadata", "Request", "RequestResponse"]
Stage = Literal["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"]
_API_VERSION = "audit.k8s.io/v1"
_LEVELS: tuple[Level, ...] = ("None", "Metadata", "Request", "RequestResponse")
_STAGES: tuple[Stage, ...] = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")
_HINT = "--audit-policy-file takes a Policy: https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/"


class GroupResources(msgspec.Struct, frozen=True, rename="camel"):
    """Resources of an API group; resources may have wildcards, such as "pods/*" and "*/status"."""

    group: str = ""
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()

    def matches(self, request: RequestAttributes) -> bool:
        if self.group not in (request.group, "*"):
            return False
        if not self.resources:
            return True
        if self.resource_names and request.name not in self.resource_names:
            return False
        subresource = request.subresource
        return any(
            pattern in ("*", request.combined_resource)
            or (subresource and pattern == f"*/{subresource}")
            or pattern == f"{request.resource}/*"
            for pattern in self.resources
        )


class PolicyRule(
    msgspec.Struct,
    frozen=True,
    rename={
        "user_groups": "userGroups",
        "non_resource_urls": "nonResourceURLs",
        "omit_stages": "omitStages",
        "omit_managed_fields": "omitManagedFields",
    },
):
    """The level of the requests that match all fields; an empty field matches all requests."""

    level: str = ""
    users: tuple[str, ...] = ()
    user_groups: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    resources: tuple[GroupResources, ...] = ()
    namespaces: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = ()
    omit_stages: tuple[str, ...] = ()
    omit_managed_fields: bool | None = None

    def matches(self, user: JSON, request: RequestAttributes) -> bool:
        if self.users and user.get("username", "") not in self.users:
            return False
        if self.user_groups and not set(self.user_groups).intersection(user.get("groups", ())):
            return False
        if self.verbs and request.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            if not request.is_resource_request or (self.namespaces and request.namespace not in self.namespaces):
                return False
            return not self.resources or any(resources.matches(request) for resources in self.resources)
        if self.non_resource_urls:
            return not request.is_resource_request and any(
                pattern in ("*", request.path)
                or (pattern.endswith("*") and request.path.startswith(pattern.rstrip("*")))
                for pattern in self.non_resource_urls
            )
        return True


class AuditPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """Rules in order: the first that matches decides; a request that none matches is not logged."""

    api_version: str = ""
    kind: str = ""
    metadata: JSON = {}
    rules: tuple[PolicyRule, ...] = ()
    omit_stages: tuple[str, ...] = ()
    omit_managed_fields: bool = False

    def rule_for(self, user: JSON, request: RequestAttributes) -> PolicyRule | None:
        """Return the rule for a request of this user; None if it is not logged."""
        for rule in self.rules:
            if rule.matches(user, request):
                return None if rule.level == "None" else rule
        return None

    def omits_stage(self, rule: PolicyRule, stage: Stage) -> bool:
        return stage in rule.omit_stages or stage in self.omit_stages

    def omits_managed_fields(self, rule: PolicyRule) -> bool:
        return self.omit_managed_fields if rule.omit_managed_fields is None else rule.omit_managed_fields


def read_policy(path: Path) -> AuditPolicy:
    """Return the policy of a file; unknown fields are logged as a warning. Raises UserError."""
    from kubeloop.kube.yaml import InvalidYaml, read_first  # most servers have no audit log

    try:
        text = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read the audit policy {path}: {error.strerror}", hint=_HINT) from None
    try:
        document, repeated = read_first(text)
        policy = msgspec.convert(document, AuditPolicy)
    except (InvalidYaml, msgspec.ValidationError) as error:
        raise UserError(f"the audit policy {path} is invalid: {error}", hint=_HINT) from None
    if unknown := [*repeated, *_unknown_fields(document)]:
        log.warning("the audit policy has fields that are ignored: %s", ", ".join(unknown))
    if (policy.api_version, policy.kind) != (_API_VERSION, "Policy"):
        problem = f"it is {policy.api_version or 'no apiVersion'}, {policy.kind or 'no kind'}"
        raise UserError(f"the audit policy {path} is no Policy of {_API_VERSION}: {problem}", hint=_HINT)
    if problems := list(_problems(policy)):
        raise UserError(f"the audit policy {path} is invalid: {'; '.join(problems)}", hint=_HINT)
    return policy


def _unknown_fields(document: JSON) -> list[str]:
    """Return the fields of the policy and its rules that no type has."""
    unknown = [name for name in document if name not in AuditPolicy.__struct_encode_fields__]
    for index, rule in enumerate(document.get("rules") or ()):
        unknown += [f"rules[{index}].{name}" for name in rule if name not in PolicyRule.__struct_encode_fields__]
    return unknown


def _problems(policy: AuditPolicy) -> Iterable[str]:
    if not policy.rules:
        yield "rules: Required value: without a rule nothing is logged"
    yield from _stage_problems("omitStages", policy.omit_stages)
    for index, rule in enumerate(policy.rules):
        path = f"rules[{index}]"
        if not rule.level:
            yield f"{path}.level: Required value"
        elif rule.level not in _LEVELS:
            yield f'{path}.level: Unsupported value: "{rule.level}": supported values: {_quoted(_LEVELS)}'
        yield from _stage_problems(f"{path}.omitStages", rule.omit_stages)
        for number, url in enumerate(rule.non_resource_urls):
            place = f'{path}.nonResourceURLs[{number}]: Invalid value: "{url}"'
            if url != "*" and not url.startswith("/"):
                yield f"{place}: non-resource URL rules must begin with a '/' character"
            if url != "*" and "*" in url[:-1]:
                yield f"{place}: non-resource URL wildcards '*' must be the final character of the rule"
        if rule.non_resource_urls and (rule.resources or rule.namespaces):
            problem = "rules cannot apply to both regular resources and non-resource URLs"
            yield f"{path}.nonResourceURLs: Invalid value: {problem}"
        for resources in rule.resources:
            if resources.group not in ("", "*"):
                for problem in dns_subdomain(resources.group):
                    yield f'{path}.resources.group: Invalid value: "{resources.group}": {problem}'
            if resources.resource_names and not resources.resources:
                problem = "using resourceNames requires at least one resource"
                yield f"{path}.resources.resourceNames: Invalid value: {problem}"


def _stage_problems(path: str, stages: Iterable[str]) -> Iterable[str]:
    for index, stage in enumerate(stages):
        if stage not in _STAGES:
            yield f'{path}[{index}]: Invalid value: "{stage}": allowed stages are {",".join(_STAGES)}'


def _quoted(values: Iterable[str]) -> str:
    return ", ".join(f'"{value}"' for value in values)
