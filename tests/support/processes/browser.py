"""A headless Chromium, controlled by Playwright."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

TIMEOUT_SECONDS = 90.0  # far longer than any step takes


class BrowserUnavailable(Exception):
    """There is no browser, no Playwright, or its driver does not start."""


def _check_driver() -> None:
    """Run Playwright's driver, a Node.js program. Raises BrowserUnavailable."""
    # before async_playwright(), which leaves a failed task behind if the driver does not start
    version = subprocess.run(
        [sys.executable, "-m", "playwright", "--version"], capture_output=True, text=True, check=False
    )
    if version.returncode != 0:
        problem = version.stderr.strip()[-300:] or f"exit code {version.returncode}"
        raise BrowserUnavailable(f"Playwright's driver does not start: {problem}")


def _chromium() -> str:
    paths = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    path = next(filter(None, paths), None)
    if path is None:
        raise BrowserUnavailable("no chromium on the PATH")
    return path


@contextlib.asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    """Run the installed Chromium until the end of the context. Raises BrowserUnavailable."""
    path = _chromium()
    _check_driver()
    from playwright.async_api import async_playwright  # missing where _check_driver raises

    async with async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=path,
            chromium_sandbox=os.getuid() != 0,  # Chromium refuses it to root
            timeout=TIMEOUT_SECONDS * 1000,
        )
        try:
            yield browser
        finally:
            await browser.close()


@contextlib.asynccontextmanager
async def open_page(
    browser: Browser,
    url: str,
    *,
    width: int = 1440,
    height: int = 900,
    dark: bool = False,
    requested: list[str] | None = None,
    fails: bool = False,
) -> AsyncIterator[Page]:
    """Open a tab with `url`. requested: receives the URLs of requests.

    At the end, requires that the page reported no exception, failed load or violation of its content security policy,
    or at least one if `fails`.
    """
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
        is_mobile=width < 700,
    )
    try:
        page = await context.new_page()
        page.set_default_timeout(TIMEOUT_SECONDS * 1000)
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        if requested is not None:
            page.on("request", lambda request: requested.append(request.url))
        await page.goto(url)
        yield page
    finally:
        await context.close()
    assert bool(problems) is fails, problems


async def wait_for(page: Page, expression: str) -> None:
    """Wait until a JavaScript expression is truthy."""
    from playwright.async_api import Error

    try:
        # a function is compiled once; the page's content security policy refuses to compile an expression at each poll
        await page.wait_for_function(f"() => ({expression})")
    except Error as error:
        text = await page.evaluate("document.body.innerText.slice(0, 3000)")
        raise AssertionError(f"never true: {expression}\n{error}\npage:\n{text}") from None
