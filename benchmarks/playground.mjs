// How long the playground's engine takes for a stroke: node benchmarks/playground.mjs
// The smallest and the median of 60 answers, in milliseconds, by model and by what is hidden.

import { readFileSync } from 'node:fs';
import { kinds } from '../src/torchlgm/interop/web/page/answers.mjs';
import { readModel } from '../src/torchlgm/interop/web/page/graph.mjs';

const models = new URL('../src/torchlgm/interop/web/page/models/', import.meta.url);
const rows = {};
for (const name of ['mnist', 'fashion-mnist', 'digits']) {
  const model = readModel(Uint8Array.from(readFileSync(new URL(`${name}.safetensors`, models))).buffer);
  const { values } = model.examples[4], half = values.map((value, i) => (i < values.length / 2 ? value : NaN));
  for (const [hidden, seen] of [['nothing', values], ['lower half', half], ['everything', values.map(() => NaN)]]) {
    const times = Array.from({ length: 60 }, () => {
      const began = performance.now();
      kinds.picture(model, { values: seen, method: model.about.method });
      return performance.now() - began;
    }).sort((a, b) => a - b);
    rows[`${name}, ${hidden}`] = { min: Number(times[0].toFixed(1)), median: Number(times[30].toFixed(1)) };
  }
}
console.log(JSON.stringify(rows, null, 1));
