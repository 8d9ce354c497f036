"""A real Chromium without a window, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
START_SECONDS = 60.0


def find_chromium() -> str | None:
    """The program, None where there is none."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Browser:
    """One page in a browser of its own. Use as an asynchronous context manager.

    `width`, `height`: of the page. `dark`: whether it prefers dark colours.
    """

    def __init__(self, *, folder: Path, width: int = 1440, height: int = 900, dark: bool = False) -> None:
        self._folder = folder
        self._size = (width, height)
        self._dark = dark
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.requests: list[str] = []
        self.console: list[str] = []

    async def __aenter__(self) -> Self:
        program = find_chromium()
        assert program is not None, "install chromium"
        self._process = self._start(program)
        self._session = aiohttp.ClientSession()
        port = await self._port()
        async with self._session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            (page,) = [target for target in await answer.json() if target["type"] == "page"]
        self._socket = await self._session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0)
        self._reading = asyncio.create_task(self._read())
        for domain in ("Page", "Runtime", "Network"):
            await self.call(f"{domain}.enable")
        await self.resize(*self._size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if self._dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reading.cancel()
        await self._socket.close()
        await self._session.close()
        self._process.kill()
        self._process.wait()

    def _start(self, program: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", str(Path(__file__).with_name("die_with_parent.py"))),
                *(str(os.getpid()), program),
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--no-proxy-server",
                "--remote-debugging-port=0",
                f"--user-data-dir={self._folder / 'profile'}",
                f"--window-size={self._size[0]},{self._size[1]}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=(self._folder / "chromium.log").open("wb"),
        )

    async def _port(self) -> int:
        file = self._folder / "profile" / "DevToolsActivePort"
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if file.exists() and file.read_text().strip():
                return int(file.read_text().split()[0])
            assert self._process.poll() is None, (self._folder / "chromium.log").read_text()[-2000:]
            await asyncio.sleep(0.05)
        raise AssertionError(f"chromium is not ready: {(self._folder / 'chromium.log').read_text()[-2000:]}")

    async def _read(self) -> None:
        async for message in self._socket:
            event: Mapping[str, Any] = json.loads(message.data)
            if (number := event.get("id")) is not None:
                answer = self._answers.pop(number)
                if "error" in event:
                    answer.set_exception(AssertionError(str(event["error"])))
                else:
                    answer.set_result(event.get("result", {}))
            elif event["method"] == "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])
            elif event["method"] in {"Runtime.exceptionThrown", "Runtime.consoleAPICalled"}:
                self.console.append(json.dumps(event["params"])[:2000])

    async def call(self, method: str, **parameters: Any) -> Any:
        """A call of the protocol."""
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        return await asyncio.wait_for(self._answers[number], 30)

    async def open(self, url: str) -> None:
        await self.call("Page.navigate", url=url)

    async def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def text(self, selector: str) -> str:
        """What the first element of this selector shows; empty when there is none."""
        inner_text = await self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return str(inner_text)

    async def until(self, expression: str, *, seconds: float = 30.0) -> None:
        """Wait until an expression in the page is true."""
        deadline = time.monotonic() + seconds
        while not await self.evaluate(f"Boolean({expression})"):
            if time.monotonic() > deadline:
                page = await self.evaluate("document.body?.innerText")
                raise AssertionError(f"not within {seconds} s: {expression}\n{page}\n{self.console}")
            await asyncio.sleep(0.02)

    async def press(self, key: str) -> None:
        """Press a key, such as ArrowRight, Enter, Escape or a letter."""
        text = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
        code = {"Enter": 13, "Escape": 27, "Tab": 9}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=code,
                **(text if kind == "keyDown" else {}),
            )

    async def screenshot(self) -> bytes:
        """A PNG of what is seen."""
        picture = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(picture["data"])
