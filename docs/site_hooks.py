"""Hooks of the site (mkdocs.yml): linked files outside of docs/ are copied, so that no link is dead."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
_OUTSIDE = re.compile(r"\]\((?:\.\./)+(?!reference/)([^)#]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the linked files below files/."""
    texts = [page.content_string for page in files.documentation_pages()]
    for path in sorted({match[1] for text in texts for match in _OUTSIDE.finditer(text) if _is_outside(match[1])}):
        files.append(File.generated(config, _site_path(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links to files outside of docs/ lead to their copies."""
    prefix = "../" * page.file.src_uri.count("/")

    def replaced(match: re.Match[str]) -> str:
        return f"]({prefix}{_site_path(match[1])})" if _is_outside(match[1]) else match[0]

    return _OUTSIDE.sub(replaced, markdown)


def _is_outside(path: str) -> bool:
    return (ROOT / path).is_file()


def _site_path(path: str) -> str:
    """Markdown is copied as text: its own links lead to files that are not in the site."""
    return f"files/{path}.txt" if path.endswith(".md") else f"files/{path}"
