"""Verb, resource and names of a request by its path."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.api.request_attributes import RequestAttributes, request_attributes

PODS = {"version": "v1", "resource": "pods"}


@pytest.mark.parametrize(
    ("method", "target", "verb", "fields"),
    [
        ("GET", "/api/v1/pods", "list", PODS),
        ("HEAD", "/api/v1/pods", "list", PODS),
        ("GET", "/api/v1/pods?watch=1", "watch", PODS),
        ("GET", "/api/v1/pods?watch=false", "list", PODS),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Da", "list",
         PODS | {"name": "a", "field_selector": "metadata.name=a"}),
        ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Da", "list",
         PODS | {"field_selector": "spec.nodeName=a"}),
        ("GET", "/api/v1/watch/namespaces/n/pods/p", "watch", PODS | {"namespace": "n", "name": "p"}),
        ("POST", "/api/v1/namespaces/n/pods", "create", PODS | {"namespace": "n"}),
        ("PUT", "/api/v1/namespaces/n/pods/p", "update", PODS | {"namespace": "n", "name": "p"}),
        ("PATCH", "/api/v1/namespaces/n/pods/p/status", "patch",
         PODS | {"namespace": "n", "name": "p", "subresource": "status"}),
        ("DELETE", "/api/v1/namespaces/n/pods/p", "delete", PODS | {"namespace": "n", "name": "p"}),
        ("DELETE", "/api/v1/namespaces/n/pods", "deletecollection", PODS | {"namespace": "n"}),
        ("DELETE", "/api/v1/pods?fieldSelector=a%3Db", "deletecollection", PODS | {"field_selector": "a=b"}),
        ("GET", "/api/v1/watch/pods?fieldSelector=a%3Db", "watch", PODS),
        ("GET", "/api/v1/namespaces/n/pods/p/proxy/a/b", "get",
         PODS | {"namespace": "n", "name": "p", "subresource": "proxy"}),
        ("GET", "/api/v1/namespaces", "list", {"version": "v1", "resource": "namespaces"}),
        ("GET", "/api/v1/namespaces/n", "get",
         {"version": "v1", "resource": "namespaces", "namespace": "n", "name": "n"}),
        ("PUT", "/api/v1/namespaces/n/finalize", "update",
         {"version": "v1", "resource": "namespaces", "namespace": "n", "name": "n", "subresource": "finalize"}),
        ("GET", "/apis/x.example/v1/namespaces/n/things", "list",
         {"group": "x.example", "version": "v1", "resource": "things", "namespace": "n"}),
        ("GET", "/apis/apps/v1", "get", {}),
        ("GET", "/apis/apps", "get", {}),
        ("GET", "/api/v1", "get", {}),
        ("GET", "/api/v1/watch", "get", {}),
        ("POST", "/healthz", "post", {}),
    ],
)  # fmt: skip
def test_attributes_of_path(method: str, target: str, verb: str, fields: dict[str, str]):
    assert request_attributes(ApiRequest.of(method, target)) == RequestAttributes(
        verb, target.partition("?")[0], **fields
    )
