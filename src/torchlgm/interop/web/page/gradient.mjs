// How the log-odds of one label change with what was observed: reverse-mode differentiation of an inference, from the
// tape that `run` writes.

import { condition, logSum, orientation, probabilities, run, sigmoid } from './engine.mjs';

/** Slopes of `log p(label) - log(1 - p(label))` of a node of `target` in the observed probabilities of `source`. */
export function slopes(model, evidence, method, source, target, label, node = 0) {
  const mrf = condition(model, evidence), tape = [];
  const { beliefs } = run(mrf, method, [target], tape);
  const grads = new Map(); // of values of beliefs, and of messages by edge or, where there are none, by node
  const fields = {};
  const gradOf = (made, size) => {
    if (!grads.has(made)) grads.set(made, new Float64Array(size));
    return grads.get(made);
  };
  const add = (made, values, factor = 1) => {
    const grad = gradOf(made, values.length);
    for (let n = 0; n < values.length; n++) grad[n] += factor * values[n];
  };
  add(beliefs[target], slopesOfLogOdds(mrf.byName[target], beliefs[target], node, label));
  for (const step of tape.reverse()) {
    const grad = grads.get(step.made);
    if (!grad) continue;
    if (step.kind === 'belief') {
      for (const message of step.incoming) addInflow(message, grad, mrf.byName[step.made.layer], tape, method, gradOf);
      if (step.field && mrf.byName[step.field].field) {
        fields[step.field] ??= new Float64Array(grad.length);
        for (let n = 0; n < grad.length; n++) fields[step.field][n] += grad[n];
      }
      continue;
    }
    if (step.old) add(step.old, grad, method.damping);
    const fresh = grad.map((g) => (1 - method.damping) * g);
    const sent = step.made.edges ? backward(step, fresh, method, mrf) : backwardOfMean(step, fresh, mrf);
    add(step.from, sent.belief);
    if (step.reverse) add(step.reverse, sent.reverse);
  }
  return throughFields(model, mrf, fields, source);
}

function slopesOfLogOdds(layer, belief, node, label) {
  const { k } = layer, grad = new Float64Array(belief.value.length), p = probabilities(layer, belief);
  const at = node * (k + 1), others = 1 - p[at + label];
  for (let x = 1; x <= k; x++) grad[node * k + x - 1] = x === label ? 1 : -p[at + x] / others;
  if (label === 0) for (let x = 1; x <= k; x++) grad[node * k + x - 1] = -p[at + x] / others;
  return grad;
}

/** The gradient of an inflow, at nodes, as that of the message that it is the sum of. */
function addInflow(message, grad, layer, tape, method, gradOf) {
  const { hop } = tape.find((step) => step.made === message);
  if (!message.edges) {
    const own = gradOf(message, grad.length);
    for (let n = 0; n < grad.length; n++) own[n] += grad[n];
    return;
  }
  const { to } = orientation(hop, method), own = gradOf(message, message.edges.length), { k } = layer;
  for (let e = 0; e < to.length; e++) {
    const weight = method.name === 'trw' ? hop.link.rho[e] : 1;
    for (let y = 0; y < k; y++) own[e * k + y] += weight * grad[to[e] * k + y];
  }
}

function backward({ hop, from: source, reverse }, grad, method, mrf) {
  const ks = mrf.byName[hop.source].k, kt = mrf.byName[hop.target].k;
  const { from, sx, sy, size, divides } = orientation(hop, method), { energies, t, rho } = hop.link;
  const belief = new Float64Array(source.value.length), ofReverse = new Float64Array(t.length * ks);
  const c = new Float64Array(ks), dc = new Float64Array(ks);
  for (let e = 0; e < t.length; e++) {
    const scale = divides ? -1 / rho[e] : -1;
    for (let x = 0; x < ks; x++) {
      c[x] = source.value[from[e] * ks + x] - (reverse ? reverse.edges[e * ks + x] : 0);
    }
    if (ks === 1 && kt === 1) {
      dc[0] = grad[e] * (sigmoid(scale * energies[t[e]] + c[0]) - sigmoid(c[0]));
    } else {
      let total = 0;
      dc.fill(0);
      for (let y = 0; y < kt; y++) {
        const joint = (x) => scale * energies[t[e] * size + x * sx + y * sy] + c[x];
        const norm = logSum(ks, joint), g = grad[e * kt + y];
        total += g;
        for (let x = 0; x < ks; x++) dc[x] += g * Math.exp(joint(x) - norm);
      }
      const norm = logSum(ks, (x) => c[x]);
      for (let x = 0; x < ks; x++) dc[x] -= total * Math.exp(c[x] - norm);
    }
    for (let x = 0; x < ks; x++) {
      belief[from[e] * ks + x] += dc[x];
      ofReverse[e * ks + x] = -dc[x];
    }
  }
  return { belief, reverse: ofReverse };
}

function backwardOfMean({ hop, from: source }, grad, mrf) {
  const layer = mrf.byName[hop.source], ks = layer.k, kt = mrf.byName[hop.target].k;
  const { from, to, sx, sy, size } = orientation(hop, {}), { energies, t } = hop.link;
  const p = probabilities(layer, source, 1), dp = new Float64Array(p.length);
  for (let e = 0; e < t.length; e++) {
    for (let x = 0; x < ks; x++) {
      for (let y = 0; y < kt; y++) dp[from[e] * ks + x] -= energies[t[e] * size + x * sx + y * sy] * grad[to[e] * kt + y];
    }
  }
  const belief = new Float64Array(p.length);
  for (let i = 0; i < layer.nodes; i++) {
    let mean = 0;
    for (let x = 0; x < ks; x++) mean += p[i * ks + x] * dp[i * ks + x];
    for (let x = 0; x < ks; x++) belief[i * ks + x] = p[i * ks + x] * (dp[i * ks + x] - mean);
  }
  return { belief };
}

/** From the gradient of fields to that of what was observed of `source`. */
function throughFields(model, mrf, fields, source) {
  const seen = mrf.byName[source], grad = new Float64Array(seen.nodes * seen.k);
  for (const link of model.links) {
    for (const side of [0, 1]) {
      const [own, other] = side === 0 ? [link.left, link.right] : [link.right, link.left];
      const field = fields[other], k = mrf.byName[other].k;
      if (own !== source || !field) continue;
      const { from, to, sx, sy, size } = orientation({ link, side }, {});
      for (let e = 0; e < link.t.length; e++) {
        if (seen.free[from[e]]) continue;
        for (let x = 0; x < seen.k; x++) {
          for (let y = 0; y < k; y++) grad[from[e] * seen.k + x] -= link.energies[link.t[e] * size + x * sx + y * sy] * field[to[e] * k + y];
        }
      }
    }
  }
  return grad;
}

