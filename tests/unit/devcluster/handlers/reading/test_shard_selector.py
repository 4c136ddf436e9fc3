"""Shard selectors: parsing, hashes, and lists and watches of shards."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.handlers.reading.shard_selector import ShardSelectorError, hash_of, parse_shard_selector
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.kube.feature_gates import FeatureGates
from support.apiserver.api_requests import InProcessApi

UID, NAMESPACE = "object.metadata.uid", "object.metadata.namespace"
LOW = f"shardRange({UID}, '0x0000000000000000', '0x8000000000000000')"
HIGH = f"shardRange({UID}, '0x8000000000000000', '0x10000000000000000')"
CONFIG_MAPS = "/api/v1/configmaps"


def test_hash_is_fnv_1a():
    assert [f"{hash_of(text):016x}" for text in ("", "a", "foobar")] == [
        "cbf29ce484222325", "af63dc4c8601ec8c", "85944171f73967e8"
    ]  # fmt: skip


@pytest.mark.parametrize("text", [LOW, f"{LOW} || {HIGH}"])
def test_text_of_a_selector_is_canonical(text: str):
    assert str(parse_shard_selector(f" {text.replace(chr(39), chr(34))} ")) == text


@pytest.mark.parametrize("namespace", ["a", "b", "kube-system", ""])
def test_every_value_is_in_one_shard(namespace: str):
    obj = {"metadata": {"namespace": namespace} if namespace else {}}
    shards = [parse_shard_selector(text.replace(UID, NAMESPACE)) for text in (LOW, HIGH)]
    assert [shard.matches(obj) for shard in shards].count(True) == 1
    assert shards[1].matches(obj) is (hash_of(namespace) >= 1 << 63)


def bounds(start: str, end: str = "'0x8000000000000000'") -> str:
    return f"shardRange({UID}, {start}, {end})"


INVALID = {
    " ": "empty shard selector is not allowed; omit the parameter for unfiltered lists",
    UID: "unexpected expression kind 7; expected shardRange() call or || operator",
    f"{LOW} && {HIGH}": 'unsupported function "_&&_"; only shardRange() and || are allowed',
    f"{LOW} || {HIGH.replace(UID, NAMESPACE)}": (
        f'all shard ranges must use the same field, got "{UID}" and "{NAMESPACE}"'
    ),
    "shardRange()": "shardRange() requires exactly 3 arguments, got 0",
    LOW.replace(UID, "object.name"): f'unsupported field path "object.name"; supported: {UID}, {NAMESPACE}',
    LOW.replace(UID, "1"): (
        "shardRange() first argument: expected field path (e.g. object.metadata.uid), got expression kind 5"
    ),
    bounds("a"): "hexStart must be a string literal (e.g. '0xff'), got expression kind 3",
    bounds("1"): "hexStart must be a string literal, got int64",
    bounds("'1'"): "hexStart must have '0x' prefix, got \"1\"",
    bounds("'0x'"): "hexStart: hex value is required after '0x'",
    bounds(f"'0x{'0' * 18}'"): f'hexStart: hex value too long (18 chars, max 17): "{"0" * 18}"',
    bounds("'0xA'"): 'hexStart: invalid hex character "A" in "0xA"',
    bounds(f"'0x{'0' * 16}'", f"'0x2{'0' * 16}'"): (
        f"hexEnd: 17-digit hex value must be '0x1{'0' * 16}' (2^64), got \"0x2{'0' * 16}\""
    ),
    bounds("'0x1'"): (
        'hexStart must be a 0x-prefixed 16-digit hex value, got "0x1" (did you mean "0x0000000000000001"?)'
    ),
    bounds("'0x8000000000000000'"): "shard range start 0x8000000000000000 must be less than end 0x8000000000000000",
}


@pytest.mark.parametrize("text", INVALID)
def test_invalid_selector_has_the_message_of_kubernetes(text: str):
    with pytest.raises(ShardSelectorError) as raised:
        parse_shard_selector(text)
    assert str(raised.value) == INVALID[text]


def test_syntax_error_has_the_first_message():
    with pytest.raises(ShardSelectorError, match=r"^CEL parse error: Syntax error: "):
        parse_shard_selector("shardRange(")


@pytest.fixture
async def api() -> InProcessApi:
    api = InProcessApi(settings=ServingSettings(feature_gates=FeatureGates({"ShardedListAndWatch": True})))
    for number in range(20):
        api.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": f"c{number}", "labels": {"a": "b"}}})
    return api


def names(response: Any) -> list[str]:
    return [item["metadata"]["name"] for item in response["items"]]


async def test_lists_of_all_shards_have_every_object_once(api: InProcessApi):
    shards = [api("GET", f"{CONFIG_MAPS}?labelSelector=a=b&shardSelector={shard}")[1] for shard in (LOW, HIGH)]
    assert sorted(names(shards[0]) + names(shards[1])) == sorted(f"c{number}" for number in range(20))
    assert [shard["metadata"]["shardInfo"] for shard in shards] == [{"selector": LOW}, {"selector": HIGH}]
    assert all(map(names, shards))


async def test_watches_of_shards_show_their_objects(api: InProcessApi):
    for shard in (LOW, HIGH):
        listed = names(api("GET", f"{CONFIG_MAPS}?labelSelector=a=b&shardSelector={shard}")[1])
        stream = api("GET", f"{CONFIG_MAPS}?watch=1&labelSelector=a=b&shardSelector={shard}&timeoutSeconds=1")[1]
        lines = b"".join([frame async for frame in stream]).splitlines()
        events = [msgspec.json.decode(line) for line in lines]
        assert sorted(event["object"]["metadata"]["name"] for event in events) == sorted(listed)


async def test_invalid_selector_is_an_internal_error(api: InProcessApi):
    status, response = api("GET", f"{CONFIG_MAPS}?shardSelector=a")
    assert (status, response["message"]) == (
        500, "invalid shard selector: unexpected expression kind 3; expected shardRange() call or || operator"
    )  # fmt: skip


async def test_selector_is_ignored_without_the_gate():
    api = InProcessApi()
    response = api("GET", f"/api/v1/namespaces?shardSelector={LOW}")[1]
    assert len(names(response)) == 4
    assert "shardInfo" not in response["metadata"]
