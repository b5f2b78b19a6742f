// What all views share: the data, small helpers, colours, the tooltip, and the selection that links the levels.
// Names come from files: they reach the page through textContent and fillText only.
const data = JSON.parse(document.getElementById("data").textContent);
const models = data.models;
const $ = (id) => document.getElementById(id);
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const count = (number) => Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
const percent = (part) => (100 * part).toFixed(part === 0 ? 0 : part < 0.0995 ? 2 : 1) + " %";

function brief(number) {
  if (number < 1e4) return count(number);
  const power = Math.min(Math.floor(Math.log10(number) / 3), 6);
  return Number((number / 10 ** (3 * power)).toPrecision(3)) + " kMGTPE"[power];
}

function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) { number /= 1024; unit += 1; }
  return (Number.isInteger(number) ? number : number.toFixed(1)) + " " + units[unit];
}

function seconds(number) {
  if (number >= 1) return number.toPrecision(3) + " s";
  if (number >= 1e-3) return (number * 1e3).toPrecision(3) + " ms";
  return number >= 1e-6 ? (number * 1e6).toPrecision(3) + " µs" : (number * 1e9).toFixed(0) + " ns";
}

function element(tag, className, text, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined && text !== null) made.textContent = text;
  made.append(...children);
  return made;
}

function button(text, press, className) {
  const made = element("button", className || "", text);
  made.type = "button";
  made.addEventListener("click", press);
  return made;
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// --- the theme: that of the system until somebody chooses ---------------------------------------------------------

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const themed = [];
let theme = {};

function readTheme() {
  for (const name of ["ground", "card", "line", "faint", "text", "soft", "accent", "accent-faint", "bad", "good", "warn", "hatch"]) theme[name] = style("--" + name);
  theme.palette = Array.from({ length: 8 }, (_, number) => style("--c" + number));
  theme.sans = style("--sans");
  theme.mono = style("--mono");
  theme.font = "11px " + theme.sans;
  theme.small = "10px " + theme.sans;
  theme.dark = style("color-scheme") === "dark" || getComputedStyle(document.documentElement).colorScheme === "dark";
}

function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name; else delete document.documentElement.dataset.theme;
  readTheme();
  for (const paint of themed) paint();
}

