"""What is not part of scikit-learn's public interface and is used all the same; a new release may break it."""

from __future__ import annotations

from typing import Any

from sklearn.utils._set_output import _get_output_config, _wrap_data_with_container


def wants_frame(estimator: Any) -> bool:
    """Whether `set_output`, or the configuration, asks for a frame in place of an array."""
    return _get_output_config("transform", estimator)["dense"] != "default"


def in_container(columns: dict[str, Any], table: Any, estimator: Any) -> Any:
    """`columns` as the kind of frame that `set_output` asked for, with the index of `table`."""
    return _wrap_data_with_container("transform", columns, table, estimator)
