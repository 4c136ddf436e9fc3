"""Create the screenshots of docs/tracing.md: run `python docs/make_screenshots.py` in the repository, with Chromium.

Starts `kubeloop up` with an application of 400 pods and the example of pending pods, then with the example of a gang,
opens the trace page in headless Chromium, and writes docs/images/*.png. Observed pods are those of a test.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
GANG = ROOT / "deploy" / "examples" / "gang-zone.yaml"
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from playwright.async_api import Page  # noqa: E402  # after the change of sys.path

from support.processes.browser import BrowserUnavailable, open_page, running_browser, wait_for  # noqa: E402
from support.processes.cli_processes import MIXED, Kubeloop, wait_until  # noqa: E402
from support.traces.traced_pods import TracedPods  # noqa: E402

APPLICATION = """
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: checkout, namespace: shop}
spec:
  replicas: 400
  selector: {matchLabels: {app: checkout}}
  template:
    metadata: {labels: {app: checkout}}
    spec:
      containers:
        - {name: app, image: checkout, resources: {requests: {cpu: 100m, memory: 64Mi}}}
"""

Steps = Callable[[Page], Awaitable[None]]


async def pods(page: Page) -> None:
    """The list after the page has loaded."""


async def pending_pod(page: Page) -> None:
    await page.keyboard.press("/")
    await page.keyboard.insert_text("impossible")
    await page.keyboard.press("Enter")
    await page.click(".why summary")
    await wait_for(page, "document.querySelectorAll('.span').length > 5 && !!document.querySelector('.why table')")


async def rollout(page: Page) -> None:
    await page.keyboard.press("r")
    await wait_for(page, "!!document.querySelector('.row.rollout')")
    await page.keyboard.press("/")
    await page.keyboard.insert_text("owner:checkout")
    await page.keyboard.press("Enter")
    await wait_for(page, "document.querySelectorAll('.slowest a').length === 5")


async def pod(page: Page) -> None:
    await page.keyboard.press("/")
    await page.keyboard.insert_text("owner:checkout attempts:1")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await page.click(".events summary")
    await wait_for(page, "document.querySelectorAll('.span').length > 8 && !!document.querySelector('.events table')")


SCREENSHOTS: dict[str, tuple[dict[str, int | bool], Steps]] = {
    "pods": ({}, pods),
    "pod": ({}, pod),
    "waiting": ({"dark": True}, pending_pod),
    "rollout": ({"dark": True}, rollout),
    "phone-pods": ({"width": 390, "height": 844}, pods),
    "phone-rollout": ({"width": 390, "height": 844, "dark": True}, rollout),
}


async def observed_pod(page: Page) -> None:
    await page.keyboard.press("/")
    await page.keyboard.insert_text("db-0")
    await page.keyboard.press("Enter")
    await wait_for(page, "document.querySelectorAll('.span').length > 8")


async def pod_group(page: Page) -> None:
    await page.keyboard.press("r")
    await page.keyboard.press("/")
    await page.keyboard.insert_text("podgroup:simulation")
    await page.keyboard.press("Escape")
    await page.evaluate("location.hash = 'rollout=' + encodeURIComponent('default/podgroup/simulation')")
    await wait_for(page, "document.querySelectorAll('.group .span').length > 8")


async def take_group_screenshot(url: str) -> None:
    async with running_browser() as browser, open_page(browser, url) as page:
        await take_screenshot(page, "pod-group", pod_group)


async def take_screenshots(url: str) -> None:
    async with running_browser() as browser:
        for name, (viewport, steps) in SCREENSHOTS.items():
            async with open_page(browser, url, **viewport) as page:
                await take_screenshot(page, name, steps)
        pods = TracedPods()
        for number in range(6):
            pods.observed(f"db-{number}")
        async with pods.running() as observed_url, open_page(browser, f"{observed_url}/traces") as page:
            await take_screenshot(page, "observed", observed_pod)


async def take_screenshot(page: Page, name: str, steps: Steps) -> None:
    await wait_for(page, "document.querySelectorAll('.row:not([hidden])').length > 5")
    await steps(page)
    await page.evaluate("document.activeElement.blur()")
    await page.evaluate("new Promise(done => setTimeout(done, 600))")  # until the animation of the bars has ended
    await page.screenshot(path=IMAGES / f"{name}.png")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        manifest = Path(folder) / "application.yaml"
        manifest.write_text(APPLICATION)
        kubeloop = Kubeloop(Path(folder))
        with kubeloop.running("up", "--nodes", 20, "-f", MIXED, "-f", manifest, "--trace-until", "ready") as up:
            up.wait_for("runs until Ctrl-C")
            url = up.wait_for(r"in a browser: (http://\S+)").group(1)
            _run(take_screenshots(url))
        with kubeloop.running("up", "--gang-scheduling", "-f", GANG) as up:
            url = up.wait_for(r"in a browser: (http://\S+)").group(1)
            wait_until(lambda: "zone-a: 4 of 6" in kubeloop.run("explain", "podgroup/simulation").stdout, "an attempt")
            kubeloop.run("nodes", "add", "extra", "--cpu", "8", "--zone", "zone-a")
            up.wait_for("runs until Ctrl-C")
            _run(take_group_screenshot(url))


def _run(steps: Coroutine[None, None, None]) -> None:
    try:
        asyncio.run(steps)
    except BrowserUnavailable as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
