"""Whatever holds numbers, as a tensor."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from torchlgm.errors import DataError


class Array(Protocol):
    """A tensor, or what NumPy takes for an array."""

    def __array__(self) -> Any: ...

    def __len__(self) -> int: ...


def as_tensor(what: str, values: Any, missing: int | None = None) -> Tensor:
    """An array as a tensor. What is masked becomes NaN or, among integers, `missing`, unless that is None."""
    given = _unmasked(what, values, missing)
    try:
        if not isinstance(given, Tensor):
            array = np.asarray(given)
            values = torch.as_tensor(np.array(array, dtype=array.dtype.newbyteorder("=")))
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{what} of type {type(values).__name__} are no numbers; pass a tensor or an array of numbers"
        ) from error
    if values.is_complex():
        raise DataError(f"{what} are complex; expected real numbers")
    if values.layout != torch.strided or values.is_quantized or values.is_nested:
        raise DataError(f"{what} are sparse, nested or quantized; expected a plain tensor, as x.to_dense()")
    if values.is_meta:
        raise DataError(f"{what} are on the meta device and have no values")
    return values.long() if values.dtype in (torch.uint16, torch.uint32, torch.uint64) else values


def _unmasked(what: str, values: Any, missing: int | None) -> Any:
    if not isinstance(values, np.ma.MaskedArray) or not np.ma.is_masked(values):
        return values
    if values.dtype.kind == "f":
        return values.filled(np.nan)
    if missing is None:
        raise DataError(f"{what} are masked integers, which cannot be missing; pass floats")
    return np.ma.filled(values.astype(np.int64), missing)
