// Where edges are, and reading a model: a safetensors file with a description in its metadata, as
// torchlgm.interop.export_web writes it.

const FORMAT = 'torchlgm.web';

/** The edges of a connection: nodes `a` (left) and `b` (right), and `t`, which table each edge has. */
export function edgesOf(connection, left, right) {
  const a = [], b = [], t = [];
  const add = (i, j, table) => { a.push(i); b.push(j); t.push(table); };
  if (connection.type === 'dense') {
    for (let i = 0; i < left.nodes; i++) for (let j = 0; j < right.nodes; j++) add(i, j, i * right.nodes + j);
  } else if (connection.type === 'sparse') {
    connection.edges.forEach(([i, j], n) => add(i, j, n));
  } else if (connection.type === 'conv' || connection.type === 'local') {
    windowEdges(connection, left.sizes, right.sizes, add);
  } else throw new Error(`connection '${connection.name}' is of kind '${connection.type}', which is not known here`);
  return { a: Int32Array.from(a), b: Int32Array.from(b), t: Int32Array.from(t) };
}

function windowEdges(connection, left, right, add) {
  const dims = left.length - 1;
  const each = (value) => (Array.isArray(value) ? value : Array(dims).fill(value));
  const kernel = each(connection.kernel), stride = each(connection.stride), dilation = each(connection.dilation ?? 1);
  const before = each(connection.padding).map((pad) => (Array.isArray(pad) ? pad[0] : pad));
  let pairs = [{ p: 0, k: 0, r: 0 }]; // left position, place in the kernel, right position: the edges between two channels
  for (let d = 0; d < dims; d++) {
    const along = [];
    for (let k = 0; k < kernel[d]; k++) {
      for (let r = 0; r < right[1 + d]; r++) {
        const p = r * stride[d] - before[d] + k * dilation[d];
        if (p >= 0 && p < left[1 + d]) along.push({ p, k, r });
      }
    }
    pairs = pairs.flatMap((outer) => along.map(({ p, k, r }) => (
      { p: outer.p * left[1 + d] + p, k: outer.k * kernel[d] + k, r: outer.r * right[1 + d] + r }
    )));
  }
  const [P, K, R] = [left.slice(1), kernel, right.slice(1)].map(product), shared = connection.type === 'conv';
  for (let i = 0; i < left[0]; i++) {
    for (let j = 0; j < right[0]; j++) {
      for (const { p, k, r } of pairs) {
        const table = (i * right[0] + j) * K + k; // all positions share it, or each has its own
        add(i * P + p, j * R + r, shared ? table : table * R + r);
      }
    }
  }
}

const product = (sizes) => sizes.reduce((all, n) => all * n, 1);

/** A file as {about, members, examples, network}; each member is {layers, links, root}, as `infer` takes it. */
export function readModel(buffer) {
  try {
    return read(buffer);
  } catch (error) {
    throw new Error(`this file is no model for the playground, or it is damaged: ${error.message}`, { cause: error });
  }
}

function read(buffer) {
  const { metadata, tensors } = readSafetensors(buffer);
  if (!metadata[FORMAT]) throw new Error('this file holds no model for the playground; write one by torchlgm export');
  const about = JSON.parse(metadata[FORMAT]);
  checkSizes(about, tensors);
  const skeleton = wire(about.graph, about.child_probabilities);
  const members = Array.from({ length: about.members }, (_, m) => ({
    root: about.graph.root,
    layers: skeleton.layers.map((l) => ({ ...l, unary: part(tensors[`unary.${l.name}`], m, about.members) })),
    links: skeleton.links.map((l) => ({ ...l, energies: part(tensors[`energies.${l.name}`], m, about.members) })),
  }));
  return { about, members, examples: readExamples(about, tensors), tensors };
}

