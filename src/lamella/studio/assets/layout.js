// A layered layout: longest-path layers, barycentre order, and positions by isotonic regression. The children of one
// module are laid out at a time, so that opening a module costs what it holds and all of them cost the sum.
const NODE = { w: 172, h: 42 };
const GROUP = { w: 196, h: 50 };
const GAP = { x: 26, y: 34 };
const HEAD = 30;
const MARGIN = 18;
const MOST_BENDS = 6000;

// Nodes are given in an order in which most edges point forward; gives their places and the bends of edges.
function layered(sizes, edges) {
  const layers = assignLayers(sizes.length, edges);
  const net = addBends(sizes, edges, layers);
  orderLayers(net);
  placeAcross(net);
  return placeDown(net, sizes.length);
}

function assignLayers(size, edges) {
  const layer = new Int32Array(size);
  const forward = edges.map(([a, b]) => (a < b ? [a, b] : [b, a])).sort((one, other) => one[0] - other[0]);
  const followers = Array.from({ length: size }, () => []);
  for (const [a, b] of forward) followers[a].push(b);
  const fed = new Uint8Array(size);
  for (let node = 0; node < size; node += 1) for (const next of followers[node]) {
    layer[next] = Math.max(layer[next], layer[node] + 1);
    fed[next] = 1;
  }
  // What nothing feeds stands just above what it feeds.
  for (let node = size - 1; node >= 0; node -= 1) {
    if (!fed[node] && followers[node].length) layer[node] = Math.max(0, Math.min(...followers[node].map((next) => layer[next])) - 1);
  }
  return layer;
}

function addBends(sizes, edges, layers) {
  const height = sizes.length ? Math.max(...layers) + 1 : 0;
  const rows = Array.from({ length: height }, () => []);
  const net = { w: sizes.map((item) => item.w), h: sizes.map((item) => item.h), layer: [...layers], rows, up: [], down: [], bends: [] };
  sizes.forEach((_, node) => { rows[layers[node]].push(node); net.up.push([]); net.down.push([]); });
  let room = MOST_BENDS;
  for (const [a, b] of edges) {
    const [first, last] = layers[a] <= layers[b] ? [a, b] : [b, a];
    const span = layers[last] - layers[first];
    const bends = [];
    let before = first;
    if (span > 1 && span < 80 && room > span) {
      for (let row = layers[first] + 1; row < layers[last]; row += 1) {
        const bend = net.w.length;
        net.w.push(6); net.h.push(0); net.layer.push(row); net.up.push([before]); net.down.push([]);
        net.down[before].push(bend);
        rows[row].push(bend);
        bends.push(bend);
        before = bend;
      }
      room -= span;
    }
    if (span > 0) { net.down[before].push(last); net.up[last].push(before); }
    net.bends.push(first === a ? bends : bends.reverse());
  }
  return net;
}

function orderLayers(net) {
  const place = new Float64Array(net.w.length);
  const number = () => { for (const row of net.rows) row.forEach((node, at) => { place[node] = at; }); };
  const sweep = (rows, near) => {
    for (const row of rows) {
      const wish = new Map(row.map((node) => [node, near[node].length ? near[node].reduce((sum, other) => sum + place[other], 0) / near[node].length : place[node]]));
      row.sort((one, other) => wish.get(one) - wish.get(other) || one - other);
      row.forEach((node, at) => { place[node] = at; });
    }
  };
  number();
  for (let turn = 0; turn < 4; turn += 1) { sweep(net.rows, net.up); sweep([...net.rows].reverse(), net.down); }
  sweep(net.rows, net.up);
}

// Centres as near as can be to the mean of the neighbours', in order and without overlap: pool adjacent violators.
function placeAcross(net) {
  const x = new Float64Array(net.w.length);
  for (const row of net.rows) {
    let at = 0;
    for (const node of row) { x[node] = at + net.w[node] / 2; at += net.w[node] + GAP.x; }
    for (const node of row) x[node] -= at / 2;
  }
  const settle = (row, near) => {
    const offsets = [];
    row.forEach((node, at) => { offsets.push(at ? offsets[at - 1] + (net.w[row[at - 1]] + net.w[node]) / 2 + GAP.x : 0); });
    const blocks = [];
    row.forEach((node, at) => {
      const wish = near[node].length ? near[node].reduce((sum, other) => sum + x[other], 0) / near[node].length : x[node];
      const weight = net.h[node] === 0 ? 3 : 1;
      let block = { sum: (wish - offsets[at]) * weight, weight, from: at, to: at };
      while (blocks.length && blocks[blocks.length - 1].sum / blocks[blocks.length - 1].weight > block.sum / block.weight) {
        const last = blocks.pop();
        block = { sum: last.sum + block.sum, weight: last.weight + block.weight, from: last.from, to: block.to };
      }
      blocks.push(block);
    });
    for (const block of blocks) for (let at = block.from; at <= block.to; at += 1) x[row[at]] = block.sum / block.weight + offsets[at];
  };
  const both = net.up.map((list, node) => [...list, ...net.down[node]]);
  const backwards = [...net.rows].reverse();
  for (let turn = 0; turn < 5; turn += 1) {
    for (const row of net.rows) settle(row, net.up);
    for (const row of backwards) settle(row, net.down);
  }
  // A chain without branches hangs straight below its first node.
  const chained = net.up.map((list, node) => (list.length === 1 && net.down[list[0]].length === 1 ? list : both[node]));
  for (let turn = 0; turn < 3; turn += 1) for (const row of net.rows) settle(row, chained);
  net.x = x;
}

