// Bars of class probabilities, and lines of them over iterations.

import { best, el, percent, svg } from './dom.mjs';

const SHOWN = 12; // classes

/** Bars for the classes; `onpick` is told which class is asked about. */
export class Bars {
  constructor(classes, network, onpick) {
    this.classes = classes;
    this.rows = classes.map((name, k) => {
      const own = el('span', { className: 'bar own' }), other = network ? el('span', { className: 'bar other' }) : null;
      const value = el('span', { className: 'value' });
      const row = el('button', { type: 'button', className: 'bar-row', 'aria-pressed': 'false', onclick: () => onpick(k) },
        el('span', { className: 'name', title: name }, name), el('span', { className: 'track' }, own, other), value);
      return { element: row, own, other, value };
    });
    const widest = Math.max(...classes.map((name) => name.length));
    this.element = el('div', { style: { '--name': `${Math.min(8.5, 1.9 + 0.5 * widest)}rem` }, className: `bars${classes.length > SHOWN ? ' many' : ''}`, role: 'group', 'aria-label': 'Class probabilities' },
      this.rows.map(({ element }) => element));
  }

  show(probs, network, picked, truth) {
    const top = best(probs);
    this.rows.forEach((row, k) => {
      row.own.style.width = `${100 * probs[k]}%`;
      if (row.other && network) row.other.style.width = `${100 * network[k]}%`;
      row.value.textContent = percent(probs[k]);
      row.element.classList.toggle('top', k === top);
      row.element.classList.toggle('truth', k === truth);
      row.element.setAttribute('aria-pressed', String(k === picked));
      row.element.setAttribute('aria-label', `${this.classes[k]}: ${percent(probs[k])}${network ? `, network ${percent(network[k])}` : ''}. Show evidence`);
    });
    if (this.classes.length > SHOWN) {
      const order = probs.map((_, k) => k).sort((a, b) => probs[b] - probs[a]);
      order.forEach((k, place) => { Object.assign(this.rows[k].element.style, { order: place }).display = place < SHOWN ? '' : 'none'; });
    }
  }
}

/** Lines of the few classes that matter over iterations, and a mark at the iteration that the answer is of. */
export function drawIterations(figure, turns, classes, at) {
  const longest = Math.max(...classes.map((name) => clipped(name).length));
  const width = 320, height = 150, left = 30, right = Math.min(96, 14 + 7 * longest), top = 10, bottom = 26, last = turns.length;
  const x = (i) => left + (width - left - right) * (last === 1 ? 0 : i / (last - 1));
  const y = (p) => top + (height - top - bottom) * (1 - p);
  const most = classes.map((_, k) => Math.max(...turns.map((probs) => probs[k])));
  const shown = most.map((_, k) => k).filter((k) => most[k] > 0.04).sort((a, b) => most[b] - most[a]).slice(0, 4);
  const lines = shown.map((k, n) => svg('polyline', {
    class: `line line-${n}`, points: turns.map((probs, i) => `${x(i)},${y(probs[k])}`).join(' '),
  }));
  const ends = spread(shown.map((k) => y(turns[last - 1][k])), 13);
  const names = shown.map((k, n) => svg('text', { class: `name line-${n}`, x: width - right + 8, y: ends[n] + 4 }, clipped(classes[k])));
  const ticks = [0, 0.5, 1].flatMap((p) => [
    svg('line', { class: 'grid', x1: left, x2: width - right, y1: y(p), y2: y(p) }),
    svg('text', { class: 'tick', x: left - 6, y: y(p) + 4, 'text-anchor': 'end' }, `${100 * p}`),
  ]);
  const numbers = turns.flatMap((_, i) => (last <= 6 || i === 0 || (i + 1) % 2 === 0 && last - i !== 2
    ? [svg('text', { class: 'tick', x: x(i), y: height - 8, 'text-anchor': 'middle' }, `${i + 1}`)] : []));
  const mark = svg('line', { class: 'mark', x1: x(at - 1), x2: x(at - 1), y1: top, y2: height - bottom });
  figure.replaceChildren(svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'Class beliefs in percent by iteration' },
    ...ticks, mark, ...lines, ...numbers, ...names));
}

const clipped = (name) => (name.length > 12 ? `${name.slice(0, 11)}…` : name);

/** Heights moved apart so that labels do not overlap. */
function spread(heights, gap) {
  const order = heights.map((_, n) => n).sort((a, b) => heights[a] - heights[b]), out = [...heights];
  for (let n = 1; n < order.length; n++) out[order[n]] = Math.max(out[order[n]], out[order[n - 1]] + gap);
  const over = Math.max(0, ...out.map((h) => h - 124));
  for (let n = order.length - 1; n >= 0 && over; n--) {
    const below = n === order.length - 1 ? 124 : out[order[n + 1]] - gap;
    out[order[n]] = Math.min(out[order[n]], below);
  }
  return out;
}
