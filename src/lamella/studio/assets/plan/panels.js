// Everything around the pictures: facts, bounds, units, tasks, the source text, what is selected.
const MOST_ROWS = 500;

function openHeader() {
  byId("program").textContent = scene.program;
  byId("device").textContent = scene.device;
  byId("file").textContent = scene.file;
  byId("ratio").textContent = scene.ratio;
  byId("cut").textContent = scene.cut;
  byId("cut").hidden = !scene.cut;
  byId("facts").append(...scene.facts.map(([label, value, note]) =>
    element("div", "", null, element("dt", "", label), element("dd", "", value, element("small", "", note)))));
  byId("notes").append(...scene.notes.map((note) => element("li", "", note)));
}

function barRow(label, part, value, what) {
  const fill = element("div", "fill");
  fill.style.width = percent(clamp(part, 0, 1)).replace(" ", "");
  const made = element("div", "", null, element("div", "label", label), element("div", "track", null, fill), element("div", "value", value));
  made.setAttribute("role", "listitem");
  if (what) made.append(element("div", "what", what));
  return [made, fill];
}

function openBars() {
  const longest = Math.max(scene.cycles, ...scene.bounds.map((bound) => bound.cycles), 1);
  for (const bound of scene.bounds) {
    const [row] = barRow(bound.name, bound.cycles / longest, count(bound.cycles), bound.what);
    row.classList.toggle("binding", bound.binding);
    byId("bounds").append(row);
  }
  byId("bounds").append(barRow("schedule", scene.cycles / longest, count(scene.cycles), "")[0]);
  const several = new Set(scene.tracks.map((track) => track.group)).size > 2;
  for (const track of scene.tracks) {
    const name = several ? track.name + "  " + track.group : track.name;
    byId("units").append(barRow(name, track.utilisation, percent(track.utilisation), "")[0]);
  }
}

// --- the table of layers ----------------------------------------------------------------------------------------

const LAYER_COLUMNS = ["layer", "when", "cycles", "unit", "busy", "MACs", "DDR", "compulsory", "×", "energy"];
const hasEnergy = scene.layers.some((found) => found.energy);
let layer = -1; // the one whose tasks the table of tasks shows

function openLayers() {
  if (!scene.layers.length) return;
  byId("layers-card").hidden = false;
  byId("layers-hint").textContent = "sections of the program; click one to see its time and its tasks";
  const head = element("tr", "", null, ...LAYER_COLUMNS.slice(0, LAYER_COLUMNS.length - !hasEnergy).map((name, column) => element("th", column >= 2 && column !== 3 ? "num plain" : "plain", name)));
  byId("layers").tHead.append(head);
  byId("colour").value = "layer";
  colours = colourTable("layer");
  byId("layers").tBodies[0].append(...scene.layers.map(layerRow));
  byId("all-layers").addEventListener("click", () => chooseLayer(-1));
}

function layerRow(found, number) {
  const times = found.compulsory ? (found.ddr / found.compulsory).toFixed(2) : "";
  const numbers = [count(found.end - found.start), found.unit, percent(found.utilisation), found.macs ? brief(found.macs) : "", found.ddr ? bytes(found.ddr) : "", found.ddr ? bytes(found.compulsory) : "", times, ...(hasEnergy ? [found.energy] : [])];
  const row = element("tr", "", null, element("td", "", null, layerSwatch(found), found.name), element("td", "", null, spanBar(found)), ...numbers.map((text, column) => element("td", column !== 1 ? "num" : "unit", text)));
  row.title = found.what;
  row.tabIndex = 0;
  row.addEventListener("click", () => chooseLayer(number));
  row.addEventListener("keydown", (event) => { if (event.key === "Enter") chooseLayer(number); });
  return row;
}

function layerSwatch(found) {
  return byId("colour").value === "layer" && found.tasks.length ? swatch(colours[found.tasks[0]]) : "";
}

function spanBar({ start, end }) {
  const [bar, part] = [element("div", "span"), element("i")];
  part.style.left = percent(start / END).replace(" ", "");
  part.style.width = percent((end - start) / END).replace(" ", "");
  bar.append(part);
  return bar;
}