function placeDown(net, size) {
  const tops = [];
  let y = 0;
  for (const row of net.rows) {
    tops.push(y);
    y += Math.max(0, ...row.map((node) => net.h[node])) + GAP.y;
  }
  let [left, right] = net.w.length ? [Infinity, -Infinity] : [0, 0];
  for (let node = 0; node < net.w.length; node += 1) {
    left = Math.min(left, net.x[node] - net.w[node] / 2);
    right = Math.max(right, net.x[node] + net.w[node] / 2);
  }
  const tall = net.rows.map((row) => Math.max(0, ...row.map((node) => net.h[node])));
  const boxes = Array.from({ length: size }, (_, node) => ({
    x: net.x[node] - net.w[node] / 2 - left,
    y: tops[net.layer[node]] + (tall[net.layer[node]] - net.h[node]) / 2,
    w: net.w[node],
    h: net.h[node],
  }));
  const bends = net.bends.map((list) => list.map((node) => ({ x: net.x[node] - left, y: tops[net.layer[node]], h: tall[net.layer[node]] })));
  return { boxes, bends, w: right - left, h: Math.max(y - GAP.y, 0) };
}

// --- modules, operations, inputs and outputs as a tree of boxes ------------------------------------------------------

class Hierarchy {
  constructor(graph) {
    this.graph = graph;
    this.modules = graph.modules.name.length;
    this.opCount = graph.ops.operator.length;
    const size = this.modules + this.opCount;
    this.ends = [...graph.inputs.map((tensor) => ({ tensor, input: true })), ...graph.outputs.map((tensor) => ({ tensor, input: false }))];
    this.parent = new Int32Array(size + this.ends.length);
    this.order = new Float64Array(size + this.ends.length).fill(Infinity);
    this.children = Array.from({ length: this.modules }, () => []);
    this.sizes = new Int32Array(this.modules);
    this.open = new Set([0]);
    this.link();
    this.connect();
    this.layouts = new Map();
  }

  op(node) { return node >= this.modules && node < this.modules + this.opCount ? node - this.modules : -1; }
  end(node) { return node >= this.modules + this.opCount ? this.ends[node - this.modules - this.opCount] : null; }
  isModule(node) { return node < this.modules; }

  link() {
    const { graph, modules, opCount } = this;
    for (let node = 0; node < modules; node += 1) this.parent[node] = graph.modules.parent[node];
    for (let op = 0; op < opCount; op += 1) {
      this.parent[modules + op] = graph.ops.module[op];
      this.order[modules + op] = op;
      for (let above = graph.ops.module[op]; above >= 0; above = this.parent[above]) {
        this.order[above] = Math.min(this.order[above], op);
        this.sizes[above] += 1;
      }
    }
    this.ends.forEach((end, number) => { this.order[modules + opCount + number] = end.input ? -1 : opCount + number; });
    for (let node = 1; node < this.parent.length; node += 1) this.children[Math.max(this.parent[node], 0)].push(node);
    for (const list of this.children) list.sort((one, other) => this.order[one] - this.order[other] || one - other);
    this.depth = new Int32Array(this.parent.length);
    for (let node = 0; node < this.parent.length; node += 1) {
      let depth = 0;
      for (let above = node; above > 0; above = this.parent[above]) depth += 1;
      this.depth[node] = depth;
    }
  }

  // Edges of each module between its children; IN and OUT stand for what lies outside.
  connect() {
    const { graph, modules } = this;
    this.edges = Array.from({ length: modules }, () => new Map());
    this.producer = new Int32Array(graph.tensors.name.length).fill(-1);
    this.readers = graph.tensors.name.map(() => []);
    graph.ops.outputs.forEach((made, op) => made.forEach((tensor) => { this.producer[tensor] = modules + op; }));
    this.ends.forEach((end, number) => { if (end.input) this.producer[end.tensor] = modules + this.opCount + number; });
    graph.ops.inputs.forEach((given, op) => { for (const tensor of given) this.readers[tensor].push(modules + op); });
    this.ends.forEach((end, number) => { if (!end.input) this.readers[end.tensor].push(modules + this.opCount + number); });
    this.readers.forEach((list, tensor) => { if (this.producer[tensor] >= 0) for (const reader of list) this.join(this.producer[tensor], reader); });
  }

