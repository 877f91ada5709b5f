// What the page asks of a model beside its beliefs: which inputs speak for a class, which to see next, what a drawn
// completion looks like, and what an ensemble says together.

import { infer, logSum, probabilities, softplus } from './engine.mjs';
import { slopes } from './gradient.mjs';

/** log p(label) - log(1 - p(label)) of probabilities of one node. */
export function logOdds(p, label) {
  const others = p.reduce((sum, one, k) => sum + (k === label ? 0 : one), 0);
  return Math.log(p[label]) - Math.log(others);
}

const nodeOf = (beliefs, target, labels, node) => beliefs[target].slice(node * labels, (node + 1) * labels);

/** How much each group of observed nodes of `source` moves the log-odds: with all that was observed, less without. */
export function influence(model, evidence, method, source, target, label, groups, node = 0) {
  const k = model.layers.find((layer) => layer.name === source).k;
  const labels = model.layers.find((layer) => layer.name === target).labels;
  const odds = (given) => logOdds(nodeOf(infer(model, given, method, [target]), target, labels, node), label);
  const complete = odds(evidence);
  return groups.map((nodes) => {
    const without = evidence[source].slice();
    for (const i of nodes) without.fill(NaN, i * k, (i + 1) * k);
    return nodes.some((i) => !Number.isNaN(evidence[source][i * k])) ? complete - odds({ ...evidence, [source]: without }) : 0;
  });
}

/**
 * `influence` of every single node to first order: the slope of the log-odds in what was observed, times how far that is
 * from what the rest of the model believes about the node.
 */
export function quickInfluence(model, evidence, method, source, target, label, node = 0) {
  const { k, nodes } = model.layers.find((layer) => layer.name === source);
  const slope = slopes(model, evidence, method, source, target, label, node);
  const rest = restBeliefs(model, evidence, method, source);
  return Float64Array.from({ length: nodes }, (_, i) => {
    let moved = 0;
    for (let x = 0; x < k; x++) {
      const seen = evidence[source][i * k + x];
      if (!Number.isNaN(seen)) moved += slope[i * k + x] * (seen - rest[i * (k + 1) + x + 1]);
    }
    return moved;
  });
}

/** Beliefs about the nodes of a layer from their unaries and, once messages have come back, all other layers. */
function restBeliefs(model, evidence, method, source) {
  const layer = model.layers.find((one) => one.name === source);
  if (method.iterations === 1) return probabilities(layer, { value: layer.unary.map((energy) => -energy) });
  const beliefs = infer(model, evidence, method), others = {};
  for (const { name, labels } of model.layers) {
    if (name !== source) others[name] = beliefs[name].filter((_, n) => n % labels !== 0);
  }
  return infer(model, others, { name: 'lbp', schedule: 'sweep', iterations: 1, damping: 0 }, [source])[source];
}

const entropy = (p) => -p.reduce((sum, one) => sum + (one > 0 ? one * Math.log(one) : 0), 0);

/** Mutual information of a class and an answer: `chances` of each answer, and the class probabilities after it. */
export function gainOf(chances, after) {
  const mean = after[0].map((_, c) => after.reduce((sum, p, k) => sum + chances[k] * p[c], 0));
  return Math.max(0, entropy(mean) - after.reduce((sum, p, k) => sum + chances[k] * entropy(p), 0));
}

/** Expected information gain about the class, in nats, of each missing node in `candidates` [{layer, node}]. */
export function gains(model, evidence, method, target, candidates) {
  const star = starOf(model, method, target);
  return star ? gainsOfStar(star, evidence, candidates) : gainsByInference(model, evidence, method, target, candidates);
}

export function gainsByInference(model, evidence, method, target, candidates) {
  const beliefs = infer(model, evidence, method);
  return candidates.map(({ layer, node }) => {
    const { k, labels, nodes } = model.layers.find((one) => one.name === layer);
    const chances = nodeOf(beliefs, layer, labels, node);
    const after = Array.from(chances, (_, label) => {
      const q = evidence[layer]?.slice() ?? new Float64Array(nodes * k).fill(NaN);
      for (let x = 1; x <= k; x++) q[node * k + x - 1] = x === label ? 1 : 0;
      return Array.from(infer(model, { ...evidence, [layer]: q }, method, [target])[target]);
    });
    return gainOf(chances, after);
  });
}

/** Whether one binary hidden layer joins inputs and a class, all dense, and is asked by one sweep; then its parts. */
export function starOf(model, method, target) {
  const names = model.layers.map((layer) => layer.name), hidden = model.layers.at(-2), root = model.layers.at(-1);
  const inputs = model.layers.slice(0, -2), oneSweep = method.name === 'lbp' && method.schedule === 'sweep';
  const between = (left, right) => model.links.filter((l) => l.left === left && l.right === right && l.type === 'dense');
  const fits = oneSweep && method.iterations === 1 && !method.damping && names.length >= 3 && root.name === target
    && root.nodes === 1 && hidden.labels === 2 && model.links.length === inputs.length + 1
    && between(hidden.name, root.name).length && inputs.every((layer) => between(layer.name, hidden.name).length);
  if (!fits) return null;
  return { inputs, hidden, root, out: between(hidden.name, root.name)[0], links: inputs.map((l) => between(l.name, hidden.name)[0]) };
}

/**
 * The closed form: what is known of the inputs changes the log-odds a of the hidden nodes alone, and
 * log p(class) = b + sum_h softplus(a_h + w_h), so that an answer costs hidden x classes.
 */
