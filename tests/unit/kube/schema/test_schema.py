"""Types of the Kubernetes API: lookup by kind, field and merge key."""

from __future__ import annotations

import pytest

from kubeloop.kube import schema


def field(type_name: str, name: str) -> schema.Field:
    struct = schema.type_named(type_name)
    assert struct is not None
    return struct.json[name]


@pytest.mark.parametrize(
    ("group", "version", "kind", "name"),
    [
        pytest.param("", "v1", "Pod", "core/v1.Pod", id="core group"),
        pytest.param("apps", "v1", "Deployment", "apps/v1.Deployment", id="named group"),
        pytest.param("autoscaling", "v2", "HorizontalPodAutoscaler", "autoscaling/v2.HorizontalPodAutoscaler", id="v2"),
        pytest.param("rbac.authorization.k8s.io", "v1", "Role", "rbac/v1.Role", id="group and package differ"),
    ],
)
def test_type_for_kind(group, version, kind, name):
    struct = schema.type_for(group, version, kind)
    assert struct is not None
    assert struct.name == name


def test_type_for_unknown_kind_is_none():
    assert schema.type_for("example.com", "v1", "Foo") is None
    assert schema.type_named("core/v1.Nope") is None


def test_fields_are_in_order_of_declaration():
    struct = schema.type_named("core/v1.PodTemplateSpec")
    assert struct is not None
    assert [struct_field.go_name for struct_field in struct.fields] == ["ObjectMeta", "Spec"]
    assert (struct.package, struct.go_package, struct.go_name) == ("core/v1", "v1", "PodTemplateSpec")


def test_inlined_structs_are_flattened_in_json_only():
    volume = schema.type_named("core/v1.Volume")
    assert volume is not None
    assert [struct_field.go_name for struct_field in volume.fields] == ["Name", "VolumeSource"]
    assert volume.fields[1].inline
    assert volume.fields[1].proto_number == 2
    assert {"name", "emptyDir", "configMap"} <= volume.json.keys()
    assert volume.json["emptyDir"].type.struct is schema.type_named("core/v1.EmptyDirVolumeSource")


@pytest.mark.parametrize(
    ("type_name", "name", "strategies", "key"),
    [
        pytest.param("core/v1.PodSpec", "containers", ("merge",), "name", id="list by name"),
        pytest.param("core/v1.Container", "ports", ("merge",), "containerPort", id="list by port"),
        pytest.param("meta/v1.ObjectMeta", "finalizers", ("merge",), "", id="list of values"),
        pytest.param("core/v1.PodSpec", "volumes", ("merge", "retainKeys"), "name", id="two strategies"),
        pytest.param("core/v1.PodSpec", "tolerations", (), "", id="replaced"),
    ],
)
def test_merge_keys(type_name, name, strategies, key):
    struct = schema.type_named(type_name)
    assert struct is not None
    assert (struct.json[name].patch_strategy, struct.json[name].patch_merge_key) == (strategies, key)


def test_list_types_and_map_keys():
    ports = field("core/v1.Container", "ports")
    assert (ports.list_type, ports.list_map_keys) == ("map", ("containerPort", "protocol"))
    assert field("core/v1.Container", "args").list_type == "atomic"
    assert field("core/v1.ContainerPort", "protocol").default == "TCP"
    struct = schema.type_named("meta/v1.LabelSelector")
    assert struct is not None
    assert struct.atomic


@pytest.mark.parametrize(
    ("go_type", "kind", "pointer", "named"),
    [
        pytest.param("*int32", "int32", True, "", id="pointer"),
        pytest.param("[]byte", "bytes", False, "", id="bytes"),
        pytest.param("*core/v1.Protocol", "string", True, "core/v1.Protocol", id="alias of a string"),
        pytest.param("resource.Quantity", "quantity", False, "resource.Quantity", id="quantity"),
        pytest.param("core/v1.ResourceList", "map", False, "core/v1.ResourceList", id="alias of a map"),
    ],
)
def test_type_expressions(go_type, kind, pointer, named):
    ref = schema.type_ref(go_type)
    assert (ref.kind, ref.pointer, ref.named) == (kind, pointer, named)


def test_enum_values_are_in_order():
    assert schema.enum_values("core/v1.RestartPolicy") == ("Always", "OnFailure", "Never")
    assert schema.enum_values("core/v1.ResourceName") == ()


def test_all_types_can_be_built():
    for name in schema.kinds().values():
        struct = schema.type_named(name)
        assert struct is not None
        pending, seen = [struct], set()
        while pending:
            current = pending.pop()
            seen.add(current.name)
            for struct_field in current.fields:
                ref = struct_field.type
                while ref.element is not None:
                    ref = ref.element
                if ref.kind == "struct":
                    assert ref.struct is not None, (current.name, struct_field.go_name)
                    if ref.struct.name not in seen:
                        pending.append(ref.struct)
