// A model of tables: a form in which any column can be left empty.

import { Bars } from './charts.mjs';
import { best, el, entropy, percent, short, withSpread } from './dom.mjs';
import { Inference } from './inference.mjs';

export class TableView {
  constructor(about, client) {
    Object.assign(this, { about, client, picked: null, answer: null, influence: null, gain: null, label: null });
    this.row = about.columns.map(() => null);
    this.bars = new Bars(about.classes, null, (k) => this.pick(k));
    this.inference = new Inference(about, () => this.changed());
    this.lines = about.columns.map((column, j) => this.line(column, j));
    this.element = el('div', { className: 'view table' }, this.samples(), el('div', { className: 'stage' }, this.form(), this.answering()));
    const first = about.examples.length ? this.exampleRow(about.examples[0]) : this.row;
    this.fill(first.map((value, j) => (about.fills && j >= 2 ? null : value)), about.examples[0]?.label ?? null);
  }

  exampleRow({ values }) {
    return Array.from(values, (value, j) => (Number.isNaN(value) ? null : this.about.columns[j].values ? this.about.columns[j].values[value] : value));
  }

  samples() {
    const button = (text, row, label) => el('button', { type: 'button', onclick: () => this.fill(row, label) }, text);
    const empty = button('Empty all', this.row.map(() => null), null);
    return el('div', { className: 'strip words', role: 'group', 'aria-label': 'Rows it has not seen in training' }, empty,
      this.about.examples.map((one, i) => button(`Row ${i + 1}: ${this.about.classes[one.label]}`, this.exampleRow(one), one.label)));
  }

  form() {
    const hint = this.about.fills ? 'Empty a column with × and the model says what it expects there.' : 'Empty a column with ×.';
    return el('section', { className: 'card form' }, el('h2', {}, 'What is known ', el('span', { className: 'aside' }, hint)),
      el('div', { className: 'lines' }, this.lines.map(({ element }) => element)));
  }

  line(column, j) {
    const learned = column.knots || column.values, id = `column-${j}`, [low, high] = column.knots ? [column.knots[0], column.knots.at(-1)] : [0, 1];
    const set = (value) => { this.row[j] = value; this.write(j); this.changed(); };
    const empty = el('button', { type: 'button', className: 'empty', 'aria-label': `Empty ${column.name}`, title: 'Not known', onclick: () => set(null) }, '×');
    const belief = el('div', { className: 'belief', 'aria-hidden': 'true' }), expected = el('span', { className: 'expected' });
    const sway = el('span', { className: 'sway' }, el('i')), rank = el('span', { className: 'rank', title: 'What to measure next' });
    let input, range = null;
    if (column.values) {
      input = el('select', { id, onchange: () => set(input.value === '' ? null : input.value) }, el('option', { value: '' }, 'not known'),
        column.values.map((value) => el('option', { value }, value)));
    } else {
      input = el('input', { id, type: 'number', step: 'any', placeholder: learned ? 'not known' : 'was always empty', disabled: !learned,
        oninput: () => set(input.value === '' ? null : Number(input.value)) });
      if (learned && high > low) {
        range = el('input', { type: 'range', min: low, max: high, step: (high - low) / 200, 'aria-label': `${column.name}, slider`,
          oninput: () => set(Number(Number(range.value).toPrecision(3))) });
      }
    }
    const element = el('div', { className: 'line' }, el('label', { for: id, title: column.name }, column.name), el('div', { className: 'entry' }, range ?? el('span'), input, empty),
      el('div', { className: 'said' }, belief, expected, rank, sway));
    return { element, input, range, empty, belief, expected, sway: sway.firstChild, rank, low, high };
  }

  /** Show the value of a column in its fields. */
  write(j) {
    const { element, input, range, low, high } = this.lines[j], value = this.row[j];
    element.classList.toggle('missing', value === null);
    if (document.activeElement !== input) input.value = value === null ? '' : this.about.columns[j].values ? value : short(value);
    if (range && document.activeElement !== range) range.value = value ?? (low + high) / 2;
  }

  fill(row, label) {
    this.row = [...row];
    this.label = label;
    document.activeElement?.blur?.();
    row.forEach((_, j) => this.write(j));
    this.changed();
  }

  answering() {
    this.headline = el('p', { className: 'headline', 'aria-live': 'polite' });
    this.doubt = el('p', { className: 'note' });
    this.advice = el('div', { className: 'advice' });
    const card = el('section', { className: 'card answering' }, el('h2', {}, 'What it is'), this.headline, this.bars.element, this.doubt);
    const next = el('section', { className: 'card asking' }, el('h2', {}, 'What to measure next'), this.advice);
    return el('div', { className: 'side' }, card, next, this.inference.element);
  }

