"""Small data that a model learns in seconds, as files."""

from pathlib import Path

import numpy as np
from PIL import Image

QUICK = ("--epochs", "3", "--hidden", "6", "--batch-size", "10")


def halves(samples=80, side=6, seed=0):
    """Images (N, side, side), bright on the left (label 0) or on the right (1)."""
    draw = np.random.default_rng(seed)
    y = np.arange(samples) % 2
    x = draw.uniform(0, 0.3, (samples, side, side))
    x[y == 0, :, : side // 2] += 0.6
    x[y == 1, :, side // 2 :] += 0.6
    return x.astype(np.float32), y


def write_halves(path: Path, **arrays):
    """An .npz of `halves`, with some arrays replaced."""
    x, y = halves()
    np.savez(path, **{"x": x, "y": y, **arrays})
    return path


def write_table(path: Path, rows=60, seed=0):
    """Columns height (0 to 100) and noise, some cells empty, and a class that says whether height is above 50."""
    draw = np.random.default_rng(seed)
    lines = ["height,noise,class"]
    for row in range(rows):
        height = draw.uniform(0, 45) if row % 2 else draw.uniform(55, 100)
        noise = "" if row % 7 == 0 else f"{draw.uniform(-5, 5):.3f}"
        lines.append(f"{height:.2f},{noise},{'low' if row % 2 else 'high'}")
    path.write_text("\n".join(lines) + "\n")
    return path


def as_image(values, path, hole=None):
    """A grey image of `values` (H, W) in [0, 1]; what `hole` (H, W) marks is transparent."""
    grey = (values * 255).round().astype(np.uint8)
    alpha = np.full_like(grey, 255) if hole is None else np.where(hole, 0, 255).astype(np.uint8)
    Image.merge("LA", [Image.fromarray(grey), Image.fromarray(alpha)]).save(path)
    return path
