// How long the playground's engine takes for a stroke: node benchmarks/playground.mjs
// CPU milliseconds of an answer, by model and by what is hidden: the least of 8 means of 10 answers.

import { readFileSync } from 'node:fs';
import { kinds } from '../src/torchlgm/interop/web/page/answers.mjs';
import { readModel } from '../src/torchlgm/interop/web/page/graph.mjs';

const page = new URL('../src/torchlgm/interop/web/page/', import.meta.url);
const listed = JSON.parse(readFileSync(new URL('models.json', page)));
const models = new URL('../src/torchlgm/interop/web/page/models/', import.meta.url);
const rows = {};
for (const { name } of listed.models.filter(({ name }) => name !== 'wine')) {
  const model = readModel(Uint8Array.from(readFileSync(new URL(`${name}.safetensors`, models))).buffer);
  const { values } = model.examples[4], half = values.map((value, i) => (i < values.length / 2 ? value : NaN));
  for (const [hidden, seen] of [['nothing', values], ['lower half', half], ['everything', values.map(() => NaN)]]) {
    const means = Array.from({ length: 8 }, () => {
      const began = process.cpuUsage();
      for (let i = 0; i < 10; i++) kinds.picture(model, { values: seen, method: model.about.method });
      const { user, system } = process.cpuUsage(began);
      return (user + system) / 10_000;
    });
    rows[`${name}, ${hidden}`] = Number(Math.min(...means).toFixed(1));
  }
}
console.log(JSON.stringify(rows, null, 1));
