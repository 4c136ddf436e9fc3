"""Capacity and zones of nodes in options."""

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.process.development_cluster.node_options import (
    node_capacity,
    positive_quantity,
    read_device_pools,
    zone_names,
)


@pytest.mark.parametrize("text", ["8", "500m", "32Gi", "1e3"])
def test_positive_quantity_is_returned_unchanged(text):
    assert positive_quantity(text, "--node-cpu") == text


@pytest.mark.parametrize("text", ["0", "-1", "much", ""])
def test_other_values_are_rejected_with_the_option(text):
    with pytest.raises(UserError, match=f"--node-cpu {text}"):
        positive_quantity(text, "--node-cpu")


def test_capacity_of_a_node_names_the_invalid_option():
    capacity = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    assert node_capacity("8", "32Gi", 110, option="node_{}") == capacity
    with pytest.raises(UserError, match="node_memory much"):
        node_capacity("8", "much", 110, option="node_{}")


@pytest.mark.parametrize(("count", "last"), [(1, "zone-a"), (26, "zone-z"), (27, "zone-26")])
def test_zones_are_named_by_letters_or_numbers(count, last):
    names = zone_names(count)
    assert (len(set(names)), names[-1]) == (count, last)


def test_pools_of_devices_are_read_from_a_file(tmp_path):
    path = tmp_path / "devices.yaml"
    path.write_text("{driver: gpu.example.com, devices: [{name: gpu}]}")
    assert [pool.driver for pool in read_device_pools(str(path))] == ["gpu.example.com"]
    assert read_device_pools("") == read_device_pools(None) == ()
