"""Browser page for traces: as files that the endpoint serves, and as one self-contained file.

Both have the same markup, styles and scripts (`assets/`, plain files without a build step). Nothing is loaded from
another origin; a strict Content-Security-Policy allows only our scripts and styles, by origin or by hash, and all text
from pods is set as text, never as markup. Imports msgspec and this folder only.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import html
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from kubeloop.tracing.views.pod_lines import pod_line

SCRIPTS: Final = (
    "format.js",
    "model.js",
    "list.js",
    "charts.js",
    "waterfall.js",
    "rollout.js",
    "source.js",
    "explain.js",
    "objects.js",
    "compare.js",
    "location.js",
    "detail.js",
    "app.js",
)
STYLES: Final = "style.css"
_COMMON_POLICY: Final = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"
SERVED_POLICY: Final = (
    f"{_COMMON_POLICY}; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
_CHUNK: Final = 200  # traces compressed together: some 100 KB


class PageFile(msgspec.Struct, frozen=True):
    """One file of the served page."""

    body: bytes
    content_type: str
    headers: Mapping[str, str]


def served_paths(path: str) -> list[str]:
    """Return the paths of served_files() without reading the files."""
    return [path, *(f"{path}/{name}" for name in (*SCRIPTS, STYLES))]


@functools.cache
def served_files(path: str) -> dict[str, PageFile]:
    """Return the page at `path` ("/traces") and the files below it, by path."""
    name = path.rpartition("/")[2]
    styles = f'<link rel="stylesheet" href="{name}/{STYLES}">'
    scripts = "\n".join(f'<script src="{name}/{script}" defer></script>' for script in SCRIPTS)
    headers = {"Content-Security-Policy": SERVED_POLICY, "X-Frame-Options": "DENY"}
    page = _page(policy="", styles=styles, data="", scripts=scripts)
    files = {path: PageFile(page.encode(), "text/html", headers)}
    for script in SCRIPTS:
        files[f"{path}/{script}"] = PageFile(_asset(script).encode(), "text/javascript", headers)
    files[f"{path}/{STYLES}"] = PageFile(_asset(STYLES).encode(), "text/css", headers)
    return files


def self_contained_page(documents: Iterable[Mapping[str, Any]], *, kind: str, name: str, title: str) -> str:
    """Return the page with these traces embedded. kind, name: pod or owner of pods that is open at first; "": none."""
    lines = []
    packed: dict[str, Mapping[str, Any]] = {}
    for document in documents:
        line = pod_line(document)
        if line is not None:
            lines.append(line)
        packed[line.key if line is not None else document["traceId"]] = document
    keys = [*packed]
    chunks = [keys[at : at + _CHUNK] for at in range(0, len(keys), _CHUNK)]
    first = None
    if kind == "pod" and lines:
        first = {"kind": "pod", "key": lines[-1].key}
    elif kind and lines:
        named = [owner for owner in lines[0].owners if owner.endswith(f"/{name}")] or [lines[0].owner]
        owner = next((owner for owner in named if kind.startswith(owner.partition("/")[0])), named[0])
        first = {"kind": "rollout", "key": f"{lines[0].namespace}/{owner}"}
    content = {
        "title": title,
        "first": first,
        "lines": lines,
        "where": [(key, number) for number, chunk in enumerate(chunks) for key in chunk],
    }
    data = [_packed("lines", content)]
    data += [_packed(f"traces-{number}", {key: packed[key] for key in chunk}) for number, chunk in enumerate(chunks)]
    styles, script = _asset(STYLES), "\n".join(_asset(name) for name in SCRIPTS)
    policy = (
        f"{_COMMON_POLICY}; script-src {_hash(script)}; style-src {_hash(styles)}; require-trusted-types-for 'script'"
    )
    return _page(
        policy=f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">',
        styles=f"<style>{styles}</style>",
        data="\n".join(data),
        scripts=f"<script>{script}</script>",
    )


def _page(*, policy: str, styles: str, data: str, scripts: str) -> str:
    page = _asset("index.html")
    for mark, content in (("policy", policy), ("styles", styles), ("data", data), ("scripts", scripts)):
        page = page.replace(f"<!--{mark}-->", content, 1)
    return page


def _packed(identity: str, value: Any) -> str:
    """Encode as JSON, gzip and base64, which contains no HTML."""
    content = base64.b64encode(gzip.compress(msgspec.json.encode(value), compresslevel=6, mtime=0)).decode()
    return f'<script type="text/plain" id="{identity}">{content}</script>'


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


@functools.cache
def _asset(name: str) -> str:
    return Path(__file__).with_name("assets").joinpath(name).read_text(encoding="utf-8")
