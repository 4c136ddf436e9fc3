"""Permissions that a user lacks to grant a rule, and their description in errors."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.authorization.rule_coverage import description, missing_permissions

JSON = dict[str, Any]


def rule(verbs: str, groups: str, resources: str, names: str = "") -> JSON:
    return {
        "verbs": verbs.split(),
        "apiGroups": [group.replace("core", "") for group in groups.split()],
        "resources": resources.split(),
        **({"resourceNames": names.split()} if names else {}),
    }


def urls(verbs: str, *paths: str) -> JSON:
    return {"verbs": verbs.split(), "nonResourceURLs": [*paths]}


@pytest.mark.parametrize(
    ("owned", "granted", "missing"),
    [
        pytest.param([rule("get", "core", "pods")], rule("get", "core", "pods"), "", id="same"),
        pytest.param(
            [rule("get", "core", "pods"), rule("list", "core", "pods nodes")],
            rule("get list", "core", "pods"),
            "",
            id="two rules",
        ),
        pytest.param(
            [rule("get", "core", "pods")],
            rule("get list watch", "core", "pods nodes"),
            '{APIGroups:[""], Resources:["nodes"], Verbs:["get" "list" "watch"]}\n'
            '{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}',
            id="a line for each resource",
        ),
        pytest.param([rule("*", "*", "*")], rule("get", "apps", "deployments/scale"), "", id="all"),
        pytest.param([rule("get", "core", "*/log")], rule("get", "core", "pods/log"), "", id="subresource of any"),
        pytest.param(
            [rule("get", "core", "pods")],
            rule("get", "core", "pods/log"),
            '{APIGroups:[""], Resources:["pods/log"], Verbs:["get"]}',
            id="subresource",
        ),
        pytest.param([rule("get", "core", "pods", "a b")], rule("get", "core", "pods", "a"), "", id="one of the names"),
        pytest.param([rule("get", "core", "pods")], rule("get", "core", "pods", "a"), "", id="name of all"),
        pytest.param(
            [rule("get", "core", "pods", "a")],
            rule("get", "core", "pods", "b"),
            '{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["get"]}',
            id="other name",
        ),
        pytest.param(
            [rule("get", "core", "pods", "a")],
            rule("get", "core", "pods"),
            '{APIGroups:[""], Resources:["pods"], Verbs:["get"]}',
            id="all names",
        ),
        pytest.param([urls("get", "/a/*")], urls("get", "/a/b", "/a/b/*"), "", id="below a path"),
        pytest.param(
            [urls("get", "/a/*")],
            urls("get put", "/a/b", "/c"),
            '{NonResourceURLs:["/a/b"], Verbs:["put"]}\n{NonResourceURLs:["/c"], Verbs:["get"]}\n'
            '{NonResourceURLs:["/c"], Verbs:["put"]}',
            id="a line for each path and verb",
        ),
        pytest.param(
            [rule("*", "*", "*")], urls("get", "/a"), '{NonResourceURLs:["/a"], Verbs:["get"]}', id="resources only"
        ),
    ],
)
def test_missing_permissions(owned: list[JSON], granted: JSON, missing: str):
    assert description(missing_permissions(owned, [granted])) == missing
