"""A fitted LGMClassifier as a folder: graph and energies as any saved model, all else as JSON in its card."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchlgm.errors import CheckpointError, LGMError
from torchlgm.inference import BELIEF_SCHEDULES, METHODS, SCHEDULES, Method
from torchlgm.joint import CalibrationRows
from torchlgm.model import LGM, load_members, load_with_card, save
from torchlgm.sklearn.columns import Categories, Column, Numbers
from torchlgm.sklearn.encoding import Place, Plan
from torchlgm.sklearn.mixture import Mixture
from torchlgm.sklearn.parts import Part, require_parts
from torchlgm.spec import Graph

if TYPE_CHECKING:
    from torchlgm.sklearn.classifier import LGMClassifier

CARD = "torchlgm.LGMClassifier"


def write(classifier: LGMClassifier, path: str | Path) -> Path:
    """Save a fitted classifier to the folder `path`."""
    plan = classifier._plan
    card = {
        "card": CARD,
        "parameters": _parameters_as_json(classifier.get_params(deep=False)),
        "classes": _values_as_json(classifier.classes_.tolist()),
        "columns": [_column_as_json(column) for column in plan.columns],
        "parts": [list(part) for part in plan.parts],
        "places": [asdict(place) for place in plan.places],
        "shape": list(plan.shape),
        "features": getattr(classifier, "feature_names_in_", np.array([])).tolist() or None,
        "losses": classifier.loss_curve_,
        "calibration_rows": None if (rows := classifier.calibration_rows_) is None else rows.as_json(),
        "mixture": asdict(classifier.mixture_),
        "labels_of_class": None if (shares := classifier._labels_of_class) is None else shares.tolist(),
    }
    return save(classifier.model_, path, card, classifier.members_[1:])


def read(classifier: type[LGMClassifier], path: str | Path) -> LGMClassifier:
    """The classifier saved at `path`."""
    model, card = load_with_card(path)
    if card.get("card") != CARD:
        raise CheckpointError(f"{path}: a model, but not an LGMClassifier; load it with torchlgm.load")
    try:
        return _restored(classifier(**_parameters(card["parameters"])), [model, *load_members(path)], card)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError, LGMError) as error:
        raise CheckpointError(f"{path}: the description of the classifier is damaged ({error!r})") from error


def _restored(made: LGMClassifier, members: list[LGM], card: dict[str, Any]) -> LGMClassifier:
    columns = tuple(_column(saved) for saved in card["columns"])
    places = tuple(Place(p["layer"], tuple(p["columns"]), p["labels"]) for p in card["places"])
    known = set(range(len(columns)))  # an empty one has a place too
    parts = tuple(Part(*part) for part in card["parts"])
    require_parts(parts, len(columns))
    made._plan = Plan(parts, columns, places, members[0].graph, tuple(card["shape"]))
    for place in places:
        layer = members[0].graph.layer(place.layer)
        if (layer.nodes, layer.labels) != (len(place.columns), place.labels) or not {*place.columns} <= known:
            raise CheckpointError(f"{place} does not fit {layer}")
    saved = card["mixture"]
    mixture = Mixture(tuple(map(float, saved["bias"])), tuple(map(float, saved["slope"])), saved["members"])
    if not mixture.suits(len(members)):
        raise CheckpointError(f"a mixture of {mixture}, but {len(members)} members")
    made._keep([model.to(made.device) for model in members], mixture)
    shares = card["labels_of_class"]
    made._labels_of_class = None if shares is None else torch.tensor(shares, dtype=torch.float32)
    made.classes_ = np.asarray(card["classes"])
    made.loss_curve_ = card["losses"]
    made.calibration_rows_ = None if (rows := card["calibration_rows"]) is None else CalibrationRows.from_json(rows)
    made.n_iter_ = len(card["losses"])
    learned: dict[str, Any] = {"n_features_in_": len(made._plan.of_table)}  # which scikit-learn sets in fit
    if card["features"] is not None:
        learned["feature_names_in_"] = np.asarray(card["features"], dtype=object)
    made.__dict__.update(learned)
    return made


def _parameters_as_json(given: dict[str, Any]) -> dict[str, Any]:
    graph, method, weights = given["architecture"], given["method"], given["class_weight"]
    chosen, random = given["categorical_features"], given["random_state"]
    return given | {
        "architecture": {"graph": graph.to_json()} if isinstance(graph, Graph) else graph,
        "method": None if method is None else _method_as_json(method),
        "class_weight": [_values_as_json(pair) for pair in weights.items()] if hasattr(weights, "items") else weights,
        "categorical_features": chosen if chosen is None or isinstance(chosen, str) else np.asarray(chosen).tolist(),
        "random_state": None if isinstance(random, np.random.RandomState) else random,
    }


def _parameters(saved: dict[str, Any]) -> dict[str, Any]:
    graph, method, weights = saved["architecture"], saved["method"], saved["class_weight"]
    tuples = {name: tuple(value) for name, value in saved.items() if isinstance(value, list)}
    return (
        saved
        | {name: tuples[name] for name in ("hidden", "visible", "image_shape") if name in tuples}
        | {
            "architecture": Graph.from_json(graph["graph"]) if isinstance(graph, dict) else graph,
            "method": None if method is None else _method(method),
            "class_weight": dict(weights) if isinstance(weights, list) else weights,
        }
    )


def _method_as_json(method: Method) -> dict[str, Any]:
    orders = {order: name for known in (SCHEDULES, BELIEF_SCHEDULES) for name, order in known.items()}
    options = {name: getattr(method, name) for name in ("damping", "tolerance", "gradient")}
    saved = {"name": method.rule.name, "iterations": method.iterations, "schedule": orders.get(method.schedule)}
    saved["options"] = {**method.rule.options, **options}
    try:
        same = _method(saved) == method
    except (KeyError, TypeError, ValueError):
        same = False
    if not same:
        raise CheckpointError(f"method={method!r} cannot be saved; expected lbp(), trw() or mean_field()")
    return saved


def _method(saved: dict[str, Any]) -> Method:
    return METHODS[saved["name"]](saved["iterations"], saved["schedule"], **saved["options"])


def _column_as_json(column: Column | None) -> dict[str, Any] | None:
    if isinstance(column, Categories):
        values, infrequent = map(_values_as_json, (column.values, column.infrequent))
        return {"values": values, "labels": column.labels, "infrequent": infrequent}
    return None if column is None else {"knots": list(column.knots), "kind": column.kind}


def _column(saved: dict[str, Any] | None) -> Column | None:
    if saved is None:
        return None
    if "knots" in saved:
        return Numbers(tuple(saved["knots"]), saved["kind"])
    return Categories(tuple(saved["values"]), saved["labels"], tuple(saved["infrequent"]))


def _values_as_json(values: Any) -> list[Any]:
    """Labels or categories: text and numbers, those of NumPy as Python's."""
    return [value.item() if isinstance(value, np.generic) else value for value in values]
