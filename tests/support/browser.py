"""A headless Chromium, driven by the DevTools protocol over aiohttp's websocket; needs the browser and nothing else."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

SECONDS = 90.0  # far more than anything here takes; only what hangs meets it
_POLL_SECONDS = 0.02
_KEYS = {
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "Tab": ("Tab", 9, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "End": ("End", 35, ""),
    "Home": ("Home", 36, ""),
    "PageDown": ("PageDown", 34, ""),
    " ": ("Space", 32, " "),
}


def chromium() -> str | None:
    """The path of a browser that can be driven, None if there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class PageFailed(AssertionError):
    """The page threw, or did not come to what was waited for."""


class Page:
    """One tab. `problems`: errors that the page met: exceptions, refused loads, violations of its policy."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.problems: list[str] = []
        self.requested: list[str] = []

    async def listen(self) -> None:
        async for message in self._socket:
            value = json.loads(message.data)
            if "id" in value:
                waiting = self._waiting.pop(value["id"], None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(value)
            elif value["method"] == "Runtime.exceptionThrown":
                self.problems.append(json.dumps(value["params"]["exceptionDetails"]))
            elif value["method"] == "Log.entryAdded" and value["params"]["entry"]["level"] == "error":
                self.problems.append(value["params"]["entry"]["text"])
            elif value["method"] == "Network.requestWillBeSent":
                self.requested.append(value["params"]["request"]["url"])

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        identity = next(self._ids)
        answer = self._waiting[identity] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": identity, "method": method, "params": parameters})
        async with asyncio.timeout(SECONDS):
            value = await answer
        if "error" in value:
            raise PageFailed(f"{method}: {value['error']}")
        return value["result"]

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited."""
        result = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise PageFailed(f"{expression}: {result['exceptionDetails']['exception'].get('description')}")
        return result["result"].get("value")

    async def wait_for(self, expression: str) -> Any:
        """Until the expression is true; its value."""
        try:
            async with asyncio.timeout(SECONDS):
                while True:
                    value = await self.evaluate(expression)
                    if value:
                        return value
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            text = await self.evaluate("document.body.innerText.slice(0, 3000)")
            raise PageFailed(f"never true: {expression}\nproblems: {self.problems}\npage:\n{text}") from None

    async def open(self, url: str) -> None:
        await self.call("Page.navigate", url=url)
        await self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def press(self, key: str) -> None:
        code, number, text = _KEYS.get(key, (key, ord(key[0].upper()), key))
        about = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **about, **({"text": text} if text else {}))
        await self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    async def write(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def click(self, selector: str) -> None:
        """In the middle of the first element that matches, as a mouse does."""
        where = await self.wait_for(
            f"(() => {{ const node = document.querySelector({json.dumps(selector)});"
            " node?.scrollIntoView({block: 'nearest'}); const b = node?.getBoundingClientRect();"
            " return b && b.width && {x: b.x + b.width / 2, y: b.y + b.height / 2}; })()"
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            await self.call(
                "Input.dispatchMouseEvent", type=kind, x=where["x"], y=where["y"], button="left", clickCount=1
            )

    async def look(self, *, width: int = 1440, height: int = 900, dark: bool = False, scale: float = 1.0) -> None:
        """Size and colours of what shows the page."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 700,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme, still])

    async def screenshot(self) -> bytes:
        """A PNG."""
        result = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(result["data"])


class Browser:
    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self._session = session
        self._address = address

    @contextlib.asynccontextmanager
    async def page(self, url: str, **look: Any) -> AsyncIterator[Page]:
        """A tab that shows `url`; see Page.look. Fails at the end if the page met a problem."""
        async with self._session.put(f"http://{self._address}/json/new?about:blank") as answer:
            tab = await answer.json()
        async with self._session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            page = Page(socket)
            async with asyncio.TaskGroup() as group:
                listening = group.create_task(page.listen())
                try:
                    for domain in ("Page", "Runtime", "Log", "Network"):
                        await page.call(f"{domain}.enable")
                    await page.look(**look)
                    await page.open(url)
                    yield page
                finally:
                    listening.cancel()
        async with self._session.get(f"http://{self._address}/json/close/{tab['id']}"):
            pass
        assert page.problems == []


@contextlib.asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    """A browser of its own for the length of the context."""
    path = chromium()
    assert path is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            path,
            "--headless=new",
            "--remote-debugging-port=0",
            f"--user-data-dir={folder}",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-extensions",
            "--hide-scrollbars",
            "--no-first-run",
            *(["--no-sandbox"] if os.getuid() == 0 else []),
            "about:blank",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # it has children of its own, which end with it
        )
        assert process.stderr is not None
        try:
            async with asyncio.timeout(SECONDS):
                while True:
                    line = (await process.stderr.readline()).decode(errors="replace")
                    assert line, "the browser ended before it listened"
                    found = re.search(r"DevTools listening on ws://([^/]+)/", line)
                    if found is not None:
                        break
            async with asyncio.TaskGroup() as group, aiohttp.ClientSession() as session:
                draining = group.create_task(_drain(process.stderr))  # or it blocks on a full pipe
                try:
                    yield Browser(session, found.group(1))
                finally:
                    draining.cancel()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(65536):
        pass
