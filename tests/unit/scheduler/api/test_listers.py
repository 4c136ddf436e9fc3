"""Listers of plugins."""

from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import Namespace, convert
from kubeloop.scheduler.api.listers import Listers


def test_omitted_listers_are_empty():
    listers = Listers()
    assert listers.pods.list() == []
    assert listers.services.get("default/web") is None


def test_namespace_labels_of_a_missing_namespace_are_empty():
    namespaces: Store[Namespace] = Store()
    namespaces.put("shop", convert(Namespace, {"metadata": {"name": "shop", "labels": {"team": "a"}}}))
    listers = Listers(namespaces=namespaces)
    assert listers.namespace_labels("shop") == {"team": "a"}
    assert listers.namespace_labels("other") == {}
