"""Browser page, served and self-contained."""

from __future__ import annotations

import base64
import gzip
import json

from kubeloop.tracing.views.browser_page import SCRIPTS, self_contained_page, served_files, served_paths
from support.traces.trace_documents import apply_document, document


def test_served_files_have_policy_and_content_type():
    files = served_files("/traces")
    assert sorted(files) == sorted(served_paths("/traces"))
    page = files["/traces"]
    assert page.content_type == "text/html"
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert all(f'src="traces/{script}"'.encode() in page.body for script in SCRIPTS)


def test_self_contained_page_loads_nothing_and_escapes_pods():
    page = self_contained_page([document(name="</script><b>")], kind="pod", name="x", title="pod shop/x")
    assert "src=" not in page.replace("script-src", "").replace("default-src", "").replace("img-src", "").replace(
        "style-src", ""
    )
    assert "</script><b>" not in page
    assert 'id="lines"' in page
    assert 'id="traces-0"' in page


def test_page_of_a_pod_opens_it_although_its_cause_follows():
    page = self_contained_page([document(), apply_document()], kind="pod", name="web-1", title="pod shop/web-1")
    data = page.partition('id="lines">')[2].partition("<")[0]
    content = json.loads(gzip.decompress(base64.b64decode(data)))
    assert [line["name"] for line in content["lines"]] == ["web-1"]
    assert content["first"] == {"kind": "pod", "key": "root"}
