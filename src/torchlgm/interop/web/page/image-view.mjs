// A model of images: what it sees, what it believes, and why.

import { Board } from './board.mjs';
import { Bars } from './charts.mjs';
import { best, choice, chooseIn, el, entropy, percent, slider } from './dom.mjs';
import { Inference } from './inference.mjs';
import { Picture } from './picture.mjs';

const TOOLS = [
  { value: 'draw', text: 'Draw', title: 'Draw (D)', key: 'd' }, { value: 'erase', text: 'Erase', title: 'Erase ink (E)', key: 'e' },
  { value: 'hide', text: 'Hide', title: 'Hide with a brush (H)', key: 'h' }, { value: 'rectangle', text: 'Box', title: 'Hide a rectangle (B)', key: 'b' },
  { value: 'show', text: 'Show', title: 'Show again with a brush (S)', key: 's' },
];
const VIEWS = [
  { value: 'mean', text: 'Filled in', title: 'What every pixel is expected to be (1)', key: '1' },
  { value: 'unsure', text: 'How sure', title: 'Where the model is unsure of a pixel (2)', key: '2' },
  { value: 'sample', text: 'A guess', title: 'One picture drawn from the beliefs (3)', key: '3' },
  { value: 'evidence', text: 'Evidence', title: 'Which pixels speak for and against a class (4)', key: '4' },
  { value: 'next', text: 'See next', title: 'Which hidden pixels would tell most about the class (5)', key: '5' },
];
const HALVES = ['upper', 'lower', 'left', 'right'];
const FIRST = 3, SHARE = 0.7; // what a visitor meets

export class ImageView {
  constructor(about, client) {
    Object.assign(this, { about, client, view: 'mean', picked: null, answer: null, evidence: null, gain: null, drawn: null, seed: 1, shuffles: 7 });
    this.board = new Board(about.shape, about.look, () => this.changed());
    this.believed = new Picture(about.shape, about.look, el('canvas', { className: 'picture', role: 'img' }));
    this.bars = new Bars(about.classes, about.network, (k) => this.pick(k));
    this.inference = new Inference(about, () => this.changed());
    const pictures = el('section', { className: 'card pictures' }, ...this.seeing(), ...this.believing());
    this.element = el('div', { className: 'view image' }, this.examples(), el('div', { className: 'stage' }, pictures, this.answering()),
      el('div', { className: 'more' }, this.inference.element, this.asking()));
    this.start();
  }

  start() {
    const { examples } = this.about;
    if (examples.length) {
      this.board.set(examples[FIRST % examples.length]);
      this.share.set(SHARE);
      this.board.hideShare(SHARE);
    } else this.changed();
  }

  examples() {
    const thumbnail = ({ values, label }, i) => {
      const picture = new Picture(this.about.shape, this.about.look, el('canvas', { 'aria-hidden': 'true' }), 56);
      this.thumbnails.push(() => picture.paint(values.map((value) => (Number.isNaN(value) ? 0.5 : value))));
      return el('button', { type: 'button', className: 'thumbnail', 'aria-label': `Example ${i + 1}: ${this.about.classes[label]}`,
        title: this.about.classes[label], onclick: () => { this.board.set({ values, label }); this.share.set(0); } }, picture.canvas);
    };
    this.thumbnails = [];
    const blank = el('button', { type: 'button', className: 'thumbnail blank', title: 'An empty sheet to draw on (C)', onclick: () => this.blank() }, 'Blank');
    const strip = el('div', { className: 'strip', role: 'group', 'aria-label': 'Examples it has not seen in training' },
      blank, this.about.examples.map(thumbnail));
    this.thumbnails.forEach((paint) => paint());
    return strip;
  }

  blank() {
    this.board.clear();
    this.share.set(0);
    this.use('draw');
  }

  seeing() {
    this.visible = el('span', { className: 'aside' });
    this.tools = choice('Tool', TOOLS, this.board.tool, (tool) => this.use(tool));
    this.share = slider('Hide at random', { min: 0, max: 0.95, step: 0.05, value: 0, text: percent }, (share) => this.board.hideShare(share));
    const half = (name) => el('button', { type: 'button', className: `half ${name}`, title: `Hide the ${name} half`, 'aria-label': `Hide the ${name} half`,
      onclick: () => { this.share.set(0); this.board.hideHalf(name); } });
    const act = (text, title, onclick) => el('button', { type: 'button', className: 'quiet', title, onclick }, text);
    return [
      el('div', { className: 'seeing' }, el('h2', {}, 'What it sees ', this.visible), this.board.canvas),
      el('div', { className: 'tools of-seeing' }, this.tools,
        el('div', { className: 'row' }, el('span', { className: 'label' }, 'Hide half'), HALVES.map(half),
          el('span', { className: 'gap' }), act('Show all', 'Show all pixels (A)', () => this.showAll())),
        el('div', { className: 'row' }, this.share, act('Shuffle', 'Hide other pixels at random', () => this.shuffle()))),
    ];
  }

