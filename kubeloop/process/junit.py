"""JUnit XML, as CI systems read it."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr


def junit_document(suite: str, cases: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return a test suite. suite: dotted, "kubeloop.plan". cases: name, and the reasons for which a case fails."""
    failures = sum(bool(reasons) for _, reasons in cases)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name={quoteattr(suite.replace(".", " "))} tests="{len(cases)}" failures="{failures}">',
    ]
    for name, reasons in cases:
        head = f"  <testcase classname={quoteattr(suite)} name={quoteattr(name)}"
        if reasons:
            text = "; ".join(reasons)
            lines.append(f"{head}><failure message={quoteattr(text)}>{escape(text)}</failure></testcase>")
        else:
            lines.append(f"{head}/>")
    return "\n".join([*lines, "</testsuite>"]) + "\n"