function parse(colour) {
  const hex = colour.length === 4 ? colour.replace(/[^#]/g, "$&$&") : colour;
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function mix(first, second, part) {
  const [one, other] = [parse(first), parse(second)];
  return "#" + one.map((value, at) => Math.round(value + (other[at] - value) * part).toString(16).padStart(2, "0")).join("");
}

function inkOn(colour) {
  const [r, g, b] = parse(colour);
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#14181f" : "#ffffff";
}

// --- the tooltip --------------------------------------------------------------------------------------------------

function tell(event, title, lines) {
  const tip = $("tip");
  tip.replaceChildren(element("b", "", title), ...lines.map((line) => element("div", "", line)));
  tip.hidden = false;
  const [w, h] = [tip.offsetWidth, tip.offsetHeight];
  tip.style.left = clamp(event.clientX + 14, 4, Math.max(4, innerWidth - w - 4)) + "px";
  tip.style.top = (event.clientY + 18 + h > innerHeight ? Math.max(4, event.clientY - h - 10) : event.clientY + 18) + "px";
}

const hush = () => { $("tip").hidden = true; };

// --- pictures -----------------------------------------------------------------------------------------------------

function download(canvas, name) {
  const link = element("a");
  link.download = name.replace(/[^\w.-]+/g, "_") + ".png";
  const whole = document.createElement("canvas");
  [whole.width, whole.height] = [canvas.width, canvas.height];
  const pen = whole.getContext("2d");
  pen.fillStyle = theme.card;
  pen.fillRect(0, 0, whole.width, whole.height);
  pen.drawImage(canvas, 0, 0);
  link.href = whole.toDataURL("image/png");
  link.click();
  document.body.dataset.exported = link.download;
}

// --- the selection: operations of each model, by number -----------------------------------------------------------
// A click anywhere names operations; every view shows them in its own way. The other model's partners follow.

const selection = { model: 0, things: models.map(() => new Set()), first: -1, module: -1, weight: -1, from: "" };
const listeners = [];

function choose(model, things, more = {}) {
  Object.assign(selection, { model, first: things.length ? things[0] : -1, module: -1, weight: -1, from: "" }, more);
  selection.things = models.map((_, number) => {
    if (number === model) return new Set(things);
    const partner = data.comparison ? data.comparison.partner[model] : [];
    return new Set(things.map((thing) => partner[thing]).filter((thing) => thing >= 0));
  });
  document.body.dataset.things = things.join(" ");
  document.body.dataset.model = model;
  for (const listen of listeners) listen();
  say(model, things);
}

function say(model, things) {
  const graph = models[model].graph;
  if (!graph || !things.length) return;
  const text = opName(graph, things[0]) + (things.length > 1 ? " and " + (things.length - 1) + " more operations" : "");
  $("said").textContent = "selected " + text;
}

// --- what operations are called -----------------------------------------------------------------------------------

const operatorOf = (graph, op) => graph.operators[graph.ops.operator[op]];
const shortOperator = (graph, op) => operatorOf(graph, op).replace(/^.*\./, "");
const typeOf = (graph, tensor) => graph.types[graph.tensors.type[tensor]];

function resultOf(graph, op) {
  const made = graph.ops.outputs[op];
  return made.length ? graph.tensors.name[made[0]] : "";
}

const opName = (graph, op) => resultOf(graph, op) || operatorOf(graph, op);
const lastWord = (name) => name.replace(/^.*[./](?=[^./]*[A-Za-z_][^./]*$)/, "");

const KINDS = [
  ["products", /conv|matmul|linear|gemm|dense|attention|einsum|bmm|product|mm$/],
  ["norms", /norm/],
  ["activations", /relu|gelu|silu|swiglu|sigmoid|tanh|softplus|elu|swish|hardsw/],
  ["reductions", /softmax|sum|mean|max|min|reduce|pool|arg|cum/],
  ["tables", /embedding|gather|lookup|scatter|index/],
  ["layout", /reshape|transpose|permute|view|flatten|unflatten|split|concat|slice|squeeze|stack|expand|broadcast|pad|cast|copy|shape|layout|tile|repeat/],
  ["elementwise", /add|sub|mul|div|pow|exp|log|sqrt|neg|abs|where|select|clamp|rotate|rope|scale|math|eq|lt|gt|cos|sin/],
];
const KIND_COLOURS = [0, 5, 3, 4, 6, 7, 2];
const kindCache = new Map();

function kindOf(operator) {
  if (!kindCache.has(operator)) {
    const [family, word] = [operator.replace(/\.[^.]*$/, ""), operator.replace(/^.*\./, "")];
    let found = KINDS.findIndex(([, pattern]) => pattern.test(word));
    if (found < 0) found = KINDS.findIndex(([, pattern]) => pattern.test(family));
    kindCache.set(operator, found);
  }
  return kindCache.get(operator);
}

const kindColour = (kind) => (kind < 0 ? theme.palette[1] : theme.palette[KIND_COLOURS[kind]]);

function legendItem(colour, text) {
  const made = element("span", "swatch");
  made.style.background = colour;
  return element("span", "item", null, made, text);
}

const modulesOps = models.map(() => new Map());

function opsOfModule(model, module) {
  const cache = modulesOps[model];
  if (!cache.has(module)) {
    const { graph } = models[model];
    const inside = new Uint8Array(graph.modules.name.length);
    inside[module] = 1;
    for (let at = module + 1; at < inside.length; at += 1) if (graph.modules.parent[at] >= 0 && inside[graph.modules.parent[at]]) inside[at] = 1;
    const found = [];
    graph.ops.module.forEach((at, op) => { if (inside[at]) found.push(op); });
    cache.set(module, found);
  }
  return cache.get(module);
}

function opLines(graph, op) {
  const made = graph.ops.outputs[op].slice(0, 4).map((tensor) => graph.tensors.name[tensor] + "   " + typeOf(graph, tensor));
  const numbers = [];
  if (graph.ops.macs[op]) numbers.push(brief(graph.ops.macs[op]) + " multiply-adds");
  if (graph.ops.bytes[op]) numbers.push(bytes(graph.ops.bytes[op]) + " moved");
  if (graph.ops.seconds) numbers.push(seconds(graph.ops.seconds[op]));
  if (graph.ops.error && graph.ops.error[op] !== null) numbers.push("error " + graph.ops.error[op].toExponential(2));
  return [...made, numbers.join(" · "), graph.ops.attributes[op]].filter(Boolean);
}

function moduleLines(graph, ops) {
  const sum = (column) => ops.reduce((total, op) => total + (graph.ops[column][op] || 0), 0);
  const lines = [count(ops.length) + " operations", brief(sum("macs")) + " multiply-adds · " + bytes(sum("bytes")) + " moved"];
  if (graph.ops.seconds) lines.push(seconds(sum("seconds")));
  return lines;
}

// As much of a text as has room, in the font that the pen has; what is cut is said by an ellipsis.
const fittedTexts = new Map();
function fitted(pen, font, text, room) {
  const key = font + Math.round(room) + text;
  if (fittedTexts.has(key)) return fittedTexts.get(key);
  let found = text;
  for (let part = text.length; pen.measureText(found).width > room && part > 1;) {
    part = Math.max(1, Math.min(part - 1, Math.floor(part * room / pen.measureText(found).width)));
    found = text.slice(0, part) + "…";
  }
  fittedTexts.set(key, found);
  return found;
}
