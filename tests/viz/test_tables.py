import pytest
import torch

from helpers.drawings import draw, texts
from torchlgm import viz
from torchlgm.errors import DataError


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 2, 2), (12, 1, 9), (3, 9, 9)])
def test_energy_tables(shape):
    tables = torch.randn(shape)
    figure = viz.energy_tables(tables.requires_grad_(), [f"${i}$" for i in range(shape[0])])
    drawn = [image for axes in figure.axes for image in axes.images]
    assert len(drawn) == shape[0]
    limit = tables.abs().max().item()
    for image, table in zip(drawn, tables.detach(), strict=True):
        full = torch.tensor(image.get_array().data)
        assert full[1:, 1:].equal(table)
        assert not full[0].any()
        assert not full[:, 0].any()
        assert image.get_clim() == (-limit, limit)
    assert [f"${i}$" in texts(figure) for i in range(shape[0])] == [True] * shape[0]
    draw(figure)


def test_small_tables_are_written_out():
    shown = texts(viz.energy_tables(torch.tensor([[[1.26, -0.01]]]), rows=["off", "on"], columns="abc"))
    counts = [shown.count(text) for text in ("1.3", "-0.0", "0.0", "off", "on", "a", "b", "c")]
    assert counts == [1, 0, 5, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("tables", "options", "message"),
    [
        (torch.ones(2, 2), {}, r"tables: expected \(n, KL-1, KR-1\)"),
        (torch.ones(41, 1, 1), {}, "at most 40 .* got 41; choose some"),
        (torch.ones(1, 1, 1), {"titles": ["a", "b"]}, "titles: expected 1 names, got 2"),
        (torch.ones(1, 1, 2), {"rows": ["a"]}, "rows: expected 2 names, got 1"),
        (torch.ones(1, 1, 2), {"columns": ["a"]}, "columns: expected 3 names, got 1"),
    ],
)
def test_bad_energy_tables(tables, options, message):
    with pytest.raises(DataError, match=message):
        viz.energy_tables(tables, **options)
