"""Pod templates: hash and semantic equality. The oracle tests compare both with Kubernetes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from kubeloop.controllers.runtime.revisions import pod_template_hash as pod_template_hash_module
from kubeloop.controllers.runtime.revisions.pod_template_hash import (
    equal_ignore_hash,
    pod_template_hash,
    with_hash_label,
)


def template(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def test_hash_depends_on_template_and_collision_count():
    hashes = [pod_template_hash(template(), count) for count in (None, 0, 1)]
    hashes.append(pod_template_hash(template(hostNetwork=True), None))
    assert len(set(hashes)) == 4
    assert pod_template_hash(template(), 1) == hashes[2]


def test_equality_ignores_hash_label_and_empty_members():
    assert equal_ignore_hash(with_hash_label(template(), "h"), template(nodeSelector={}, hostNetwork=False))
    assert not equal_ignore_hash(template(), template(hostNetwork=True))


def test_most_recently_compared_specs_are_cached(monkeypatch):
    cached = OrderedDict()
    monkeypatch.setattr(pod_template_hash_module, "_canonical_specs", cached)
    templates = [template(hostname=f"host-{number}") for number in range(2000)]
    for one in templates:
        pod_template_hash_module.canonical(one)
        pod_template_hash_module.canonical(templates[0])
    assert len(cached) == 1024
    assert [spec for spec, _ in cached.values()] == [one["spec"] for one in (*templates[-1023:], templates[0])]
