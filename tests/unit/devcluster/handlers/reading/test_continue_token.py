"""Continue tokens of paged lists."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.handlers.reading.continue_token import decode_continue_token, encode_continue_token


def token(text: str) -> str:
    return urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(("revision", "start"), [(7, "default/a\0"), (-1, "b")])
def test_token_decodes_to_its_revision_and_key(revision: int, start: str):
    assert decode_continue_token(encode_continue_token(revision, start)) == (revision, start)


def test_token_has_the_format_of_kube_apiserver():
    assert encode_continue_token(7, "a\0") == token('{"v":"meta.k8s.io/v1","rv":7,"start":"a\\u0000"}')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("a+b", ": illegal base64 data at input byte 1", id="another alphabet"),
        pytest.param("YQ==", ": illegal base64 data at input byte 2", id="padding"),
        pytest.param("abcde", ": illegal base64 data at input byte 4", id="length"),
        pytest.param(token("{"), ": unexpected end of JSON input", id="no JSON"),
        pytest.param(
            token("[]"),
            ": json: cannot unmarshal array into Go value of type storage.continueToken",
            id="no object",
        ),
        pytest.param(
            token('{"v":"v2","rv":1,"start":"a"}'), ": server does not recognize this encoded version v2", id="version"
        ),
        pytest.param(
            token('{"v":"meta.k8s.io/v1","start":"a"}'),
            ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            id="no revision",
        ),
        pytest.param(
            token(f'{{"v":"meta.k8s.io/v1","rv":{2**63},"start":"a"}}'),
            ": json: cannot unmarshal number 9223372036854775808 into Go struct field continueToken.rv of type int64",
            id="revision of more than 63 bits",
        ),
        pytest.param(
            token('{"v":"meta.k8s.io/v1","rv":1}'),
            ": encoded start key empty (version meta.k8s.io/v1)",
            id="no key",
        ),
        pytest.param(token('{"v":"meta.k8s.io/v1","rv":1,"start":"../a"}'), ": ../a", id="key outside of the list"),
    ],
)
def test_invalid_token_is_a_bad_request(text: str, reason: str):
    with pytest.raises(StatusError) as raised:
        decode_continue_token(text)
    message = f"invalid continue token: continue key is not valid{reason}"
    assert (raised.value.code, raised.value.message) == (400, message)
