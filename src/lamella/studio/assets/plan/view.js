// What all parts of a plan's page share: the view (which cycles are shown, what is selected), colours, canvases.
// Names come from files: they reach the page through textContent and fillText only.
const slices = scene.slices;
const byId = (id) => root.querySelector("#" + id + hooks.suffix);

// --- colours: one for each task in all cards, as many as there are tasks ----------------------------------------

const PALETTE = ["#4e79d6", "#efb118", "#e9674f", "#57b8a3", "#9566d8", "#4aa657", "#f08cb4", "#8fb6ee", "#a87a5b", "#7d8796"];
const PLAIN = "#9aa0aa";
const REASONS = { dependency: "#e9674f", unit: "#efb118", window: "#9566d8", token: "#57b8a3", bandwidth: "#4e79d6" };

// Beyond the palette hues are spread by the golden angle, so that neighbours stay apart.
function paletteColour(number) {
  if (number < PALETTE.length) return PALETTE[number];
  const [hue, light] = [(number * 137.508) % 360, [0.55, 0.66, 0.46][number % 3]];
  const part = 0.55 * Math.min(light, 1 - light);
  const digit = (shift) => {
    const k = (shift + hue / 30) % 12;
    return Math.round(255 * (light - part * Math.max(-1, Math.min(k - 3, 9 - k, 1)))).toString(16).padStart(2, "0");
  };
  return "#" + digit(0) + digit(8) + digit(4);
}

function colourTable(key) {
  const seen = new Map();
  return scene.tasks.map((task) => {
    const name = task[key] || "";
    if (name && !seen.has(name)) seen.set(name, seen.size);
    return name ? paletteColour(seen.get(name)) : PLAIN;
  });
}

let colours = colourTable("title");
const reasonColour = (reason) => REASONS[reason] || "#9aa0aa";

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
  hooks.pick(task);
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

// What tells a name from those of the other tasks of its unit: 0 for its end, 1 for its beginning, where more of them end alike.
const alike = new Map();
const endsOf = (track, name) => [track + " " + name.slice(0, 4), track + "  " + name.slice(-4)];
function tellingPart(text, track) {
  if (!alike.size) {
    const seen = new Set(slices.task.map((task, slice) => slices.track[slice] + " " + scene.tasks[task].title.replace(/ .*$/, "")));
    for (const word of seen) {
      for (const key of endsOf(...word.split(" "))) alike.set(key, (alike.get(key) || 0) + 1);
    }
  }
  const [head, tail] = endsOf(track, text.replace(/ .*$/, "")).map((key) => alike.get(key) || 0);
  return tail > head ? 1 : 0;
}

const widths = new Map();
function shorten(pen, text, room, track) {
  const letter = 5.6;
  if (room < 14) return "";
  if (!widths.has(text)) widths.set(text, pen.measureText(text).width);
  if (widths.get(text) <= room) return text;
  const telling = track === undefined ? 0 : tellingPart(text, track);
  for (let letters = Math.floor(room / letter) - 1; letters >= 2; letters -= 1) {
    const first = Math.min(letters, letters < 6 ? telling * letters : Math.ceil(letters * (0.35 + 0.3 * telling)));
    const cut = text.slice(0, first) + "…" + (first < letters ? text.slice(first - letters) : "");
    if (!widths.has(cut)) widths.set(cut, pen.measureText(cut).width);
    if (widths.get(cut) <= room) return cut;
  }
  return "";
}
