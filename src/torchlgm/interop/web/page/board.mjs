// The picture that a visitor draws on and hides parts of, by pointer or by keyboard.

import { el } from './dom.mjs';
import { Picture } from './picture.mjs';
import { generator, shuffled } from './questions.mjs';

const HALVES = {
  upper: (x, y) => y < 0.5, lower: (x, y) => y >= 0.5, left: (x) => x < 0.5, right: (x) => x >= 0.5,
};
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Board {
  constructor(shape, look, onchange) {
    const canvas = el('canvas', { className: 'picture board', tabIndex: 0, role: 'application',
      'aria-label': 'What the model sees. Draw or hide with the chosen tool; arrow keys move, space applies it.' });
    this.picture = new Picture(shape, look, canvas);
    const { plane, channels } = this.picture;
    Object.assign(this, { canvas, onchange, tool: 'hide', label: null, last: null, corner: null, cursor: null });
    this.size = shape.reduce((all, n) => all * n, 1);
    this.values = new Float64Array(plane * channels);
    this.hidden = new Uint8Array(plane);
    this.order = shuffled(Array.from({ length: plane }, (_, i) => i), generator(7));
    canvas.addEventListener('pointerdown', (event) => this.begin(event));
    canvas.addEventListener('pointermove', (event) => this.move(event));
    for (const name of ['pointerup', 'pointercancel']) canvas.addEventListener(name, () => this.end());
    canvas.addEventListener('keydown', (event) => this.key(event));
    canvas.addEventListener('blur', () => { this.cursor = null; this.paint(); });
  }

  /** The values as the model takes them: NaN where hidden. */
  get seen() {
    const { plane } = this.picture;
    return this.values.slice(0, this.size).map((value, i) => (this.hidden[i % plane] ? NaN : value));
  }

  get hiddenCount() {
    return this.hidden.reduce((sum, one) => sum + one, 0);
  }

  set({ values, label }) {
    this.values.fill(0);
    this.values.set(values.map((value) => (Number.isNaN(value) ? 0 : value)));
    const { plane } = this.picture;
    this.hidden = this.hidden.map((_, i) => (Number.isNaN(values[i]) ? 1 : 0));
    for (let i = values.length; i < plane; i++) this.hidden[i] = 0;
    this.label = label;
    this.changed();
  }

  clear() {
    this.set({ values: this.values.map(() => 0), label: null });
  }

  showAll() {
    this.hidden.fill(0);
    this.changed();
  }

  hideHalf(name) {
    const { width, height } = this.picture;
    this.hidden = this.hidden.map((_, i) => Number(HALVES[name]((i % width + 0.5) / width, (Math.floor(i / width) + 0.5) / height)));
    this.changed();
  }

  /** Hide a share of the pixels, always the same ones first, so that a slider takes away and gives back. */
  hideShare(share) {
    this.hidden.fill(0);
    for (const i of this.order.slice(0, Math.round(share * this.order.length))) this.hidden[i] = 1;
    this.changed();
  }

  reshuffle(seed) {
    shuffled(this.order, generator(seed));
  }

  /** Show a square of pixels around one. */
  reveal(center, side) {
    const { width } = this.picture, x = center % width, y = Math.floor(center / width), from = Math.floor(side / 2);
    this.square(x - from, y - from, x - from + side - 1, y - from + side - 1, (i) => { this.hidden[i] = 0; });
    this.changed();
  }

  square(x0, y0, x1, y1, act) {
    const { width, height } = this.picture;
    for (let y = Math.max(0, Math.min(y0, y1)); y <= Math.min(height - 1, Math.max(y0, y1)); y++) {
      for (let x = Math.max(0, Math.min(x0, x1)); x <= Math.min(width - 1, Math.max(x0, x1)); x++) act(y * width + x);
    }
  }

  changed() {
    this.paint();
    this.onchange();
  }

  paint() {
    this.picture.paint(this.values, { hidden: this.hidden });
    if (this.corner) {
      const [[x0, y0], [x1, y1]] = [this.corner, this.last];
      this.picture.frame(Math.min(x0, x1), Math.min(y0, y1), Math.abs(x1 - x0) + 1, Math.abs(y1 - y0) + 1);
    }
    if (this.cursor) this.picture.frame(...this.cursor, 1, 1);
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect(), { width, height } = this.picture;
    return [(event.clientX - box.left) / box.width * width - 0.5, (event.clientY - box.top) / box.height * height - 0.5];
  }

  begin(event) {
    if (event.button) return;
    event.preventDefault();
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    this.cursor = null;
    this.start(this.place(event));
  }

  start(place) {
    if (this.tool === 'rectangle') {
      this.corner = this.last = place.map(Math.round);
      this.paint();
      return;
    }
    this.last = place;
    this.stroke(place, place);
  }

  move(event) {
    if (!this.last) return;
    const events = event.getCoalescedEvents?.() ?? [];
    for (const one of events.length ? events : [event]) this.go(this.place(one));
  }

  go(place) {
    if (this.corner) {
      this.last = place.map(Math.round);
      this.paint();
    } else {
      this.stroke(this.last, place);
      this.last = place;
    }
  }

  end() {
    if (this.corner) {
      const [a, b] = [this.corner, this.last];
      this.corner = null;
      this.square(...a, ...b, (i) => { this.hidden[i] = 1; });
      this.changed();
    }
    this.last = null;
  }

  /** Apply the tool along a line. */
  stroke(from, to) {
    const { width, height, plane, channels } = this.picture, side = Math.max(width, height);
    const drawing = this.tool === 'draw' || this.tool === 'erase';
    const radius = drawing ? (side > 16 ? 0.062 * side : 0.8) : Math.max(0.7, 0.08 * side);
    for (let i = 0; i < plane; i++) {
      const distance = toSegment([i % width, Math.floor(i / width)], from, to);
      if (distance > radius + 0.5) continue;
      if (this.tool === 'hide') this.hidden[i] = 1;
      else if (this.tool === 'show') this.hidden[i] = 0;
      else {
        const ink = Math.min(1, Math.max(0, 1.25 * (radius - distance) / radius + 0.25));
        for (let c = 0; c < channels; c++) {
          const at = c * plane + i;
          this.values[at] = this.tool === 'draw' ? Math.max(this.values[at], ink) : Math.min(this.values[at], 1 - ink);
        }
        this.hidden[i] = 0;
        this.label = null;
      }
    }
    this.changed();
  }

  key(event) {
    const step = STEPS[event.key], { width, height } = this.picture;
    if (!step && event.key !== ' ' && event.key !== 'Enter') return;
    event.preventDefault();
    this.cursor ??= [width >> 1, height >> 1];
    if (step) {
      const [x, y] = this.cursor;
      this.cursor = [Math.min(width - 1, Math.max(0, x + step[0])), Math.min(height - 1, Math.max(0, y + step[1]))];
      if (this.corner) this.last = this.cursor;
      this.paint();
      return;
    }
    if (this.corner) this.end();
    else {
      this.start(this.cursor);
      if (!this.corner) this.last = null;
    }
  }
}

function toSegment([x, y], [x0, y0], [x1, y1]) {
  const dx = x1 - x0, dy = y1 - y0, length = dx * dx + dy * dy;
  const t = length ? Math.min(1, Math.max(0, ((x - x0) * dx + (y - y0) * dy) / length)) : 0;
  return Math.hypot(x - x0 - t * dx, y - y0 - t * dy);
}
