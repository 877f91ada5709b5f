// Where models live and answer, beside the page. Of questions of one kind only the newest is gone on with.

import { describe, kinds } from './answers.mjs';
import { readModel } from './graph.mjs';

const newest = {};
let model = null;

const pause = () => new Promise((go) => { setTimeout(go, 0); });

async function load({ url }) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
  model = readModel(await response.arrayBuffer());
  return describe(model);
}

self.onmessage = async ({ data: { id, kind, question } }) => {
  newest[kind] = id;
  try {
    const began = performance.now();
    const answer = kind === 'load' ? await load(question) : kinds[kind](model, question);
    if (typeof answer?.next !== 'function') {
      self.postMessage({ id, kind, answer, last: true, ms: performance.now() - began });
      return;
    }
    for (const part of answer) {
      self.postMessage({ id, kind, answer: part, last: part.done, ms: performance.now() - began });
      await pause();
      if (newest[kind] !== id) break;
    }
  } catch (error) {
    self.postMessage({ id, kind, error: String(error?.message ?? error), last: true });
  }
};
