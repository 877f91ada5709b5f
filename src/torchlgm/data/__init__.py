"""Data sets, the ways to read them, and pure functions to prepare them."""

from torchlgm.data.catalog import load, names
from torchlgm.data.dataset import Columns, Data, Dataset
from torchlgm.data.idx import read_idx, write_idx
from torchlgm.data.splits import paper_split, random_split
from torchlgm.data.tables import Table, load_table
from torchlgm.data.transforms import hide, requantise, smooth_labels, threshold

__all__ = [
    "Columns",
    "Data",
    "Dataset",
    "Table",
    "hide",
    "load",
    "load_table",
    "names",
    "paper_split",
    "random_split",
    "read_idx",
    "requantise",
    "smooth_labels",
    "threshold",
    "write_idx",
]
