"""A headless Chromium, driven by the DevTools protocol over a pipe; needs nothing but the browser."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--mute-audio",
    "--remote-debugging-pipe", "--force-device-scale-factor=1", "--font-render-hinting=none",
)  # fmt: skip
PATIENCE = 60.0
BOX = """(() => {
    const element = document.querySelector(%s);
    element.scrollIntoView({ block: 'nearest' });
    const { x, y, width, height } = element.getBoundingClientRect();
    return { x, y, width, height };
})()"""


def find_browser() -> str | None:
    """The browser to use: `$TORCHLGM_BROWSER`, else one of the usual names, else None."""
    return os.environ.get("TORCHLGM_BROWSER") or next((path for n in NAMES if (path := shutil.which(n))), None)


needs_browser = pytest.mark.skipif(
    find_browser() is None and "TORCHLGM_NEEDS_BROWSER" not in os.environ, reason="needs Chromium"
)


class Browser:
    """One page of a browser, as a context manager. `problems` are errors of its console."""

    def __init__(self, program: str) -> None:
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read, self._out = os.pipe()
        self._in, write = os.pipe()
        command = ["bash", "-c", f'exec "$@" 3<&{read} 4>&{write}', "bash", program, *FLAGS]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={self.profile.name}", "about:blank"],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._rest, self._count, self._session = b"", 0, None
        self.problems: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self.profile.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the protocol and wait for its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        os.write(
            self._out, json.dumps(message | ({"sessionId": self._session} if self._session else {})).encode() + b"\0"
        )
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._in, 2**16)
            assert part, "the browser has gone"
            self._rest += part
        message, self._rest = self._rest.split(b"\0", 1)
        answer = json.loads(message)
        self._note(answer.get("method"), answer.get("params", {}))
        return answer

    def _note(self, event: str | None, told: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif event == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(one.get("value", one.get("description"))) for one in told["args"]))
        elif event == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")

    def resize(self, width: int, height: int, dark: bool = False, touch: bool = False) -> None:
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Emulation.setTouchEmulationEnabled", enabled=touch)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)

    def go(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript is in the page."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def wait(self, expression: str, patience: float = PATIENCE) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + patience
        while not (self.value(f"Boolean({expression})")):
            assert time.monotonic() < end, f"never true: {expression}; problems: {self.problems[:3]}"
            time.sleep(0.03)

    def box(self, selector: str) -> dict[str, float]:
        """Where an element is in the window; it is scrolled to first."""
        return self.value(BOX % json.dumps(selector))

    def click(self, selector: str) -> None:
        box = self.box(selector)
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def drag(self, selector: str, places: list[tuple[float, float]]) -> None:
        """Press, move through places (0 to 1 across the element), and let go."""
        box = self.box(selector)
        at = [{"x": box["x"] + x * box["width"], "y": box["y"] + y * box["height"]} for x, y in places]
        self.call("Input.dispatchMouseEvent", type="mousePressed", button="left", buttons=1, clickCount=1, **at[0])
        for place in at[1:]:
            self.call("Input.dispatchMouseEvent", type="mouseMoved", button="left", buttons=1, **place)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", button="left", clickCount=1, **at[-1])

    def press(self, key: str, code: str = "") -> None:
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        words = {"key": key, "code": code or key, "text": text} if text else {"key": key, "code": code or key}
        numbers = {"Tab": 9, "Enter": 13, " ": 32, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        words["windowsVirtualKeyCode"] = numbers.get(key, ord(key.upper()) if len(key) == 1 else 0)
        self.call("Input.dispatchKeyEvent", type="keyDown", **words)
        self.call("Input.dispatchKeyEvent", type="keyUp", **{k: v for k, v in words.items() if k != "text"})

    def screenshot(self, path: Path, whole: bool = False) -> None:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole))
        path.write_bytes(base64.b64decode(shot["data"]))

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
