"""Pod templates: hash and semantic equality. The oracle tests compare both with Kubernetes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from kubeloop.controllers.runtime import pod_template_hash as pod_template_hash_module
from kubeloop.controllers.runtime.pod_template_hash import equal_ignore_hash, pod_template_hash, with_hash_label


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


def test_number_of_cached_specs_is_limited(monkeypatch):
    cached = OrderedDict()
    monkeypatch.setattr(pod_template_hash_module, "_canonical_specs", cached)
    templates = [template(hostname=f"host-{number}") for number in range(5000)]
    for one in templates:
        pod_template_hash_module.canonical(one)
    assert len(cached) == 4096
    assert [spec for spec, _ in cached.values()] == [one["spec"] for one in templates[-4096:]]
