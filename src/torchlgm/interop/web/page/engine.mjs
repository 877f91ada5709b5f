// Inference: loopy belief propagation, tree-reweighted, and mean field, by the formulas of torchlgm.
//
// A node with K labels has K-1 numbers; label 0 is fixed to 0 and takes part in every sum. A belief is minus the unary,
// plus what observed neighbours say (the field), plus the messages that come in. Observed nodes send no message, and
// edges with an observed end are left out.
//
// An inference is a list of events, as the schedule has it for so many iterations: {update: layer} makes a belief,
// {send: hops} makes messages at the same time. Events that nothing wanted depends on are dropped before it runs.

export const softplus = (x) => (x > 0 ? x + Math.log1p(Math.exp(-x)) : Math.log1p(Math.exp(x)));
export const sigmoid = (x) => 1 / (1 + Math.exp(-x));

/**
 * Beliefs about layers given evidence: {layer: probabilities of all labels, node by node}.
 *
 * `evidence` is {layer: probabilities of the labels 1 .. K-1 of each node, NaN = not observed}, and `method` is
 * {name: 'lbp' | 'trw' | 'mean_field', schedule: 'sweep' | 'sequential' | 'parallel', iterations, damping,
 * divide_by_rho}. Only layers in `want` are answered, all by default.
 */
export function infer(model, evidence, method, want = model.layers.map((layer) => layer.name)) {
  const state = run(condition(model, evidence), method, want);
  return Object.fromEntries(want.map((name) => [name, probabilities(state.mrf.byName[name], state.beliefs[name])]));
}

/** The beliefs of `infer` after 1, 2, ... iterations, from one run. */
export function trace(model, evidence, method, want) {
  const mrf = condition(model, evidence), { hops, iterations } = program(mrf, method);
  const state = { mrf, beliefs: {}, messages: [] };
  return iterations.map((events) => {
    perform(events, state, hops, method);
    const read = (name) => belief(mrf.byName[name], true, hops, state.messages);
    return Object.fromEntries(want.map((name) => [name, probabilities(mrf.byName[name], read(name))]));
  });
}

/** A model with evidence absorbed: which nodes are free, the field of each layer, and the edges between free nodes. */
export function condition(model, evidence) {
  const layers = model.layers.map((layer) => {
    const q = evidence[layer.name];
    if (!q) return { ...layer, q: null, free: null, observed: false, field: null };
    const free = Uint8Array.from({ length: layer.nodes }, (_, i) => (Number.isNaN(q[i * layer.k]) ? 1 : 0));
    return { ...layer, q, free, observed: !free.includes(1), field: null };
  });
  const byName = Object.fromEntries(layers.map((layer) => [layer.name, layer]));
  const links = [];
  for (const link of model.links) {
    const left = byName[link.left], right = byName[link.right];
    addField(link, left, right, 0);
    addField(link, right, left, 1);
    if (!left.observed && !right.observed) links.push(betweenFree(link, left, right));
  }
  return { layers, byName, links };
}

/** Minus the expected energies toward observed nodes of `source`, added to the field of `target`. */
function addField(link, source, target, side) {
  if (!source.q || target.observed) return;
  target.field ??= new Float64Array(target.nodes * target.k);
  const [from, to] = side === 0 ? [link.a, link.b] : [link.b, link.a];
  const { energies, t, kl, kr } = link, size = kl * kr, [sx, sy] = side === 0 ? [kr, 1] : [1, kr];
  for (let e = 0; e < t.length; e++) {
    if (source.free[from[e]]) continue;
    for (let x = 0; x < source.k; x++) {
      const q = source.q[from[e] * source.k + x];
      if (q !== 0) for (let y = 0; y < target.k; y++) target.field[to[e] * target.k + y] -= energies[t[e] * size + x * sx + y * sy] * q;
    }
  }
}

function betweenFree(link, left, right) {
  if (!left.free && !right.free) return link;
  const kept = [];
  for (let e = 0; e < link.t.length; e++) {
    if ((!left.free || left.free[link.a[e]]) && (!right.free || right.free[link.b[e]])) kept.push(e);
  }
  const pick = (x) => x.constructor.from(kept, (e) => x[e]);
  return { ...link, a: pick(link.a), b: pick(link.b), t: pick(link.t), rho: pick(link.rho) };
}

/** Make what is wanted; with a `tape`, write down what was made from what, for gradients. */
export function run(mrf, method, want, tape = null) {
  const { hops, iterations, layers } = program(mrf, method);
  const wanted = want.filter((name) => layers.includes(name));
  const state = { mrf, beliefs: {}, messages: [] };
  perform(needed(iterations.flat(), wanted, hops, method), state, hops, method, tape);
  return state;
}

