"""Requests and responses."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.api.request import ApiRequest, json_response, text_response, warning_headers


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/api/v1/pods", "/api/v1/pods", {}),
        ("/a%20b?x=1&x=2&y=", "/a b", {"x": ["1", "2"], "y": [""]}),
        ("/a?x=%41%2C", "/a", {"x": ["A,"]}),
        ("/a?x=1;y=2&z=3", "/a", {"z": ["3"]}),
        ("/a?x=%zz&z=3", "/a", {"z": ["3"]}),
        ("http://host/a?x=1#top", "/a", {"x": ["1"]}),
    ],
)
def test_path_and_query_of_a_request_target(target: str, path: str, query: dict[str, list[str]]):
    request = ApiRequest.of("GET", target, {"User-Agent": "kubectl/v1"})
    assert (request.path, request.query, request.user_agent) == (path, query, "kubectl/v1")


@pytest.mark.parametrize(
    ("query", "option", "flag"),
    [
        ("", "", False), ("?watch", "", True), ("?watch=false", "false", False), ("?watch=0", "0", False),
        ("?watch=FALSE", "FALSE", False), ("?watch=no", "no", True), ("?watch=1&watch=0", "1", True),
    ],
)  # fmt: skip
def test_option_and_flag_of_a_query(query: str, option: str, flag: bool):
    request = ApiRequest.of("GET", f"/api/v1/pods{query}")
    assert (request.option("watch"), request.flag("watch")) == (option, flag)


@pytest.mark.parametrize(
    ("warnings", "texts"),
    [
        pytest.param(["a", "b", "a"], ['"a"', '"b"'], id="duplicates"),
        pytest.param(["a\nb", "c"], ['"c"'], id="control characters"),
        pytest.param(['say "x"\\'], ['"say \\"x\\"\\\\"'], id="quotes"),
        pytest.param(["a" * 4096], [f'"{"a" * 4096}"'], id="long warning within the total"),
        pytest.param(["a" * 4000, "b" * 300], [f'"{"a" * 256}"', f'"{"b" * 256}"'], id="truncated warnings"),
    ],
)
def test_warning_headers(warnings: list[str], texts: list[str]):
    assert warning_headers(warnings) == [("Warning", f"299 - {text}") for text in texts]


def test_json_response_ends_with_a_line_break():
    response = json_response(201, {"a": 1}, [("Location", "/a")])
    assert (response.status, response.body, response.headers) == (201, b'{"a":1}\n', [("Location", "/a")])


@pytest.mark.parametrize(("status", "headers"), [(200, []), (404, [("X-Content-Type-Options", "nosniff")])])
def test_text_of_an_error_may_not_be_sniffed(status: int, headers: list[tuple[str, str]]):
    assert text_response(status, "x").headers == headers
