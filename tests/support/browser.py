"""A headless Chromium, controlled with the DevTools protocol over an aiohttp websocket."""

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

TIMEOUT_SECONDS = 90.0  # far longer than any step takes
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
    """Return the path of the browser, None if it is not installed."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class PageFailed(AssertionError):
    """The page raised an exception, or an awaited condition did not become true."""


class Page:
    """One tab. problems: exceptions, failed loads and violations of the content security policy. requested: URLs."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self.problems: list[str] = []
        self.requested: list[str] = []

    async def receive(self) -> None:
        async for message in self._socket:
            value = json.loads(message.data)
            if "id" in value:
                future = self._pending.pop(value["id"], None)
                if future is not None and not future.done():
                    future.set_result(value)
            elif value["method"] == "Runtime.exceptionThrown":
                self.problems.append(json.dumps(value["params"]["exceptionDetails"]))
            elif value["method"] == "Log.entryAdded" and value["params"]["entry"]["level"] == "error":
                self.problems.append(value["params"]["entry"]["text"])
            elif value["method"] == "Network.requestWillBeSent":
                self.requested.append(value["params"]["request"]["url"])

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        request_id = next(self._ids)
        response = self._pending[request_id] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": request_id, "method": method, "params": parameters})
        async with asyncio.timeout(TIMEOUT_SECONDS):
            value = await response
        if "error" in value:
            raise PageFailed(f"{method}: {value['error']}")
        return value["result"]

    async def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; promises are awaited."""
        result = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise PageFailed(f"{expression}: {result['exceptionDetails']['exception'].get('description')}")
        return result["result"].get("value")

    async def wait_for(self, expression: str) -> Any:
        """Wait until the expression is truthy and return its value."""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
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
        event = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **event, **({"text": text} if text else {}))
        await self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    async def write(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def click(self, selector: str) -> None:
        """Click the center of the first matching element."""
        position = await self.wait_for(
            f"(() => {{ const node = document.querySelector({json.dumps(selector)});"
            " node?.scrollIntoView({block: 'nearest'}); const b = node?.getBoundingClientRect();"
            " return b && b.width && {x: b.x + b.width / 2, y: b.y + b.height / 2}; })()"
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            await self.call(
                "Input.dispatchMouseEvent", type=kind, x=position["x"], y=position["y"], button="left", clickCount=1
            )

    async def set_viewport(
        self, *, width: int = 1440, height: int = 900, dark: bool = False, scale: float = 1.0
    ) -> None:
        """Set size, colour scheme and scale of the viewport."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 700,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        reduced_motion = {"name": "prefers-reduced-motion", "value": "reduce"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme, reduced_motion])

    async def screenshot(self) -> bytes:
        """Return a PNG."""
        result = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(result["data"])


class Browser:
    """A running browser."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self._session = session
        self._address = address

    @contextlib.asynccontextmanager
    async def page(self, url: str, **viewport: Any) -> AsyncIterator[Page]:
        """Open a tab with `url`; see Page.set_viewport. Fails at the end if the page reported a problem."""
        async with self._session.put(f"http://{self._address}/json/new?about:blank") as response:
            tab = await response.json()
        async with self._session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            page = Page(socket)
            async with asyncio.TaskGroup() as group:
                listener = group.create_task(page.receive())
                try:
                    for domain in ("Page", "Runtime", "Log", "Network"):
                        await page.call(f"{domain}.enable")
                    await page.set_viewport(**viewport)
                    await page.open(url)
                    yield page
                finally:
                    listener.cancel()
        async with self._session.get(f"http://{self._address}/json/close/{tab['id']}"):
            pass
        assert page.problems == []


@contextlib.asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    """Run a browser until the end of the context."""
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
            start_new_session=True,  # a process group, so that its children are killed with it
        )
        assert process.stderr is not None
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while True:
                    line = (await process.stderr.readline()).decode(errors="replace")
                    assert line, "the browser exited before it listened"
                    match = re.search(r"DevTools listening on ws://([^/]+)/", line)
                    if match is not None:
                        break
            async with asyncio.TaskGroup() as group, aiohttp.ClientSession() as session:
                drain = group.create_task(_drain(process.stderr))  # otherwise the browser blocks on a full pipe
                try:
                    yield Browser(session, match.group(1))
                finally:
                    drain.cancel()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(65536):
        pass
