"""Audit policies: which rule applies to a request, and files that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.api.request_attributes import request_attributes
from kubeloop.devcluster.audit.policy import read_policy
from kubeloop.kube.user_error import UserError

TIM = {"username": "tim", "groups": ["humans", "developers"]}
POD = "GET /api/v1/namespaces/default/pods/busybox"
POD_LOG = f"{POD}/log"
ROLE = "GET /apis/rbac.authorization.k8s.io/v1/clusterroles/edit"
ROLE_STATUS = "PUT /apis/rbac.authorization.k8s.io/v1/clusterroles/edit/status"
LOGS = "GET /logs/kubelet.log"
POLICY = "{apiVersion: audit.k8s.io/v1, kind: Policy, "


def write(folder: Path, text: str) -> Path:
    path = folder / "policy.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("request_line", "rule", "matches"),
    [
        (POD, "{}", True),
        (POD, "{verbs: [create]}", False),
        (POD, "{users: [tim]}", True),
        (POD, "{users: [tom]}", False),
        (POD, "{userGroups: [x, humans]}", True),
        (POD, "{userGroups: [x]}", False),
        (POD, "{resources: [{resources: [pods]}]}", True),
        (POD, "{resources: [{resources: [pods/log]}]}", False),
        (POD, "{resources: [{}]}", True),
        (POD, "{resources: [{group: apps}]}", False),
        (POD, "{resources: [{group: '*'}]}", True),
        (POD, "{resources: [{resources: [pods], resourceNames: [busybox]}]}", True),
        (POD, "{resources: [{resources: [pods], resourceNames: [other]}]}", False),
        (POD, "{namespaces: [default]}", True),
        (POD, "{namespaces: ['']}", False),
        (POD, "{nonResourceURLs: ['*']}", False),
        (POD_LOG, "{resources: [{resources: [pods]}]}", False),
        (POD_LOG, "{resources: [{resources: [pods/log]}]}", True),
        (POD_LOG, "{resources: [{resources: ['*']}]}", True),
        (POD_LOG, "{resources: [{resources: ['*/log']}]}", True),
        (POD_LOG, "{resources: [{resources: ['pods/*']}]}", True),
        (POD_LOG, "{resources: [{resources: ['nodes/*']}]}", False),
        (ROLE, "{namespaces: [''], resources: [{group: rbac.authorization.k8s.io, resources: [clusterroles]}]}", True),
        (ROLE_STATUS, "{verbs: [update], resources: [{group: '*', resources: ['*/status']}]}", True),
        (LOGS, "{nonResourceURLs: ['/logs*']}", True),
        (LOGS, "{nonResourceURLs: ['/logs']}", False),
        (LOGS, "{nonResourceURLs: ['*']}", True),
        (LOGS, "{resources: [{resources: ['*']}]}", False),
        (LOGS, "{namespaces: ['']}", False),
        (LOGS, "{verbs: [get]}", True),
    ],
)
def test_rule_matches_request(tmp_path, request_line: str, rule: str, matches: bool):
    policy = read_policy(write(tmp_path, f"{POLICY} rules: [{{level: Metadata, {rule[1:-1]}}}]}}"))
    attributes = request_attributes(ApiRequest.of(*request_line.split(" ")))
    assert (policy.rule_for(TIM, attributes) is not None) is matches


def test_first_matching_rule_decides(tmp_path):
    rules = "[{level: None, verbs: [list]}, {level: Request, resources: [{resources: [pods]}]}, {level: Metadata}]"
    policy = read_policy(write(tmp_path, f"{POLICY} rules: {rules}}}"))

    def level(line: str) -> str:
        rule = policy.rule_for(TIM, request_attributes(ApiRequest.of(*line.split(" "))))
        return "None" if rule is None else rule.level

    assert [level("GET /api/v1/pods"), level(POD), level(ROLE)] == ["None", "Request", "Metadata"]


def test_stages_of_policy_and_rule_are_omitted(tmp_path):
    text = "omitStages: [Panic], omitManagedFields: true, rules: [{level: Metadata, omitStages: [RequestReceived]"
    policy = read_policy(write(tmp_path, f"{POLICY} {text}}}]}}"))
    (rule,) = policy.rules
    stages = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")
    assert [stage for stage in stages if policy.omits_stage(rule, stage)] == ["RequestReceived", "Panic"]
    assert policy.omits_managed_fields(rule)


@pytest.mark.parametrize(("rule", "omits"), [("{}", True), ("{omitManagedFields: false}", False)])
def test_rule_overrides_managed_fields_of_policy(tmp_path, rule: str, omits: bool):
    text = f"{POLICY} omitManagedFields: true, rules: [{{level: Request, {rule[1:-1]}}}]}}"
    policy = read_policy(write(tmp_path, text))
    assert policy.omits_managed_fields(policy.rules[0]) is omits


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ("{apiVersion: audit.k8s.io/v1beta1, kind: Policy}", "it is audit.k8s.io/v1beta1, Policy"),
        ("{kind: Policy}", "no Policy of audit.k8s.io/v1: it is no apiVersion, Policy"),
        (f"{POLICY} rules: []}}", "rules: Required value"),
        (f"{POLICY} rules: [{{}}]}}", "rules[0].level: Required value"),
        (f"{POLICY} rules: [{{level: All}}]}}", 'rules[0].level: Unsupported value: "All"'),
        (f"{POLICY} rules: [{{level: None}}], omitStages: [Never]}}", 'omitStages[0]: Invalid value: "Never"'),
        (f"{POLICY} rules: [{{level: None, omitStages: [X]}}]}}", 'rules[0].omitStages[0]: Invalid value: "X"'),
        (f"{POLICY} rules: [{{level: None, nonResourceURLs: [x]}}]}}", "must begin with a '/' character"),
        (f"{POLICY} rules: [{{level: None, nonResourceURLs: ['/a*b']}}]}}", "must be the final character of the rule"),
        (f"{POLICY} rules: [{{level: None, nonResourceURLs: [/a], namespaces: [b]}}]}}", "cannot apply to both"),
        (f"{POLICY} rules: [{{level: None, resources: [{{group: a/v1}}]}}]}}", 'group: Invalid value: "a/v1"'),
        (f"{POLICY} rules: [{{level: None, resources: [{{resourceNames: [a]}}]}}]}}", "requires at least one resource"),
        (f"{POLICY} rules: 1}}", "Expected `array`"),
        ("a: b: c", "is invalid"),
    ],
)  # fmt: skip
def test_invalid_policy_is_refused(tmp_path, policy: str, problem: str):
    with pytest.raises(UserError) as raised:
        read_policy(write(tmp_path, policy))
    assert problem in str(raised.value)


def test_missing_policy_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"cannot read the audit policy .*: No such file or directory"):
        read_policy(tmp_path / "none")


def test_unknown_fields_are_ignored_with_a_warning(tmp_path, caplog):
    read_policy(write(tmp_path, f"{POLICY} rules: [{{level: None, verb: [get]}}], stages: []}}"))
    assert "stages, rules[0].verb" in caplog.text
