// The views of texts: the tree of modules, sources, NAC, kernels beside their code; and what is known of a selection.

class TreeView {
  constructor(model, root) {
    this.model = model;
    this.graph = models[model].graph;
    this.children = this.graph.modules.name.map(() => []);
    this.graph.modules.parent.forEach((parent, module) => { if (parent >= 0) this.children[parent].push(module); });
    this.ops = this.graph.modules.name.map(() => []);
    this.graph.ops.module.forEach((module, op) => this.ops[module].push(op));
    this.open = new Set([0]);
    if (this.children[0].length <= 6) for (const child of this.children[0]) this.open.add(child);
    this.rows = [];
    this.box = element("div", "tree");
    this.box.setAttribute("role", "tree");
    this.box.setAttribute("aria-label", "modules of " + models[model].title);
    this.box.tabIndex = 0;
    this.inner = element("div", "lines-inner");
    this.box.append(this.inner);
    root.append(this.box);
    this.cursor = 0;
    this.box.addEventListener("scroll", () => this.draw());
    this.box.addEventListener("click", (event) => this.click(event));
    this.box.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.box);
    this.arrange();
  }

  // The rows that are open, in the order of the flow; modules and operations as one list.
  arrange() {
    this.rows = [];
    const visit = (module, depth) => {
      this.rows.push({ module, op: -1, depth });
      if (!this.open.has(module)) return;
      const first = (child) => opsOfModule(this.model, child)[0] ?? 0;
      const items = [...this.children[module].map((child) => [first(child), child, -1]), ...this.ops[module].map((op) => [op, -1, op])];
      items.sort((one, other) => one[0] - other[0]);
      for (const [, child, op] of items) if (op < 0) visit(child, depth + 1); else this.rows.push({ module: -1, op, depth: depth + 1 });
    };
    visit(0, 0);
    this.inner.style.height = this.rows.length * 24 + 8 + "px";
    this.draw();
  }

  draw() {
    const first = clamp(Math.floor(this.box.scrollTop / 24) - 8, 0, this.rows.length);
    const last = Math.min(this.rows.length, first + Math.ceil(this.box.clientHeight / 24) + 16);
    this.inner.replaceChildren(...this.rows.slice(first, last).map((row, at) => this.row(row, first + at)));
  }

  row({ module, op, depth }, at) {
    const things = selection.things[this.model];
    const isOn = op >= 0 ? things.has(op) : selection.module === module && selection.model === this.model && module > 0;
    const made = element("div", "row" + (isOn ? " on" : "") + (at === this.cursor ? " cursor" : ""));
    made.style.top = at * 24 + "px";
    made.style.paddingLeft = 8 + depth * 14 + "px";
    made.dataset.row = at;
    made.setAttribute("role", "treeitem");
    made.setAttribute("aria-level", depth + 1);
    made.setAttribute("aria-selected", isOn);
    if (op >= 0) {
      made.append(swatch(kindColour(kindOf(operatorOf(this.graph, op)))), element("span", "what", shortOperator(this.graph, op)), element("span", "who", lastWord(resultOf(this.graph, op))));
    } else {
      made.setAttribute("aria-expanded", this.open.has(module));
      made.append(element("span", "twist", this.open.has(module) ? "▾" : "▸"), element("span", "module", this.graph.modules.name[module]), element("span", "many", count(opsOfModule(this.model, module).length)));
    }
    const state = this.state(module, op);
    if (state) made.classList.add(state);
    return made;
  }

  state(module, op) {
    if (!data.comparison) return "";
    const status = data.comparison.status[this.model];
    if (op >= 0) return status[op] === 2 ? (this.model ? "added" : "removed") : status[op] ? "changed" : "";
    return opsOfModule(this.model, module).some((item) => status[item]) ? "touched" : "";
  }

  click(event) {
    const at = event.target.closest(".row");
    if (!at) return;
    this.cursor = Number(at.dataset.row);
    this.pick(event.target.classList.contains("twist"));
  }

  pick(onlyToggle) {
    const { module, op } = this.rows[this.cursor];
    if (op >= 0) return choose(this.model, [op], { from: "tree" });
    if (onlyToggle || !this.open.has(module)) this.toggle(module);
    if (!onlyToggle) choose(this.model, module ? opsOfModule(this.model, module) : [], { module, from: "tree" });
    return undefined;
  }

  toggle(module) {
    if (this.open.has(module)) this.open.delete(module); else this.open.add(module);
    this.arrange();
  }

  key(event) {
    const row = this.rows[this.cursor];
    const acts = {
      ArrowDown: () => { this.cursor = Math.min(this.cursor + 1, this.rows.length - 1); },
      ArrowUp: () => { this.cursor = Math.max(this.cursor - 1, 0); },
      ArrowRight: () => { if (row.op < 0 && !this.open.has(row.module)) this.toggle(row.module); },
      ArrowLeft: () => { if (row.op < 0 && this.open.has(row.module)) this.toggle(row.module); },
      Enter: () => this.pick(false),
      " ": () => this.pick(false),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
    this.show(this.cursor);
    this.draw();
  }

  show(at) {
    const [top, height] = [at * 24, this.box.clientHeight];
    if (top < this.box.scrollTop + 24 || top > this.box.scrollTop + height - 48) this.box.scrollTop = Math.max(0, top - height / 2);
  }

  select() {
    const [first] = selection.things[this.model];
    if (selection.from !== "tree" && first !== undefined && selection.module < 0) {
      let changed = false;
      for (let module = this.graph.ops.module[first]; module >= 0; module = this.graph.modules.parent[module]) if (!this.open.has(module)) { this.open.add(module); changed = true; }
      if (changed) this.arrange();
      const at = this.rows.findIndex((row) => row.op === first);
      if (at >= 0) { this.cursor = at; this.show(at); }
    }
    this.draw();
  }
}

