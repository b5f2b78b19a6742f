// The graph on a canvas: only what is visible is drawn, small things without their words, tiny modules as one block.
const OVERLAYS = [
  ["kind", "kind of operator"], ["macs", "multiply-adds"], ["bytes", "bytes moved"], ["seconds", "time"],
  ["error", "error"], ["status", "differences"],
];
const STATUS = ["same", "changed", "only here"];
const HOT = () => (theme.dark ? "#ff8f3f" : "#f26b1d");
const FORMAT = { macs: brief, bytes, seconds, error: (value) => value.toExponential(1) };
const TINY = 26;

class GraphView {
  constructor(model, root) {
    this.model = model;
    this.graph = models[model].graph;
    this.tree = new Hierarchy(this.graph);
    this.tree.openSome(60);
    this.at = { x: 0, y: 0, scale: 1 };
    this.hover = -1;
    this.matches = null;
    this.asked = false;
    this.build(root);
    this.setOverlay("kind");
    this.isFitted = false;
    new ResizeObserver(() => { if (!this.isFitted) this.fit(); this.repaint(); }).observe(this.canvas.parentElement);
  }

  build(root) {
    this.canvas = element("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", "graph of " + models[this.model].title + "; arrow keys move between operations, enter opens and closes modules, plus and minus zoom, f shows all");
    const bar = element("div", "tools", null,
      button("+", () => this.zoom(1.3)), button("−", () => this.zoom(1 / 1.3)), button("fit", () => this.fit(), "fit"),
      button("open all", () => this.setAll(true), "open-all"), button("close all", () => this.setAll(false), "close-all"),
      button("image", () => download(this.canvas, models[this.model].title + "-graph"), "image"));
    bar.children[0].setAttribute("aria-label", "zoom in");
    bar.children[1].setAttribute("aria-label", "zoom out");
    this.legend = element("div", "legend");
    root.append(element("div", "canvas-room", null, this.canvas, bar, this.legend));
    this.canvas.addEventListener("pointerdown", (event) => this.press(event));
    this.canvas.addEventListener("pointermove", (event) => this.follow(event));
    this.canvas.addEventListener("pointerup", (event) => this.release(event));
    this.canvas.addEventListener("pointerleave", () => { hush(); this.hover = -1; this.repaint(); });
    this.canvas.addEventListener("dblclick", (event) => { const node = this.under(event); if (node > 0 && this.tree.isModule(node)) this.toggle(node); });
    this.canvas.addEventListener("wheel", (event) => this.turn(event), { passive: false });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    themed.push(() => { this.setOverlay(this.overlay); });
  }

  // --- overlays: a number for each operation, added up (or the largest) for modules -----------------------------

  has(overlay) {
    if (overlay === "kind") return true;
    if (overlay === "status") return Boolean(data.comparison);
    return Boolean(this.graph.ops[overlay]) && this.graph.ops[overlay].some((value) => value);
  }

  setOverlay(overlay) {
    this.overlay = this.has(overlay) ? overlay : "kind";
    const { tree } = this;
    const values = this.overlay === "status" ? data.comparison.status[this.model] : this.overlay === "kind" ? null : this.graph.ops[this.overlay];
    this.values = values && new Float64Array(tree.modules + tree.opCount);
    if (values) values.forEach((value, op) => {
      if (value === null) return;
      const number = this.overlay === "status" ? (value ? 1 : 0) : value;
      this.values[tree.modules + op] = this.overlay === "status" ? value : value;
      for (let above = tree.parent[tree.modules + op]; above >= 0; above = tree.parent[above]) {
        this.values[above] = this.overlay === "error" ? Math.max(this.values[above], number) : this.values[above] + number;
      }
    });
    this.most = values ? Math.max(...values.map((value) => value || 0), 1e-300) : 1;
    this.describe();
    this.repaint();
  }

  describe() {
    const parts = [];
    if (this.overlay === "kind") {
      const used = new Set(this.graph.operators.map(kindOf));
      KINDS.forEach(([name], kind) => { if (used.has(kind)) parts.push(legendItem(kindColour(kind), name)); });
      if (used.has(-1)) parts.push(legendItem(kindColour(-1), "others"));
    } else if (this.overlay === "status") {
      parts.push(legendItem(theme.palette[1], "changed"), legendItem(this.model ? theme.good : theme.bad, "only in this one"));
    } else {
      const ramp = element("span", "ramp");
      ramp.style.background = "linear-gradient(90deg, " + [0.06, 0.5, 1].map((part) => this.heat(part)).join(",") + ")";
      parts.push(element("span", "", "0"), ramp, element("span", "", FORMAT[this.overlay](this.most)));
    }
    this.legend.replaceChildren(...parts);
  }

