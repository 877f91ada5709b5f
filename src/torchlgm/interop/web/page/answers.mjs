// The questions of the page, each as one function of a model and plain data, and what is shown of a model. They run in
// a worker, so that drawing never waits for them; generators give better and better answers.

import { infer, trace } from './engine.mjs';
import { askNetwork, encodeRow, encodeValues, expectedValues, missingShare, nodesOfColumns } from './inputs.mjs';
import * as questions from './questions.mjs';

const TURNS = 5; // iterations that are shown
const ROUNDS = 8; // in which a picture is drawn, each given those before

/** What the page needs to know of a model. */
export function describe({ about, members, examples }) {
  const [first] = members, layer = (name) => first.layers.find((one) => one.name === name);
  const classes = about.classes ?? Array.from({ length: layer(about.target).labels }, (_, k) => String(k));
  const shown = { title: about.title ?? 'A model', text: about.text, classes, method: about.method, examples, members: members.length };
  const sizes = first.layers.map(({ name, sizes: s, labels }) => ({ name, sizes: s, labels }));
  const edges = first.links.reduce((sum, link) => sum + link.t.length, 0);
  if (about.columns) return { ...shown, kind: 'table', columns: about.columns, fills: about.fills, layers: sizes, edges };
  const { sizes: shape } = layer(about.inputs[0]);
  return { ...shown, kind: 'image', shape, look: about.look ?? 'photo', layers: sizes, edges,
    network: about.network ? about.network_title ?? 'Network of the same shape' : null };
}

const mean = (of) => Array.from(of[0], (_, c) => of.reduce((sum, p) => sum + p[c], 0) / of.length);
const inputOf = ({ about, members }) => members[0].layers.find(({ name }) => name === about.inputs[0]);

/** Class probabilities, what every pixel is expected to be, and how unsure that is. */
function picture(model, { values, method }) {
  const { about, members, tensors } = model, input = inputOf(model), evidence = encodeValues(input, values);
  const beliefs = members.map((member) => infer(member, evidence, method, [about.target, input.name]));
  const filled = expectedValues(input, mean(beliefs.map((one) => one[input.name])));
  values.forEach((value, i) => {
    if (Number.isNaN(value)) return;
    filled.mean[i] = value;
    filled.deviation[i] = 0;
  });
  return {
    probs: questions.tempered(mean(beliefs.map((one) => one[about.target])), about.temperature),
    network: about.network ? askNetwork(about.network, tensors, values) : null,
    ...filled,
  };
}

/** How much each seen pixel speaks for a class, to first order. */
function evidence(model, { values, method, label }) {
  const input = inputOf(model), { target } = model.about, given = encodeValues(input, values);
  return { label, influence: questions.quickInfluence(model.members[0], given, method, input.name, target, label) };
}

/** A picture drawn from the beliefs, not their mean. */
function sample(model, { values, method, seed }) {
  const input = inputOf(model), random = questions.generator(seed);
  const drawn = questions.drawCompletion(model.members[0], encodeValues(input, values), method, input.name, ROUNDS, random);
  const { k, labels, nodes } = input, filled = new Float64Array(nodes);
  for (let i = 0; i < nodes; i++) {
    let label = 0;
    for (let x = 1; x <= k; x++) if (drawn[i * k + x - 1] === 1) label = x;
    filled[i] = !Number.isNaN(values[i]) ? values[i] : labels === 2 ? label : (label + 0.5) / labels;
  }
  return { filled };
}

/** Class probabilities after 1, 2, ... iterations. */
function iterations(model, { values, row, method }) {
  const { about, members } = model, longer = { ...method, iterations: Math.max(TURNS, method.iterations) };
  const given = row ? encodeRow(about, members[0].layers, row) : encodeValues(inputOf(model), values);
  const traces = members.map((member) => trace(member, given, longer, [about.target]));
  return { turns: traces[0].map((_, i) => {
    const of = traces.map((one) => one[i][about.target]);
    return questions.tempered(row ? questions.mixed(of, about.mixture, missingShare(about, row)) : mean(of), about.temperature);
  }) };
}

/** What each hidden pixel is expected to tell about the class, in nats: coarsely first, then finer. */
function* next(model, { values, method }) {
  const input = inputOf(model), { target } = model.about, [member] = model.members;
  const given = encodeValues(input, values), [height, width] = input.sizes.slice(-2);
  const star = questions.starOf(member, method, target), gain = new Float64Array(values.length).fill(NaN);
  for (const step of star || values.length < 100 ? [1] : [4, 2]) {
    const candidates = [];
    values.forEach((value, i) => {
      const x = i % width, y = Math.floor(i / width) % height, half = step >> 1;
      const due = x % step === half && y % step === half && Number.isNaN(gain[i]);
      if (Number.isNaN(value) && due) candidates.push({ layer: input.name, node: i });
    });
    const at = star ? candidates.length || 1 : 8;
    for (let from = 0; from < candidates.length; from += at) {
      const some = candidates.slice(from, from + at);
      questions.gains(member, given, method, target, some).forEach((g, n) => { gain[some[n].node] = g; });
      yield { gain, step, done: false };
    }
    yield { gain, step, done: step < 3 };
  }
}

function askRow({ about, members }, row, method, want = [about.target]) {
  const given = encodeRow(about, members[0].layers, row);
  const beliefs = members.map((member) => infer(member, given, method, want));
  const probs = questions.mixed(beliefs.map((one) => one[about.target]), about.mixture, missingShare(about, row));
  return { beliefs, probs: questions.tempered(probs, about.temperature) };
}

/** Class probabilities of a row, and what each of its columns is expected to be where the model learned that. */
function form(model, { row, method }) {
  const { about, members } = model, all = members[0].layers.map(({ name }) => name);
  const { beliefs, probs } = askRow(model, row, method, about.fills ? all : undefined);
  if (!about.fills) return { probs, columns: null };
  const columns = nodesOfColumns(about).map(({ layer, node }) => {
    const { labels } = members[0].layers.find(({ name }) => name === layer);
    return Array.from(beliefs[0][layer].slice(node * labels, (node + 1) * labels));
  });
  return { probs, columns };
}

/** By how much each known column moves the log-odds of a class: with it, less without. */
function columns(model, { row, method, label }) {
  const odds = (given) => questions.logOdds(askRow(model, given, method).probs, label), complete = odds(row);
  return { label, influence: row.map((value, j) => (
    value === null || !model.about.columns[j].knots && !model.about.columns[j].values ? 0 : complete - odds(row.map((one, i) => (i === j ? null : one)))
  )) };
}

/** What each missing column is expected to tell about the class, in nats; NaN where it is known. */
function measure(model, { row, method }) {
  const { about, members } = model, places = nodesOfColumns(about), gain = new Float64Array(row.length).fill(NaN);
  if (!about.fills) return { gain };
  const missing = row.flatMap((value, j) => (value === null && places[j] && (about.columns[j].knots || about.columns[j].values) ? [j] : []));
  const given = encodeRow(about, members[0].layers, row);
  const found = questions.gains(members[0], given, method, about.target, missing.map((j) => places[j]));
  missing.forEach((j, n) => { gain[j] = found[n]; });
  return { gain };
}

export const kinds = { picture, evidence, sample, iterations, next, form, columns, measure };
