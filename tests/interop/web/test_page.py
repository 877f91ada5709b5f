"""The page in a browser: draw, hide, answer; tables; phone, dark mode and keyboard; and no error in the console."""

from __future__ import annotations

import os
import threading
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

import torchlgm as lgm
from helpers.browser import Browser, find_browser, needs_browser
from torchlgm.baselines import network
from torchlgm.cli.play import make_server
from torchlgm.interop import Examples, export_web
from torchlgm.interop.web import LISTING, PAGE, Shown, listing, models_of_page

pytestmark = needs_browser
READY = "document.querySelector('.headline strong') && document.querySelector('.chart svg')"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A model of 6x6 pixels and three classes with names, two examples, and its file."""
    torch.set_default_dtype(torch.float32)
    graph = lgm.zoo.windows("conv", (1, 6, 6), (2, 3), (3, 2), (1, 2), hidden=4, classes=3)
    model = lgm.LGM(graph, lgm.Init(1.5), generator=torch.Generator().manual_seed(1))
    posterior = lgm.Posterior(model, lgm.lbp(2))
    x = torch.rand(2, 1, 6, 6, generator=torch.Generator().manual_seed(2))
    path = tmp_path_factory.mktemp("model") / "small.safetensors"
    beside = network("dense", (1, 6, 6), 3, hidden=5)
    about = {"title": "Small", "classes": ["cat", "dog", "<b>owl</b>"]}
    export_web(posterior, path, about, network=beside, examples=Examples(x, [0, 2]))
    return posterior, x, path.read_bytes()


@pytest.fixture(scope="module")
def address(small):
    classes_only = (PAGE / "models" / "wine.safetensors").read_bytes().replace(b'fills\\": true', b'fills\\":false')
    made = {"/small.safetensors": small[2], "/classes.safetensors": classes_only}
    models = [*models_of_page(), *(Shown(file[1:].partition(".")[0], file, file[1:]) for file in made)]
    with make_server(0, {f"/{LISTING}": listing(models).encode(), **made}) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    with Browser(find_browser()) as opened:
        yield opened


@pytest.fixture
def visit(browser, address):
    """Opens a model in a window of a size; afterwards there must be no error in the console."""

    def go(name, width=1280, height=900, dark=False):
        browser.resize(width, height, dark, touch=width < 500)
        browser.go("about:blank")
        browser.go(f"{address}#{name}")
        browser.wait(READY)
        return browser

    yield go
    assert browser.problems == []


def text(browser, selector):
    return browser.value(f"document.querySelector('{selector}').textContent")


def shares(browser):
    """The width of each bar of the model, 0 to 1."""
    widths = "Array.from(document.querySelectorAll('.bar.own'), (bar) => parseFloat(bar.style.width) / 100)"
    return np.array(browser.value(widths))


def test_draw_hide_answer(visit):
    page = visit("mnist")
    assert text(page, ".seeing .aside") == "30 % visible"
    page.click(".thumbnail.blank")
    page.drag(".board", [(0.5, 0.15), (0.5, 0.3), (0.49, 0.5), (0.48, 0.7), (0.47, 0.88)])
    page.wait("document.querySelector('.headline strong').textContent === '1'")
    page.click(".half.lower")
    page.wait("document.querySelector('.seeing .aside').textContent === '50 % visible'")
    page.wait("document.querySelector('.headline strong').textContent === '1'")
    # the hidden end of the stroke is believed to be there, once the new beliefs are drawn
    page.wait("""(() => {
        const canvas = document.querySelector('.believing canvas'), at = (x) => 4 * Math.floor(x * canvas.width);
        const copy = new OffscreenCanvas(canvas.width, 1).getContext('2d', { willReadFrequently: true });
        copy.drawImage(canvas, 0, -Math.floor(0.7 * canvas.height));
        const row = copy.getImageData(0, 0, canvas.width, 1).data;
        return Math.abs(row[at(0.47)] - row[at(0.1)]) > 60;
    })()""")
    for view in ("unsure", "sample", "evidence", "next", "mean"):
        page.click(f"input[value={view}]")
        page.wait(f"document.querySelector('input[value={view}]').checked")
    page.wait("!document.querySelector('.asking button').disabled")
    page.click(".asking button")
    page.wait("parseFloat(document.querySelector('.seeing .aside').textContent) > 50")


def test_the_answer_is_that_of_python(visit, small):
    posterior, x, _ = small
    page = visit("small")
    page.click(".thumbnail:nth-child(3)")
    page.click(".half.left")
    hidden = x[1:].clone()
    hidden[..., :3] = torch.nan
    with torch.no_grad():
        expected = posterior(hidden)[0].exp().numpy()
    page.wait("document.querySelector('.seeing .aside').textContent === '50 % visible'")
    page.wait(f"Math.abs(parseFloat(document.querySelector('.bar.own').style.width) - {100 * expected[0]:.4f}) < 1")
    np.testing.assert_allclose(shares(page), expected, atol=0.01)
    assert "<b>owl</b>" in text(page, ".bars"), "names are text, not markup"
    top = ["cat", "dog", "<b>owl</b>"][expected.argmax()]
    assert text(page, ".headline strong") == top
    assert text(page, ".headline :last-child") == ("✓ right" if top == "<b>owl</b>" else "✗ it is: <b>owl</b>")


def test_other_methods(visit, small):
    posterior, x, _ = small
    page = visit("small")
    page.click(".thumbnail:nth-child(2)")
    page.click(".inference input[value=mean_field]")
    page.click(".inference input[value=parallel]")
    with torch.no_grad():
        other = lgm.Posterior(posterior.model, lgm.mean_field(2, "parallel"))
        expected = other(x[:1])[0].exp().numpy()
    page.wait(f"Math.abs(parseFloat(document.querySelector('.bar.own').style.width) - {100 * expected[0]:.4f}) < 1")
    np.testing.assert_allclose(shares(page), expected, atol=0.01)
    assert "trained with LBP, sweep schedule, 2 iterations" in text(page, ".inference .note")


def test_a_table(visit):
    page = visit("wine")
    page.click(".strip button:first-child")
    page.wait("document.querySelectorAll('.line.missing').length === 13")
    page.wait("document.querySelector('.answering .note').textContent.startsWith('0 of 13 columns known')")
    page.wait("document.querySelectorAll('.advice li').length === 5")
    assert "±" in text(page, ".line .expected")
    first = text(page, ".advice li .name")
    page.click(".strip button:nth-child(2)")
    page.wait("document.querySelectorAll('.line.missing').length === 0")
    page.wait("document.querySelector('.headline strong').textContent === 'cultivar 1'")
    assert shares(page)[0] > 0.9
    labels = "Array.from(document.querySelectorAll('.line > label'), (label) => label.textContent)"
    page.click(f".line:nth-child({page.value(labels).index(first) + 1}) .empty")
    page.wait("document.querySelectorAll('.line.missing').length === 1")
    page.wait(f"document.querySelector('.advice li .name')?.textContent === '{first}'")


def test_a_table_whose_columns_were_not_learned(visit):
    page = visit("classes")
    page.click(".strip button:first-child")
    page.wait("document.querySelector('.answering .note').textContent.startsWith('0 of 13 columns known')")
    page.wait("document.querySelector('.advice').textContent.includes('--fill 0.5')")
    assert text(page, ".lines .expected") == ""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", [model.name for model in models_of_page()])
def test_on_a_phone(visit, name, dark):
    page = visit(name, 390, 844, dark)
    assert page.value("document.documentElement.scrollWidth") <= 390
    red = page.value("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
    assert (int(red) < 60) == dark
    targets = "Array.from(document.querySelectorAll('button, .choice label')).filter((one) => one.offsetParent)"
    sizes = page.value(f"{targets}.map((one) => Math.min(one.offsetWidth, one.offsetHeight))")
    assert min(size for size in sizes if size) >= 24, "everything can be hit with a finger"


def test_by_keyboard(visit):
    page = visit("small")
    page.press("c")
    page.wait("document.querySelector('input[value=draw]').checked")
    page.value("document.querySelector('.board').focus()")
    before = shares(page)
    for key in ("ArrowUp", " ", "ArrowUp", " "):
        page.press(key)
    page.wait(f"Math.abs(parseFloat(document.querySelector('.bar.own').style.width) - {100 * before[0]}) > 0.01")
    page.press("b")
    for key in (" ", "ArrowLeft", "ArrowLeft", "ArrowDown", " "):
        page.press(key)
    page.wait("document.querySelector('.seeing .aside').textContent === '83 % visible'")
    page.press("4")
    page.wait("document.querySelector('input[value=evidence]').checked")
    page.press("a")
    page.wait("document.querySelector('.seeing .aside').textContent === ''")


def test_models_are_changed_in_a_hurry(visit):
    """No question about one model reaches the next."""
    page = visit("digits")
    page.click(".thumbnail:nth-child(2)")
    names = ["wine", "small", "digits", "classes", "small"]
    page.value(f"{names}.forEach((name, i) => setTimeout(() => {{ location.hash = name; }}, 25 * i))")
    page.wait("document.querySelectorAll('.bar-row').length === 3 && document.querySelector('.board')")
    page.wait("document.querySelector('#view').getAttribute('aria-busy') === null && " + READY)
    assert page.value("document.getElementById('problem').hidden")


def test_the_theme_is_kept(visit):
    page = visit("small")
    for theme in ("light", "dark"):
        page.click("#theme")
        page.wait(f"document.documentElement.dataset.theme === '{theme}'")
    page = visit("small")
    assert page.value("document.documentElement.dataset.theme") == "dark"
    page.click("#theme")


def test_a_model_that_is_not_there(browser, address):
    with make_server(0, {f"/{LISTING}": listing([Shown("lost", "Lost", "lost.safetensors")]).encode()}) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser.go(f"http://127.0.0.1:{server.server_port}/")
        browser.wait("document.getElementById('problem')?.hidden === false")
        assert "lost.safetensors: 404" in text(browser, "#problem")
        server.shutdown()
    browser.problems.clear()  # the browser itself notes the 404


@pytest.mark.skipif("TORCHLGM_SCREENSHOTS" not in os.environ, reason="draws the pictures of the docs")
def test_screenshots(browser):
    """Pictures of every model, some of which the docs keep: `TORCHLGM_SCREENSHOTS=FOLDER pytest -k screenshots`."""
    folder = Path(os.environ["TORCHLGM_SCREENSHOTS"])
    folder.mkdir(parents=True, exist_ok=True)
    with make_server(0, {}) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for model, dark, phone in product(models_of_page(), (False, True), (False, True)):
            browser.resize(*((390, 844) if phone else (1280, 900)), dark, touch=phone)
            browser.go("about:blank")
            browser.go(f"http://127.0.0.1:{server.server_port}/#{model.name}")
            browser.wait(READY + " && !document.querySelector('.asking').textContent.includes('Thinking')")
            name = f"{model.name}-{'phone' if phone else 'desktop'}-{'dark' if dark else 'light'}"
            browser.screenshot(folder / f"playground-{name}.png", whole=True)
        server.shutdown()