/** The free layers, both directions of each connection between them, and the events of each iteration. */
function program(mrf, method) {
  const layers = mrf.layers.filter((layer) => !layer.observed).map((layer) => layer.name);
  const hops = mrf.links.flatMap((link, i) => [
    { id: 2 * i, back: 2 * i + 1, link, side: 0, source: link.left, target: link.right },
    { id: 2 * i + 1, back: 2 * i, link, side: 1, source: link.right, target: link.left },
  ]);
  return { layers, hops, iterations: eventsOf(method, layers, hops) };
}

function perform(events, state, hops, method, tape) {
  const { mrf, beliefs, messages } = state;
  for (const event of events) {
    if (event.update) {
      beliefs[event.update] = belief(mrf.byName[event.update], event.evidence, hops, messages, tape);
    } else {
      const made = event.send.map((hop) => message(hop, method, beliefs[hop.source], messages, mrf, tape));
      event.send.forEach((hop, i) => { messages[hop.id] = made[i]; });
    }
  }
}

function eventsOf({ name, schedule, iterations }, layers, hops) {
  const update = (layer, evidence = true) => ({ update: layer, evidence });
  const into = (layer) => ({ send: hops.filter((hop) => hop.target === layer) });
  const outOf = (layer) => hops.filter((hop) => hop.source === layer);
  const at = (layer) => layers.indexOf(layer);
  let first, later;
  if (name === 'mean_field' && schedule !== 'parallel') {
    const pulls = (order) => order.flatMap((layer) => [into(layer), update(layer)]);
    later = schedule === 'sweep' ? [...pulls(layers), ...pulls([...layers].reverse())] : pulls(layers);
    first = [...layers.map((layer) => update(layer, schedule === 'sweep')), ...later];
  } else if (schedule === 'sweep') {
    const onward = (layer, sign) => outOf(layer).filter((hop) => sign * (at(hop.target) - at(layer)) > 0);
    const way = (order, sign) => order.filter((layer) => onward(layer, sign).length)
      .flatMap((layer) => [update(layer), { send: onward(layer, sign) }]);
    first = later = [...way(layers, 1), ...way([...layers].reverse(), -1)];
  } else {
    const sends = schedule === 'parallel' ? [{ send: hops }] : layers.flatMap((layer) => outOf(layer).map((hop) => ({ send: [hop] })));
    first = [...layers.map((layer) => update(layer, false)), ...sends];
    later = [...layers.map((layer) => update(layer)), ...sends];
  }
  return [first, ...Array(iterations - 1).fill(later)];
}

/** The events that the beliefs of `want` depend on, then those that make these beliefs. */
function needed(events, want, hops, { name, damping }) {
  const alive = new Set(), kept = [];
  const readBy = (layer) => hops.filter((hop) => hop.target === layer).forEach((hop) => alive.add(hop.id));
  want.forEach(readBy);
  for (const event of [...events].reverse()) {
    if (event.update) {
      if (!alive.delete(event.update)) continue;
      readBy(event.update);
      kept.push(event);
    } else {
      const send = event.send.filter((hop) => alive.has(hop.id));
      if (!send.length) continue;
      send.forEach((hop) => alive.delete(hop.id));
      for (const hop of send) {
        alive.add(hop.source);
        if (name !== 'mean_field') alive.add(hop.back);
        if (damping) alive.add(hop.id);
      }
      kept.push({ send });
    }
  }
  return [...kept.reverse(), ...want.map((layer) => ({ update: layer, evidence: true }))];
}

function belief(layer, withEvidence, hops, messages, tape) {
  const incoming = hops.filter((hop) => hop.target === layer.name && messages[hop.id]).map((hop) => messages[hop.id]);
  const value = new Float64Array(layer.nodes * layer.k);
  for (let n = 0; n < value.length; n++) value[n] = (withEvidence && layer.field ? layer.field[n] : 0) - layer.unary[n];
  for (const { inflow } of incoming) for (let n = 0; n < value.length; n++) value[n] += inflow[n];
  const made = { value, layer: layer.name };
  tape?.push({ kind: 'belief', made, incoming, field: withEvidence ? layer.name : null });
  return made;
}

