"""Device files: pools per node, devices as in ResourceSlices, errors."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from kubeloop.devcluster.simulation.device_files import (
    DevicePool,
    counter_objects,
    device_objects,
    pools_of,
    read_devices,
)
from kubeloop.kube.user_error import UserError


def read(folder: Path, text: str) -> tuple[DevicePool, ...]:
    path = folder / "devices.yaml"
    path.write_text(textwrap.dedent(text))
    return read_devices(path)


def test_devices_have_the_fields_of_a_resource_slice(tmp_path):
    (pool,) = read(
        tmp_path,
        """
        driver: gpu.example.com
        sharedCounters: [{name: chip, counters: {memory: 80Gi, slots: {value: 7}}}]
        devices:
        - name: gpu
          count: 2
          attributes: {model: A100, numa: 1, ecc: true, example.com/version: {version: 1.2.3}}
          capacity: {memory: 40Gi, cores: 8}
          taints: [{key: broken, effect: NoExecute}]
          consumesCounters: [{counterSet: chip, counters: {memory: 40Gi}}]
        - name: nic
          allowMultipleAllocations: true
        """,
    )
    gpus, nic = (device_objects(devices) for devices in pool.devices)
    gpu = {
        "attributes": {
            "model": {"string": "A100"},
            "numa": {"int": 1},
            "ecc": {"bool": True},
            "example.com/version": {"version": "1.2.3"},
        },
        "capacity": {"memory": {"value": "40Gi"}, "cores": {"value": "8"}},
        "taints": [{"key": "broken", "effect": "NoExecute"}],
        "consumesCounters": [{"counterSet": "chip", "counters": {"memory": {"value": "40Gi"}}}],
    }
    assert gpus == [{"name": "gpu-0", **gpu}, {"name": "gpu-1", **gpu}]
    assert nic == [{"name": "nic", "allowMultipleAllocations": True}]
    counters = {"memory": {"value": "80Gi"}, "slots": {"value": "7"}}
    assert counter_objects(pool) == [{"name": "chip", "counters": counters}]


def test_first_pool_whose_pattern_matches_counts(tmp_path):
    pools = read(
        tmp_path,
        """
        - {driver: a.com, nodes: node-1, devices: [{name: large}]}
        - {driver: a.com, devices: [{name: small}]}
        ---
        {driver: a.com, pool: spare, nodes: "node-[0-1]", devices: [{name: spare}]}
        """,
    )
    selected = {
        node: [(pool.pool_name(node), pool.devices[0].name) for pool in pools_of(pools, node)]
        for node in ("node-0", "node-1", "node-2")
    }
    assert selected == {
        "node-0": [("node-0", "small"), ("node-0/spare", "spare")],
        "node-1": [("node-1", "large"), ("node-1/spare", "spare")],
        "node-2": [("node-2", "small")],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("devices: [{name: a}]", "at [0]: Object missing required field `driver", id="no driver"),
        pytest.param("{driver: a, devices: []}", "at [0].devices: Expected `array` of length >= 1", id="no devices"),
        pytest.param("", "has no devices", id="no entries"),
        pytest.param(
            "{driver: a_b, devices: [{name: a}]}",
            'at [0].driver: Invalid value: "a_b": a lowercase RFC 1123 subdomain must',
            id="driver",
        ),
        pytest.param(
            "{driver: a, devices: [{name: %s, count: 3}]}" % ("a" * 62),
            f'at [0].devices[0].name: Invalid value: "{"a" * 62}-2": must be no more than 63 characters',
            id="name that is too long with its number",
        ),
        pytest.param(
            "[{driver: a, devices: [{name: a}]}, {driver: a, devices: [{name: b}]}]",
            "at [1]: entry [0] has the same driver, pool and nodes",
            id="entry that is never used",
        ),
        pytest.param(
            "{driver: a, devices: [{name: a, attributes: {b: {version: 1.2}}}]}",
            "at [0].devices[0]: json: cannot unmarshal number into Go struct field",
            id="version that is a number",
        ),
        pytest.param(
            "{driver: a, devices: [{name: a, attributes: {b: {version: v1}}}]}",
            'at [0].devices[0].attributes[b].version: Invalid value: "v1": must be a string compatible with semver.org',
            id="version",
        ),
        pytest.param(
            "{driver: a, devices: [{name: a, capacity: {b: {value: 1, unit: kg}}}]}",
            'at [0].devices[0]: unknown field "spec.devices[0].capacity.b.unit"',
            id="unknown field of a capacity",
        ),
        pytest.param(
            "{driver: a, sharedCounters: [{name: b, counters: {}}], devices: [{name: a}]}",
            "at [0].sharedCounters[0].counters: Required value",
            id="set without counters",
        ),
        pytest.param(
            "{driver: a, devices: [{name: a, taints: [{key: b, effect: Never}]}]}",
            'at [0].devices[0].taints[0].effect: Unsupported value: "Never": supported values: "NoExecute", ',
            id="effect",
        ),
        pytest.param(
            "{driver: a, devices: [{name: a, cores: 1}]}",
            "at [0].devices[0]: Object contains unknown field `cores",
            id="unknown field",
        ),
        pytest.param(
            "{driver: a, devices: [{name: a}, {name: a}]}",
            "at [0].devices[1].name: the pool has another device a",
            id="two devices of one name",
        ),
        pytest.param(
            "{driver: a, devices: [{name: a, attributes: {b: [1]}}]}",
            "at [0].devices[0].attributes.b: must be a string, an integer, a boolean, or {version: 1.2.3}",
            id="attribute",
        ),
        pytest.param(
            "{driver: a, devices: [{name: a, capacity: {memory: much}}]}",
            "at [0].devices[0].capacity.memory: ",
            id="capacity",
        ),
        pytest.param(
            "{driver: a, devices: [{name: a, consumesCounters: [{counterSet: c, counters: {d: 1}}]}]}",
            "at [0].devices[0].consumesCounters[0].counterSet: sharedCounters has no set c",
            id="counter set",
        ),
        pytest.param(
            "{driver: a, sharedCounters: [{name: c, counters: {e: 1}}],"
            " devices: [{name: a, consumesCounters: [{counterSet: c, counters: {d: 1}}]}]}",
            "at [0].devices[0].consumesCounters[0].counters: the set c has no counter d",
            id="counter",
        ),
        pytest.param("{driver: a", "devices.yaml: line ", id="YAML"),
    ],
)
def test_error_states_file_place_and_problem(tmp_path, text, message):
    with pytest.raises(UserError) as raised:
        read(tmp_path, text)
    assert str(raised.value).startswith(str(tmp_path))
    assert message in str(raised.value)


def test_missing_file_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*absent: No such file"):
        read_devices(tmp_path / "absent")
