// Weights: a table of statistics with the distribution of each, sorted by any column.

const weightNames = models.map((model) => new Map((model.weights || []).map((row, number) => [row.name, number])));
const weightOf = (model, name) => weightNames[model].get(name) ?? -1;
const figure = (value) => (value === undefined ? "" : Math.abs(value) >= 1e4 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(2) : Number(value.toPrecision(4)).toString());

function chooseWeight(model, number) {
  choose(model, models[model].weights[number].things, { weight: number, from: "weights" });
  showView(model, "weights");
}

function weightFacts(row) {
  const rows = [];
  if (row.low !== undefined) rows.push(["least", figure(row.low)], ["largest", figure(row.high)], ["mean", figure(row.mean)], ["deviation", figure(row.deviation)]);
  rows.push(["zeros", percent(row.zeros)]);
  if (row.odd) rows.push(["not finite", count(row.odd)]);
  if (row.sampled) rows.push(["looked at", "a sample"]);
  return rows;
}

function histogram(row, width, height) {
  const bins = row.histogram || [];
  const most = Math.max(...bins, 1);
  const step = width / Math.max(bins.length, 1);
  const bars = bins.map((number, at) => {
    const tall = number ? Math.max(1, height * number / most) : 0;
    return svg("rect", { x: (at * step).toFixed(2), y: (height - tall).toFixed(2), width: Math.max(step - 0.6, 0.6).toFixed(2), height: tall.toFixed(2) });
  });
  const zero = row.low < 0 && row.high > 0 ? [svg("line", { x1: width * -row.low / (row.high - row.low), x2: width * -row.low / (row.high - row.low), y1: 0, y2: height })] : [];
  const made = svg("svg", { viewBox: "0 0 " + width + " " + height, width, height, class: "histogram", role: "img", "aria-label": "distribution of values" }, ...bars, ...zero);
  return made;
}

const WEIGHT_COLUMNS = [
  ["tensor", (row) => row.name], ["type", (row) => row.type], ["shape", (row) => row.shape.reduce((a, b) => a * b, 1)], ["size", (row) => row.bytes],
  ["least", (row) => row.low ?? 0], ["largest", (row) => row.high ?? 0], ["mean", (row) => row.mean ?? 0], ["deviation", (row) => row.deviation ?? 0],
  ["zeros", (row) => row.zeros], ["distribution", (row) => row.deviation ?? 0],
];
const WEIGHT_ROW = 34;

class WeightsView {
  constructor(model, root) {
    this.model = model;
    this.rows = models[model].weights;
    this.order = this.rows.map((_, number) => number);
    this.sorted = { column: -1, down: false };
    const total = this.rows.reduce((sum, row) => sum + row.bytes, 0);
    const odd = this.rows.filter((row) => row.odd).length;
    root.append(element("div", "bar", null, element("p", "hint wrap", count(this.rows.length) + " tensors, " + bytes(total) + (odd ? " · " + count(odd) + " hold values that are not finite" : ""))));
    this.box = element("div", "weights");
    this.head = element("div", "w-row w-head", null, ...WEIGHT_COLUMNS.map(([name], column) => button(name, () => this.sort(column))));
    this.inner = element("div", "lines-inner");
    this.box.append(this.head, this.inner);
    this.box.tabIndex = 0;
    this.box.setAttribute("aria-label", "weights");
    root.append(this.box);
    this.box.addEventListener("scroll", () => this.draw());
    this.box.addEventListener("click", (event) => { const at = event.target.closest(".w-row[data-weight]"); if (at) this.pick(Number(at.dataset.weight)); });
    new ResizeObserver(() => this.draw()).observe(this.box);
    this.draw();
  }

  pick(number) { choose(this.model, this.rows[number].things, { weight: number, from: "weights" }); }

  sort(column) {
    this.sorted = { column, down: this.sorted.column === column ? !this.sorted.down : column > 1 };
    const value = WEIGHT_COLUMNS[column][1];
    const sign = this.sorted.down ? -1 : 1;
    this.order.sort((a, b) => { const [one, other] = [value(this.rows[a]), value(this.rows[b])]; return sign * (one < other ? -1 : one > other ? 1 : 0) || a - b; });
    [...this.head.children].forEach((cell, at) => { if (at === column) cell.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending"); else cell.removeAttribute("aria-sort"); });
    this.draw();
  }

  draw() {
    this.inner.style.height = this.order.length * WEIGHT_ROW + "px";
    const first = clamp(Math.floor(this.box.scrollTop / WEIGHT_ROW) - 4, 0, this.order.length);
    const last = Math.min(this.order.length, first + Math.ceil(this.box.clientHeight / WEIGHT_ROW) + 8);
    this.inner.replaceChildren(...this.order.slice(first, last).map((number, at) => this.row(number, first + at)));
  }

  row(number, at) {
    const row = this.rows[number];
    const isOn = selection.model === this.model && (selection.weight === number || (selection.weight < 0 && row.things.some((thing) => selection.things[this.model].has(thing))));
    const cells = [row.type, row.shape.join(" × ") || "scalar", bytes(row.bytes), figure(row.low), figure(row.high), figure(row.mean), figure(row.deviation), percent(row.zeros)];
    const made = element("div", "w-row" + (isOn ? " on" : "") + (row.odd ? " odd" : ""), null, element("span", "", null, element("bdi", "", row.name)), ...cells.map((text) => element("span", "", text)), histogram(row, 110, 24));
    made.style.top = at * WEIGHT_ROW + "px";
    made.dataset.weight = number;
    return made;
  }

  select() {
    const things = selection.things[this.model];
    if (selection.from !== "weights" && things.size) {
      const at = this.order.findIndex((number) => this.rows[number].things.some((thing) => things.has(thing)));
      const top = at * WEIGHT_ROW;
      if (at >= 0 && (top < this.box.scrollTop || top > this.box.scrollTop + this.box.clientHeight - 80)) this.box.scrollTop = Math.max(0, top - 60);
    }
    this.draw();
  }
}
