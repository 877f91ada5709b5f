"""The predictor: a model with all that is needed to ask it, p(target | the part of the inputs that was seen)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from copy import copy
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchlgm._utils.tracing import is_traced
from torchlgm._utils.validate import check_positive
from torchlgm.errors import InferenceError
from torchlgm.inference import Beliefs, Exact, Method, lbp, solve
from torchlgm.inference.methods import require_method
from torchlgm.inference.run import run
from torchlgm.model import LGM
from torchlgm.model.encoding import Encoding, InputEncoding
from torchlgm.model.evidence import as_tensor
from torchlgm.model.parameters import require_finite
from torchlgm.mrf import MRF, Clamp
from torchlgm.ops.compact import full
from torchlgm.ops.nll import label_nll


class Predictor(nn.Module):
    """A model, how inputs become evidence about it, and the layer that is asked for.

    `inputs` is the layer that takes the inputs, by default the first one of the graph, or an `Encoding`; `target` is by
    default the root of the graph. The log-probabilities of the target are divided by `temperature`, 1 unless
    `torchlgm.learn.fit_temperature` or you set it, and normalised again; beliefs of `infer` and `complete` never are.
    """

    def __init__(self, model: LGM, inputs: str | Encoding | None = None, target: str | None = None) -> None:
        super().__init__()
        if not isinstance(model, LGM):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InferenceError(f"model is of type {type(model).__name__}; expected an LGM")
        if not isinstance(inputs, Encoding):
            inputs = InputEncoding(layer=inputs or model.graph.layers[0].name)
        self.model = model
        self.encoding = inputs
        self.target = target or model.graph.root
        self.temperature = 1.0
        for name in (self.target, *inputs.layers):
            model.graph.layer(name)
        if self.target in inputs.layers:
            raise InferenceError(f"layer '{self.target}' takes the inputs; name another one as the target")

    @property
    def temperature(self) -> float:
        """What log-probabilities of the target are divided by."""
        return self._temperature

    @temperature.setter
    def temperature(self, value: float) -> None:
        self._temperature = check_positive("temperature", value, error=InferenceError)

    @property
    def capturable(self) -> bool:
        """Whether what is computed depends on shapes alone, so that it can be captured as a CUDA graph."""
        return True

    @property
    def target_shape(self) -> tuple[int, ...]:
        """`(labels,)` for a target of one node, else `(*shape, labels)`."""
        layer = self.model.graph.layer(self.target)
        return (layer.labels,) if layer.nodes == 1 else (*layer.sizes, layer.labels)

    @abstractmethod
    def log_probs(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        """Log-probabilities of the labels of each target node, `(B, nodes, K)`; values are not checked."""

    def forward(self, x: Any, seen: Any = None) -> Tensor:
        """Compute the log-probabilities of the labels of the target.

        Parameters
        ----------
        x : Tensor or array_like
            Inputs `(B, *shape)` in [0, 1], NaN = missing.
        seen : Tensor or array_like, optional
            A boolean mask shaped like the inputs, False for missing entries, whose values are never read.

        Returns
        -------
        Tensor
            `(B, K)` of a target of one node, else `(B, *target shape, K)`.
        """
        x, seen = self.checked(x, seen)
        return self.quicker(x, seen).answer(x, seen)

    def answer(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        """`forward` of values that are not checked."""
        log_probs = self.log_probs(x, seen).reshape(x.shape[0], *self.target_shape)
        return log_probs if self.temperature == 1 else torch.log_softmax(log_probs / self.temperature, -1)

    def checked(self, x: Any, seen: Any = None) -> tuple[Tensor, Tensor | None]:
        """Inputs and mask as tensors on the device of the model, or EvidenceError if they do not fit it.

        Raises InferenceError if parameters of the model are not finite.
        """
        require_finite(self.model)
        like = self.model.unary[self.target]
        x = as_tensor("inputs", x, like.device, like.dtype)
        seen = None if seen is None else as_tensor("seen", seen, like.device, like.dtype)
        self.encoding.check(self.model.graph, x, seen)
        return x, seen

    def quicker(self, x: Tensor, seen: Tensor | None = None) -> Self:
        """This predictor, or its form for complete inputs where these are."""
        return self if seen is not None or has_missing(x) else self.for_complete_inputs()

    def for_complete_inputs(self) -> Self:
        """The same predictor, with the same parameters, for inputs of which none is missing: it is faster."""
        twin = copy(self)
        twin.encoding = self.encoding.for_complete_inputs()
        return twin

    def extra_repr(self) -> str:
        calibrated = "" if self.temperature == 1 else f", temperature={self.temperature:.4g}"
        return f"inputs={self.encoding!r}, target={self.target!r}{calibrated}"


class Posterior(Predictor):
    """The distribution of a target given the observed part of the inputs, p(target | inputs).

    A PyTorch module: calling it gives log-probabilities.

    Parameters
    ----------
    model : LGM
        The model.
    method : Method or Exact, optional
        How to infer; `lbp()` unless another one is given.
    inputs : str or Encoding, optional
        The layer that takes the inputs, the first one of the graph by default, or how inputs become evidence.
    target : str, optional
        The layer to predict, the root of the graph by default.

    Attributes
    ----------
    temperature
        What log-probabilities of the target are divided by before they are normalised again: 1, unless
        `torchlgm.learn.fit_temperature` or you set it. Beliefs of `infer` and `complete` are not affected.

    Examples
    --------
    >>> import torchlgm as lgm
    >>> model = lgm.LGM(lgm.zoo.dense(inputs=4, hidden=[3], classes=2))
    >>> posterior = Posterior(model, lgm.lbp(iterations=1))
    >>> x = torch.tensor([[0.0, 1.0, 0.5, torch.nan]])
    >>> posterior(x).shape, posterior.complete(x).shape
    (torch.Size([1, 2]), torch.Size([1, 4]))
    """

    def __init__(
        self,
        model: LGM,
        method: Method | Exact | None = None,
        inputs: str | Encoding | None = None,
        target: str | None = None,
    ) -> None:
        super().__init__(model, inputs, target)
        self.method = lbp() if method is None else method
        require_method(self.method)

    @property
    def capturable(self) -> bool:
        return isinstance(self.method, Method) and self.method.tolerance is None

    def log_probs(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        return self.log_beliefs(self.condition(x, seen), (self.target,))[self.target]

    def label_nll(self, x: Tensor, labels: Tensor) -> Tensor:
        """Mean over samples of the summed negative log-likelihood of target labels `(B,)` or `(B, nodes)`, -1 =
        missing; values are not checked."""
        mrf = self.condition(x)
        if isinstance(self.method, Exact):
            log_probs = self.log_beliefs(mrf, (self.target,))[self.target].flatten(0, 1)
            return F.nll_loss(log_probs, labels.flatten(), ignore_index=-1, reduction="sum") / mrf.batch
        inflow = run(mrf, self.method, want=(self.target,), include_unary=False).beliefs[self.target]
        inflow = inflow.expand(mrf.batch, -1, -1)
        return label_nll(inflow, mrf.unary[self.target], labels.reshape(inflow.shape[:2]))

    def infer(self, x: Any, seen: Any = None, want: Iterable[str] | None = None) -> Beliefs:
        """Infer the beliefs about all layers, the inputs' included.

        Parameters
        ----------
        x : Tensor or array_like
            Inputs `(B, *shape)` in [0, 1], or integer labels; NaN = missing.
        seen : Tensor or array_like, optional
            A boolean mask shaped like the inputs, False where missing; values there are never read.
        want : iterable of str, optional
            The layers whose beliefs are needed; None for all.

        Returns
        -------
        Beliefs
            By layer name.
        """
        x, seen = self.checked(x, seen)
        return solve(self.quicker(x, seen).condition(x, seen), self.method, want)

    def complete(self, x: Any, seen: Any = None) -> Tensor:
        """Replace every missing input by its expected value.

        Parameters
        ----------
        x, seen
            As for `infer`.

        Returns
        -------
        Tensor
            Shaped like the inputs; observed values stay as they are.
        """
        given = x
        x, seen = self.checked(x, seen)
        given = given if isinstance(given, Tensor) else x  # in its own dtype, on its own device
        beliefs = solve(self.condition(x, seen), self.method, want=self.encoding.layers)
        probs = {name: beliefs[name].probs.flatten(1, -2) for name in self.encoding.layers}
        missing = x.isnan() if seen is None else x.isnan() | ~seen.reshape(x.shape)
        return torch.where(missing.to(given.device), self.encoding.values(probs).reshape(x.shape).to(given), given)

    def evidence(self, x: Any, seen: Any = None) -> dict[str, Clamp]:
        """The inputs as evidence about the model, for `torchlgm.infer` and `torchlgm.explain`.

        Parameters
        ----------
        x, seen
            As for `infer`.

        Returns
        -------
        dict
            Evidence by layer name.
        """
        x, seen = self.checked(x, seen)
        return self.quicker(x, seen).encoding(self.model, x, seen)

    def condition(self, x: Tensor, seen: Tensor | None = None) -> MRF:
        """Condition the model on inputs; neither they nor the parameters are checked. See `LGM.absorb`."""
        return self.model.absorb(self.encoding(self.model, x, seen))

    def log_beliefs(self, mrf: MRF, layers: tuple[str, ...]) -> dict[str, Tensor]:
        """Log-probabilities `(B, nodes, K)` of layers with free nodes."""
        if isinstance(self.method, Exact):
            beliefs = solve(mrf, self.method)
            return {name: beliefs[name].log_probs.flatten(1, -2) for name in layers}
        beliefs = run(mrf, self.method, want=layers).beliefs
        return {name: torch.log_softmax(full(beliefs[name]), -1).expand(mrf.batch, -1, -1) for name in layers}

    def extra_repr(self) -> str:
        return f"method={self.method!r}, {super().extra_repr()}"


def has_missing(x: Tensor) -> bool:
    """Whether an input is NaN, or may be since values cannot be looked at."""
    return is_traced(x) or (x.is_floating_point() and bool(x.isnan().any()))