function chooseLayer(number) {
  layer = number;
  byId("all-layers").hidden = number < 0;
  [...byId("layers").tBodies[0].rows].forEach((row, at) => row.classList.toggle("on", at === number));
  if (number < 0) show(0, HOME);
  else if (scene.layers[number].start < HOME) show(scene.layers[number].start, Math.min(scene.layers[number].end, HOME));
  fillTasks();
}

// --- the table of tasks -----------------------------------------------------------------------------------------

const waited = (task) => Object.values(task.waits).reduce((sum, cycles) => sum + cycles, 0);
const COLUMNS = [
  ["task", (task) => task.title], ["opcode", (task) => task.opcode], ["unit", (task) => task.unit], ["@profile", (task) => task.profile],
  ["line", (task) => task.line], ["count", (task) => task.count], ["cycles", (task) => task.cycles], ["share", (task) => task.cycles],
  ["waited", waited], ["why", (task) => Object.keys(task.waits).join()],
];
let order = { column: 6, down: true };

function openTasks() {
  const head = element("tr");
  COLUMNS.forEach(([name], column) => {
    const cell = element("th", column >= 4 && column <= 8 ? "num" : "", null, button(name, () => sortTasks(column)));
    cell.scope = "col";
    head.append(cell);
  });
  byId("tasks").tHead.append(head);
  fillTasks();
}

function sortTasks(column) {
  order = { column, down: order.column === column ? !order.down : column >= 4 };
  fillTasks();
}

function fillTasks() {
  const value = COLUMNS[order.column][1];
  const compare = (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0);
  const members = layer < 0 ? scene.tasks.map((_, number) => number) : [...scene.layers[layer].tasks];
  const sorted = members.sort((a, b) => (order.down ? -1 : 1) * compare(scene.tasks[a], scene.tasks[b]) || a - b);
  const total = Math.max(scene.tasks.reduce((sum, task) => sum + task.cycles, 0), 1);
  byId("tasks").tBodies[0].replaceChildren(...sorted.slice(0, MOST_ROWS).map((number) => taskRow(number, total)));
  const some = layer < 0 ? "" : "of layer " + scene.layers[layer].name + " ";
  byId("tasks-hint").textContent = some + (sorted.length > MOST_ROWS ? MOST_ROWS + " of " + count(sorted.length) + " shown" : "");
  [...byId("tasks").tHead.rows[0].cells].forEach((cell, column) => {
    if (column === order.column) cell.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  });
  markTask();
}

function taskRow(number, total) {
  const task = scene.tasks[number];
  const cells = [task.title, task.opcode, task.unit, task.profile, task.line || "", count(task.count), count(task.cycles), percent(task.cycles / total), count(waited(task)), null];
  const row = element("tr", "", null, ...cells.map((text, column) => element("td", column >= 4 && column <= 8 ? "num" : "", text)));
  row.cells[0].prepend(swatch(colours[number]));
  row.cells[9].append(waitBar(task));
  row.dataset.task = number;
  row.tabIndex = 0;
  row.addEventListener("click", () => choose(number));
  row.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(number); });
  return row;
}

function waitBar({ waits, blockers, others }) {
  const total = waited({ waits });
  if (!total) return element("span", "none", "never waited");
  const bar = element("div", "waits");
  for (const [reason, cycles] of Object.entries(waits)) {
    const part = element("i");
    part.style.width = percent(cycles / total).replace(" ", "");
    part.style.background = reasonColour(reason);
    bar.append(part);
  }
  const text = blockers.map((wait) => wait.reason + " " + count(wait.cycles) + (wait.cause ? " for " + wait.cause : "")).join(", ") + (others ? ", " + others + " more" : "");
  const made = element("div", "why", null, bar, text);
  made.title = text;
  return made;
}

function choose(task) {
  const slice = firstSlice(task);
  select(task, slice);
  if (slice >= 0) reveal(slice);
}

function markTask() {
  for (const row of byId("tasks").tBodies[0].rows) row.classList.toggle("on", Number(row.dataset.task) === view.task);
}

// --- the source --------------------------------------------------------------------------------------------------

const tasksOfLine = new Map();

function openSource() {
  scene.tasks.forEach((task, number) => {
    if (task.line) tasksOfLine.set(task.line, [...(tasksOfLine.get(task.line) || []), number]);
  });
  byId("source").append(...scene.source.map((text, index) => sourceLine(text, index + 1)));
}

