// Making elements, and words for numbers.

/** An element with properties, attributes (`aria-label`, `data-x`, `for`), listeners (`onclick`) and children. */
export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name.includes('-') || name === 'for' || name === 'role' || name === 'list') made.setAttribute(name, value);
    else if (name === 'style') for (const [part, own] of Object.entries(value)) made.style.setProperty(part, own);
    else made[name] = value;
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const SVG = 'http://www.w3.org/2000/svg';

export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** One of several choices, as radio buttons that look like one control. */
export function choice(label, options, value, onchange) {
  const name = `choice-${label.replaceAll(/\W/g, '-')}`;
  const buttons = options.map(({ value: own, text, title, key }) => el('label', { title: title ?? '' },
    el('input', { type: 'radio', name, value: own, checked: own === value, onchange: () => onchange(own), 'data-key': key }),
    el('span', {}, text)));
  return el('fieldset', { className: 'choice' }, el('legend', { className: 'only-read' }, label), buttons);
}

export function chooseIn(fieldset, value) {
  for (const input of fieldset.querySelectorAll('input')) input.checked = input.value === String(value);
}

/** A slider with its value beside it. */
export function slider(label, { min, max, step, value, text = String }, onchange) {
  const output = el('output', {}, text(value));
  const input = el('input', { type: 'range', min, max, step, value, 'aria-label': label, oninput: () => {
    output.textContent = text(Number(input.value));
    onchange(Number(input.value));
  } });
  const set = (next) => { input.value = next; output.textContent = text(next); };
  return Object.assign(el('label', { className: 'slider' }, el('span', {}, label), input, output), { set });
}

export function percent(p) {
  if (p > 0.995 && p < 1) return '>99 %';
  if (p > 0 && p < 0.005) return '<1 %';
  return `${Math.round(100 * p)} %`;
}

/** A number in about three digits. */
export function short(x) {
  if (x === null || Number.isNaN(x)) return '';
  const size = Math.abs(x);
  return Number(size >= 1000 ? x.toFixed(0) : size >= 100 ? x.toFixed(1) : x.toPrecision(3)).toString();
}

/** A mean and a standard deviation, with two digits of the latter. */
export function withSpread(mean, deviation) {
  const decimals = deviation > 0 ? Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(deviation)))) : 2;
  return `${mean.toFixed(decimals)} ± ${deviation.toFixed(decimals)}`;
}

export const entropy = (p) => p.reduce((sum, one) => sum - (one > 0 ? one * Math.log2(one) : 0), 0);
export const best = (p) => p.indexOf(Math.max(...p));