  shuffle() {
    this.board.reshuffle(++this.shuffles);
    const share = this.board.hiddenCount / this.board.hidden.length || SHARE;
    this.share.set(share);
    this.board.hideShare(share);
  }

  showAll() {
    this.share.set(0);
    this.board.showAll();
  }

  use(tool) {
    this.board.tool = tool;
    chooseIn(this.tools, tool);
  }

  believing() {
    this.views = choice('What to show', VIEWS, 'mean', (view) => this.look(view));
    this.caption = el('p', { className: 'caption' });
    this.again = el('button', { type: 'button', className: 'quiet', onclick: () => { this.seed += 1; this.askMore(); } }, 'Another guess');
    return [
      el('div', { className: 'believing' }, el('h2', {}, 'What it believes'), this.believed.canvas),
      el('div', { className: 'tools of-believing' }, this.views, this.caption, this.again),
    ];
  }

  answering() {
    const { network } = this.about;
    this.headline = el('p', { className: 'headline', 'aria-live': 'polite' });
    this.rival = network ? el('p', { className: 'rival' }) : null;
    this.doubt = el('p', { className: 'note' });
    return el('section', { className: 'card answering' }, el('h2', {}, 'What it is'), this.headline, this.bars.element,
      this.rival, this.doubt);
  }

  asking() {
    this.advice = el('p', {}, 'Hide something first: then the model says which hidden part would tell it most.');
    const reveal = (text, pick) => el('button', { type: 'button', disabled: true, onclick: () => this.reveal(pick) }, text);
    this.reveals = [reveal('Show the best part', 'best'), reveal('Show a random part', 'random')];
    return el('section', { className: 'card asking' }, el('h2', {}, 'What should I see next?'), this.advice, el('div', { className: 'row' }, this.reveals),
      el('p', { className: 'note' }, 'The value of a pixel is its expected information gain: by how much knowing it would lower the uncertainty about the class, on average over what it may turn out to be.'));
  }

  /** Something is seen that was not, or the other way round: ask again. */
  changed() {
    if (!this.element || this.closed) return;
    const { client, board } = this, question = { values: board.seen, method: { ...this.inference.method } };
    this.question = question;
    this.gain = null;
    client.ask('picture', question, (answer, ms) => {
      this.answer = answer;
      this.ms = ms;
      this.shown = question.values;
      this.show();
    });
    clearTimeout(this.later);
    this.later = setTimeout(() => this.askMore(), 140);
  }

  /** What may come a moment later than the answer. */
  askMore() {
    if (this.closed) return;
    const { client, question } = this, label = this.picked ?? (this.answer ? best(this.answer.probs) : 0);
    client.ask('iterations', question, ({ turns }) => this.inference.show(turns));
    if (this.view === 'evidence') client.ask('evidence', { ...question, label }, (found) => { this.evidence = found; this.show(); });
    if (this.view === 'sample') client.ask('sample', { ...question, seed: this.seed }, ({ filled }) => { this.drawn = filled; this.show(); });
    if (this.board.hiddenCount) {
      client.ask('next', question, (found) => { if (question === this.question) { this.gain = found; this.show(); } });
    } else client.cancel('next');
  }

  look(view) {
    this.view = view;
    chooseIn(this.views, view);
    this.show();
    this.askMore();
  }

  pick(k) {
    this.picked = this.picked === k && this.view === 'evidence' ? null : k;
    this.evidence = null;
    this.look('evidence');
  }

  reveal(how) {
    const { board } = this, { gain } = this.gain ?? {};
    const hidden = board.hidden.reduce((all, one, i) => (one ? [...all, i] : all), []);
    if (!hidden.length || how === 'best' && !gain) return;
    const at = how === 'best' ? bestOf(gain) : hidden[Math.floor(Math.random() * hidden.length)];
    board.reveal(at, this.patch);
  }

  get patch() {
    return Math.max(1, Math.round(Math.max(this.board.picture.width, this.board.picture.height) / 7));
  }

  show() {
    const { board, answer, about } = this;
    const share = 1 - board.hiddenCount / board.hidden.length;
    this.visible.textContent = share < 1 ? `${percent(share)} visible` : '';
    for (const button of this.reveals) button.disabled = share === 1 || !this.gain;
    if (!answer) return;
    const { classes } = about, top = best(answer.probs), picked = this.picked ?? top, { label } = board;
    const mark = label === null ? null : label === top ? el('span', { className: 'right' }, '✓ right')
      : el('span', { className: 'wrong' }, `✗ it is: ${classes[label]}`);
    this.headline.replaceChildren(el('strong', {}, classes[top]), el('span', { className: 'sure' }, percent(answer.probs[top])), ...(mark ? [mark] : []));
    this.bars.show(answer.probs, answer.network, this.view === 'evidence' ? picked : null, label);
    if (this.rival && answer.network) {
      const other = best(answer.network), wrong = label !== null && label !== other;
      this.rival.replaceChildren(el('span', { className: 'swatch own' }), 'This model', el('span', { className: 'swatch other' }), `${about.network}: `,
        el('b', {}, `${classes[other]}, ${percent(answer.network[other])}`), wrong ? ' ✗' : '');
    }
    this.doubt.textContent = `${entropy(answer.probs).toFixed(2)} of ${Math.log2(classes.length).toFixed(2)} bits of uncertainty left. Answered in ${this.ms.toFixed(0)} ms, on your device.`;
    this.advise();
    this.paint(picked);
  }

