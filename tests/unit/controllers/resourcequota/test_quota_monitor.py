"""The kinds that a quota counts, by the names in spec.hard."""

from __future__ import annotations

import pytest

from kubeloop.controllers.resourcequota.quota_monitor import kinds_for_quota_names


@pytest.mark.parametrize(
    ("names", "kinds"),
    [
        (["pods", "limits.cpu"], {"pods"}),
        (["requests.example.com/gpu"], {"pods", "resourceclaims.resource.k8s.io"}),
        (["requests.storage", "gold.storageclass.storage.k8s.io/requests.storage"], {"persistentvolumeclaims"}),
        (["count/services", "configmaps"], {"services", "configmaps"}),
        (["count/widgets.example.com"], {"widgets.example.com"}),
        (["count/events", "count/events.events.k8s.io"], set()),
        (["requests.unheard-of"], set()),
    ],
)
def test_kinds_for_quota_names(names, kinds):
    assert kinds_for_quota_names(names) == kinds