function swatch(colour) {
  const made = element("span", "swatch");
  made.style.background = colour;
  return made;
}

// --- sources: the file that the model is written in first, those of the library behind it ---------------------------

const lastParts = (path) => path.split("/").slice(-2).join("/");

class SourceView {
  constructor(model, root) {
    this.model = model;
    this.sources = models[model].sources;
    this.index = this.sources.map((source) => lineIndex(source.things));
    this.order = this.sources.map((_, number) => number).sort((a, b) => this.sources[a].shipped - this.sources[b].shipped);
    this.select_ = element("select");
    this.select_.setAttribute("aria-label", "file");
    for (const number of this.order) { const item = element("option", "", lastParts(this.sources[number].name)); item.title = this.sources[number].name; item.value = number; this.select_.append(item); }
    this.select_.addEventListener("change", () => this.open(Number(this.select_.value)));
    root.append(element("div", "bar", null, this.select_, element("p", "hint", "a line with a coloured edge belongs to operations")));
    this.lines = new Lines(root, "source text", {
      has: (line) => this.sources[this.file].things[line].length > 0,
      pick: (line) => choose(this.model, this.sources[this.file].things[line], { from: "source" }),
      edge: (line) => (this.sources[this.file].things[line].length ? theme.accent : ""),
    });
    this.open(this.order[0]);
  }

  open(file) {
    this.file = file;
    this.select_.value = file;
    this.lines.set(this.sources[file].lines, languageOf(this.sources[file].name));
    this.lines.mark(this.index[file](selection.things[this.model]), false);
  }

  select() {
    const things = selection.things[this.model];
    if (selection.from !== "source") {
      const found = this.order.find((number) => this.index[number](things).length);
      const here = this.index[this.file](things).length;
      if (!here && found !== undefined) this.open(found);
    }
    this.lines.mark(this.index[this.file](things), selection.from !== "source");
  }
}

// --- NAC -------------------------------------------------------------------------------------------------------------

class NacView {
  constructor(model, root) {
    this.model = model;
    this.nac = models[model].nac;
    const { memory } = this.nac;
    const words = memory ? "memory schedule: peak " + bytes(memory.peak) + " at instruction " + memory.tick + ", " + bytes(memory.unscheduled) + " without it · " + Object.entries(memory.commands).map(([name, number]) => number + " " + name).join(", ") : "instructions, and what the memory coprocessor does beside them";
    root.append(element("div", "bar", null, element("p", "hint wrap", words)));
    if (memory && memory.held.length > 1) root.append(this.chart(memory));
    this.index = lineIndex(this.nac.things);
    this.lines = new Lines(root, "NAC listing", {
      has: (line) => (this.nac.things[line] || []).length > 0,
      pick: (line) => choose(this.model, this.nac.things[line], { from: "nac" }),
      edge: (line) => ((this.nac.things[line] || []).length ? theme.palette[4] : ""),
    });
    this.lines.set(this.nac.lines);
  }

