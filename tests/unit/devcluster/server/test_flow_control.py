"""Classification of requests by FlowSchemas: headers of responses, seats of priority levels."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import PRIORITY_LEVEL_CONFIGURATIONS
from kubeloop.devcluster.server.flow_control import FlowControl
from kubeloop.devcluster.storage.store import ObjectStore
from support.apiserver.api_requests import InProcessApi
from support.apiserver.apiserver_metrics import samples

SCHEMAS = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
LEVELS = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/a"
FLOW_SCHEMA, LEVEL = "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid"
ACCOUNT = "system:serviceaccount:default:builder"
USER = {"kind": "User", "user": {"name": "noxu"}}
READ_CONFIG_MAPS = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"], "namespaces": ["default"]}


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi()


def add_schema(api: InProcessApi, name: str = "test", level: str = "system", order: int = 100, **rule: Any) -> str:
    """Create a FlowSchema of one rule and return its uid."""
    spec = {
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": order,
        "rules": [{"subjects": [USER], **rule}],
    }
    uid: str = api.create(SCHEMAS, {"metadata": {"name": name}, "spec": spec})["metadata"]["uid"]
    return uid


def names_by_uid(api: InProcessApi) -> dict[str, str]:
    metadata = [item["metadata"] for path in (SCHEMAS, LEVELS) for item in api.succeed("GET", path)["items"]]
    return {entry["uid"]: entry["name"] for entry in metadata}


def classified(api: InProcessApi, method: str, path: str, user: str) -> tuple[str, str]:
    """Return the names of the FlowSchema and of the priority level of a request."""
    names = names_by_uid(api)
    api(method, path, impersonate_user=user)
    return names[api.headers[FLOW_SCHEMA]], names[api.headers[LEVEL]]


async def test_responses_have_no_uids_before_flow_schemas_are_used(api: InProcessApi):
    api("GET", CONFIG_MAPS)
    assert FLOW_SCHEMA not in api.headers
    api("GET", SCHEMAS)
    api("GET", CONFIG_MAPS)
    assert {FLOW_SCHEMA, LEVEL} <= api.headers.keys()


@pytest.mark.parametrize(
    ("method", "path", "user", "schema", "level"),
    [
        ("GET", CONFIG_MAPS, "someone", "global-default", "global-default"),
        ("GET", CONFIG_MAPS, "system:kube-scheduler", "kube-scheduler", "workload-high"),
        ("GET", LEASE, "system:kube-scheduler", "system-leader-election", "leader-election"),
        ("GET", LEASE, ACCOUNT, "service-accounts", "workload-low"),
    ],
)
async def test_request_belongs_to_the_built_in_schema_of_its_user(api: InProcessApi, method, path, user, schema, level):
    assert classified(api, method, path, user) == (schema, level)


async def test_probe_without_credentials_belongs_to_the_schema_of_probes(api: InProcessApi):
    names = names_by_uid(api)
    api("GET", "/livez")
    assert names[api.headers[FLOW_SCHEMA]] == "probes"


@pytest.mark.parametrize(
    ("rule", "method", "path", "matches"),
    [
        ({"resourceRules": [READ_CONFIG_MAPS]}, "GET", CONFIG_MAPS, True),
        ({"resourceRules": [READ_CONFIG_MAPS]}, "GET", f"{CONFIG_MAPS}/a", True),
        ({"resourceRules": [READ_CONFIG_MAPS]}, "GET", f"{CONFIG_MAPS}?watch=1&timeoutSeconds=1", False),
        ({"resourceRules": [READ_CONFIG_MAPS]}, "DELETE", f"{CONFIG_MAPS}/a", False),
        ({"resourceRules": [READ_CONFIG_MAPS]}, "GET", "/api/v1/namespaces/default/secrets", False),
        ({"resourceRules": [READ_CONFIG_MAPS]}, "GET", "/api/v1/configmaps", False),
        ({"resourceRules": [{**READ_CONFIG_MAPS, "clusterScope": True}]}, "GET", "/api/v1/configmaps", True),
        ({"resourceRules": [READ_CONFIG_MAPS]}, "GET", "/api/v1/namespaces/other/configmaps", False),
        ({"nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/version"]}]}, "GET", "/version", True),
        ({"nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["/openapi/*"]}]}, "GET", "/openapi/v3", True),
        ({"nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["/openapi/*"]}]}, "GET", "/version", False),
    ],
)
async def test_rules_decide_which_requests_belong_to_a_schema(api: InProcessApi, rule, method, path, matches):
    uid = add_schema(api, **rule)
    api.respond(method, path, impersonate_user="noxu")
    assert (api.headers[FLOW_SCHEMA] == uid) is matches
    api.respond(method, path, impersonate_user="other")
    assert api.headers[FLOW_SCHEMA] != uid


async def test_requests_in_namespaces_that_no_rule_names_are_classified_once(api: InProcessApi):
    uid = add_schema(api, resourceRules=[READ_CONFIG_MAPS])
    classified_requests = api.server._flow_control._classified
    api("GET", "/api/v1/namespaces/a/configmaps", impersonate_user="noxu")
    count = len(classified_requests)
    for namespace in ("b", "c", "default", "d"):
        api("GET", f"/api/v1/namespaces/{namespace}/configmaps", impersonate_user="noxu")
        assert (api.headers[FLOW_SCHEMA] == uid) is (namespace == "default")
    assert len(classified_requests) == count + 1


@pytest.mark.parametrize(
    ("account", "user", "matches"),
    [("builder", ACCOUNT, True), ("*", ACCOUNT, True), ("other", ACCOUNT, False), ("*", "noxu", False)],
)
async def test_service_account_is_a_subject(api: InProcessApi, account, user, matches):
    subject = {"kind": "ServiceAccount", "serviceAccount": {"namespace": "default", "name": account}}
    uid = add_schema(api, subjects=[subject], resourceRules=[READ_CONFIG_MAPS])
    api("GET", CONFIG_MAPS, impersonate_user=user)
    assert (api.headers[FLOW_SCHEMA] == uid) is matches


async def test_schema_of_lowest_precedence_with_existing_level_decides(api: InProcessApi):
    add_schema(api, "later", order=200, resourceRules=[READ_CONFIG_MAPS])
    first = add_schema(api, "first", order=100, resourceRules=[READ_CONFIG_MAPS])
    add_schema(api, "dangling", "missing", order=50, resourceRules=[READ_CONFIG_MAPS])
    api("GET", CONFIG_MAPS, impersonate_user="noxu")
    assert api.headers[FLOW_SCHEMA] == first
    api("DELETE", f"{SCHEMAS}/first")
    assert classified(api, "GET", CONFIG_MAPS, "noxu") == ("later", "system")


async def test_nominal_seats_are_those_of_a_new_kube_apiserver(api: InProcessApi):
    name = "apiserver_flowcontrol_nominal_limit_seats"
    assert {key: value for key, value in samples(api).items() if key.startswith(name)} == {
        f'{name}{{priority_level="{level}"}}': seats
        for level, seats in {
            "catch-all": 13, "exempt": 0, "global-default": 49, "leader-election": 25, "node-high": 98, "system": 74,
            "workload-high": 98, "workload-low": 245,
        }.items()
    }  # fmt: skip


def test_level_without_shares_has_no_seats():
    store = ObjectStore(seconds=lambda: 0.0)
    store.create(PRIORITY_LEVEL_CONFIGURATIONS, {"metadata": {"name": "exempt"}, "spec": {"type": "Exempt"}})
    assert FlowControl(store).nominal_seats() == {"exempt": 0}
