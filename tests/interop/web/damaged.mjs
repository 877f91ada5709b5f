// Reads each file of a folder and asks it: node damaged.mjs ENGINE_FOLDER FOLDER; prints how each ended.
import { readdirSync, readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const [folder, files] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${folder}/${name}.mjs`).href);
const [{ readModel }, { infer }] = await Promise.all(['graph', 'engine'].map(load));
const ended = {};
for (const file of readdirSync(files)) {
  try {
    const model = readModel(Uint8Array.from(readFileSync(`${files}/${file}`)).buffer);
    for (const member of model.members) {
      const beliefs = infer(member, {}, { name: 'lbp', schedule: 'sweep', iterations: 1, damping: 0, divide_by_rho: true });
      if (!Object.values(beliefs).every((values) => Array.from(values).every(Number.isFinite))) throw new TypeError('not finite');
    }
    ended[file] = 'read';
  } catch (error) {
    ended[file] = error.constructor === Error && error.message.startsWith('this file is no model') ? 'refused' : error.stack;
  }
}
console.log(JSON.stringify(ended));