function gainsOfStar({ inputs, hidden, root, out, links }, evidence, candidates) {
  const H = hidden.nodes, C = root.labels;
  const weight = (h, c) => (c === 0 ? 0 : -out.energies[h * root.k + c - 1]);
  const bias = (c) => (c === 0 ? 0 : -root.unary[c - 1]);
  const said = (at, node, label, h) => (label === 0 ? 0 : -links[at].energies[(node * H + h) * inputs[at].k + label - 1]);
  const unary = ({ k, unary: u }, node) => {
    const norm = logSum(k, (x) => -u[node * k + x]);
    return (label) => (label === 0 ? 0 : -u[node * k + label - 1]) - norm;
  };
  const silent = (at, node) => { // what a missing node tells each hidden node
    const u = unary(inputs[at], node), told = new Float64Array(H), { k } = inputs[at];
    for (let h = 0; h < H; h++) told[h] = logSum(k, (x) => u(x + 1) + said(at, node, x + 1, h) - u(0)) + u(0);
    return told;
  };
  const odds = hidden.unary.map((energy) => -energy);
  inputs.forEach(({ name, nodes, k }, at) => {
    for (let i = 0; i < nodes; i++) {
      const q = evidence[name]?.subarray(i * k, (i + 1) * k);
      if (!q || Number.isNaN(q[0])) silent(at, i).forEach((told, h) => { odds[h] += told; });
      else for (let x = 0; x < k; x++) if (q[x] !== 0) for (let h = 0; h < H; h++) odds[h] += q[x] * said(at, i, x + 1, h);
    }
  });
  const classLogs = (a) => {
    const logs = Array.from({ length: C }, (_, c) => {
      let sum = bias(c);
      for (let h = 0; h < H; h++) sum += softplus(a[h] + weight(h, c));
      return sum;
    });
    const norm = logSum(C - 1, (c) => logs[c + 1] - logs[0]) + logs[0];
    return logs.map((log) => log - norm);
  };
  const each = hidden.unary.map((_, h) => h), total = Array.from({ length: C }, (_, c) => each.reduce((sum, h) => sum + softplus(odds[h] + weight(h, c)), bias(c)));
  const spoken = each.map((h) => { // by the class to a hidden node, without what that node says itself
    const rest = total.map((sum, c) => sum - softplus(odds[h] + weight(h, c)));
    const log = (of) => logSum(C - 1, (c) => of(c + 1) - of(0)) + of(0);
    return log((c) => rest[c] + weight(h, c)) - log((c) => rest[c]);
  });
  return candidates.map(({ layer, node }) => {
    const at = inputs.findIndex((one) => one.name === layer), u = unary(inputs[at], node), told = silent(at, node);
    const logs = [], after = [];
    for (let label = 0; label < inputs[at].labels; label++) {
      const a = odds.map((odd, h) => odd - told[h] + said(at, node, label, h));
      logs.push(a.reduce((sum, odd, h) => sum + softplus(odd + spoken[h]), u(label)));
      after.push(classLogs(a).map(Math.exp));
    }
    const most = Math.max(...logs), sum = logs.reduce((all, log) => all + Math.exp(log - most), 0);
    return gainOf(logs.map((log) => Math.exp(log - most) / sum), after);
  });
}

/**
 * The missing nodes of a layer drawn in `rounds`: a share of them from the beliefs, then the next given those. Returns
 * evidence in which none is missing.
 */
export function drawCompletion(model, evidence, method, layer, rounds, random) {
  const { k, labels, nodes } = model.layers.find((one) => one.name === layer);
  const q = evidence[layer]?.slice() ?? new Float64Array(nodes * k).fill(NaN);
  const missing = shuffled(Array.from({ length: nodes }, (_, i) => i).filter((i) => Number.isNaN(q[i * k])), random);
  for (let round = 0; round < rounds; round++) {
    const some = missing.filter((_, n) => n % rounds === round);
    if (!some.length) continue;
    const beliefs = infer(model, { ...evidence, [layer]: q }, method, [layer])[layer];
    for (const i of some) {
      let left = random(), label = 0;
      while (label < k && left >= beliefs[i * labels + label]) left -= beliefs[i * labels + label++];
      for (let x = 1; x <= k; x++) q[i * k + x - 1] = x === label ? 1 : 0;
    }
  }
  return q;
}

export function shuffled(values, random) {
  for (let i = values.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [values[i], values[j]] = [values[j], values[i]];
  }
  return values;
}

/** A generator of numbers in [0, 1) that a seed makes repeatable. */
export function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let z = Math.imul(state ^ (state >>> 15), state | 1);
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
    return ((z ^ (z >>> 14)) >>> 0) / 4294967296;
  };
}

/** Class probabilities at a temperature. */
export function tempered(p, temperature) {
  const logs = Array.from(p, (one) => Math.log(one) / temperature), most = Math.max(...logs);
  const sum = logs.reduce((all, log) => all + Math.exp(log - most), 0);
  return logs.map((log) => Math.exp(log - most) / sum);
}

/** What the members of an ensemble say together, when a share of the entries is missing. */
export function mixed(of, mixture, missing) {
  const logs = mixture.bias.map((bias, g) => bias + mixture.slope[g] * missing), most = Math.max(...logs);
  const weights = logs.map((log) => Math.exp(log - most)), sum = weights.reduce((a, b) => a + b, 0);
  const share = (m) => weights[Math.floor(m / mixture.members)] / sum / mixture.members;
  return Array.from(of[0], (_, c) => of.reduce((all, p, m) => all + share(m) * p[c], 0));
}
