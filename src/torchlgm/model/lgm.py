"""The model: energy tables of a graph, conditioned on evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NoReturn, Self

import torch
from torch import Tensor, nn

from torchlgm._utils.arrays import as_tensor
from torchlgm._utils.machine import physical_memory, usable_device
from torchlgm.errors import GraphError, InferenceError, TooLargeError
from torchlgm.layout import LEFT, RIGHT, Layout, TurnedLayout, appearance, colour_masks
from torchlgm.model.evidence import encode
from torchlgm.model.init import Init, balanced_scales, fill_normal, named
from torchlgm.model.parameters import require_finite, require_shapes
from torchlgm.mrf import MRF, Clamp, Evidence, EvidenceTerm, LazyEvidence, Link, pin
from torchlgm.spec import Graph

COLOURED = 300  # bytes for each edge inside a layer, while its nodes are given colours


class LGM(nn.Module):
    """The energies of a layered graphical model, `p(x) ~ exp(-sum_i E_i(x_i) - sum_ij E_ij(x_i, x_j))`.

    A module of PyTorch that does one thing: `condition(evidence) -> MRF`.

    Parameters
    ----------
    graph : Graph
        Its layers and connections.
    init : {"default", "paper", "zero"} or Init
        The initial energies, and the scale at which tables are stored; `"paper"` draws energies from N(0, 1).
    scale : {"balanced", "energy", "rho"}, optional
        Another scale than that of `init`.
    generator : torch.Generator, optional
        PyTorch's default generator if None.
    device, dtype
        As for other modules of PyTorch.

    Attributes
    ----------
    unary
        Energies of nodes by layer, `(nodes, K-1)` each; those of label 0 are 0.
    table
        Stored numbers by connection; `energies` gives the energies that they stand for.

    Examples
    --------
    >>> from torchlgm import zoo
    >>> model = LGM(zoo.rbm(visible=4, hidden=3))
    >>> model.unary["visible"].shape, model.energies("visible-hidden").shape
    (torch.Size([4, 1]), torch.Size([4, 3, 1, 1]))
    >>> mrf = model.condition({"visible": torch.tensor([[1.0, 0.0, torch.nan, 0.5]])})
    >>> list(mrf.unary)  # layers with free nodes
    ['visible', 'hidden']
    """

    def __init__(
        self,
        graph: Graph,
        init: str | Init = "default",
        scale: str | None = None,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.init = named(init) if scale is None else replace(named(init), scale=scale)
        _check_given(graph, generator)
        _check_names(graph)
        self.graph = graph
        self.scale = self.init.scale
        self._balanced = balanced_scales(graph)
        device, dtype = _factory(device, dtype)
        _check_size(graph, device, dtype)
        layouts = _layouts_on_cpu(graph)
        self._set_rho(layouts, device, dtype)
        self._set_colours(layouts, device)
        self.layouts = nn.ModuleDict(layouts).to(device=device, dtype=dtype)
        self.unary = nn.ParameterDict()  # filled one by one: given a dict, it would sort the layers by name
        for layer in graph.layers:
            self.unary[layer.name] = nn.Parameter(
                torch.empty(layer.nodes, layer.labels - 1, device=device, dtype=dtype)
            )
        self.table = nn.ParameterDict()
        for c in graph.connections:
            left, right = graph.ends(c)
            shape = (*self._layouts[c.name].table_shape, left.labels - 1, right.labels - 1)
            self.table[c.name] = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self._shapes = {name: tuple(p.shape) for name, p in self.named_parameters()}
        self.start_left, self.start_right = nn.ParameterDict(), nn.ParameterDict()
        self.reset_parameters(generator)

    def set_start(self, connection: str, to_left: Tensor, to_right: Tensor) -> None:
        """Let messages over `connection` start at these values instead of 0; they are saved with the model.

        `to_left` `(*edge, left labels - 1)` and `to_right` `(*edge, right labels - 1)` are what a node receives over
        an edge, as log-odds against label 0. A model made from tables of another form starts with them where its
        tables would: at messages that favour no label.
        """
        if connection not in self._layouts:
            raise GraphError(f"no connection '{connection}'; the graph has {', '.join(self._layouts)}")
        edges, (kl, kr) = self._layouts[connection].edge_shape, self.table[connection].shape[-2:]
        for side, given, k in ((self.start_left, to_left, kl), (self.start_right, to_right, kr)):
            given = as_tensor(f"the start of connection '{connection}'", given)
            if tuple(given.shape) != (*edges, k):
                raise GraphError(
                    f"the start of connection '{connection}' is shaped {tuple(given.shape)}, expected {(*edges, k)}"
                )
            value = given.detach().to(self.table[connection])
            side[connection] = nn.Parameter(value.clone(), requires_grad=False)

    def _start(self, connection: str) -> tuple[Tensor, Tensor] | None:
        if connection not in self.start_left:
            return None
        return self.start_left[connection], self.start_right[connection]

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the initial energies again, in place.

        Parameters
        ----------
        generator : torch.Generator, optional
            On any device: a seed gives the same energies on all of them. PyTorch's default generator if None.
        """
        fill_normal(self.unary, self.init.unary, generator)
        fill_normal(self.table, self.init.table, generator)

    @property
    def _layouts(self) -> Mapping[str, Layout]:
        return self.layouts  # pyright: ignore[reportReturnType]

    @property
    def _turned(self) -> Mapping[str, TurnedLayout]:
        return self.turned  # pyright: ignore[reportReturnType]

    def _set_rho(self, layouts: Mapping[str, Layout], device: torch.device, dtype: torch.dtype) -> None:
        """Compute rho in float64 on the CPU, since not every device has it, then round and move it."""
        for name, rho in appearance(self.graph, layouts).items():
            self.register_buffer(f"rho_{name}", rho.to(dtype).to(device), persistent=False)

    def _set_colours(self, layouts: Mapping[str, Layout], device: torch.device) -> None:
        """Of the nodes of layers with edges inside, and those edges turned by colour."""
        self.turned = nn.ModuleDict()
        inside: dict[str, list[str]] = {}
        for c in self.graph.connections:
            if c.is_lateral:
                inside.setdefault(c.left, []).append(c.name)
        for layer, names in inside.items():
            with torch.device("cpu"):
                colours = colour_masks([layouts[name] for name in names])
                self.turned.update({name: TurnedLayout(layouts[name], colours) for name in names})
            self.register_buffer(f"colours_{layer}", colours.to(device), persistent=False)
        self.turned.to(device)
        self._colours = {layer: f"colours_{layer}" for layer in inside}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What `.to()`, `.double()` and the like do. In another dtype rho is computed again, not converted."""
        before = [rho.dtype for _, rho in self.named_buffers(recurse=False)]
        super()._apply(fn, recurse)
        rhos = list(self.buffers(recurse=False))
        if [rho.dtype for rho in rhos] != before:
            self._set_rho(_layouts_on_cpu(self.graph), rhos[0].device, rhos[0].dtype)
        return self

    def rho(self, connection: str) -> Tensor:
        """Edge appearance probabilities of the whole graph, broadcastable to the edges."""
        return self.get_buffer(f"rho_{connection}")

    def energies(self, connection: str) -> Tensor:
        """The pairwise energies, in the layout's stored shape or, with scale "rho", expanded."""
        table, scale = self._stored(connection)
        return table if scale == 1 else table * scale

    def _stored(self, connection: str) -> tuple[Tensor, float]:
        """A table and the number to multiply it by."""
        table = self.table[connection]
        if self.scale == "rho":
            return self._layouts[connection].expand(table) * self.rho(connection)[..., None, None], 1.0
        return table, self._balanced[connection] if self.scale == "balanced" else 1.0

    def condition(self, evidence: Evidence | None = None) -> MRF:
        """Absorb what is observed; `evidence` maps layer names to values, see `torchlgm.model.evidence.encode`.

        Raises InferenceError if parameters are not finite; each version of them is looked at once.
        """
        require_finite(self)
        like = next(iter(self.unary.values()))
        return self.absorb(encode(self.graph, {} if evidence is None else evidence, like.dtype, like.device))

    def absorb(self, clamps: Mapping[str, Clamp]) -> MRF:
        """`condition` on evidence that is encoded already; neither its values nor the parameters' are checked."""
        require_shapes(self, self._shapes)
        unary = {name: u.unsqueeze(0) for name, u in self.unary.items()}
        batch = next((c.q.shape[0] for c in clamps.values()), 1)
        observed = [(clamp.q, unary[name]) for name, clamp in clamps.items()]
        fields: dict[str, list[EvidenceTerm | Tensor]] = {}
        links: list[Link] = []
        observed_links: list[Link] = []
        for c in self.graph.connections:
            layout, (table, scale) = self._layouts[c.name], self._stored(c.name)
            link = Link(c.name, c.left, c.right, layout, table, self.rho(c.name), scale, self._start(c.name))
            ends = [clamps.get(c.left), clamps.get(c.right)]
            for side, target in ((LEFT, c.right), (RIGHT, c.left)):
                source, other = ends[side], ends[1 - side]
                if source is None or (side == RIGHT and not _has_free(other)):
                    continue
                field = EvidenceTerm(link, side, source.q)
                if side == LEFT and other is not None:
                    field = field.field
                    observed.append((other.q, -field))
                if _has_free(other):
                    fields.setdefault(target, []).append(field)
            if not all(map(_has_free, ends)):
                observed_links.append(link)
            else:
                links.append(link.turned(self._turned[c.name]) if c.is_lateral else link)
        kept = [n for n in unary if _has_free(clamps.get(n))]
        return MRF(
            unary={n: _pinned(unary[n], clamps.get(n)) for n in kept},
            evidence=LazyEvidence({n: fields[n] for n in kept if n in fields}),
            links=tuple(links),
            observed_links=tuple(observed_links),
            observed=tuple(observed),
            batch=batch,
            shapes={layer.name: layer.sizes for layer in self.graph.layers},
            clamps=clamps,
            colours={layer: self.get_buffer(name) for layer, name in self._colours.items() if layer in kept},
        )

    def forward(self, *inputs: object) -> NoReturn:
        raise InferenceError("a model is asked by torchlgm.infer(model, evidence, method), it is not called")

    def extra_repr(self) -> str:
        return f"{self.graph.summary()}\nscale={self.scale!r}"