  // Bytes held at each instruction, by the schedule; a click goes to the instruction.
  chart({ held, peak, tick }) {
    const [count_, top] = [held.length, Math.max(peak, 1)];
    const points = held.map((value, at) => at + "," + (50 - 46 * value / top).toFixed(2) + " " + (at + 1) + "," + (50 - 46 * value / top).toFixed(2)).join(" ");
    const area = svg("polygon", { points: "0,50 " + points + " " + count_ + ",50" });
    const mark = svg("line", { x1: tick + 0.5, x2: tick + 0.5, y1: 0, y2: 50 });
    const made = svg("svg", { class: "held", viewBox: "0 0 " + count_ + " 50", preserveAspectRatio: "none", role: "img", "aria-label": "bytes held at each instruction" }, area, mark);
    const at = (event) => clamp(Math.floor((event.clientX - made.getBoundingClientRect().left) * count_ / made.clientWidth), 0, count_ - 1);
    made.addEventListener("pointermove", (event) => tell(event, bytes(held[at(event)]) + " held", [this.nac.lines[at(event)]]));
    made.addEventListener("pointerleave", hush);
    made.addEventListener("click", (event) => { this.lines.choose(at(event)); this.lines.mark([at(event)], true); });
    return made;
  }

  select() { this.lines.mark(this.index(selection.things[this.model]), selection.from !== "nac"); }
}

// --- kernels beside their LLVM and assembly: lines that belong together have one colour ------------------------------

class KernelView {
  constructor(model, root) {
    this.model = model;
    this.kernels = models[model].kernels;
    this.list = element("select");
    this.list.setAttribute("aria-label", "kernel");
    this.kernels.forEach((kernel, number) => { const item = element("option", "", kernel.name); item.value = number; this.list.append(item); });
    this.list.addEventListener("change", () => this.open(Number(this.list.value), true));
    this.hint = element("p", "hint");
    root.append(element("div", "bar", null, this.list, this.hint));
    this.columns = element("div", "columns");
    root.append(this.columns);
    this.panes = [["lines", "kernel"], ["llvm", "LLVM"], ["asm", "assembly"]].map(([form, title]) => this.column(form, title));
    this.open(0, false);
  }

  column(form, title) {
    const box = element("section", "column", null, element("h2", "", title));
    this.columns.append(box);
    const from = (line) => this.from(form, line);
    const lines = new Lines(box, title, {
      has: (line) => from(line) > 0,
      pick: (line) => this.point(from(line), form),
      look: (line) => (from(line) > 0 && this.used.has(from(line)) ? "tint" + (this.used.get(from(line)) % 8) : ""),
    });
    return { form, box, lines };
  }

  // The line of the kernel, from 1, that a line of a form comes from.
  from(form, line) {
    if (form === "lines") return this.used.has(line + 1) ? line + 1 : 0;
    const code = this.kernel[form];
    return code ? code.from[line] || 0 : 0;
  }

  open(number, tell) {
    this.number = number;
    this.kernel = this.kernels[number];
    this.list.value = number;
    this.used = new Map();
    for (const form of ["llvm", "asm"]) for (const line of (this.kernel[form] || { from: [] }).from) if (line && !this.used.has(line)) this.used.set(line, 0);
    [...this.used.keys()].sort((a, b) => a - b).forEach((line, at) => this.used.set(line, at));
    for (const { form, box, lines } of this.panes) {
      const text = form === "lines" ? this.kernel.lines : (this.kernel[form] || {}).lines;
      box.hidden = !text;
      if (text) lines.set(text, form === "lines" ? "tensor" : undefined);
    }
    this.hint.textContent = count(this.kernels.length) + (this.kernels.length === 1 ? " kernel" : " kernels") + (this.kernel.things.length ? " · this one computes " + count(this.kernel.things.length) + (this.kernel.things.length === 1 ? " operation" : " operations") : "") + (this.kernel.asm ? "" : " · no machine code here");
    if (tell && this.kernel.things.length) choose(this.model, this.kernel.things, { from: "kernels" });
  }

  point(line, form) {
    for (const pane of this.panes) {
      if (pane.box.hidden) continue;
      const total = pane.lines.lines.length;
      const found = [];
      for (let at = 0; at < total; at += 1) if (this.from(pane.form, at) === line) found.push(at);
      pane.lines.mark(found, pane.form !== form);
    }
    document.body.dataset.kernelLine = line;
  }