  advise() {
    if (!this.board.hiddenCount) this.advice.textContent = 'Hide something first: then the model says which hidden part would tell it most.';
    else if (!this.gain) this.advice.textContent = 'Thinking …';
    else {
      const bits = Math.max(...this.gain.gain.filter((g) => !Number.isNaN(g))) / Math.LN2;
      this.advice.textContent = `The pixel in the frame is worth most, ${bits.toFixed(bits < 0.1 ? 3 : 2)} bits. Under “See next” the brighter ones are worth more.`;
    }
  }

  paint(picked) {
    const { believed, board, answer, view, about } = this, name = about.classes[picked], hidden = board.hidden;
    this.again.hidden = view !== 'sample';
    this.caption.replaceChildren(...captions[view](name));
    const { canvas } = believed;
    canvas.setAttribute('aria-label', `${VIEWS.find(({ value }) => value === view).text}: the picture as the model believes it`);
    if (view === 'mean') believed.paint(answer.mean);
    else if (view === 'sample') believed.paint(this.drawn ?? answer.mean);
    else if (view === 'unsure') believed.paint(answer.mean, { faint: 0.35, tint: (i, c) => [c.unsure, 2 * answer.deviation[i]] });
    else if (view === 'evidence') {
      const found = this.evidence?.influence, { plane, channels } = believed;
      const of = (i) => Array.from({ length: channels }, (_, c) => found[c * plane + i] ?? 0).reduce((a, b) => a + b, 0);
      const most = found ? Math.max(1e-9, strong(Array.from({ length: plane }, (_, i) => Math.abs(of(i))))) : 1;
      believed.paint(board.values, { hidden, faint: 0.3, tint: (i, c) => (found ? [of(i) > 0 ? c.for : c.against, Math.sqrt(Math.abs(of(i)) / most)] : [c.for, 0]) });
    } else {
      const { gain, step } = this.gain ?? {}, most = gain ? Math.max(1e-9, ...gain.filter((g) => !Number.isNaN(g))) : 1, near = gain ? spread(gain, step, believed.width, hidden) : null;
      believed.paint(answer.mean, { faint: 0.35, tint: (i, c) => (near && hidden[i] ? [c.gain, near[i] / most] : [c.gain, 0]) });
      if (gain && board.hiddenCount) {
        const at = bestOf(gain), side = this.patch, half = Math.floor(side / 2);
        believed.frame(at % believed.width - half, Math.floor(at / believed.width) - half, side, side, 'against');
      }
    }
    if (view !== 'evidence' && board.hiddenCount < board.hidden.length) believed.outline(hidden);
  }

  /** Another model is about to answer: ask nothing more. */
  close() {
    this.closed = true;
  }

  /** The colours of the page have changed. */
  repaint() {
    this.thumbnails.forEach((paint) => paint());
    this.board.paint();
    this.show();
  }

  key(key) {
    const tool = TOOLS.find((one) => one.key === key), view = VIEWS.find((one) => one.key === key);
    if (tool) this.use(tool.value);
    else if (view) this.look(view.value);
    else if (key === 'c') this.blank();
    else if (key === 'a') this.showAll();
  }
}

const key = (colour, text) => [el('span', { className: `swatch ${colour}` }), text];
const captions = {
  mean: () => ['Hidden pixels as they are expected to be; seen ones as they are.'],
  unsure: () => [...key('unsure', 'could be either'), ' · elsewhere it is sure'],
  sample: () => ['One whole picture, drawn from the beliefs.'],
  evidence: (name) => [...key('for', `speaks for ${name}`), ...key('against', 'against'), ' · click a class for its own'],
  next: () => [...key('gain', 'would tell most about the class')],
};

/** The index of the largest number that is one. */
const bestOf = (gain) => gain.reduce((top, g, i) => (!Number.isNaN(g) && (top < 0 || g > gain[top]) ? i : top), -1);

/** The size that only one in a hundred exceeds, so that a single pixel does not rule the colours. */
const strong = (sizes) => { const order = sizes.filter((s) => s > 0).sort((a, b) => a - b); return order[Math.floor(0.99 * order.length)] ?? 0; };

/** Gains of the nearest pixel that was looked at, for those that were not. */
function spread(gain, step, width, hidden) {
  return Float64Array.from(gain, (own, i) => {
    if (!Number.isNaN(own) || !hidden[i]) return Number.isNaN(own) ? 0 : own;
    const x = i % width, y = Math.floor(i / width), cells = [];
    for (const s of [step, 4]) {
      const half = s >> 1, at = (Math.floor(y / s) * s + half) * width + Math.floor(x / s) * s + half;
      if (!Number.isNaN(gain[at] ?? NaN)) cells.push(gain[at]);
    }
    return cells[0] ?? 0;
  });
}
