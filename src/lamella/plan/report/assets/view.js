// What all parts of the page share: the scene, the view (which cycles are shown, what is selected), small helpers.
// Names come from files: they reach the page through textContent and fillText only.
const scene = JSON.parse(document.getElementById("scene").textContent);
const slices = scene.slices;
const byId = (id) => document.getElementById(id);
const count = (number) => Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
const percent = (part) => (100 * part).toFixed(part === 0 ? 0 : part < 0.0995 ? 2 : 1) + " %";
const brief = (number) => (number < 1e6 ? count(number) : Number((number / 10 ** (3 * Math.floor(Math.log10(number) / 3))).toPrecision(3)) + " kMGTPE"[Math.floor(Math.log10(number) / 3)]);
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) { number /= 1024; unit += 1; }
  return (Number.isInteger(number) ? number : number.toFixed(1)) + " " + units[unit];
}

function element(tag, className, text, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined && text !== null) made.textContent = text;
  made.append(...children);
  return made;
}

function button(text, press) {
  const made = element("button", "", text);
  made.type = "button";
  made.addEventListener("click", press);
  return made;
}

// --- colours ---------------------------------------------------------------------------------------------------

const PALETTE = ["#4e79d6", "#efb118", "#e9674f", "#57b8a3", "#9566d8", "#4aa657", "#f08cb4", "#8fb6ee", "#a87a5b", "#9aa0aa"];
const REASONS = { dependency: "#e9674f", unit: "#efb118", window: "#9566d8", token: "#57b8a3", bandwidth: "#4e79d6" };

function colourTable(key) {
  const seen = new Map();
  return scene.tasks.map((task) => {
    const name = task[key] || "";
    if (!seen.has(name)) seen.set(name, seen.size);
    return name ? PALETTE[seen.get(name) % PALETTE.length] : PALETTE[PALETTE.length - 1];
  });
}

function inkOn(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#14181f" : "#ffffff";
}

let colours = colourTable("title");
const reasonColour = (reason) => REASONS[reason] || "#9aa0aa";

function swatch(colour) {
  const made = element("span", "swatch");
  made.style.background = colour;
  return made;
}

// --- the view --------------------------------------------------------------------------------------------------

const END = Math.max(scene.cycles, 1);
const HOME = clamp(scene.covered, 1, END); // up to here every task instance is known
const SHORTEST = Math.min(4, END);
const LEFT = 104; // the column of names, in pixels, the same for timeline and memory so that their times align
const view = { from: 0, to: HOME, task: -1, slice: -1, hover: -1 };
const painters = [];
const listeners = [];
let asked = false;

function repaint() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; paintNow(); });
}

function paintNow() {
  for (const paint of painters) paint();
}

function show(from, to) {
  const width = clamp(to - from, SHORTEST, END);
  view.from = clamp(from, 0, END - width);
  view.to = view.from + width;
  repaint();
}

function zoom(factor, around) {
  const centre = around === undefined ? (view.from + view.to) / 2 : around;
  show(centre - (centre - view.from) * factor, centre + (view.to - centre) * factor);
}

const move = (part) => show(view.from + part * (view.to - view.from), view.to + part * (view.to - view.from));

function reveal(slice) {
  const [start, end] = [slices.start[slice], slices.end[slice]];
  if (start >= view.from && end <= view.to) return;
  const width = Math.max(view.to - view.from, (end - start) * 1.5);
  show((start + end - width) / 2, (start + end + width) / 2);
}

// Select a task, and one of its slices if it is known which.
function select(task, slice = -1) {
  view.task = task;
  view.slice = slice;
  for (const listen of listeners) listen();
  repaint();
}

function firstSlice(task) {
  return slices.task.indexOf(task);
}

let followers = null; // which slices wait for a slice: made when first asked for
function after(slice) {
  if (!followers) {
    followers = slices.task.map(() => []);
    slices.after.forEach((before, number) => before.forEach((earlier) => followers[earlier].push(number)));
  }
  return followers[slice];
}

const sliceName = (slice) => {
  const iteration = slices.iteration[slice];
  return scene.tasks[slices.task[slice]].title + (iteration ? "  " + iteration : "");
};

// --- canvases --------------------------------------------------------------------------------------------------

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let theme = {};

function readTheme() {
  for (const name of ["card", "line", "faint", "text", "soft", "accent", "bad", "hatch"]) theme[name] = style("--" + name);
  theme.font = "11px " + style("--sans");
  theme.small = "10px " + style("--sans");
}

// A canvas of this height, cleared, in CSS pixels; null while it has no width.
function prepare(canvas, height) {
  const width = canvas.parentElement.clientWidth;
  if (!width) return null;
  const scale = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.height = height + "px";
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = theme.font;
  pen.textBaseline = "middle";
  return { pen, width, height, at: (cycle) => LEFT + (cycle - view.from) * (width - LEFT - 12) / (view.to - view.from) };
}

function cycleAt(canvas, x) {
  const width = canvas.parentElement.clientWidth - LEFT - 12;
  return view.from + (x - LEFT) * (view.to - view.from) / width;
}

function ticks(pixels) {
  const rough = (view.to - view.from) / Math.max(pixels / 110, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((digit) => digit * power).find((size) => size >= rough));
  const found = [];
  for (let cycle = Math.ceil(view.from / step) * step; cycle <= view.to; cycle += step) found.push(cycle);
  return found;
}

const widths = new Map();
function shorten(pen, text, room) {
  const letter = 5.6;
  if (room < 14) return "";
  if (!widths.has(text)) widths.set(text, pen.measureText(text).width);
  if (widths.get(text) <= room) return text;
  const letters = Math.floor(room / letter) - 1;
  return letters < 2 ? "" : text.slice(0, letters) + "…";
}

// --- the tooltip -----------------------------------------------------------------------------------------------

function tell(event, title, lines) {
  const tip = byId("tip");
  tip.replaceChildren(element("b", "", title), ...lines.map((line) => element("div", "", line)));
  tip.hidden = false;
  const [w, h] = [tip.offsetWidth, tip.offsetHeight];
  tip.style.left = clamp(event.clientX + 14, 4, innerWidth - w - 4) + "px";
  tip.style.top = (event.clientY + 18 + h > innerHeight ? event.clientY - h - 10 : event.clientY + 18) + "px";
}

const hush = () => { byId("tip").hidden = true; };
