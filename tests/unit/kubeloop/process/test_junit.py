"""JUnit XML."""

from xml.etree import ElementTree

from kubeloop.process.junit import junit_document


def test_document_counts_and_escapes_failures():
    suite = ElementTree.fromstring(junit_document("kubeloop.plan", [("a<b", []), ("c", ["x & y", "z"])]).encode())
    assert suite.attrib == {"name": "kubeloop plan", "tests": "2", "failures": "1"}
    assert [case.attrib["name"] for case in suite] == ["a<b", "c"]
    assert suite[1][0].attrib["message"] == suite[1][0].text == "x & y; z"