function message(hop, method, from, messages, mrf, tape) {
  const source = mrf.byName[hop.source], target = mrf.byName[hop.target];
  const reverse = messages[hop.back] ?? null, old = method.damping ? messages[hop.id] ?? null : null;
  const edges = method.name === 'mean_field' ? null : propagate(hop, method, from.value, reverse?.edges, source.k, target.k);
  const inflow = edges
    ? scatter(hop, edges, target, method.name === 'trw')
    : expected(hop, probabilities(source, from, 1), source.k, target);
  const made = { edges, inflow };
  if (method.damping) {
    for (const [x, before] of [[edges, old?.edges], [inflow, old?.inflow]]) {
      if (x) for (let n = 0; n < x.length; n++) x[n] = (1 - method.damping) * x[n] + method.damping * (before ? before[n] : 0);
    }
  }
  tape?.push({ kind: 'message', made, hop, from, reverse: edges ? reverse : null, old });
  return made;
}

/** Ends, table strides and table scale of a hop, from the source's side: t(x, y) = sign * energy / rho. */
export function orientation({ link, side }, method) {
  const [from, to] = side === 0 ? [link.a, link.b] : [link.b, link.a];
  const [sx, sy] = side === 0 ? [link.kr, 1] : [1, link.kr];
  return { from, to, sx, sy, size: link.kl * link.kr, divides: method.name === 'trw' && method.divide_by_rho };
}

/** m(y) = log sum_x exp(t(x, y) + c(x)) - log sum_x exp(c(x)) on each edge, c = belief - message that came back. */
function propagate(hop, method, belief, reverse, ks, kt) {
  const { from, sx, sy, size, divides } = orientation(hop, method), { energies, t, rho } = hop.link;
  const edges = new Float64Array(t.length * kt);
  const c = new Float64Array(ks);
  for (let e = 0; e < t.length; e++) {
    const scale = divides ? -1 / rho[e] : -1;
    if (ks === 1 && kt === 1) {
      const cavity = belief[from[e]] - (reverse ? reverse[e] : 0);
      edges[e] = softplus(scale * energies[t[e]] + cavity) - softplus(cavity);
      continue;
    }
    for (let x = 0; x < ks; x++) c[x] = belief[from[e] * ks + x] - (reverse ? reverse[e * ks + x] : 0);
    const norm = logSum(ks, (x) => c[x]);
    for (let y = 0; y < kt; y++) {
      edges[e * kt + y] = logSum(ks, (x) => scale * energies[t[e] * size + x * sx + y * sy] + c[x]) - norm;
    }
  }
  return edges;
}

/** log(1 + sum_x exp(of(x))) over x = 0 .. count-1. */
export function logSum(count, of) {
  let most = 0, sum = 0;
  for (let x = 0; x < count; x++) most = Math.max(most, of(x));
  for (let x = 0; x < count; x++) sum += Math.exp(of(x) - most);
  return most + Math.log(sum + Math.exp(-most));
}

function scatter({ link, side }, edges, target, weighted) {
  const to = side === 0 ? link.b : link.a, inflow = new Float64Array(target.nodes * target.k);
  for (let e = 0; e < to.length; e++) {
    for (let y = 0; y < target.k; y++) inflow[to[e] * target.k + y] += (weighted ? link.rho[e] : 1) * edges[e * target.k + y];
  }
  return inflow;
}

/** Minus the expected energies under the source's beliefs, as mean field sends them. */
function expected(hop, p, ks, target) {
  const { from, to, sx, sy, size } = orientation(hop, {}), { energies, t } = hop.link;
  const inflow = new Float64Array(target.nodes * target.k);
  for (let e = 0; e < t.length; e++) {
    for (let x = 0; x < ks; x++) {
      for (let y = 0; y < target.k; y++) inflow[to[e] * target.k + y] -= energies[t[e] * size + x * sx + y * sy] * p[from[e] * ks + x];
    }
  }
  return inflow;
}

/** Probabilities node by node of all labels, or from label `first` on; at observed nodes what was observed. */
export function probabilities(layer, belief, first = 0) {
  const { k, nodes } = layer, width = k + 1 - first, p = new Float64Array(nodes * width);
  for (let i = 0; i < nodes; i++) {
    const known = layer.q && !layer.free[i];
    const norm = known ? 0 : k === 1 ? softplus(belief.value[i]) : logSum(k, (x) => belief.value[i * k + x]);
    let rest = 1;
    for (let x = 0; x < k; x++) {
      const one = known ? layer.q[i * k + x] : Math.exp(belief.value[i * k + x] - norm);
      rest -= one;
      p[i * width + x + 1 - first] = one;
    }
    if (first === 0) p[i * width] = known ? rest : Math.exp(-norm);
  }
  return p;
}