  select() {
    if (selection.from === "kernels") return;
    const things = selection.things[this.model];
    if (!things.size) return;
    const holds = (kernel) => kernel.things.some((thing) => things.has(thing));
    if (holds(this.kernel)) return;
    // The kernel that computes these and little else.
    let [best, least] = [-1, Infinity];
    this.kernels.forEach((kernel, number) => { if (holds(kernel) && kernel.things.length < least) [best, least] = [number, kernel.things.length]; });
    if (best >= 0) this.open(best, false);
  }
}

// --- what is known of the selection ------------------------------------------------------------------------------------

class Inspector {
  constructor(root) {
    this.root = root;
    this.select();
  }

  select() {
    const { model } = selection;
    const things = [...selection.things[model]];
    const { graph } = models[model];
    if (!graph) return this.root.replaceChildren(...this.about(model));
    if (selection.weight >= 0) return this.root.replaceChildren(...this.weight(model));
    if (selection.module > 0) return this.root.replaceChildren(...this.module(model, graph, things));
    if (!things.length) return this.root.replaceChildren(...this.about(model));
    if (things.length > 1) return this.root.replaceChildren(...this.several(model, graph, things));
    return this.root.replaceChildren(...this.operation(model, graph, things[0]));
  }

  about(model) {
    const { title, kind, facts, notes } = models[model];
    const rows = [["kind", kind], ...facts];
    const parts = [element("h2", "", title), definitions(rows)];
    if (notes.length) parts.push(element("h3", "", "notes"), ...notes.map((note) => element("p", "left-out", note)));
    parts.push(element("p", "hint wrap", "Click anything: the same operations are shown at every level. / searches, ? lists the keys."));
    return parts;
  }

  operation(model, graph, op) {
    const numbers = [];
    const { macs, bytes: moved, seconds: time, error } = graph.ops;
    if (macs[op]) numbers.push(["multiply-adds", brief(macs[op])]);
    if (moved[op]) numbers.push(["bytes moved", bytes(moved[op])]);
    if (macs[op] && moved[op]) numbers.push(["intensity", (2 * macs[op] / moved[op]).toFixed(2) + " flop/byte"]);
    if (time) numbers.push(["time", seconds(time[op])]);
    if (error && error[op] !== null) numbers.push(["error", error[op].toExponential(2)]);
    const heading = element("h2", "", null, swatch(kindColour(kindOf(operatorOf(graph, op)))), operatorOf(graph, op));
    const parts = [heading, element("p", "path", opName(graph, op)), definitions(numbers)];
    parts.push(...this.compared(model, op));
    parts.push(...this.tensors("reads", model, graph, graph.ops.inputs[op]), ...this.tensors("makes", model, graph, graph.ops.outputs[op]));
    if (graph.ops.attributes[op]) parts.push(element("h3", "", "attributes"), element("p", "mono", graph.ops.attributes[op]));
    parts.push(...this.chain(model, op), ...this.levels(model, [op]));
    return parts;
  }

  compared(model, op) {
    if (!data.comparison) return [];
    const status = data.comparison.status[model][op];
    const partner = data.comparison.partner[model][op];
    const other = models[1 - model];
    const words = partner < 0 ? "only in this model" : (status ? "differs from " : "as in ") + other.title;
    const parts = [element("h3", "", "beside the other"), element("p", ["", "warned", "alone"][status], words)];
    if (partner >= 0 && status) parts.push(...changes(models[model].graph, op, other.graph, partner).map((line) => element("p", "mono", line)));
    return parts;
  }

  tensors(title, model, graph, list) {
    if (!list.length) return [];
    const rows = list.slice(0, 12).map((tensor) => {
      const name = graph.tensors.name[tensor];
      const role = graph.tensors.role[tensor];
      const row = element("li", "", null, element("span", "type", typeOf(graph, tensor)));
      row.prepend(role === 2 && weightOf(model, name) >= 0 ? button(name, () => chooseWeight(model, weightOf(model, name)), "link") : this.tensorLink(model, graph, tensor, title));
      if (role) row.append(element("span", "role", ["", "input", "weight", "constant"][role]));
      return row;
    });
    if (list.length > 12) rows.push(element("li", "hint", count(list.length - 12) + " more"));
    return [element("h3", "", title), element("ul", "tensors", null, ...rows)];
  }

  tensorLink(model, graph, tensor, title) {
    const flow = flows[model] || (flows[model] = new Hierarchy(graph));
    const ends = title === "reads" ? [flow.op(flow.producer[tensor])] : flow.readers[tensor].map((node) => flow.op(node));
    const ops = ends.filter((op) => op >= 0);
    const name = graph.tensors.name[tensor];
    return ops.length ? button(name, () => choose(model, ops), "link") : element("span", "name", name);
  }

