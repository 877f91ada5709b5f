"""The static page: where it is, which models come with it, and a copy of it with models of one's own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

PAGE = Path(__file__).parent / "page"
LISTING = "models.json"  # what the page shows: a link home, and models
HOME = "https://torchlgm.github.io/torchlgm/"


@dataclass(frozen=True)
class Shown:
    """A model that the page shows: its `name` in addresses, a title, and its file, relative to the page."""

    name: str
    title: str
    file: str


def models_of_page() -> list[Shown]:
    """The models that come with the page."""
    return [Shown(**model) for model in json.loads((PAGE / LISTING).read_text(encoding="utf-8"))["models"]]


def listing(models: Sequence[Shown], home: str = HOME) -> str:
    """The file that says what the page shows."""
    return json.dumps({"home": home, "models": [asdict(model) for model in models]}, indent=2) + "\n"


def copy_page(folder: Path, models: Sequence[Shown], home: str = HOME) -> None:
    """The page in `folder`, to show `models`; those that come with it are copied if they are among them."""
    shutil.copytree(PAGE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("models", "__pycache__"))
    for model in models:
        if (PAGE / model.file).is_file():
            (folder / model.file).parent.mkdir(exist_ok=True)
            shutil.copyfile(PAGE / model.file, folder / model.file)
    (folder / LISTING).write_text(listing(models, home), encoding="utf-8")
