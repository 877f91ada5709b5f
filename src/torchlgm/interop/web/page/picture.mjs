// Pictures of pixels: as they are, as far as they are seen, and with colours for what a model says of each.

const CELL = 14; // of the canvas, in its own pixels, for the widest pictures

/** The colours of the page as [r, g, b], by the names of its custom properties. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => {
    const hex = style.getPropertyValue(`--${name}`).trim();
    return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  };
  return Object.fromEntries(['paper', 'ink', 'photo-dark', 'photo-light', 'hidden', 'stripe', 'for', 'against', 'unsure', 'gain', 'accent',
    'on-dark-for', 'on-dark-against', 'on-dark-unsure', 'on-dark-gain'].map((name) => [name, of(name)]));
}

const mix = (a, b, t) => a.map((one, i) => Math.round(one + (b[i] - one) * t));
const css = ([r, g, b]) => `rgb(${r},${g},${b})`;
const within = (t) => Math.min(1, Math.max(0, t));

/** A canvas that shows an image shaped (channels, height, width), or a vector in rows. */
export class Picture {
  constructor(shape, look, canvas = document.createElement('canvas'), most = 392) {
    const [channels, height, width] = shape.length === 3 ? shape : [1, ...inRows(shape)];
    Object.assign(this, { canvas, look, channels: channels === 3 ? 3 : 1, height, width, plane: height * width });
    this.cell = Math.max(2, Math.min(4 * CELL, Math.floor(most / Math.max(width, height))));
    canvas.width = width * this.cell;
    canvas.height = height * this.cell;
    this.context = canvas.getContext('2d');
  }

  /** Paint values; `hidden` cells are striped, `tint(i)` gives [colour, strength] to lay over a cell. */
  paint(values, { hidden = null, tint = null, faint = 1 } = {}) {
    const { context, cell, width, height, plane } = this, palette = colours();
    const [low, high] = this.look === 'ink' ? [palette.paper, palette.ink] : [palette['photo-dark'], palette['photo-light']];
    if (this.look !== 'ink') for (const name of ['for', 'against', 'unsure', 'gain']) palette[name] = palette[`on-dark-${name}`];
    const stripes = hidden ? this.stripes(palette) : null;
    for (let i = 0; i < plane; i++) {
      const x = (i % width) * cell, y = Math.floor(i / width) * cell;
      if (y >= height * cell) break;
      if (hidden?.[i]) {
        context.fillStyle = stripes;
      } else {
        let colour = this.channels === 3
          ? [0, 1, 2].map((c) => Math.round(255 * within(values[c * plane + i] * faint)))
          : mix(low, high, within(values[i] * faint));
        const [over, strength] = tint?.(i, palette) ?? [null, 0];
        if (strength) colour = mix(colour, over, within(strength));
        context.fillStyle = css(colour);
      }
      context.fillRect(x, y, cell, cell);
    }
  }

  stripes(palette) {
    const tile = document.createElement('canvas'), side = tile.width = tile.height = 8, context = tile.getContext('2d');
    context.fillStyle = css(palette.hidden);
    context.fillRect(0, 0, side, side);
    context.strokeStyle = css(palette.stripe);
    context.lineWidth = 1.6;
    for (const at of [-side, 0, side]) {
      context.beginPath();
      context.moveTo(at - 1, side + 1);
      context.lineTo(at + side + 1, -1);
      context.stroke();
    }
    return this.context.createPattern(tile, 'repeat');
  }

  /** A line around what is hidden, so that it can be told from what was seen; not around scattered pixels. */
  outline(hidden) {
    const { context, cell, width, height } = this, edges = [];
    const at = (x, y) => (x < 0 || y < 0 || x >= width || y >= height ? 1 : hidden[y * width + x]);
    let count = 0;
    hidden.forEach((one, i) => {
      const x = i % width, y = Math.floor(i / width), [l, r, t, b] = [x * cell, (x + 1) * cell, y * cell, (y + 1) * cell];
      count += one;
      if (one && !at(x - 1, y)) edges.push([l, t, l, b]);
      if (one && !at(x + 1, y)) edges.push([r, t, r, b]);
      if (one && !at(x, y - 1)) edges.push([l, t, r, t]);
      if (one && !at(x, y + 1)) edges.push([l, b, r, b]);
    });
    if (edges.length > 0.8 * count) return;
    context.strokeStyle = css(colours().accent);
    context.lineWidth = Math.max(1.5, cell / 7);
    context.setLineDash([cell / 2, cell / 3]);
    context.beginPath();
    for (const [x0, y0, x1, y1] of edges) {
      context.moveTo(x0, y0);
      context.lineTo(x1, y1);
    }
    context.stroke();
    context.setLineDash([]);
  }

  frame(x, y, width, height, colour = 'accent') {
    const { context, cell } = this;
    context.strokeStyle = css(colours()[colour]);
    context.lineWidth = Math.max(2, cell / 5);
    context.strokeRect(x * cell, y * cell, width * cell, height * cell);
  }
}

function inRows(shape) {
  if (shape.length === 2) return shape;
  const nodes = shape.reduce((all, n) => all * n, 1), width = Math.ceil(Math.sqrt(nodes));
  return [Math.ceil(nodes / width), width];
}