  chain(model, op) {
    const { links, origins } = models[model];
    if (!origins || !origins[op].length) return [];
    const rows = origins[op].map((place) => {
      const [what, source, line] = links[place];
      const where = source >= 0 ? models[model].sources[source].name + ":" + line : "";
      return element("li", "", null, element("span", "", what), element("span", "where", where));
    });
    return [element("h3", "", "comes from"), element("ol", "chain", null, ...rows)];
  }

  levels(model, ops) {
    const set = new Set(ops);
    const found = [];
    const { kernels, nac, plan } = models[model];
    const add = (title, key, items) => { if (items.length) found.push([title, key, items]); };
    if (nac) add("NAC", "nac", nac.things.flatMap((list, line) => (list.some((op) => set.has(op)) ? ["v" + line] : [])));
    if (kernels) add("kernels", "kernels", kernels.filter((kernel) => kernel.things.some((op) => set.has(op))).map((kernel) => kernel.name));
    if (plan) add("tasks", "plan", plan.things.flatMap((list, task) => (list.some((op) => set.has(op)) ? [plan.tasks[task].title] : [])));
    if (!found.length) return [];
    const rows = found.map(([title, key, items]) => element("li", "", null, button(title, () => showView(model, key), "link"), element("span", "where", items.slice(0, 6).join(", ") + (items.length > 6 ? " … " + items.length : ""))));
    return [element("h3", "", "below"), element("ul", "tensors", null, ...rows)];
  }

  module(model, graph, ops) {
    const parts = [element("h2", "", graph.modules.name[selection.module]), element("p", "path", moduleLines(graph, ops)[0])];
    return [...parts, ...this.summary(graph, ops), ...this.levels(model, ops)];
  }

  several(model, graph, ops) {
    const rows = ops.slice(0, 14).map((op) => element("li", "", null, button(opName(graph, op), () => choose(model, [op]), "link"), element("span", "type", operatorOf(graph, op))));
    if (ops.length > 14) rows.push(element("li", "hint", count(ops.length - 14) + " more"));
    return [element("h2", "", count(ops.length) + " operations"), ...this.summary(graph, ops), element("ul", "tensors", null, ...rows), ...this.levels(model, ops)];
  }

  summary(graph, ops) {
    const sum = (column) => ops.reduce((total, op) => total + (graph.ops[column][op] || 0), 0);
    const rows = [["multiply-adds", brief(sum("macs"))], ["bytes moved", bytes(sum("bytes"))]];
    if (graph.ops.seconds) rows.push(["time", seconds(sum("seconds"))]);
    const kinds = new Map();
    for (const op of ops) kinds.set(operatorOf(graph, op), (kinds.get(operatorOf(graph, op)) || 0) + 1);
    const most = [...kinds].sort((one, other) => other[1] - one[1]).slice(0, 8);
    return [definitions(rows), element("h3", "", "operators"), element("ul", "tensors", null, ...most.map(([name, number]) => element("li", "", null, swatch(kindColour(kindOf(name))), element("span", "name", name), element("span", "type", "× " + count(number)))))];
  }

  weight(model) {
    const row = models[model].weights[selection.weight];
    const rows = [["type", row.type + " [" + row.shape.join(", ") + "]"], ["size", bytes(row.bytes)], ...weightFacts(row)];
    return [element("h2", "", row.name), element("div", "big-histogram", null, histogram(row, 260, 90)), definitions(rows), ...this.levels(model, row.things)];
  }
}

const flows = [];

function definitions(rows) {
  const list = element("dl", "facts");
  for (const [name, value] of rows) list.append(element("dt", "", name), element("dd", "", value));
  return list;
}

// In what two operations differ, a line each.
function changes(graph, op, other, partner) {
  const found = [];
  const add = (what, one, two) => { if (one !== two) found.push(what + ": " + (one || "—") + "  →  " + (two || "—")); };
  add("operator", operatorOf(graph, op), operatorOf(other, partner));
  const types = (graphOf, list) => list.map((tensor) => typeOf(graphOf, tensor)).join(", ");
  add("reads", types(graph, graph.ops.inputs[op]), types(other, other.ops.inputs[partner]));
  add("makes", types(graph, graph.ops.outputs[op]), types(other, other.ops.outputs[partner]));
  add("attributes", graph.ops.attributes[op], other.ops.attributes[partner]);
  return found;
}
