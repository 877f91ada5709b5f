// How the model is asked: method, iterations and damping, and what came of it, iteration by iteration.

import { drawIterations } from './charts.mjs';
import { choice, el, slider } from './dom.mjs';

const METHODS = [
  { value: 'lbp', text: 'LBP', title: 'Loopy belief propagation' },
  { value: 'trw', text: 'TRW', title: 'Tree-reweighted belief propagation' },
  { value: 'mean_field', text: 'Mean field', title: 'Mean field' },
];
const SCHEDULES = [{ value: 'sweep', text: 'Sweep' }, { value: 'sequential', text: 'Sequential' }, { value: 'parallel', text: 'Parallel' }];
const NAMES = { lbp: 'LBP', trw: 'TRW', mean_field: 'mean field' };

export class Inference {
  constructor({ method, classes }, onchange) {
    Object.assign(this, { trained: method, method: { ...method }, classes });
    const set = (change) => { Object.assign(this.method, change); this.say(); onchange(); };
    this.note = el('p', { className: 'note' });
    this.figure = el('div', { className: 'chart' });
    this.back = el('button', { type: 'button', className: 'quiet', onclick: () => { set({ ...this.trained }); this.fill(); } }, 'As trained');
    this.methods = choice('Method', METHODS, method.name, (name) => set({ name }));
    this.schedules = choice('Schedule', SCHEDULES, method.schedule, (schedule) => set({ schedule }));
    this.turns = slider('Iterations', { min: 1, max: 10, step: 1, value: method.iterations, text: (t) => `T = ${t}` }, (iterations) => set({ iterations }));
    this.damping = slider('Damping', { min: 0, max: 0.9, step: 0.1, value: method.damping, text: (d) => d.toFixed(1) }, (damping) => set({ damping }));
    this.element = el('section', { className: 'card inference' }, el('h2', {}, 'Beliefs over iterations'), this.figure,
      el('div', { className: 'controls' }, this.methods, this.schedules, this.turns, this.damping), this.note, this.back);
    this.say();
  }

  get asTrained() {
    return ['name', 'schedule', 'iterations', 'damping'].every((part) => this.method[part] === this.trained[part]);
  }

  fill() {
    for (const [fieldset, value] of [[this.methods, this.method.name], [this.schedules, this.method.schedule]]) {
      for (const input of fieldset.querySelectorAll('input')) input.checked = input.value === value;
    }
    this.turns.set(this.method.iterations);
    this.damping.set(this.method.damping);
  }

  say() {
    const { name, schedule, iterations } = this.trained, times = iterations === 1 ? 'one iteration' : `${iterations} iterations`;
    const how = `It was trained with ${NAMES[name]}, ${schedule} schedule, ${times}`;
    this.note.textContent = this.asTrained ? `${how}, and answers that way now.`
      : `${how}. The method is part of what it learned, so other settings show what changes, not what is better.`;
    this.back.hidden = this.asTrained;
  }

  show(turns) {
    drawIterations(this.figure, turns, this.classes, Math.min(this.method.iterations, turns.length));
  }
}
