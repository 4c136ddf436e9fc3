"""Generation of the tables of unicode.json from Go's unicode/tables.go."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.languages.regex.generate_unicode import generate

TABLES = """
var Categories = map[string]*RangeTable{
	"L":  L,
	"Ll": Ll,
	"Lu": Lu,
}

var CategoryAliases = map[string]string{
	"Letter": "L",
}

var Scripts = map[string]*RangeTable{
	"Latin": Latin,
}

var _L = &RangeTable{
	R16: []Range16{
		{0x0041, 0x005a, 1},
		{0x0061, 0x007a, 1},
	},
}

var _Ll = &RangeTable{
	R16: []Range16{
		{0x0061, 0x007a, 1},
	},
}

var _Lu = &RangeTable{
	R16: []Range16{
		{0x0041, 0x005a, 1},
	},
}

var _Latin = &RangeTable{
	R16: []Range16{
		{0x0041, 0x0042, 1},
		{0x0100, 0x0104, 2},
	},
}

var (
	L     = _L
	Ll    = _Ll
	Lu    = _Lu
	Latin = _Latin
)

var _CaseRanges = []CaseRange{
	{0x004A, 0x004B, d{0, 32, 0}},
	{0x006A, 0x006B, d{-32, 0, -32}},
	{0x0100, 0x0103, d{UpperLower, UpperLower, UpperLower}},
}

var caseOrbit = []foldPair{
	{0x004B, 0x006B},
	{0x006B, 0x212A},
	{0x212A, 0x004B},
}
"""


def test_ranges_are_stored_as_distance_and_length():
    tables = generate(TABLES)
    assert tables["categories"] == {"Ll": [0x61, 25], "Lu": [0x41, 25]}
    assert tables["scripts"] == {"Latin": [0x41, 1, 0x100 - 0x42, 0, 2, 0, 2, 0]}
    assert tables["aliases"] == {"Letter": "L"}


def test_characters_that_differ_in_case_form_one_group():
    letters = [[0x4A, 0x6A], [0x4B, 0x6B, 0x212A], [0x100, 0x101], [0x102, 0x103]]
    assert generate(TABLES)["cases"] == letters


def test_category_must_be_the_union_of_its_subcategories():
    with pytest.raises(AssertionError, match="L"):
        generate(TABLES.replace('\t"Ll": Ll,\n', ""))
