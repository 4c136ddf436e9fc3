"""Hashes in names and labels."""

import runpy
import sys

import fnv_hash_fast
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.controllers.runtime.revisions import name_hash
from kubeloop.controllers.runtime.revisions.name_hash import fnv1_32, fnv1a_32, fnv1a_128, safe_encode


def without_package():
    """Return the hash of the module in an environment without fnv_hash_fast."""
    package = sys.modules.pop("fnv_hash_fast")
    sys.modules["fnv_hash_fast"] = None
    try:
        return runpy.run_path(name_hash.__file__)["fnv1a_32"]
    finally:
        sys.modules["fnv_hash_fast"] = package


PURE = without_package()


@given(st.binary(max_size=2000))
def test_hash_in_python_equals_that_of_the_package(data):
    assert PURE is not fnv_hash_fast.fnv1a_32
    assert PURE(data) == fnv_hash_fast.fnv1a_32(data)


def test_hashes_are_those_of_the_published_vectors():
    assert [fnv1_32(text) for text in (b"", b"a", b"foobar")] == [0x811C9DC5, 0x050C5D7E, 0x31F0B262]
    assert [fnv1a_32(text) for text in (b"", b"a", b"foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]


def test_safe_encode_has_one_character_per_digit():
    assert safe_encode(1234567890) == "56789bcdf4"


def test_hash_of_128_bits():
    assert f"{fnv1a_128(b''):x}" == "6c62272e07bb014262b821756295c58d"
    assert f"{fnv1a_128(b'a'):x}" == "d228cb696f1a8caf78912b704e4a8964"