  heat(part) { return mix(theme.card, HOT(), clamp(part, 0, 1)); }

  fill(node) {
    const op = this.tree.op(node);
    if (this.overlay === "status") {
      const value = this.values[node];
      if (!value) return theme.card;
      const colour = op < 0 || value === 1 ? theme.palette[1] : this.model ? theme.good : theme.bad;
      return mix(theme.card, colour, op < 0 ? 0.14 : 0.3);
    }
    if (this.values) return this.heat(0.9 * Math.sqrt(Math.min(this.values[node] / this.most, 1)));
    return theme.card;
  }

  stripe(node) {
    const op = this.tree.op(node);
    return op < 0 ? theme.soft : kindColour(kindOf(operatorOf(this.graph, op)));
  }

  note(node) {
    if (!this.values || !this.values[node]) return "";
    if (this.overlay === "status") return this.tree.op(node) < 0 ? count(this.values[node]) + " differ" : STATUS[this.values[node]];
    return FORMAT[this.overlay](this.values[node]);
  }

  // --- painting ----------------------------------------------------------------------------------------------------

  repaint() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.paint(); });
  }

  paint() {
    const room = this.canvas.parentElement;
    const [width, height] = [room.clientWidth, room.clientHeight];
    if (!width || !height) return;
    const ratio = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    const pen = this.pen = this.canvas.getContext("2d");
    const { x, y, scale } = this.at;
    this.shown = { left: -x / scale, top: -y / scale, right: (width - x) / scale, bottom: (height - y) / scale };
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = theme.ground;
    pen.fillRect(0, 0, width, height);
    pen.setTransform(ratio * scale, 0, 0, ratio * scale, ratio * x, ratio * y);
    pen.textBaseline = "middle";
    this.drawn = 0;
    this.selected = selection.things[this.model];
    this.paintModule(0, 0, 0);
    this.canvas.dataset.drawn = this.drawn;
    this.canvas.dataset.scale = scale.toFixed(3);
  }

  paintModule(module, x, y) {
    const { pen } = this;
    const { scale } = this.at;
    const inner = this.tree.layout(module);
    pen.save();
    pen.translate(x, y);
    pen.strokeStyle = theme.dark ? "#4a5563" : "#b4bcc8";
    pen.lineWidth = Math.max(1.1, 0.9 / scale);
    if (scale > 0.03) pen.stroke(inner.path);
    if (this.selected.size && scale > 0.05) this.paintFlows(inner);
    pen.restore();
    for (const node of inner.list) {
      const box = inner.boxes.get(node);
      const [left, top] = [x + box.x, y + box.y];
      if (left > this.shown.right || top > this.shown.bottom || left + box.w < this.shown.left || top + box.h < this.shown.top) continue;
      this.drawn += 1;
      if (this.tree.isModule(node)) this.paintGroup(node, left, top, box); else this.paintNode(node, left, top, box);
    }
  }

  paintFlows(inner) {
    const path = new Path2D();
    let some = false;
    for (const edge of inner.edges) {
      const hit = [edge.from, edge.to].some((node) => typeof node === "number" && this.selected.has(this.tree.op(node)));
      if (hit) { trace(path, edge.points); some = true; }
    }
    if (!some) return;
    this.pen.strokeStyle = theme.accent;
    this.pen.lineWidth = Math.max(2, 1.4 / this.at.scale);
    this.pen.stroke(path);
  }

  paintGroup(node, x, y, box) {
    const { pen } = this;
    const { scale } = this.at;
    const open = this.tree.open.has(node);
    const faded = this.matches && !this.matches.modules.has(node);
    pen.globalAlpha = faded ? 0.35 : 1;
    if (open && (box.w * scale < TINY || box.h * scale < TINY)) {
      pen.fillStyle = this.values ? this.fill(node) : theme.hatch;
      pen.fillRect(x, y, box.w, box.h);
      pen.globalAlpha = 1;
      return;
    }
    this.frame(x, y, box, open ? 12 : 9, open ? (this.tree.depth[node] % 2 ? mix(theme.ground, theme.card, 0.65) : theme.ground) : this.fill(node), node);
    if (!open && scale > 0.12) {
      pen.strokeStyle = theme.line;
      pen.lineWidth = 1;
      pen.beginPath();
      pen.roundRect(x + 4, y - 4, box.w - 8, 4, [5, 5, 0, 0]);
      pen.stroke();
    }
    if (scale > 0.22) this.words(node, x, y, box, open);
    pen.globalAlpha = 1;
    if (open) this.paintModule(node, x, y);
  }

  frame(x, y, box, radius, fill, node) {
    const { pen } = this;
    const isSelected = this.isSelected(node);
    pen.fillStyle = fill;
    pen.strokeStyle = isSelected ? theme.accent : node === this.hover ? theme.soft : theme.dark ? "#39424f" : "#cfd5de";
    pen.lineWidth = (isSelected ? 2.4 : 1) / Math.min(Math.max(this.at.scale, 0.35), 1);
    pen.beginPath();
    pen.roundRect(x, y, box.w, box.h, radius);
    pen.fill();
    pen.stroke();
  }

  isSelected(node) {
    const op = this.tree.op(node);
    if (op >= 0) return this.selected.has(op);
    return this.tree.isModule(node) && node > 0 && selection.model === this.model && selection.module === node;
  }

  paintNode(node, x, y, box) {
    const { pen } = this;
    const { scale } = this.at;
    const op = this.tree.op(node);
    pen.globalAlpha = this.matches && !this.matches.ops.has(op) ? 0.3 : 1;
    if (box.h * scale < 5) {
      pen.fillStyle = this.isSelected(node) ? theme.accent : op < 0 ? theme.soft : this.values ? this.fill(node) : this.stripe(node);
      pen.fillRect(x, y, box.w, box.h);
      pen.globalAlpha = 1;
      return;
    }
    if (op < 0) { this.paintEnd(node, x, y, box); pen.globalAlpha = 1; return; }
    this.frame(x, y, box, 7, this.fill(node), node);
    pen.fillStyle = this.stripe(node);
    pen.beginPath();
    pen.roundRect(x, y, 5, box.h, [7, 0, 0, 7]);
    pen.fill();
    if (scale > 0.22) this.words(node, x, y, box, false);
    pen.globalAlpha = 1;
  }

  paintEnd(node, x, y, box) {
    const { pen } = this;
    const end = this.tree.end(node);
    pen.fillStyle = mix(theme.ground, theme.accent, 0.13);
    pen.strokeStyle = theme.accent;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.roundRect(x, y, box.w, box.h, 21);
    pen.fill();
    pen.stroke();
    if (this.at.scale <= 0.22) return;
    pen.textAlign = "center";
    this.write(this.graph.tensors.name[end.tensor], x + box.w / 2, y + 15, box.w - 24, "600 12px ", theme.text);
    this.write(typeOf(this.graph, end.tensor), x + box.w / 2, y + 30, box.w - 24, "11px ", theme.soft);
    pen.textAlign = "left";
  }

  words(node, x, y, box, open) {
    const { pen } = this;
    pen.textAlign = "left";
    const op = this.tree.op(node);
    const extra = this.note(node);
    const ink = this.values && this.overlay !== "status" && !open ? inkOn(this.fill(node)) : theme.text;
    const soft = this.values && this.overlay !== "status" && !open ? mix(this.fill(node), ink, 0.7) : theme.soft;
    if (op >= 0) {
      this.write(shortOperator(this.graph, op), x + 14, y + 14, box.w - 22 - (extra ? 64 : 0), "600 12px ", ink);
      const made = this.graph.ops.outputs[op];
      this.write(made.length ? typeOf(this.graph, made[0]) : "", x + 14, y + 30, box.w - 22, "11px ", soft);
    } else {
      const name = this.graph.modules.name[node];
      const what = count(this.tree.sizes[node]) + (this.tree.sizes[node] === 1 ? " operation" : " operations");
      if (open) {
        this.write("▾ " + name, x + 12, y + 15, box.w - 24 - (extra ? 70 : 0), "600 12px ", theme.text);
      } else {
        this.write("▸ " + name, x + 12, y + 17, box.w - 24 - (extra ? 70 : 0), "650 12.5px ", ink);
        this.write(what, x + 25, y + 35, box.w - 36, "11px ", soft);
      }
    }
    if (extra) {
      pen.textAlign = "right";
      this.write(extra, x + box.w - 8, y + (op >= 0 ? 14 : open ? 15 : 17), 84, "600 11px ", open ? theme.soft : ink);
      pen.textAlign = "left";
    }
  }

  write(text, x, y, room, font, colour) {
    if (!text) return;
    this.pen.font = font + theme.sans;
    this.pen.fillStyle = colour;
    this.pen.fillText(fitted(this.pen, font, text, room), x, y);
  }

  // --- the pointer ---------------------------------------------------------------------------------------------------

  under(event) {
    const box = this.canvas.getBoundingClientRect();
    let [x, y] = [(event.clientX - box.left - this.at.x) / this.at.scale, (event.clientY - box.top - this.at.y) / this.at.scale];
    let [module, found] = [0, -1];
    for (;;) {
      const inner = this.tree.layout(module);
      const next = inner.list.find((node) => { const at = inner.boxes.get(node); return x >= at.x && x <= at.x + at.w && y >= at.y && y <= at.y + at.h; });
      if (next === undefined) return found;
      found = next;
      if (!this.tree.isModule(next) || !this.tree.open.has(next)) return found;
      const at = inner.boxes.get(next);
      x -= at.x; y -= at.y; module = next;
    }
  }

  press(event) {
    this.canvas.focus({ preventScroll: true });
    this.drag = { x: event.clientX, y: event.clientY, from: { ...this.at }, moved: false };
    if (event.isTrusted) this.canvas.setPointerCapture(event.pointerId);
  }

  follow(event) {
    if (!this.drag) return this.explain(event);
    const [dx, dy] = [event.clientX - this.drag.x, event.clientY - this.drag.y];
    if (Math.abs(dx) + Math.abs(dy) > 4) this.drag.moved = true;
    if (!this.drag.moved) return undefined;
    hush();
    this.at = { ...this.drag.from, x: this.drag.from.x + dx, y: this.drag.from.y + dy };
    return this.repaint();
  }

  release(event) {
    const { drag } = this;
    this.drag = null;
    if (!drag || drag.moved) return;
    const node = this.under(event);
    const box = this.canvas.getBoundingClientRect();
    if (node > 0 && this.tree.isModule(node) && this.isHandle(node, event.clientX - box.left, event.clientY - box.top)) this.toggle(node);
    this.pick(node);
  }

  // The arrow before the name of a module.
  isHandle(node, x, y) {
    const box = this.tree.boxOf(node);
    const [left, top] = [(x - this.at.x) / this.at.scale - box.x, (y - this.at.y) / this.at.scale - box.y];
    return left < 30 && top < 34;
  }

  pick(node) {
    const op = this.tree.op(node);
    if (op >= 0) return choose(this.model, [op], { from: "graph" });
    const end = node > 0 ? this.tree.end(node) : null;
    if (end) {
      const made = this.tree.producer[end.tensor];
      const list = end.input ? this.tree.readers[end.tensor].map((item) => this.tree.op(item)).filter((item) => item >= 0) : [this.tree.op(made)];
      return choose(this.model, list.filter((item) => item >= 0), { from: "graph" });
    }
    if (node > 0) return choose(this.model, opsOfModule(this.model, node), { module: node, from: "graph" });
    return choose(this.model, [], { from: "graph" });
  }

  explain(event) {
    const node = this.under(event);
    if (node !== this.hover) { this.hover = node; this.repaint(); }
    this.canvas.style.cursor = node > 0 ? "pointer" : "grab";
    if (node <= 0) return hush();
    const op = this.tree.op(node);
    if (op >= 0) return tell(event, operatorOf(this.graph, op), opLines(this.graph, op));
    const end = this.tree.end(node);
    if (end) return tell(event, (end.input ? "input " : "output ") + this.graph.tensors.name[end.tensor], [typeOf(this.graph, end.tensor)]);
    return tell(event, this.graph.modules.name[node], moduleLines(this.graph, opsOfModule(this.model, node)));
  }

  turn(event) {
    event.preventDefault();
    hush();
    if (event.ctrlKey || !event.shiftKey) {
      const box = this.canvas.getBoundingClientRect();
      return this.zoom(1.0016 ** -clamp(event.deltaY, -500, 500), event.clientX - box.left, event.clientY - box.top);
    }
    this.at = { ...this.at, x: this.at.x - event.deltaY };
    return this.repaint();
  }

  // --- moving --------------------------------------------------------------------------------------------------------

  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const scale = clamp(this.at.scale * factor, 0.004, 4);
    const part = scale / this.at.scale;
    this.at = { scale, x: x - (x - this.at.x) * part, y: y - (y - this.at.y) * part };
    this.repaint();
  }

  fit() {
    const whole = this.tree.layout(0);
    const [width, height] = [this.canvas.parentElement.clientWidth, this.canvas.parentElement.clientHeight];
    if (!width || !height) return;
    this.isFitted = true;
    const all = Math.min(width / whole.w, (height - 96) / whole.h);
    // A tall graph is shown from its top, at a size that can be read.
    const scale = clamp(all < 0.45 ? Math.min(0.8, width / whole.w) : all, 0.02, 1.15);
    const tall = whole.h * scale > height;
    this.at = { scale, x: (width - whole.w * scale) / 2, y: tall ? 34 : (height - whole.h * scale) / 2 };
    this.repaint();
  }

  toggle(node) {
    const before = this.tree.boxOf(node);
    this.tree.toggle(node);
    const after = this.tree.boxOf(node);
    this.at.x += (before.x + before.w / 2 - after.x - after.w / 2) * this.at.scale;
    this.at.y += (before.y - after.y) * this.at.scale;
    this.repaint();
  }

  setAll(open) {
    this.tree.setAll(open);
    this.fit();
  }

  show(node) {
    this.tree.reveal(node);
    const box = this.tree.boxOf(node);
    if (!box) return;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const [x, y] = [box.x * this.at.scale + this.at.x, box.y * this.at.scale + this.at.y];
    const inside = x > 0 && y > 0 && x + box.w * this.at.scale < width && y + box.h * this.at.scale < height && this.at.scale > 0.2;
    if (inside) return;
    const scale = Math.max(this.at.scale, 0.6);
    this.at = { scale, x: width / 2 - (box.x + box.w / 2) * scale, y: height / 2 - (box.y + Math.min(box.h, height) / 2) * scale };
  }

  select() {
    const things = selection.things[this.model];
    if (selection.from !== "graph" || selection.model !== this.model) {
      if (selection.module > 0 && selection.model === this.model) this.show(selection.module);
      else if (things.size) this.show(this.tree.modules + Math.min(...things));
    }
    this.repaint();
  }

  mark(things) {
    this.matches = things && { ops: things, modules: new Set() };
    if (things) for (const op of things) for (let above = this.tree.parent[this.tree.modules + op]; above > 0; above = this.tree.parent[above]) this.matches.modules.add(above);
    this.repaint();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = {
      "+": () => this.zoom(1.25), "=": () => this.zoom(1.25), "-": () => this.zoom(0.8), f: () => this.fit(), 0: () => this.fit(),
      ArrowDown: () => this.step("down"), ArrowUp: () => this.step("up"), ArrowLeft: () => this.step("left"), ArrowRight: () => this.step("right"),
      Enter: () => this.enter(), e: () => this.setAll(true), c: () => this.setAll(false), Escape: () => { hush(); choose(this.model, [], { from: "graph" }); },
    };
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  current() {
    if (selection.model === this.model && selection.module > 0) return selection.module;
    const [first] = selection.things[this.model];
    return first === undefined ? -1 : this.tree.modules + first;
  }

  // The next box in a direction: along the flow up and down, beside it left and right.
  step(direction) {
    const node = this.current();
    const box = node > 0 ? this.tree.boxOf(node) : null;
    if (!box) return this.pick(this.tree.layout(0).list[0]);
    const above = Math.max(this.tree.parent[box.node], 0);
    const inner = this.tree.layout(above);
    const own = inner.boxes.get(box.node);
    const centre = { x: own.x + own.w / 2, y: own.y + own.h / 2 };
    let [best, least] = [-1, Infinity];
    for (const other of inner.list) {
      const at = inner.boxes.get(other);
      const [dx, dy] = [at.x + at.w / 2 - centre.x, at.y + at.h / 2 - centre.y];
      const along = { down: dy, up: -dy, left: -dx, right: dx }[direction];
      const across = Math.abs(direction === "up" || direction === "down" ? dx : dy);
      if (other !== box.node && along > 4 && along + 2 * across < least) [best, least] = [other, along + 2 * across];
    }
    if (best < 0 && above > 0) best = above;
    if (best < 0) return undefined;
    this.pick(best);
    this.show(best);
    return this.repaint();
  }

  enter() {
    const node = this.current();
    if (node > 0 && this.tree.isModule(node)) this.toggle(node);
  }
}
