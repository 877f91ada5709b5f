"""Models on the Hugging Face hub: `from torchlgm.interop.hub import HubModel`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from torchlgm._utils.optional import import_optional
from torchlgm.model import CARD, GRAPH, LGM, WEIGHTS, load_with_card, save

import_optional("huggingface_hub", "hub")

from huggingface_hub import ModelHubMixin, snapshot_download  # noqa: E402

TEMPLATE = """---
# For the fields see https://huggingface.co/docs/hub/model-cards
{{ card_data }}
---

# {{ title | default("A layered graphical model") }}

{{ description | default("A probability model over layers of discrete nodes.") }} It has beliefs about every node given
any part of the others: inputs may be missing, and are then inferred as well.

```python
import torchlgm as lgm
from torchlgm.interop.hub import HubModel

model = HubModel.from_pretrained("{{ repo_id | default("FOLDER OR REPOSITORY") }}").model
posterior = lgm.Posterior(model, lgm.lbp())  # inputs at the first layer, asked for the root
posterior(values)  # in [0, 1], NaN = missing -> log-probabilities
posterior.infer(values)  # beliefs about every layer
```

```text
{{ graph }}
```

Energies are stored at the scale "{{ scale }}". Files: `graph.json` (the graph), `weights.safetensors` (energies),
`model.json` (checksums, and what was saved about the model). `torchlgm.load` reads the same folder. Loading runs no
code from it.

All inference but the exact one is approximate. Probabilities are those of the method, schedule and number of iterations
that the model was trained with; others give other answers.
"""


class HubModel(  # pyright: ignore[reportGeneralTypeIssues]
    ModelHubMixin,
    library_name="torchlgm",  # pyright: ignore[reportCallIssue]
    tags=["graphical-model", "missing-data"],  # pyright: ignore[reportCallIssue]
    model_card_template=TEMPLATE,  # pyright: ignore[reportCallIssue]
):
    """A model, and anything JSON-able about it in `card`, that can go to and come from the hub, or a local folder.

    `save_pretrained(folder)` writes what `torchlgm.save` writes, and a model card, README.md, unless there is one.
    `from_pretrained(folder or repository)` reads it; `push_to_hub(repository)` uploads it.
    """

    def __init__(self, model: LGM, card: Mapping[str, Any] | None = None) -> None:
        self.model = model
        self.card = dict(card or {})

    def _save_pretrained(self, save_directory: Path) -> None:
        """Beside other files, such as an edited README.md; the file with the checksums comes last."""
        with tempfile.TemporaryDirectory(dir=save_directory, prefix=".new-") as folder:
            new = save(self.model, Path(folder) / "model", self.card)
            for name in (GRAPH, WEIGHTS, CARD):
                os.replace(new / name, save_directory / name)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        device: str | torch.device = "cpu",
        **others: Any,
    ) -> HubModel:
        if not Path(model_id).is_dir():
            model_id = snapshot_download(
                model_id,
                revision=revision,
                cache_dir=cache_dir,
                force_download=force_download,
                local_files_only=local_files_only,
                token=token,
                allow_patterns=[GRAPH, WEIGHTS, CARD],
            )
        return cls(*load_with_card(model_id, device))

    def generate_model_card(self, *args: Any, **kwargs: Any) -> Any:
        about = {"graph": self.model.graph.summary(), "scale": self.model.scale}
        return super().generate_model_card(*args, **{**about, **kwargs})
