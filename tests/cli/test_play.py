"""`torchlgm play` and `torchlgm export --to web`: the page, with the model of a run."""

import contextlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from torchlgm.cli import play as playing
from torchlgm.cli.play import make_server
from torchlgm.interop.web import models_of_page

ROOT = Path(__file__).parents[2]


def header(content):
    """What a file of the page says of its model."""
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["torchlgm.web"])


@contextlib.contextmanager
def serving(*arguments):
    """`torchlgm play` as people run it: the address it prints. Ctrl-C must end it without a complaint."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torchlgm", "play", "--no-browser", *map(str, arguments)]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            yield re.search(r"http://127\.0\.0\.1:\d+/", line)[0]
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert process.stderr.read() == "Ended.\n"
        finally:
            process.kill()


def get(address):
    with urlopen(address, timeout=30) as answer:
        return answer.headers.get_content_type(), answer.read()


def test_a_run_comes_first(trained):
    with serving(trained / "halves") as address:
        assert b"<title>torchlgm playground</title>" in get(address)[1]
        assert get(f"{address}main.mjs")[0] == "text/javascript"
        listed = json.loads(get(f"{address}models.json")[1])["models"]
        assert listed[0] == {"name": "run", "title": "halves", "file": "run.safetensors"}
        assert [model["name"] for model in listed[1:]] == [model.name for model in models_of_page()]
        about = header(get(address + listed[0]["file"])[1])
        assert about["classes"] == ["0", "1"]
        assert about["examples"] == [0, 1] * 3
        assert about["network"]["layers"][0]["shape"] == [1, 6, 6]
        for strange in ("nothing.mjs", "..%2f..%2f..%2fcli%2fplay.py", "../../../cli/play.py"):
            with pytest.raises(HTTPError, match="404"):
                get(address + strange)


def test_a_browser_is_opened_where_the_server_is(trained, torchlgm, monkeypatch):
    opened = []

    def open_and_stop(address):
        opened.append(header(get(address + "run.safetensors")[1])["columns"])
        raise KeyboardInterrupt

    class Answering(playing.ThreadingHTTPServer):
        def __enter__(self):
            threading.Thread(target=self.serve_forever, daemon=True).start()
            return super().__enter__()

    monkeypatch.setattr(playing, "ThreadingHTTPServer", Answering)
    monkeypatch.setattr(playing.webbrowser, "open", open_and_stop)
    code, out, err = torchlgm("play", trained / "table")
    assert (code, out) == (0, "")
    assert err.endswith("Ended.\n")
    assert [column["name"] for column in opened[0]] == ["height", "noise"]


def test_a_port_that_is_taken(complaint):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"--port {port}: cannot be listened at" in complaint("play", "--no-browser", "--port", port)


def test_no_run(complaint, tmp_path):
    assert "not a run folder" in complaint("play", tmp_path, "--no-browser")


def test_a_folder_for_any_web_server(torchlgm, complaint, trained, tmp_path):
    code, out, _ = torchlgm("export", trained / "table", "--to", tmp_path / "web")
    assert code == 0
    assert f"The playground is in {tmp_path / 'web'}/" in out
    listed = json.loads((tmp_path / "web" / "models.json").read_text())["models"]
    assert [model["title"] for model in listed] == ["table"]
    about = header((tmp_path / "web" / listed[0]["file"]).read_bytes())
    assert about["classes"] == ["high", "low"]
    assert len(about["examples"]) == 6
    assert not (tmp_path / "web" / "models").exists()
    assert (tmp_path / "web" / "index.html").is_file()
    assert "already exists" in complaint("export", trained / "table", "--to", tmp_path / "web")


def test_without_its_data_a_run_has_no_examples(torchlgm, trained, tmp_path):
    config = json.loads((trained / "halves" / "config.json").read_text()) | {"data": str(tmp_path / "gone.npz")}
    run = tmp_path / "run"
    run.mkdir()
    for part in (trained / "halves").iterdir():
        if part.name != "config.json":
            (run / part.name).symlink_to(part)
    (run / "config.json").write_text(json.dumps(config))
    assert torchlgm("export", run, "--to", tmp_path / "m.safetensors")[0] == 0
    about = header((tmp_path / "m.safetensors").read_bytes())
    assert "examples" not in about
    assert "network" in about


def test_a_damaged_network(complaint, trained, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for part in (trained / "halves").iterdir():
        if part.name != "network.safetensors":
            (run / part.name).symlink_to(part)
    (run / "network.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    said = complaint("export", run, "--to", tmp_path / "m.safetensors")
    assert "network.safetensors: cannot be read" in said
    assert not (tmp_path / "m.safetensors").exists()


def test_the_server_is_for_this_machine_alone():
    with make_server(0, {}) as server:
        assert server.server_address[0] == "127.0.0.1"