  changed() {
    if (!this.element || this.closed) return;
    const { client } = this, question = { row: [...this.row], method: { ...this.inference.method } };
    this.question = question;
    client.ask('form', question, (answer, ms) => { Object.assign(this, { answer, ms }); this.show(); });
    clearTimeout(this.later);
    this.later = setTimeout(() => this.askMore(), 60);
  }

  askMore() {
    if (this.closed) return;
    const { client, question } = this, label = this.picked ?? (this.answer ? best(this.answer.probs) : 0);
    client.ask('columns', { ...question, label }, (found) => { this.influence = found; this.show(); });
    client.ask('measure', question, ({ gain }) => { this.gain = gain; this.show(); });
    client.ask('iterations', question, ({ turns }) => this.inference.show(turns));
  }

  pick(k) {
    this.picked = this.picked === k ? null : k;
    this.influence = null;
    this.askMore();
    this.show();
  }

  show() {
    const { answer, about, influence, gain, label } = this;
    if (!answer) return;
    const top = best(answer.probs), picked = this.picked ?? top;
    const mark = label === null ? [] : [label === top ? el('span', { className: 'right' }, '✓ right') : el('span', { className: 'wrong' }, `✗ it is: ${about.classes[label]}`)];
    this.headline.replaceChildren(el('strong', {}, about.classes[top]), el('span', { className: 'sure' }, percent(answer.probs[top])), ...mark);
    this.bars.show(answer.probs, null, picked, label);
    const known = this.row.filter((value) => value !== null).length;
    this.doubt.textContent = `${known} of ${this.row.length} columns known, ${entropy(answer.probs).toFixed(2)} bits of uncertainty left. Answered in ${this.ms.toFixed(0)} ms, on your device.`;
    const order = gain ? Array.from(gain.keys()).filter((j) => gain[j] > 0).sort((a, b) => gain[b] - gain[a]) : [];
    const most = influence ? Math.max(1e-9, ...influence.influence.map(Math.abs)) : 1;
    this.lines.forEach((line, j) => {
      const missing = this.row[j] === null, column = about.columns[j];
      line.element.classList.toggle('missing', missing);
      line.rank.textContent = missing && order.indexOf(j) >= 0 && order.indexOf(j) < 3 ? ['1st', '2nd', '3rd'][order.indexOf(j)] : '';
      const sway = missing || !influence ? 0 : influence.influence[j] / most;
      Object.assign(line.sway.style, { width: `${50 * Math.abs(sway)}%`, left: sway < 0 ? `${50 - 50 * Math.abs(sway)}%` : '50%' });
      line.sway.className = sway < 0 ? 'against' : 'for';
      line.sway.parentElement.title = missing ? '' : `${sway < 0 ? 'Speaks against' : 'Speaks for'} ${about.classes[influence?.label ?? picked]}`;
      line.sway.parentElement.hidden = missing;
      this.expect(line, column, missing && answer.columns ? answer.columns[j] : null);
    });
    this.advise(order);
  }

  expect(line, column, belief) {
    line.belief.replaceChildren(...(belief ?? []).map((p) => el('i', { style: { height: `${Math.max(4, 100 * p / Math.max(...belief))}%` } })));
    if (!belief || !(column.knots || column.values)) {
      line.expected.textContent = '';
      return;
    }
    if (column.values) {
      line.expected.textContent = `${column.values[best(belief)]}, ${percent(Math.max(...belief))}`;
      return;
    }
    const at = column.knots, mean = belief.reduce((sum, p, x) => sum + p * at[x], 0);
    const deviation = Math.sqrt(belief.reduce((sum, p, x) => sum + p * (at[x] - mean) ** 2, 0));
    line.expected.textContent = withSpread(mean, deviation);
    if (line.range) line.range.value = mean;
  }

  advise(order) {
    const { about, gain } = this;
    if (!about.fills) {
      this.advice.replaceChildren(el('p', {}, 'This model has learned the class alone. Train it with ',
        el('code', {}, '--fill 0.5'), ' to see what it expects in empty columns and which to measure next.'));
    } else if (!order.length) {
      this.advice.replaceChildren(el('p', {}, gain ? 'Every column is known. Empty some.' : 'Thinking …'));
    } else {
      const most = gain[order[0]];
      this.advice.replaceChildren(el('ol', {}, order.slice(0, 5).map((j) => el('li', {}, el('span', { className: 'name' }, about.columns[j].name),
        el('span', { className: 'track' }, el('span', { className: 'bar gain', style: { width: `${100 * gain[j] / most}%` } })),
        el('span', { className: 'value' }, `${(gain[j] / Math.LN2).toFixed(2)} bits`)))),
      el('p', { className: 'note' }, 'By how much knowing the column would lower the uncertainty about the class, on average.'));
    }
  }

  /** Another model is about to answer: ask nothing more. */
  close() {
    this.closed = true;
  }

  repaint() {}

  key() {}
}