/** Sizes in the description, held against those of the tensors before anything is made of them. */
function checkSizes({ graph, members }, tensors) {
  const layers = Object.fromEntries(graph.layers.map((layer) => [layer.name, layer]));
  const expect = (name, count) => {
    const data = tensors[name]?.data;
    if (!(members >= 1) || data?.length !== count * members) throw new Error(`expected ${count * members} numbers in ${name}, got ${data?.length}`);
    if (!data.every(Number.isFinite)) throw new Error(`a number in ${name} is not finite`);
  };
  for (const { name, shape, labels } of graph.layers) {
    if (![...shape, labels - 1].every((n) => Number.isInteger(n) && n > 0)) throw new Error(`layer '${name}' has no size`);
    expect(`unary.${name}`, product(shape) * (labels - 1));
  }
  for (const connection of graph.connections) {
    const [left, right] = [layers[connection.left], layers[connection.right]];
    expect(`energies.${connection.name}`, tables(connection, left.shape, right.shape) * (left.labels - 1) * (right.labels - 1));
  }
}

function tables(connection, left, right) {
  if (connection.type === 'dense') return product(left) * product(right);
  if (connection.type === 'sparse') {
    const known = ([i, j]) => i >= 0 && i < product(left) && j >= 0 && j < product(right);
    if (!connection.edges.every(known)) throw new Error(`an edge of '${connection.name}' has no node`);
    return connection.edges.length;
  }
  const dims = left.length - 1, kernel = connection.kernel;
  const K = Array.isArray(kernel) ? product(kernel) : kernel ** dims;
  return left[0] * right[0] * K * (connection.type === 'local' ? product(right.slice(1)) : 1);
}

function wire(graph, childProbabilities) {
  const layers = graph.layers.map(({ name, shape, labels }) => ({
    name, sizes: shape, labels, nodes: product(shape), k: labels - 1,
  }));
  const byName = Object.fromEntries(layers.map((layer) => [layer.name, layer]));
  const links = graph.connections.map((connection) => {
    const left = byName[connection.left], right = byName[connection.right];
    const edges = edgesOf(connection, left, right);
    const rho = appearance(edges, left.nodes, right.nodes, childProbabilities[connection.name]);
    return { name: connection.name, type: connection.type, left: left.name, right: right.name, ...edges, rho, kl: left.k, kr: right.k };
  });
  return { layers, links };
}

/** How probable each edge is in a random tree: the child picks one of its neighbours in the parent layer. */
function appearance({ a, b }, left, right, [leftIsChild, rightIsChild]) {
  const degree = (ends, nodes) => ends.reduce((count, i) => { count[i]++; return count; }, new Float64Array(nodes));
  const ofLeft = degree(a, left), ofRight = degree(b, right);
  return Float64Array.from(a, (i, e) => Math.min(1, leftIsChild / ofLeft[i] + rightIsChild / ofRight[b[e]]));
}

const part = (tensor, m, members) => {
  const size = tensor.data.length / members;
  return tensor.data.subarray(m * size, (m + 1) * size);
};

function readExamples(about, tensors) {
  const tensor = tensors.examples;
  if (!tensor) return [];
  const size = tensor.data.length / tensor.shape[0], scale = tensor.dtype === 'U8' ? 255 : 1;
  return about.examples.map((label, i) => ({
    label, values: tensor.data.slice(i * size, (i + 1) * size).map((value) => value / scale),
  }));
}

function readSafetensors(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const tensors = {};
  for (const [name, entry] of Object.entries(head)) {
    if (name === '__metadata__') continue;
    const [from, to] = entry.data_offsets.map((offset) => 8 + length + offset);
    tensors[name] = { shape: entry.shape, dtype: entry.dtype, data: decode(entry.dtype, buffer.slice(from, to)) };
  }
  return { metadata: head.__metadata__ ?? {}, tensors };
}

function decode(dtype, bytes) {
  if (dtype === 'F32') return Float64Array.from(new Float32Array(bytes));
  if (dtype === 'F64') return new Float64Array(bytes);
  if (dtype === 'U8') return Float64Array.from(new Uint8Array(bytes));
  if (dtype === 'F16') return Float64Array.from(new Uint16Array(bytes), half);
  throw new Error(`numbers of kind ${dtype} are not known here`);
}

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}
