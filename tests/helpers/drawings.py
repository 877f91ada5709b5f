"""What the tests of pictures ask of a figure."""

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.text import Text


def draw(figure: Figure) -> RendererAgg:
    """Draw the figure, so that whatever matplotlib warns of becomes an error."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas.get_renderer()


def texts(artist) -> list[str]:
    """All texts that a figure or axes show."""
    return [text.get_text() for text in artist.findobj(Text) if text.get_text() and text.get_visible()]


def random_probs(count: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities (N, K) and targets (N,) drawn from them."""
    probs = torch.randn(count, classes).softmax(1)
    return probs, torch.multinomial(probs, 1)[:, 0]
