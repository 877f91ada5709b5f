// The page: which models there are, and a view of the one that is chosen.

import { Client } from './client.mjs';
import { el } from './dom.mjs';
import { ImageView } from './image-view.mjs';
import { TableView } from './table-view.mjs';

const place = document.getElementById('view'), tabs = document.getElementById('models'), problem = document.getElementById('problem');
const client = new Client(complain);
let models = [], view = null, opened = 0;

function complain(message) {
  problem.textContent = `Something went wrong: ${message}`;
  problem.hidden = false;
}

async function open(model) {
  for (const tab of tabs.children) {
    const chosen = tab.dataset.name === model.name;
    tab.setAttribute('aria-current', String(chosen));
    if (chosen) tabs.scrollTo({ left: tab.offsetLeft - tabs.offsetLeft - 40 });
  }
  place.setAttribute('aria-busy', 'true');
  view?.close();
  const turn = ++opened;
  try {
    const about = await client.load(new URL(model.file, document.baseURI).href);
    if (turn !== opened) return; // another one was chosen meanwhile
    problem.hidden = true;
    view = about.kind === 'table' ? new TableView(about, client) : new ImageView(about, client);
    place.replaceChildren(view.element);
    document.getElementById('keys').hidden = about.kind === 'table';
    document.getElementById('facts').textContent = facts(about, model);
  } catch (error) {
    complain(error.message);
  }
  place.removeAttribute('aria-busy');
}

function facts({ layers, edges, members }, { title }) {
  const shapes = layers.map(({ sizes, labels }) => sizes.join('×') + (labels > 2 ? ` of ${labels} labels` : '')).join(' – ');
  return `${title}: layers ${shapes}; ${edges.toLocaleString('en')} edges${members > 1 ? `; ${members} models together` : ''}.`;
}

function named() {
  return models.find((model) => location.hash === `#${encodeURIComponent(model.name)}`) ?? models[0];
}

const THEMES = ['auto', 'light', 'dark'];

function applyTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const button = document.getElementById('theme');
  button.textContent = { auto: '◐ Auto', light: '○ Light', dark: '● Dark' }[theme];
  button.setAttribute('aria-label', `Colours: ${theme}. Change`);
  view?.repaint();
}

function stored() {
  try {
    return localStorage.getItem('theme') ?? 'auto'; // as the documentation keeps it
  } catch {
    return 'auto';
  }
}

document.getElementById('theme').addEventListener('click', () => {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  try {
    localStorage.setItem('theme', next);
  } catch { /* it is kept while the page is open */ }
  applyTheme(next);
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => view?.repaint());
addEventListener('keydown', (event) => {
  const writing = event.target.matches?.('input[type=number], input[type=text], select, textarea');
  if (!writing && !event.ctrlKey && !event.metaKey && !event.altKey) view?.key(event.key.toLowerCase());
});
addEventListener('hashchange', () => open(named()));
applyTheme(stored());

const answer = await fetch('models.json');
if (answer.ok) {
  const listed = await answer.json();
  models = listed.models;
  document.getElementById('home').href = listed.home;
  tabs.replaceChildren(...models.map(({ name, title }) => el('a', { href: `#${encodeURIComponent(name)}`, 'data-name': name }, title)));
  open(named());
} else complain(`models.json: ${answer.status}`);
