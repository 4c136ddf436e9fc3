"""Pod templates: hash and semantic equality. The oracle tests compare both with Kubernetes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from kubeloop.controllers.runtime.revisions import pod_template_hash as pod_template_hash_module
from kubeloop.controllers.runtime.revisions.pod_template_hash import (
    canonical,
    dump,
    equal_ignore_hash,
    pod_template_hash,
    with_hash_label,
    without_hash_label,
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


@pytest.mark.parametrize(
    ("template", "labelled"),
    [
        pytest.param({}, {"metadata": {"labels": {"pod-template-hash": "h"}}}, id="no metadata"),
        pytest.param(
            {"metadata": {"labels": {"app": "web"}, "name": "n"}, "spec": {}},
            {"metadata": {"labels": {"app": "web", "pod-template-hash": "h"}, "name": "n"}, "spec": {}},
            id="other members stay",
        ),
        pytest.param({"metadata": None}, {"metadata": {"labels": {"pod-template-hash": "h"}}}, id="null metadata"),
    ],
)
def test_hash_label_is_added_to_a_copy(template, labelled):
    before = repr(template)
    assert with_hash_label(template, "h") == labelled
    assert canonical(without_hash_label(labelled)) == canonical(template)
    assert repr(template) == before


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        pytest.param({"nodeSelector": {}, "tolerations": []}, {}, True, id="empty map and list are absent"),
        pytest.param({"hostNetwork": False, "hostname": ""}, {}, True, id="zero values are absent"),
        pytest.param({"nodeSelector": None}, {}, True, id="null is absent"),
        pytest.param({"unknown": 1}, {}, True, id="unknown fields are ignored"),
        pytest.param({"securityContext": {}}, {}, False, id="a pointer to an empty struct is not nil"),
        pytest.param({"terminationGracePeriodSeconds": 0}, {}, False, id="a pointer to 0 is not nil"),
        pytest.param({"automountServiceAccountToken": False}, {}, False, id="a pointer to False is not nil"),
        pytest.param({"overhead": {"cpu": "1"}}, {"overhead": {"cpu": "1000m"}}, True, id="quantities by value"),
        pytest.param({"overhead": {"cpu": "1"}}, {"overhead": {"cpu": "1001m"}}, False, id="another quantity"),
        pytest.param({"overhead": {"cpu": "x"}}, {"overhead": {"cpu": "x"}}, True, id="the same invalid quantity"),
        pytest.param({"overhead": {"cpu": "x"}}, {"overhead": {"cpu": "y"}}, False, id="another invalid quantity"),
        pytest.param({"overhead": {"cpu": "0"}}, {"overhead": {"cpu": "0m"}}, True, id="zero quantities"),
        pytest.param({"overhead": {"cpu": "0"}}, {}, False, id="an entry of a map is not absent"),
        pytest.param({"nodeSelector": {"a": ""}}, {"nodeSelector": {"b": ""}}, False, id="keys of maps"),
        pytest.param({"tolerations": [{}]}, {}, False, id="a list of an empty struct is not empty"),
        pytest.param({"tolerations": [{}]}, {"tolerations": [{"key": ""}]}, True, id="empty structs in lists"),
        pytest.param(
            {"tolerations": [{"key": "a"}, {"key": "b"}]},
            {"tolerations": [{"key": "b"}, {"key": "a"}]},
            False,
            id="lists are ordered",
        ),
        pytest.param({"hostname": "a"}, {"hostname": "b"}, False, id="another value"),
    ],
)
def test_semantic_equality_of_pod_specs(a, b, equal):
    assert equal_ignore_hash({"spec": a}, {"spec": b}) is equal
    assert equal_ignore_hash({"spec": b}, {"spec": a}) is equal


def quantity(number: int, scale: int, text: str, format_: str, big: str = "<nil>") -> str:
    """Return a resource.Quantity as go-spew prints it."""
    return (
        f"{{i:(resource.int64Amount){{value:(int64){number} scale:(resource.Scale){scale}}} "
        f"d:(resource.infDecAmount){{Dec:(*inf.Dec){big}}} s:(string){text} Format:(resource.Format){format_}}}"
    )


def big_decimal(negative: str, words: str) -> str:
    """Return an inf.Dec of 10**-9 units. words: of 64 bits, the lowest first."""
    return f"{{unscaled:(big.Int){{neg:(bool){negative} abs:(big.nat)[{words}]}} scale:(inf.Scale)9}}"


@pytest.mark.parametrize(
    ("spec", "printed"),
    [
        pytest.param({}, "Containers:([]v1.Container)<nil>", id="nil list"),
        pytest.param({"containers": []}, "Containers:([]v1.Container)[]", id="empty list"),
        pytest.param({"nodeSelector": {"b": "2", "a": "1"}}, "(map[string]string)map[a:1 b:2]", id="sorted map"),
        pytest.param({}, "NodeSelector:(map[string]string)<nil>", id="nil map"),
        pytest.param({}, "RestartPolicy:(v1.RestartPolicy) Term", id="empty string of a named type"),
        pytest.param({"hostNetwork": True}, "HostNetwork:(bool)true HostPID:(bool)false", id="booleans"),
        pytest.param({"priority": 7}, "Priority:(*int32)7", id="pointer"),
        pytest.param({}, "Priority:(*int32)<nil>", id="nil pointer"),
        pytest.param({"securityContext": {"fsGroup": 1}}, "FSGroup:(*int64)1", id="pointer to a struct"),
        pytest.param({"imagePullSecrets": [{"name": "a"}, {}]}, "[{Name:(string)a} {Name:(string)}]", id="structs"),
        pytest.param(
            {"containers": [{"command": ["sh", "-c"]}]},
            "{Name:(string) Image:(string) Command:([]string)[sh -c] Args:([]string)<nil>",
            id="list of strings, first field without space",
        ),
        pytest.param(
            {"containers": [{"readinessProbe": {"tcpSocket": {"port": 80}}}]},
            "Port:(intstr.IntOrString){Type:(intstr.Type)0 IntVal:(int32)80 StrVal:(string)}",
            id="numeric port",
        ),
        pytest.param(
            {"containers": [{"readinessProbe": {"tcpSocket": {"port": "http"}}}]},
            "Port:(intstr.IntOrString){Type:(intstr.Type)1 IntVal:(int32)0 StrVal:(string)http}",
            id="named port",
        ),
        pytest.param(
            {"containers": [{"readinessProbe": {"tcpSocket": {}}}]},
            "ProbeHandler:(v1.ProbeHandler){Exec:(*v1.ExecAction)<nil> HTTPGet:(*v1.HTTPGetAction)<nil> "
            "TCPSocket:(*v1.TCPSocketAction){Port:(intstr.IntOrString){Type:(intstr.Type)0 IntVal:(int32)0 "
            "StrVal:(string)} Host:(string)}",
            id="embedded struct",
        ),
        pytest.param({"overhead": {"cpu": "500m"}}, f"map[cpu:{quantity(500, -3, '500m', 'DecimalSI')}]", id="milli"),
        pytest.param({"overhead": {"cpu": "2"}}, f"map[cpu:{quantity(2, 0, '2', 'DecimalSI')}]", id="units"),
        pytest.param({"overhead": {"cpu": "0"}}, f"map[cpu:{quantity(0, 0, '0', '')}]", id="0 has no format"),
        pytest.param({"overhead": {"cpu": None}}, f"map[cpu:{quantity(0, 0, '', '')}]", id="null quantity"),
        pytest.param({"overhead": {"cpu": "x"}}, f"map[cpu:{quantity(0, 0, '', '')}]", id="invalid quantity"),
        pytest.param(
            {"overhead": {"memory": "1.5Gi"}},
            quantity(0, 0, "", "BinarySI", big_decimal("false", "1610612736000000000")),
            id="fraction of a binary unit",
        ),
        pytest.param(
            {"overhead": {"x": str(2**64)}},
            quantity(0, 0, "", "DecimalSI", big_decimal("false", "0 1000000000")),
            id="two words",
        ),
        pytest.param(
            {"overhead": {"x": str(-(2**64))}},
            quantity(0, 0, "", "DecimalSI", big_decimal("true", "0 1000000000")),
            id="negative",
        ),
    ],
)
def test_text_that_is_hashed_has_go_types_and_values(spec, printed):
    text = dump({"spec": spec})
    assert text.startswith("(v1.PodTemplateSpec){ObjectMeta:(v1.ObjectMeta){Name:(string) GenerateName:(string) ")
    assert text.endswith("}}")
    assert printed in text


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        pytest.param(None, 0, id="zero time"),
        pytest.param("", 0, id="empty"),
        pytest.param("0001-01-01T00:00:00Z", 0, id="year 1"),
        pytest.param("0001-01-02T00:00:01Z", 86401, id="a day and a second later"),
        pytest.param("1970-01-01T00:00:00Z", 62135596800, id="Unix epoch"),
    ],
)
def test_times_are_hashed_as_seconds_since_the_year_1(time, seconds):
    text = dump({"metadata": {"creationTimestamp": time}})
    value = f"{{Time:(time.Time){{wall:(uint64)0 ext:(int64){seconds} loc:(*time.Location)<nil>}}}}"
    assert f"CreationTimestamp:(v1.Time){value} DeletionTimestamp:(*v1.Time)<nil>" in text


def test_collision_count_is_hashed_as_little_endian_int32():
    assert pod_template_hash(template(), 2**32 + 1) == pod_template_hash(template(), 1)
    assert pod_template_hash(template(), 256) != pod_template_hash(template(), 1)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        pytest.param({}, " ActiveDeadlineSeconds:(*int64)<nil> ", id="pointer without a value"),
        pytest.param({}, " NodeSelector:(map[string]string)<nil> ", id="map without a value"),
        pytest.param({}, " Tolerations:([]v1.Toleration)<nil> ", id="list without a value"),
        pytest.param({}, " HostNetwork:(bool)false ", id="default of a bool"),
        pytest.param({"hostNetwork": True}, " HostNetwork:(bool)true ", id="bool"),
        pytest.param({"hostname": "h"}, " Hostname:(string)h ", id="string"),
        pytest.param(
            {"nodeSelector": {"b": "2", "a": "1"}}, " NodeSelector:(map[string]string)map[a:1 b:2] ", id="sorted map"
        ),
        pytest.param(
            {"imagePullSecrets": [{"name": "x"}, {"name": "y"}]},
            " ImagePullSecrets:([]v1.LocalObjectReference)[{Name:(string)x} {Name:(string)y}] ",
            id="list",
        ),
    ],
)
def test_dump_has_the_form_of_go(spec, text):
    assert text in dump(template(**spec))


def test_metadata_of_templates_with_different_specs_is_not_converted(monkeypatch):
    monkeypatch.setattr(pod_template_hash_module, "_canonical_metadata", lambda _template: pytest.fail("converted"))
    assert not equal_ignore_hash(
        {"metadata": {}, "spec": {"nodeName": "a"}}, {"metadata": {}, "spec": {"nodeName": "b"}}
    )
