"""Hashes in names and labels."""

from fnv_hash_fast import fnv1a_32

from kubeloop.controllers.runtime.revisions.name_hash import fnv1_32, fnv1a_128, safe_encode


def test_hashes_are_those_of_the_published_vectors():
    assert [fnv1_32(text) for text in (b"", b"a", b"foobar")] == [0x811C9DC5, 0x050C5D7E, 0x31F0B262]
    assert [fnv1a_32(text) for text in (b"", b"a", b"foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]


def test_safe_encode_has_one_character_per_digit():
    assert safe_encode(1234567890) == "56789bcdf4"


def test_hash_of_128_bits():
    assert f"{fnv1a_128(b''):x}" == "6c62272e07bb014262b821756295c58d"
    assert f"{fnv1a_128(b'a'):x}" == "d228cb696f1a8caf78912b704e4a8964"
