"""WHEN messages are sent: orders of directed connections. Knows no tensor and no formula.

A schedule turns the wiring of an MRF into two lists of events, those of the first iteration and those of every later
one. `Update` makes a layer's belief from the messages it has; `Send` replaces messages, all of one `Send` at the same
time, from the beliefs as they are and from the messages in the other direction as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from torchlgm.errors import InferenceError


class Hop(NamedTuple):
    """One connection in one direction: out of its side `side` (0 left, 1 right)."""

    link: int
    side: int
    source: str
    target: str

    @property
    def back(self) -> Hop:
        return Hop(self.link, 1 - self.side, self.target, self.source)


class Update(NamedTuple):
    layer: str
    evidence: bool = True


class Send(NamedTuple):
    hops: tuple[Hop, ...]
    colour: int | None = None  # of the target's nodes: only messages into them are replaced


Event = Update | Send


class Wiring(NamedTuple):
    """The layers with free nodes in declared order (input first) and every hop between or inside them.

    Inside a layer, hops out of side 0 go from lower to higher colours, those out of side 1 back.
    """

    layers: tuple[str, ...]
    hops: tuple[Hop, ...]
    colours: tuple[tuple[str, int], ...] = ()  # how many colours the nodes of layers with edges inside have

    def out_of(self, layer: str) -> tuple[Hop, ...]:
        return tuple(h for h in self.hops if h.source == layer)

    def into(self, layer: str) -> tuple[Hop, ...]:
        return tuple(h for h in self.hops if h.target == layer)

    def onward(self, layer: str, reverse: bool) -> tuple[Hop, ...]:
        """Hops out of `layer` to layers declared after it, or before it."""
        at = self.layers.index
        return tuple(h for h in self.out_of(layer) if h.target != layer and (at(h.target) > at(layer)) != reverse)

    def inside(self, layer: str, reverse: bool) -> tuple[Hop, ...]:
        """Hops inside `layer` from lower to higher colours, or back."""
        return tuple(h for h in self.out_of(layer) if h.target == layer and h.side == reverse)

    def colours_of(self, layer: str) -> Sequence[int | None]:
        """The colours of the nodes of `layer`; None for all nodes of one without edges inside."""
        count = dict(self.colours).get(layer)
        return (None,) if count is None else range(count)


class Events(NamedTuple):
    first: tuple[Event, ...]
    later: tuple[Event, ...]


Schedule = Callable[[Wiring], Events]


def checked_events(events: object, wiring: Wiring) -> Events:
    """What a schedule gave for a wiring, as tuples, or an InferenceError if that cannot be done."""
    if not isinstance(events, Events):
        raise InferenceError(f"the schedule gave a {type(events).__name__}; expected Events(first, later)")
    if not all(isinstance(part, Iterable) for part in events):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InferenceError(f"the schedule gave {events!r}; expected two tuples of events")
    believed: set[str] = set()
    first = tuple([_checked(event, wiring, believed) for event in events.first])
    later = tuple([_checked(event, wiring, believed) for event in events.later])
    return Events(first, later)


def _checked(event: object, wiring: Wiring, believed: set[str]) -> Event:
    """An event, of which `believed`, the layers that have a belief, take note."""
    if isinstance(event, Update):
        if event.layer not in wiring.layers:
            raise InferenceError(
                f"the schedule has {event}, but the layers with free nodes are {', '.join(wiring.layers)}; take names "
                "from wiring.layers"
            )
        believed.add(event.layer)
        return event
    if not isinstance(event, Send):
        raise InferenceError(f"the schedule has {event!r}; expected Update(layer) or Send(hops)")
    if not isinstance(event.hops, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InferenceError(f"the schedule has {event!r}; expected a tuple of hops from wiring.hops")
    hops, colour = tuple(event.hops), event.colour
    for hop in hops:
        if hop not in wiring.hops:
            raise InferenceError(f"the schedule sends over {hop!r}; expected a tuple of hops from wiring.hops")
        if hop.source not in believed:
            raise InferenceError(
                f"the schedule sends from layer '{hop.source}' before its first Update; put one before"
            )
        if colour is not None and colour not in wiring.colours_of(hop.target):
            raise InferenceError(f"the schedule has {event!r}; expected colours from wiring.colours_of(hop.target)")
    return Send(hops, colour)


def parallel(wiring: Wiring) -> Events:
    """The paper's parallel schedule: all beliefs, then all messages from those beliefs and the old messages.

    Evidence counts as a message that starts at 0, so the first beliefs do not know it yet.
    """
    return _paper(wiring, (Send(wiring.hops),))


def sequential(wiring: Wiring) -> Events:
    """The paper's sequential schedule: all beliefs, then layer by layer the messages, each replaced at once."""
    return _paper(wiring, tuple(Send((hop,)) for layer in wiring.layers for hop in wiring.out_of(layer)))


def _paper(wiring: Wiring, sends: tuple[Event, ...]) -> Events:
    first = tuple(Update(layer, evidence=False) for layer in wiring.layers)
    later = tuple(Update(layer) for layer in wiring.layers)
    return Events(first + sends, later + sends)


def sweep(wiring: Wiring) -> Events:
    """Forward, then backward through the layers as declared; evidence counts at once, and each belief is updated
    before it is sent. Inside a layer, messages go up the colours on the way forward and down on the way back."""
    order = [(layer, False) for layer in wiring.layers] + [(layer, True) for layer in reversed(wiring.layers)]
    sends = [(layer, part(layer, reverse)) for layer, reverse in order for part in (wiring.inside, wiring.onward)]
    events = tuple(event for layer, hops in sends if hops for event in (Update(layer), Send(hops)))
    return Events(events, events)


def belief_sequential(wiring: Wiring) -> Events:
    """Mean field layer by layer, colour by colour inside a layer: each belief is made from its neighbours' newest
    beliefs and used at once, so the bound never falls."""
    start = tuple(Update(layer, evidence=False) for layer in wiring.layers)
    body = _pulls(wiring, _parts(wiring))
    return Events(start + body, body)


def belief_sweep(wiring: Wiring) -> Events:
    """Mean field forward, then backward through the layers, evidence at once.

    The last layer is visited both ways too: with damping that counts, and which layer is the last one with free nodes
    may depend on other samples.
    """
    start = tuple(Update(layer) for layer in wiring.layers)
    body = _pulls(wiring, _parts(wiring)) + _pulls(wiring, _parts(wiring)[::-1])
    return Events(start + body, body)


Part = tuple[str, int | None]  # the nodes of one colour of a layer, or all


def _parts(wiring: Wiring) -> list[Part]:
    return [(layer, colour) for layer in wiring.layers for colour in wiring.colours_of(layer)]


def _pulls(wiring: Wiring, parts: list[Part]) -> tuple[Event, ...]:
    return tuple(event for layer, colour in parts for event in (Send(wiring.into(layer), colour), Update(layer)))
