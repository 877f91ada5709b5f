"""Data sets, the ways to read them, and pure functions to prepare them."""

from torchlgm.data.catalog import load as load
from torchlgm.data.catalog import names as names
from torchlgm.data.dataset import Columns as Columns
from torchlgm.data.dataset import Data as Data
from torchlgm.data.dataset import Dataset as Dataset
from torchlgm.data.idx import read_idx as read_idx
from torchlgm.data.idx import write_idx as write_idx
from torchlgm.data.parquet import ParquetRows as ParquetRows
from torchlgm.data.shards import Shards as Shards
from torchlgm.data.splits import paper_split as paper_split
from torchlgm.data.splits import random_split as random_split
from torchlgm.data.tables import Table as Table
from torchlgm.data.tables import is_table as is_table
from torchlgm.data.tables import load_table as load_table
from torchlgm.data.transforms import Hiding as Hiding
from torchlgm.data.transforms import hide as hide
from torchlgm.data.transforms import requantise as requantise
from torchlgm.data.transforms import smooth_labels as smooth_labels
from torchlgm.data.transforms import threshold as threshold
