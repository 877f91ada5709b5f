"""The playground on this machine: the page of `torchlgm.interop.web`, served to a browser."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable, Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from torchlgm.cli.runs import Run
from torchlgm.cli.web import export_web, shown
from torchlgm.errors import DataError
from torchlgm.interop.web import LISTING, PAGE, listing, models_of_page

HOST = "127.0.0.1"  # nobody else can reach it


def play(folder: Path | None, port: int, browser: bool, report: Callable[[str], None]) -> None:
    """Serve the page, with the model of a run first if there is one, until Ctrl-C."""
    models, made = models_of_page(), {}
    if folder is not None:
        run = Run.load(folder)
        model = shown(run)
        with TemporaryDirectory() as place:
            made[f"/{model.file}"] = export_web(run, Path(place) / model.file).path.read_bytes()
        models = [model, *models]
    made[f"/{LISTING}"] = listing(models).encode()
    with make_server(port, made) as server:
        address = f"http://{HOST}:{server.server_port}/"
        report(f"The playground is at {address} (Ctrl-C ends it)")
        try:
            if browser:
                webbrowser.open(address)
            server.serve_forever()
        except KeyboardInterrupt:
            report("Ended.")


def make_server(port: int, made: Mapping[str, bytes]) -> ThreadingHTTPServer:
    """A server of the page and of what was `made`, by path; port 0 takes a free one."""
    try:
        return ThreadingHTTPServer((HOST, port), partial(_Handler, made))
    except OSError as error:
        raise DataError(
            f"--port {port}: cannot be listened at ({error.strerror or error}); leave it out for a free one"
        ) from error


_TYPES = {".mjs": "text/javascript", ".json": "application/json"}


class _Handler(SimpleHTTPRequestHandler):
    extensions_map = SimpleHTTPRequestHandler.extensions_map | _TYPES

    def __init__(self, made: Mapping[str, bytes], *arguments: object) -> None:
        self.made = made
        super().__init__(*arguments, directory=str(PAGE))  # pyright: ignore[reportArgumentType]

    def do_GET(self) -> None:
        content = self.made.get(urlsplit(self.path).path)
        if content is None:
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(urlsplit(self.path).path))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")  # another run may be at the same address tomorrow
        super().end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        del format, arguments
