"""What commands write."""

import json

import pytest

from torchlgm.cli.io import as_json
from torchlgm.errors import DataError


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_json_has_no_number_that_is_not_finite(bad):
    with pytest.raises(DataError, match=rf"rows\.1\.nll = {bad} is not a finite number"):
        as_json({"part": "test", "rows": [{"nll": 0.5}, {"nll": bad}]})


def test_json_of_finite_numbers():
    value = {"rows": [{"nll": 0.5}, {"nll": None}], "name": "ü"}
    assert json.loads(as_json(value)) == value
