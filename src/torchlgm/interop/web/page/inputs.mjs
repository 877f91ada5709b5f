// From values as people have them (pixels in [0, 1], numbers and names of a table, NaN = missing) to evidence about
// layers, and from beliefs back to values. And the neural network that a model is compared with.

import { sigmoid } from './engine.mjs';
import { edgesOf } from './graph.mjs';

/** Values of one layer in [0, 1] as evidence: means of binary nodes, bins of equal width for more labels. */
export function encodeValues(layer, values) {
  const { k, labels, nodes } = layer, q = new Float64Array(nodes * k);
  for (let i = 0; i < nodes; i++) {
    const bin = Math.min(Math.floor(values[i] * labels), labels - 1);
    for (let x = 0; x < k; x++) {
      q[i * k + x] = Number.isNaN(values[i]) ? NaN : k === 1 ? values[i] : bin === x + 1 ? 1 : 0;
    }
  }
  return { [layer.name]: q };
}

/** The values that are expected of a layer, and the standard deviations: the middles of its bins, by probability. */
export function expectedValues(layer, p) {
  const { labels, nodes } = layer, middle = (x) => (labels === 2 ? x : (x + 0.5) / labels);
  const mean = new Float64Array(nodes), deviation = new Float64Array(nodes);
  for (let i = 0; i < nodes; i++) {
    let square = 0;
    for (let x = 0; x < labels; x++) {
      mean[i] += p[i * labels + x] * middle(x);
      square += p[i * labels + x] * middle(x) ** 2;
    }
    deviation[i] = Math.sqrt(Math.max(0, square - mean[i] ** 2));
  }
  return { mean, deviation };
}

/** Rows of a table as evidence: a number is shared by the two nearest knots, a name is the label of its place. */
export function encodeRow(about, layers, row) {
  const evidence = {};
  for (const { layer, columns } of about.places) {
    const { k, labels } = layers.find((one) => one.name === layer), q = new Float64Array(columns.length * k);
    columns.forEach((column, i) => {
      const place = placeOf(about.columns[column], row[column]);
      for (let x = 1; x < labels; x++) q[i * k + x - 1] = Number.isNaN(place) ? NaN : Math.max(0, 1 - Math.abs(place - x));
    });
    evidence[layer] = q;
  }
  return evidence;
}

/** Where a value stands among the labels of a column, with fractions between knots; NaN where missing or unknown. */
export function placeOf(column, value) {
  if (!column || value === null || value === undefined || value === '' || Number.isNaN(value)) return NaN;
  if (column.values) {
    const at = column.values.indexOf(value);
    return at < 0 ? NaN : at;
  }
  const { knots } = column;
  if (!knots) return NaN;
  if (value <= knots[0] || knots.length === 1) return 0;
  for (let j = 1; j < knots.length; j++) {
    if (value <= knots[j]) return j - 1 + (value - knots[j - 1]) / (knots[j] - knots[j - 1]);
  }
  return knots.length - 1;
}

/** The share of a row's entries that the model cannot see: those that are missing, and those it has no place for. */
export function missingShare(about, row) {
  return row.filter((value, j) => Number.isNaN(placeOf(about.columns[j], value))).length / row.length;
}

/** Layer and node of each column. */
export function nodesOfColumns(about) {
  const nodes = [];
  for (const { layer, columns } of about.places) columns.forEach((column, node) => { nodes[column] = { layer, node }; });
  return nodes;
}

/** Class probabilities of the network beside a model, for values with NaN = missing, which count as 0.5. */
export function askNetwork(network, tensors, values) {
  const [input, ...layers] = network.layers;
  const filled = values.map((value) => (Number.isNaN(value) ? 0.5 : value));
  let x = network.mask ? Float64Array.from([...filled, ...values.map((value) => (Number.isNaN(value) ? 0 : 1))]) : filled;
  let before = sized(input.shape);
  layers.forEach((layer, n) => {
    const here = sized(layer.shape), weight = tensors[`network.weight.${n + 1}`].data;
    const bias = tensors[`network.bias.${n + 1}`].data, sharing = here.nodes / bias.length;
    layer.edges ??= edgesOf(layer, before, here);
    const sums = Float64Array.from({ length: here.nodes }, (_, j) => bias[Math.floor(j / sharing)]);
    const { a, b, t } = layer.edges;
    for (let e = 0; e < t.length; e++) sums[b[e]] += weight[t[e]] * x[a[e]];
    x = sums.map((sum) => (layer.activation === 'sigmoid' ? sigmoid(sum) : layer.activation === 'relu' ? Math.max(0, sum) : sum));
    before = here;
  });
  const most = Math.max(...x), total = x.reduce((sum, logit) => sum + Math.exp(logit - most), 0);
  return Array.from(x, (logit) => Math.exp(logit - most) / total);
}

const sized = (shape) => ({ sizes: shape, nodes: shape.reduce((all, n) => all * n, 1) });