def _layouts_on_cpu(graph: Graph) -> dict[str, Layout]:
    with torch.device("cpu"):
        return {c.name: c.make_layout(*graph.ends(c)) for c in graph.connections}


def _factory(device: torch.device | str | None, dtype: torch.dtype | None) -> tuple[torch.device, torch.dtype]:
    """Where parameters are made: PyTorch's defaults where None."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise GraphError(f"dtype={dtype!r}; expected a floating-point dtype, such as torch.float32")
    return torch.get_default_device() if device is None else usable_device(device, GraphError), dtype


def _check_given(graph: object, generator: object) -> None:
    if not isinstance(graph, Graph):
        raise GraphError(f"graph is of type {type(graph).__name__}; expected a Graph, such as zoo.dense()")
    if not isinstance(generator, torch.Generator | None):
        raise GraphError(f"generator={generator!r}; expected torch.Generator().manual_seed(...) or None")


def _check_size(graph: Graph, device: torch.device, dtype: torch.dtype) -> None:
    """Raise TooLargeError for a model that this machine could not hold, before anything is allocated."""
    edges = graph.edges
    needed, memory = max(graph.parameters, edges) * dtype.itemsize, physical_memory()
    for c in graph.connections:
        if c.is_lateral:
            needed += COLOURED * c.count_edges(graph.layer(c.left), graph.layer(c.right))
    if device.type != "meta" and needed > memory:
        raise TooLargeError(
            f"a model of {graph.parameters:,} energies and {edges:,} edges takes {needed / 2**30:,.0f} GiB, and this "
            f"machine has {memory / 2**30:,.0f}; make layers smaller, or connect them by windows or lists of edges"
        )


def _check_names(graph: Graph) -> None:
    for name in (*graph.layer_names, *[c.name for c in graph.connections]):
        if hasattr(nn.ParameterDict(), name) or hasattr(nn.ModuleDict(), name):
            raise GraphError(f"'{name}' is a name that PyTorch modules use themselves; choose another")


def _has_free(clamp: Clamp | None) -> bool:
    return clamp is None or clamp.free is not None


def _pinned(unary: Tensor, clamp: Clamp | None) -> Tensor:
    return unary if clamp is None or clamp.free is None else pin(unary, clamp.free)
