"""The search on one node: which devices are chosen, and in which order."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from kubeloop.scheduler.devices.allocator import NodeSearch, SearchSettings, has_untolerated_taint
from kubeloop.scheduler.devices.errors import AllocationError, AllocationTimeout, InvalidPools
from kubeloop.scheduler.devices.requests import claim_requests
from support.objects.devices import (
    FilledDevices,
    allocate,
    allocated,
    alternative,
    chosen,
    claim,
    consumes,
    counter_slice,
    device,
    device_class,
    device_slice,
    request,
    typed,
)

NUMA = f"{'gpu.example.com'}/numa"
A100, H100 = ("device.attributes['gpu.example.com'].model == '" + model + "'" for model in ("a100", "h100"))
BIG = "device.capacity['gpu.example.com'].memory.compareTo(quantity('50Gi')) > 0"


def gpus(count: int, first: int = 0, **fields: Any) -> list[dict[str, Any]]:
    return [
        device(f"gpu-{n}", attributes={"numa": n // 2, "model": "a100"}, **fields) for n in range(first, first + count)
    ]


SIMPLE = device_slice("a", *gpus(4))
MIXED = device_slice(
    "a",
    device("small", attributes={"model": "a100", "numa": 0}, capacity={"memory": "40Gi"}),
    device("big", attributes={"model": "h100", "numa": 0}, capacity={"memory": "80Gi"}),
    device("other", attributes={"model": "h100", "numa": 1}, capacity={"memory": "40Gi"}),
)
PARTITIONS = [
    counter_slice("a", "a", 2, memory="80Gi"),
    device_slice(
        "a",
        device("whole", consumesCounters=consumes(memory="80Gi")),
        device("half-1", consumesCounters=consumes(memory="40Gi")),
        device("half-2", consumesCounters=consumes(memory="40Gi")),
        count=2,
    ),
]
SHARED_POLICY = {"value": "10Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}}
SHARED = device_slice("a", device("nic", allowMultipleAllocations=True, capacity={"bandwidth": SHARED_POLICY}))


def bandwidth(amount: str) -> dict[str, Any]:
    return {"capacity": {"requests": {"bandwidth": amount}}}


NO_SCHEDULE = {"key": "broken", "value": "yes", "effect": "NoSchedule"}
TAINTED = device_slice("a", device("gpu-0", taints=[NO_SCHEDULE]), device("gpu-1"))
TWO_POOLS = [device_slice("a", device("d1"), pool="b-pool"), device_slice("a", device("d2"), pool="a-pool")]
MATCH_NUMA = {"constraints": [{"matchAttribute": NUMA}]}
FALLBACK = {
    "name": "r",
    "firstAvailable": [alternative("two", "gpu", H100, count=3), alternative("one", "gpu", A100, count=2)],
}


@pytest.mark.parametrize(
    ("objects", "claims", "expected"),
    [
        pytest.param([SIMPLE], [claim("c")], ["r: a/gpu-0"], id="first device"),
        pytest.param(
            [SIMPLE], [claim("c", request(count=3))], ["r: a/gpu-0", "r: a/gpu-1", "r: a/gpu-2"], id="exact count"
        ),
        pytest.param([SIMPLE], [claim("c", request(count=5))], None, id="more than there are"),
        pytest.param(
            [SIMPLE],
            [claim("c", request(allocationMode="All"))],
            ["r: a/gpu-0", "r: a/gpu-1", "r: a/gpu-2", "r: a/gpu-3"],
            id="all devices",
        ),
        pytest.param([MIXED], [claim("c", request("r", "gpu", "false", allocationMode="All"))], None, id="all of none"),
        pytest.param(
            [SIMPLE, claim("used", status=allocated(("a", "gpu-1")))],
            [claim("c", request(allocationMode="All"))],
            None,
            id="all devices: one is in use",
        ),
        pytest.param(
            [SIMPLE, claim("used", status=allocated(("a", "gpu-0"), ("a", "gpu-2")))],
            [claim("c", request(count=2))],
            ["r: a/gpu-1", "r: a/gpu-3"],
            id="devices of other claims are skipped",
        ),
        pytest.param([MIXED], [claim("c", request("r", "gpu", H100))], ["r: a/big"], id="selector on an attribute"),
        pytest.param([MIXED], [claim("c", request("r", "gpu", BIG))], ["r: a/big"], id="selector on capacity"),
        pytest.param([MIXED], [claim("c", request("r", "gpu", H100, "!(" + BIG + ")"))], ["r: a/other"], id="two"),
        pytest.param(
            [MIXED],
            [claim("c", request("x", "gpu", H100), request("y", "gpu", A100), **MATCH_NUMA)],
            ["x: a/big", "y: a/small"],
            id="attribute matches over requests",
        ),
        pytest.param(
            [MIXED],
            [
                claim(
                    "c",
                    request("x", "gpu", "device.attributes['gpu.example.com'].numa == 1"),
                    request("y", "gpu", A100),
                )
            ],
            ["x: a/other", "y: a/small"],
            id="no constraint",
        ),
        pytest.param(
            [SIMPLE, claim("used", status=allocated(("a", "gpu-1")))],
            [claim("c", request(count=2), **MATCH_NUMA)],
            ["r: a/gpu-2", "r: a/gpu-3"],
            id="backtracking: the first device has no partner",
        ),
        pytest.param(
            [SIMPLE],
            [claim("c", request("x"), request("y"), constraints=[{"distinctAttribute": NUMA}])],
            ["x: a/gpu-0", "y: a/gpu-2"],
            id="distinct attribute",
        ),
        pytest.param(
            [SIMPLE],
            [claim("c", request("x"), request("y"), constraints=[{"matchAttribute": NUMA, "requests": ["x"]}])],
            ["x: a/gpu-0", "y: a/gpu-1"],
            id="constraint of one request",
        ),
        pytest.param(
            [SIMPLE], [claim("c", request(), constraints=[{"matchAttribute": "x.example.com/no"}])], None, id="missing"
        ),
        pytest.param([MIXED], [claim("c", FALLBACK)], None, id="no alternative fits"),
        pytest.param([SIMPLE], [claim("c", FALLBACK)], ["r/one: a/gpu-0", "r/one: a/gpu-1"], id="second alternative"),
        pytest.param(
            [SIMPLE],
            [
                claim(
                    "c",
                    {"name": "r", "firstAvailable": [alternative("big", count=3), alternative("small", count=2)]},
                    request("y", count=2),
                )
            ],
            ["r/small: a/gpu-0", "r/small: a/gpu-1", "y: a/gpu-2", "y: a/gpu-3"],
            id="alternatives: a later request does not fit with the first one",
        ),
        pytest.param(
            [SIMPLE],
            [claim("c1", request(count=3)), claim("c2")],
            ["r: a/gpu-0", "r: a/gpu-1", "r: a/gpu-2", "r: a/gpu-3"],
            id="two claims",
        ),
        pytest.param([SIMPLE], [claim("c1", request(count=3)), claim("c2", request(count=2))], None, id="second claim"),
        pytest.param(
            [SIMPLE, claim("used", status=allocated(*(("a", f"gpu-{n}") for n in range(4))))],
            [claim("c", request(adminAccess=True, count=2))],
            ["r: a/gpu-0", "r: a/gpu-1"],
            id="administrators share devices",
        ),
        pytest.param(
            [SIMPLE, claim("admin", status=allocated(("a", "gpu-0"), adminAccess=True))],
            [claim("c")],
            ["r: a/gpu-0"],
            id="access by an administrator does not use a device",
        ),
        pytest.param([TAINTED], [claim("c")], ["r: a/gpu-1"], id="taint"),
        pytest.param(
            [TAINTED],
            [claim("c", request(tolerations=[{"key": "broken", "operator": "Exists"}]))],
            ["r: a/gpu-0"],
            id="tolerated taint",
        ),
        pytest.param(TWO_POOLS, [claim("c")], ["r: a-pool/d2"], id="pools in the order of their names"),
        pytest.param(
            [*TWO_POOLS, device_slice("a", device("d0", bindingConditions=["ready"]), pool="0-pool")],
            [claim("c")],
            ["r: a-pool/d2"],
            id="pools with binding conditions come last",
        ),
        pytest.param(PARTITIONS, [claim("c", request(count=2))], ["r: a/half-1", "r: a/half-2"], id="partitions"),
        pytest.param(PARTITIONS, [claim("c", request(count=3))], None, id="counters are used up"),
        pytest.param(
            [*PARTITIONS, claim("used", status=allocated(("a", "half-2")))],
            [claim("c")],
            ["r: a/half-1"],
            id="partition: the whole device does not fit any more",
        ),
        pytest.param(
            [SHARED],
            [claim("c1", request(**bandwidth("6Gi"))), claim("c2", request(**bandwidth("4Gi")))],
            ["r: a/nic", "r: a/nic"],
            id="shared device",
        ),
        pytest.param(
            [SHARED],
            [claim("c", request("x", **bandwidth("6Gi")), request("y", **bandwidth("5Gi")))],
            None,
            id="too much",
        ),
        pytest.param(
            [
                SHARED,
                claim("used", status=allocated(("a", "nic"), shareID="s", consumedCapacity={"bandwidth": "8Gi"})),
            ],
            [claim("c", request(**bandwidth("3Gi")))],
            None,
            id="shared device: capacity is used up",
        ),
        pytest.param(
            [device_slice(None, device("d"), allNodes=True)], [claim("c")], ["r: shared/d"], id="devices of all nodes"
        ),
        pytest.param([device_slice("b", device("d"))], [claim("c")], None, id="device of another node"),
        pytest.param(
            [device_slice(None, device("d1", nodeName="b"), device("d2", nodeName="a"), perDeviceNodeSelection=True)],
            [claim("c")],
            ["r: shared/d2"],
            id="each device has its node",
        ),
        pytest.param(
            [device_slice("a", *gpus(20)), device_slice("a", *gpus(20, 20), pool="z")],
            [claim("c", request(count=32))],
            [f"r: {'a' if n < 20 else 'z'}/gpu-{n}" for n in range(32)],
            id="32 devices",
        ),
    ],
)
def test_allocation(objects, claims, expected):
    assert chosen(allocate(FilledDevices(device_class(), *objects), *claims)) == expected


@pytest.mark.parametrize(
    ("objects", "claims", "message"),
    [
        pytest.param(
            [SIMPLE],
            [claim("c", request("r", "gpu", "device.attributes['gpu.example.com'].nope"))],
            "claim default/c: selector #0: CEL runtime error: no such key: nope",
            id="selector fails",
        ),
        pytest.param(
            [device_class("bad", "device.driver =="), SIMPLE],
            [claim("c", request("r", "bad"))],
            "class bad: selector #0: CEL compile error: compilation failed: ERROR: <input>:1:17: Syntax error",
            id="selector of the class does not compile",
        ),
        pytest.param(
            [device_slice("a", *gpus(1), count=2)],
            [claim("c", request(allocationMode="All"))],
            "claim default/c, request r: asks for all devices, but resource pool gpu.example.com/a is currently being "
            "updated",
            id="all devices of an incomplete pool",
        ),
        pytest.param(
            [device_slice("a", device("d"), device("d"))],
            [claim("c", request(allocationMode="All"))],
            "claim default/c, request r: asks for all devices, but resource pool gpu.example.com/a is currently "
            "invalid",
            id="all devices of an invalid pool",
        ),
        pytest.param(
            [SIMPLE],
            [claim("c", request(count=33))],
            "claim default/c: number of requested devices 33 exceeds the claim limit of 32",
            id="too many devices",
        ),
        pytest.param(
            [SIMPLE],
            [claim("c", request(allocationMode="All"), **MATCH_NUMA)],
            "claim default/c, request r: cannot add device gpu.example.com/a/gpu-2 because a claim constraint would "
            "not be satisfied",
            id="all devices violate a constraint",
        ),
    ],
)
def test_error_that_ends_the_attempt(objects, claims, message):
    with pytest.raises(AllocationError) as error:
        allocate(FilledDevices(device_class(), *objects), *claims)
    assert str(error.value).startswith(message)


def test_incomplete_pool_offers_nothing():
    assert allocate(FilledDevices(device_class(), device_slice("a", *gpus(1), count=2)), claim("c")) is None


def test_invalid_pool_is_reported_if_nothing_else_fits():
    devices = FilledDevices(device_class(), device_slice("a", device("d"), device("d")))
    with pytest.raises(InvalidPools):
        allocate(devices, claim("c"))
    devices.apply(device_slice("a", device("e"), pool="valid"))
    assert chosen(allocate(devices, claim("c"))) == ["r: valid/e"]


def test_search_that_takes_too_long_is_cut_off():
    pairs = [device(f"gpu-{n}", attributes={"numa": n}) for n in range(20)]
    devices = FilledDevices(device_class(), device_slice("a", *pairs))
    impossible = claim("c", request("x", count=10), request("y", count=11))
    checks = count(step=10**8)
    with pytest.raises(AllocationTimeout, match="node a: timed out trying to allocate devices"):
        allocate(devices, impossible, now_ns=lambda: next(checks))


@pytest.mark.parametrize(
    ("gate", "objects", "claims"),
    [
        ("DRAConsumableCapacity", [SHARED], [claim("c", request("x")), claim("d", request("y"))]),
        ("DRAPartitionableDevices", PARTITIONS, [claim("c")]),
        ("DRADeviceBindingConditions", [device_slice("a", device("d", bindingConditions=["ready"]))], [claim("c")]),
    ],
)
def test_device_that_needs_a_disabled_gate_is_not_allocated(gate, objects, claims):
    assert allocate(FilledDevices(device_class(), *objects), *claims) is not None
    assert allocate(FilledDevices(device_class(), *objects, gates={gate: False}), *claims) is None


def test_taint_without_the_gate_is_ignored():
    devices = FilledDevices(device_class(), TAINTED, gates={"DRADeviceTaints": False, "DRADeviceTaintRules": False})
    assert chosen(allocate(devices, claim("c"))) == ["r: a/gpu-0"]


@pytest.mark.parametrize(
    ("taint", "toleration", "untolerated"),
    [
        ({"key": "k", "effect": "None"}, {}, False),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, {"key": "k", "operator": "Equal", "value": "v"}, False),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, {"key": "k", "operator": "Equal", "value": "w"}, True),
        ({"key": "k", "effect": "NoExecute"}, {"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "k", "effect": "NoExecute"}, {"operator": "Exists"}, False),
    ],
)
def test_tolerations(taint, toleration, untolerated):
    devices = FilledDevices(device_class(), device_slice("a", device("d", taints=[taint])))
    (pool,) = devices.pools.pools("a", {})
    objects = claim("c", request(tolerations=[{"operator": "Equal"} | toleration] if toleration else []))
    result = allocate(devices, objects)
    assert (result is None) == untolerated
    assert has_untolerated_taint(pool.devices[0], ()) == (taint["effect"] != "None")


@pytest.mark.parametrize("in_thread", [True, False])
def test_search_in_a_thread_reads_the_usage_of_its_start(in_thread):
    devices = FilledDevices(device_class(), device_slice("a", device("d")))
    entry = claim_requests(typed(claim("c")), devices.device_class, devices.features, devices.selector_lists)
    settings = SearchSettings(devices.features, devices.selectors, devices.usage.pool, lambda: 0, None)
    devices.apply(claim("other", status=allocated(("a", "none"))))  # the pool has a usage
    search = NodeSearch([entry], devices.pools.pools("a", {}), "a", {}, settings, in_thread=in_thread)
    devices.apply(claim("used", status=allocated(("a", "d"))))
    assert (search.run() is not None) is in_thread


def firsts(*counts: int) -> dict[str, Any]:
    return {"name": "r", "firstAvailable": [alternative(f"a{number}", count=number) for number in counts]}


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        pytest.param([claim("c", firsts(33, 2))], 2, id="alternative beyond the limit is skipped"),
        pytest.param([claim("c", request("x", count=30), firsts(3, 2))], 32, id="together beyond the limit: skipped"),
        pytest.param([claim("c", request("x", count=31), firsts(3, 2, 1))], 32, id="third alternative"),
        pytest.param([claim("c", request(count=32)), claim("d", request(count=8))], 40, id="the limit is per claim"),
    ],
)
def test_limit_of_32_devices_per_claim(claims, expected):
    devices = FilledDevices(device_class(), device_slice("a", *gpus(40)))
    assert len(chosen(allocate(devices, *claims))) == expected


def test_smallest_alternatives_beyond_the_limit_are_an_error():
    devices = FilledDevices(device_class(), device_slice("a", *gpus(40)))
    with pytest.raises(AllocationError, match="number of requested devices 33 exceeds the claim limit of 32"):
        allocate(devices, claim("c", request("x", count=31), firsts(33, 2)))


@pytest.mark.parametrize(
    ("counters", "used", "expected"),
    [
        pytest.param({"memory": "40Gi"}, [], ["r: a/half"], id="just enough"),
        pytest.param({"memory": "40Gi", "slices": "0"}, [], ["r: a/half"], id="counter of 0 that is not consumed"),
        pytest.param({"memory": "39Gi"}, [], None, id="too little"),
        pytest.param({"memory": "80Gi"}, ["other"], ["r: a/half"], id="beside another device"),
        pytest.param({"memory": "79Gi"}, ["other"], None, id="the other device has consumed too much"),
    ],
)
def test_device_consumes_the_counters_of_its_pool(counters, used, expected):
    objects = [
        counter_slice("a", "a", 2, **counters),
        device_slice(
            "a",
            device("half", consumesCounters=consumes(memory="40Gi")),
            device("other", consumesCounters=consumes(memory="40Gi"), attributes={"model": "h100"}),
            count=2,
        ),
        *(claim(f"of-{name}", status=allocated(("a", name))) for name in used),
    ]
    half = claim("c", request("r", "gpu", "!('model' in device.attributes['gpu.example.com'])"))
    assert chosen(allocate(FilledDevices(device_class(), *objects), half)) == expected


@pytest.mark.parametrize(("amount", "expected"), [("5Gi", ["r: a/nic", "r: a/nic"]), ("6Gi", None)])
def test_shared_device_consumes_counters_once(amount, expected):
    shared = device(
        "nic",
        allowMultipleAllocations=True,
        capacity={"bandwidth": SHARED_POLICY},
        consumesCounters=consumes(memory="40Gi"),
    )
    objects = [counter_slice("a", "a", 2, memory="40Gi"), device_slice("a", shared, count=2)]
    claims = [claim(name, request(**bandwidth(amount))) for name in ("c1", "c2")]
    assert chosen(allocate(FilledDevices(device_class(), *objects), *claims)) == expected


ALL_ADMIN = {"allocationMode": "All", "adminAccess": True}


@pytest.mark.parametrize(
    ("devices", "first", "second", "expected"),
    [
        pytest.param(1, {"adminAccess": True}, {"adminAccess": True}, None, id="one device for two requests"),
        pytest.param(2, {"adminAccess": True}, {"adminAccess": True}, ["x: a/gpu-0", "y: a/gpu-1"], id="two devices"),
        pytest.param(1, ALL_ADMIN, ALL_ADMIN, None, id="all devices twice"),
        pytest.param(1, {"adminAccess": True}, ALL_ADMIN, None, id="all devices, one of which is taken"),
        pytest.param(1, {}, {"adminAccess": True}, None, id="admin access to a device of the same claim"),
    ],
)
def test_device_with_admin_access_is_allocated_once_per_claim(devices, first, second, expected):
    objects = FilledDevices(device_class(), device_slice("a", *gpus(devices)))
    requests = [request("x", **first), request("y", **second)]
    assert chosen(allocate(objects, claim("c", *requests))) == expected
    if expected is None and first and second:
        claims = [claim("c", requests[0]), claim("d", requests[1])]
        assert chosen(allocate(objects, *claims)) == ["x: a/gpu-0", "y: a/gpu-0"], "of two claims"


def all_or_one(*expressions: str) -> dict[str, Any]:
    """Return the request `x` for all devices that the expressions select, or else for one of them."""
    every = alternative("all", "gpu", *expressions, allocationMode="All")
    return {"name": "x", "firstAvailable": [every, alternative("one", "gpu", *expressions)]}


def first_of(name: str, *alternatives: dict[str, Any], expressions: Sequence[str] = ()) -> dict[str, Any]:
    """Return a request for the first possible of these alternatives: fields of a request each."""
    requests = [alternative(f"a{number}", "gpu", *expressions, **fields) for number, fields in enumerate(alternatives)]
    return {"name": name, "firstAvailable": requests}


PAIR = device_slice("a", *gpus(2), pool="p")
THIRTY_TWO = device_slice("a", *(device(f"nic-{n}", attributes={"model": "h100"}) for n in range(32)))


@pytest.mark.parametrize(
    ("objects", "requests", "expected"),
    [
        pytest.param([PAIR], [all_or_one()], ["x/all: p/gpu-0", "x/all: p/gpu-1"], id="all devices"),
        pytest.param(
            [PAIR], [all_or_one(), request("y")], ["x/one: p/gpu-0", "y: p/gpu-1"], id="all leave none for the next"
        ),
        pytest.param(
            [PAIR, THIRTY_TWO],
            [all_or_one(A100), first_of("y", {"count": 31}, {"count": 32}, expressions=[H100])],
            ["x/one: p/gpu-0", *(f"y/a0: a/nic-{n}" for n in range(31))],
            id="all and the next are too many for a claim",
        ),
        pytest.param(
            [SHARED],
            [first_of("x", bandwidth("6Gi"), bandwidth("4Gi")), request("y", **bandwidth("6Gi"))],
            ["x/a1: a/nic", "y: a/nic"],
            id="capacity is returned",
        ),
        pytest.param(
            [SHARED],
            [
                first_of("x", bandwidth("6Gi"), bandwidth("4Gi")),
                first_of("y", bandwidth("5Gi"), bandwidth("4Gi")),
                request("z", **bandwidth("2Gi")),
            ],
            ["x/a1: a/nic", "y/a1: a/nic", "z: a/nic"],
            id="capacity is returned twice",
        ),
        pytest.param(
            PARTITIONS,
            [first_of("x", {"count": 2}, {"count": 1}), request("y")],
            ["x/a1: a/half-1", "y: a/half-2"],
            id="counters are returned",
        ),
    ],
)
def test_devices_are_released_before_the_next_alternative(objects, requests, expected):
    devices = FilledDevices(device_class(), *objects)
    assert chosen(allocate(devices, claim("c", *requests))) == expected


@pytest.mark.parametrize(
    ("amount", "expected"), [("40Gi", ["r: a/small"]), ("41Gi", ["r: a/big"]), ("80Gi", ["r: a/big"]), ("81Gi", None)]
)
def test_requested_capacity_selects_unshared_devices(amount, expected):
    """Devices have 40Gi, 80Gi and 40Gi of memory."""
    devices = FilledDevices(device_class(), MIXED)
    requested = request(capacity={"requests": {"memory": amount}})
    assert chosen(allocate(devices, claim("c", requested))) == expected


@pytest.mark.parametrize(
    ("used", "memory", "expected"),
    [
        pytest.param([], "40Gi", ["r: a/nic"], id="unused: just enough"),
        pytest.param([], "39Gi", None, id="unused: too little"),
        pytest.param(["nic"], "40Gi", ["r: a/nic"], id="used: consumed before"),
        pytest.param(["other"], "80Gi", ["r: a/nic"], id="another one is used: just enough"),
        pytest.param(["other"], "79Gi", None, id="another one is used: too little"),
        pytest.param(["nic", "other"], "80Gi", ["r: a/nic"], id="both are used"),
    ],
)
def test_first_share_of_a_device_consumes_its_counters(used, memory, expected):
    def shared(name: str, **fields: Any) -> dict[str, Any]:
        counters = consumes(memory="40Gi")
        capacity = {"bandwidth": SHARED_POLICY}
        return device(name, allowMultipleAllocations=True, capacity=capacity, consumesCounters=counters, **fields)

    shares = [
        claim(f"of-{name}", status=allocated(("a", name), shareID="s", consumedCapacity={"bandwidth": "1Gi"}))
        for name in used
    ]
    slices = [
        counter_slice("a", "a", 2, memory=memory),
        device_slice("a", shared("nic"), shared("other", attributes={"model": "h100"}), count=2),
    ]
    unnamed = request("r", "gpu", "!('model' in device.attributes['gpu.example.com'])", **bandwidth("1Gi"))
    devices = FilledDevices(device_class(), *slices, *shares)
    assert chosen(allocate(devices, claim("c", unnamed))) == expected


@pytest.mark.parametrize(("seconds_per_check", "in_time"), [(0.001, True), (2, False)])
def test_allocation_must_be_complete_within_a_second(seconds_per_check, in_time):
    devices = FilledDevices(device_class(), device_slice("a", *gpus(32)))
    now = count(step=int(seconds_per_check * 1e9))
    claims = [claim(f"c{number}", request(adminAccess=True)) for number in range(64)]  # more steps than between checks
    with contextlib.nullcontext() if in_time else pytest.raises(AllocationTimeout):
        assert len(chosen(allocate(devices, *claims, now_ns=lambda: next(now))) or ()) == 64


def test_device_that_one_constraint_rejects_binds_no_other_constraint():
    """gpu-1 has the NUMA node of gpu-0 but another model, so that the pair must be of NUMA node 1."""
    models = [(0, "a"), (0, "b"), (1, "c"), (1, "c")]
    devices = [device(f"gpu-{n}", attributes={"numa": numa, "model": model}) for n, (numa, model) in enumerate(models)]
    constraints = [{"matchAttribute": f"gpu.example.com/{name}"} for name in ("numa", "model")]
    filled = FilledDevices(device_class(), device_slice("a", *devices))
    pair = claim("c", request("x", count=2), constraints=constraints)
    assert chosen(allocate(filled, pair)) == [
        "x: a/gpu-2",
        "x: a/gpu-3",
    ]


def test_claims_that_need_too_many_devices_together_are_not_allocated():
    """Each claim may have 32 devices: the alternative of the second one is too large whatever the first one has."""
    filled = FilledDevices(device_class(), PAIR, device_slice("a", *(device(f"nic-{n}") for n in range(64))))
    claims = [claim("c", request("x")), claim("d", first_of("y", {"count": 33}, {"count": 2}))]
    assert chosen(allocate(filled, *claims)) == ["x: a/nic-0", "y/a1: a/nic-1", "y/a1: a/nic-2"]
