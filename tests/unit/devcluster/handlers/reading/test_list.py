"""Pages of lists."""

from __future__ import annotations

import msgspec
import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.handlers.reading.continue_token import decode_continue_token, encode_continue_token
from kubeloop.devcluster.handlers.reading.list import Page, list_json, list_page
from kubeloop.devcluster.handlers.reading.list_options import parse_list_options
from kubeloop.kube.objects.resources import CONFIG_MAPS
from support.apiserver.config_map_store import ConfigMapStore

SERVED = get_served_resource(CONFIG_MAPS)


def page_of(config_maps: ConfigMapStore, query: str) -> Page:
    parsed = parse_list_options(ApiRequest.of("GET", f"/x?{query}"), SERVED, "ns")
    return list_page(config_maps.table, config_maps.store.revision, parsed)


def names(page: Page) -> str:
    return "".join(stored.object["metadata"]["name"] for stored in page.items)


@pytest.fixture
def config_maps() -> ConfigMapStore:
    """ConfigMaps a, b, c, d of revisions 2 to 5; a and c have the label g=x."""
    config_maps = ConfigMapStore()
    for name in "abcd":
        config_maps.write(name, g="x" if name in "ac" else "y")
    return config_maps


@pytest.mark.parametrize(
    ("query", "shown", "next_key"),
    [
        ("", "abcd", ""),
        ("limit=2", "ab", "b\0"),
        ("limit=4", "abcd", ""),
        ("limit=1&resourceVersion=0", "abcd", ""),
        ("labelSelector=g=x&limit=2", "ac", "c\0"),
        ("fieldSelector=metadata.name=b", "b", ""),
        ("resourceVersion=3&resourceVersionMatch=Exact", "ab", ""),
    ],
)
def test_first_page(config_maps: ConfigMapStore, query: str, shown: str, next_key: str):
    page = page_of(config_maps, query)
    token = page.metadata.get("continue", "")
    assert (names(page), decode_continue_token(token)[1] if token else "") == (shown, next_key)


def test_next_page_shows_the_state_of_the_first(config_maps: ConfigMapStore):
    first = page_of(config_maps, "limit=2")
    config_maps.write("bb")
    second = page_of(config_maps, f"limit=2&continue={first.metadata['continue']}")
    assert (names(second), second.metadata) == ("cd", {"resourceVersion": "5"})
    current = page_of(config_maps, f"continue={encode_continue_token(-1, 'b')}")
    assert names(current) == "bbbcd"


@pytest.mark.parametrize("query", ["resourceVersion=9", f"continue={encode_continue_token(9, 'a')}"])
def test_future_revision_times_out(config_maps: ConfigMapStore, query: str):
    with pytest.raises(StatusError) as raised:
        page_of(config_maps, query)
    assert (raised.value.code, raised.value.message) == (504, "Timeout: Too large resource version: 9, current: 5")


def test_expired_token_offers_an_inconsistent_continuation():
    config_maps = ConfigMapStore(max_changes=1)
    config_maps.write("a")
    token = encode_continue_token(config_maps.store.revision, "a")
    for _ in range(3):
        config_maps.now += 100
        config_maps.write("b", now=str(config_maps.now))
        config_maps.table.compact(config_maps.now)
    with pytest.raises(StatusError) as raised:
        page_of(config_maps, f"continue={token}")
    assert (raised.value.code, raised.value.reason) == (410, "Expired")
    assert decode_continue_token(raised.value.list_metadata["continue"]) == (-1, "a")


def test_items_of_a_json_list_lack_kind_and_api_version(config_maps: ConfigMapStore):
    decoded = msgspec.json.decode(list_json(SERVED, page_of(config_maps, "limit=1")))
    assert (decoded["kind"], decoded["apiVersion"], len(decoded["items"])) == ("ConfigMapList", "v1", 1)
    assert set(decoded["items"][0]) == {"metadata"}