function sourceLine(text, number) {
  const tasks = tasksOfLine.get(number) || [];
  const cycles = tasks.reduce((sum, task) => sum + scene.tasks[task].cycles, 0);
  const line = element("div", "line", null, element("span", "n", number), element("span", "c", tasks.length ? brief(cycles) : ""), paintedText(text));
  if (!tasks.length) return line;
  const press = () => choose(tasks[(tasks.indexOf(view.task) + 1) % tasks.length]);
  line.className = "line task";
  line.firstChild.style.borderLeftColor = colours[tasks[0]];
  line.tabIndex = 0;
  line.setAttribute("role", "button");
  line.addEventListener("click", press);
  line.addEventListener("keydown", (event) => { if (event.key === "Enter") press(); });
  return line;
}

const paintedText = (text) => element("span", "t", null, ...highlight(text, "nem"));

function markLine() {
  const lines = byId("source").children;
  for (const line of byId("source").querySelectorAll(".line.on")) line.classList.remove("on");
  const line = view.task >= 0 ? lines[scene.tasks[view.task].line - 1] : null;
  if (!line) return;
  line.classList.add("on");
  const box = byId("source");
  const place = line.offsetTop - box.offsetTop;
  const part = (place - box.scrollTop) / box.clientHeight;
  if (part < 0.1 || part > 0.7) box.scrollTop = place - 0.4 * box.clientHeight;
}

// --- what is selected ---------------------------------------------------------------------------------------------

function link(slice) {
  return button(sliceName(slice), () => { select(slices.task[slice], slice); reveal(slice); });
}

function links(list) {
  const made = element("dd", "links", null, ...list.slice(0, 12).map(link));
  if (list.length > 12) made.append(element("span", "none", count(list.length - 12) + " more"));
  return made;
}

function sliceFacts(slice) {
  const [start, end] = [slices.start[slice], slices.end[slice]];
  const facts = [["when", element("dd", "", count(start) + " – " + count(end) + "  (" + count(end - start) + " cycles)")], ["on", element("dd", "", scene.tracks[slices.track[slice]].name)]];
  if (slices.iteration[slice]) facts.push(["iteration", element("dd", "", slices.iteration[slice])]);
  const lines = waitLines(slice);
  facts.push(["waited", element("dd", "", lines.length ? lines.map((line) => line.replace(/^waited /, "")).join("; ") : "no")]);
  if (slices.after[slice].length) facts.push(["after", links(slices.after[slice])]);
  if (after(slice).length) facts.push(["before", links(after(slice))]);
  return facts;
}

function showSelected() {
  const place = byId("selected");
  if (view.task < 0) return place.replaceChildren(element("p", "none", "Click a task in the timeline, the table or the source. Hover a gap to see what its unit waits for."));
  const task = scene.tasks[view.task];
  const list = element("dl");
  const facts = view.slice >= 0 ? sliceFacts(view.slice) : [["shown", element("dd", "", "none of its instances is in the timeline")]];
  facts.push(["in all", element("dd", "", count(task.count) + " × " + task.opcode + ", " + count(task.cycles) + " cycles" + (task.profile ? ", @profile " + task.profile : "") + (task.line ? ", line " + task.line : ""))]);
  if (task.reads.length) facts.push(["reads", element("dd", "", task.reads.join(", "))]);
  if (task.writes.length) facts.push(["writes", element("dd", "", task.writes.join(", "))]);
  for (const [name, value] of facts) list.append(element("dt", "", name), value);
  return place.replaceChildren(element("h3", "", null, swatch(colours[view.task]), task.title), list);
}

function recolour() {
  colours = colourTable(byId("colour").value);
  byId("layers").tBodies[0].replaceChildren(...scene.layers.map(layerRow));
  fillTasks();
  showSelected();
  for (const [line, tasks] of tasksOfLine) byId("source").children[line - 1].firstChild.style.borderLeftColor = colours[tasks[0]];
  repaint();
}

function openPanels() {
  openHeader();
  openBars();
  openLayers();
  openTasks();
  openSource();
  showSelected();
  listeners.push(markTask, markLine, showSelected);
  byId("colour").addEventListener("change", recolour);
}
