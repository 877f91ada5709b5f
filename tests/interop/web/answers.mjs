// Answers the questions in a JSON file with the engine: node answers.mjs ENGINE_FOLDER QUESTIONS
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const [folder, file] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${folder}/${name}.mjs`).href);
const [{ readModel }, engine, questions, inputs] = await Promise.all(['graph', 'engine', 'questions', 'inputs'].map(load));

const numbers = (values) => Float64Array.from(values, (value) => (value === null ? NaN : value));
const models = {};
const modelOf = (path) => (models[path] ??= readModel(Uint8Array.from(readFileSync(path)).buffer));

const kinds = {
  infer: (m, { evidence, method }) => engine.infer(m.members[0], evidence, method),
  trace: (m, { evidence, method, target }) => engine.trace(m.members[0], evidence, method, [target]).map((beliefs) => beliefs[target]),
  influence: (m, { evidence, method, source, target, label, groups }) =>
    questions.influence(m.members[0], evidence, method, source, target, label, groups),
  quick: (m, { evidence, method, source, target, label }) => questions.quickInfluence(m.members[0], evidence, method, source, target, label),
  gains: (m, { evidence, method, target, candidates, slowly }) =>
    (slowly ? questions.gainsByInference : questions.gains)(m.members[0], evidence, method, target, candidates),
  network: (m, { values }) => inputs.askNetwork(m.about.network, m.tensors, numbers(values)),
  values: (m, { values, method }) => {
    const layer = m.members[0].layers.find(({ name }) => name === m.about.inputs[0]);
    const beliefs = engine.infer(m.members[0], inputs.encodeValues(layer, numbers(values)), method);
    return [Array.from(inputs.expectedValues(layer, beliefs[layer.name]).mean), questions.tempered(beliefs[m.about.target], m.about.temperature)];
  },
  row: (m, { row, method }) => {
    const evidence = inputs.encodeRow(m.about, m.members[0].layers, row);
    const of = m.members.map((member) => engine.infer(member, evidence, method, [m.about.target])[m.about.target]);
    return questions.mixed(of, m.about.mixture, inputs.missingShare(m.about, row));
  },
  examples: (m) => m.examples.map(({ values }) => values),
  draw: (m, { evidence, method, source, seed }) =>
    questions.drawCompletion(m.members[0], evidence, method, source, 3, questions.generator(seed)),
};

const plain = (value) => {
  if (ArrayBuffer.isView(value)) return Array.from(value);
  if (Array.isArray(value)) return value.map(plain);
  return value && typeof value === 'object' ? Object.fromEntries(Object.entries(value).map(([k, v]) => [k, plain(v)])) : value;
};
const answers = JSON.parse(readFileSync(file)).map((question) => {
  const evidence = Object.fromEntries(Object.entries(question.evidence ?? {}).map(([name, q]) => [name, numbers(q)]));
  return plain(kinds[question.kind](modelOf(question.model), { ...question, evidence }));
});
process.stdout.write(JSON.stringify(answers));