  join(from, to) {
    let [a, b] = [from, to];
    while (this.parent[a] !== this.parent[b]) {
      if (this.depth[a] >= this.depth[b]) { this.note(this.parent[a], a, "out"); a = this.parent[a]; } else { this.note(this.parent[b], "in", b); b = this.parent[b]; }
    }
    if (a !== b) this.note(this.parent[a], a, b);
  }

  note(module, from, to) {
    const key = from + " " + to;
    const found = this.edges[Math.max(module, 0)];
    if (!found.has(key)) found.set(key, [from, to]);
  }

  size(node) {
    if (!this.isModule(node)) return NODE;
    if (!this.open.has(node)) return GROUP;
    const inner = this.layout(node);
    return { w: inner.w, h: inner.h };
  }

  layout(module) {
    if (!this.layouts.has(module)) this.layouts.set(module, this.arrange(module));
    return this.layouts.get(module);
  }

  arrange(module) {
    const list = this.children[module];
    const edges = [...this.edges[module].values()];
    const has = { in: edges.some(([from]) => from === "in"), out: edges.some(([, to]) => to === "out") };
    const nodes = [...(has.in ? ["in"] : []), ...list, ...(has.out ? ["out"] : [])];
    const place = new Map(nodes.map((node, at) => [node, at]));
    const sizes = nodes.map((node) => (typeof node === "string" ? { w: 8, h: 0 } : this.size(node)));
    const found = layered(sizes, edges.map(([from, to]) => [place.get(from), place.get(to)]));
    const [dx, dy] = module ? [MARGIN, HEAD + (has.in ? 0 : MARGIN / 2)] : [MARGIN, MARGIN];
    const wide = Math.max(found.w, module ? 150 : 0);
    const shift = dx + (wide - found.w) / 2;
    for (const box of found.boxes) { box.x += shift; box.y += dy; }
    for (const bend of found.bends.flat()) { bend.x += shift; bend.y += dy; }
    const boxes = new Map(nodes.map((node, at) => [node, found.boxes[at]]));
    const whole = { w: wide + 2 * dx, h: found.h + dy + (has.out ? 4 : MARGIN), boxes, list };
    // What comes in and goes out does so in the middle of the border.
    if (has.in) { const box = boxes.get("in"); box.x = whole.w / 2 - 4; box.y = 0; }
    if (has.out) { const box = boxes.get("out"); box.x = whole.w / 2 - 4; box.y = whole.h; }
    whole.edges = edges.map(([from, to], at) => ({ from, to, points: this.route(boxes.get(from), boxes.get(to), found.bends[at]) }));
    whole.path = new Path2D();
    for (const edge of whole.edges) trace(whole.path, edge.points);
    return whole;
  }

  route(from, to, bends) {
    const points = [[from.x + from.w / 2, from.y + from.h]];
    for (const bend of bends) points.push([bend.x, bend.y], [bend.x, bend.y + bend.h]);
    points.push([to.x + to.w / 2, to.y]);
    return points;
  }

  toggle(module, open = !this.open.has(module)) {
    if (!this.isModule(module) || module === 0) return;
    if (open) this.open.add(module); else this.open.delete(module);
    for (let above = module; above >= 0; above = this.parent[above]) this.layouts.delete(above);
  }

  setAll(open) {
    this.open = new Set([0]);
    if (open) for (let module = 1; module < this.modules; module += 1) this.open.add(module);
    this.layouts.clear();
  }

  // Opens modules from the outside in, as long as the picture stays small.
  openSome(most) {
    let shown = this.children[0].length;
    for (let at = 0, list = [...this.children[0]]; at < list.length; at += 1) {
      const node = list[at];
      if (!this.isModule(node) || shown + this.children[node].length - 1 > most) continue;
      this.open.add(node);
      shown += this.children[node].length - 1;
      list.push(...this.children[node]);
    }
  }

  reveal(node) {
    for (let above = this.parent[node]; above > 0; above = this.parent[above]) if (!this.open.has(above)) this.toggle(above, true);
  }

  // The box of a node in the coordinates of the whole picture; null while a module around it is closed.
  boxOf(node) {
    let [x, y, box] = [0, 0, null];
    for (let at = node; at > 0; at = this.parent[at]) {
      const above = Math.max(this.parent[at], 0);
      if (!this.open.has(above)) { box = null; x = y = 0; continue; }
      const found = this.layout(above).boxes.get(at);
      if (!box) box = { w: found.w, h: found.h, node: at };
      x += found.x;
      y += found.y;
    }
    return box && { ...box, x, y };
  }
}

function trace(path, points) {
  path.moveTo(...points[0]);
  for (let at = 1; at < points.length; at += 1) {
    const [[x0, y0], [x1, y1]] = [points[at - 1], points[at]];
    if (Math.abs(x0 - x1) < 0.5) { path.lineTo(x1, y1); continue; }
    const bend = Math.max(10, Math.abs(y1 - y0) * 0.5);
    path.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
  }
}
