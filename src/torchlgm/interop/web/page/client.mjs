// The page's side of the workers: one answers every stroke at once, one has time for longer questions.

const QUICK = ['picture', 'form'];

export class Client {
  constructor(complain) {
    this.quick = new Line(complain);
    this.slow = new Line(complain);
  }

  /** What there is to know of the model at an address, from which all answers are from now on. */
  async load(url) {
    const [about] = await Promise.all([this.quick.load(url), this.slow.load(url)]);
    return about;
  }

  /** Show the answer to a question; `show` is called again for better answers. */
  ask(kind, question, show) {
    (QUICK.includes(kind) ? this.quick : this.slow).ask(kind, question, show);
  }

  /** Forget the questions of a kind. */
  cancel(kind) {
    this.slow.cancel(kind);
  }
}

/** A worker. While it is busy with a question, only the newest of the same kind waits. */
class Line {
  constructor(complain) {
    this.worker = new Worker(new URL('worker.mjs', import.meta.url), { type: 'module' });
    this.complain = complain;
    this.count = 0;
    this.asked = {}; // by kind, the question in work
    this.waiting = {};
    this.worker.onmessage = ({ data }) => this.receive(data);
    this.worker.onerror = (error) => complain(error.message || 'the worker could not start; is this an old browser?');
  }

  load(url) {
    for (const kind of Object.keys(this.asked)) this.cancel(kind);
    return new Promise((done, failed) => { this.ask('load', { url }, done, (error) => failed(new Error(error))); });
  }

  ask(kind, question, show, failed = this.complain) {
    const one = { kind, question, show, failed };
    if (this.asked[kind] && kind !== 'next') this.waiting[kind] = one;
    else this.send(one);
  }

  cancel(kind) {
    delete this.waiting[kind];
    if (this.asked[kind]) this.asked[kind].show = () => {};
  }

  send(one) {
    one.id = ++this.count;
    this.asked[one.kind] = one;
    this.worker.postMessage({ id: one.id, kind: one.kind, question: one.question });
  }

  receive({ id, kind, answer, error, last, ms }) {
    const one = this.asked[kind];
    if (one?.id !== id) return;
    if (last) delete this.asked[kind];
    if (error) one.failed(error);
    else one.show(answer, ms);
    const later = this.waiting[kind];
    if (last && later) {
      delete this.waiting[kind];
      this.send(later);
    }
  }
}
