// Memory over the same time axis: who lies where while it is in use, how much that is, what there is.
const LANE = 104;
const memory = byId("memory");
// A buffer has the colour of the task that fills it, or of the first that reads it where nobody does.
const fillers = new Map();
for (const key of ["fills", "uses"]) scene.tasks.forEach((task, number) => { for (const name of task[key]) if (!fillers.has(name)) fillers.set(name, number); });
const holderColour = (name) => (fillers.has(name) ? colours[fillers.get(name)] : PLAIN);

// A lane shows the whole capacity when at least half of it is used, else the used part.
function ceiling(level) {
  let used = Math.max(level.peak, 1);
  for (const box of level.boxes) used = Math.max(used, box.offset + box.size);
  return level.capacity && used > 0.5 * level.capacity ? Math.max(level.capacity, used) : used;
}

function paintMemory() {
  const area = prepare(memory, scene.levels.length * LANE + 4);
  if (!area) return;
  scene.levels.forEach((level, number) => {
    const lane = { level, base: (number + 1) * LANE - 8, tall: LANE - 24, most: ceiling(level) };
    lane.y = (size) => lane.base - size * lane.tall / lane.most;
    area.pen.save();
    area.pen.beginPath();
    area.pen.rect(LEFT, number * LANE, area.width - LEFT - 10, LANE);
    area.pen.clip();
    for (const box of level.boxes) paintBox(area, lane, box);
    area.pen.restore();
    paintPeak(area, lane);
    paintCapacity(area, lane);
    paintLevel(area, lane);
  });
}

function paintBox({ pen, at, width }, { y }, box) {
  if (box.end < view.from || box.start > view.to) return;
  const left = clamp(at(box.start), LEFT - 4, width);
  const right = clamp(at(box.end), LEFT - 4, width);
  const [low, high] = [y(box.offset), y(box.offset + box.size)];
  pen.fillStyle = holderColour(box.name);
  pen.globalAlpha = 0.82;
  pen.fillRect(left, high, Math.max(right - left, 1), Math.max(low - high - 1, 1));
  pen.globalAlpha = 1;
  pen.fillStyle = inkOn(holderColour(box.name));
  pen.textAlign = "left";
  if (low - high > 11 && right - left > 26) pen.fillText(shorten(pen, box.name, right - left - 10), left + 5, (low + high) / 2);
}

function paintCapacity({ pen, width }, { level, most, y }) {
  if (!level.capacity) return;
  pen.textAlign = "right";
  const used = level.peak / level.capacity;
  pen.fillStyle = pen.strokeStyle = used > 0.95 ? theme.bad : used > 0.8 ? theme.warn : theme.soft;
  const beyond = level.capacity > most;
  const line = Math.round(y(Math.min(level.capacity, most))) + 0.5;
  pen.fillText((beyond ? "↑ capacity " : "capacity ") + bytes(level.capacity), width - 14, line - 8);
  if (beyond) return;
  pen.lineWidth = 1;
  pen.setLineDash([5, 4]);
  pen.beginPath();
  pen.moveTo(LEFT, line);
  pen.lineTo(width - 12, line);
  pen.stroke();
  pen.setLineDash([]);
}

function paintPeak({ pen, at, width }, { level, base, y }) {
  const x = at(level.peak_at);
  if (!level.peak || x < LEFT - 1 || x > width - 10) return;
  const height = y(level.peak);
  pen.fillStyle = pen.strokeStyle = theme.text;
  pen.setLineDash([2, 3]);
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(Math.round(x) + 0.5, base);
  pen.lineTo(Math.round(x) + 0.5, height);
  pen.stroke();
  pen.setLineDash([]);
  pen.beginPath();
  pen.arc(x, height, 3, 0, 7);
  pen.fill();
  const text = "peak " + bytes(level.peak);
  pen.textAlign = x > width - 230 ? "right" : "left";
  pen.fillText(text, pen.textAlign === "left" ? Math.max(x, LEFT) + 6 : x - 6, height - 8);
}

function paintLevel({ pen, width }, { level, base, tall }) {
  pen.textAlign = "left";
  pen.fillStyle = theme.text;
  pen.fillText(level.name, 14, base - tall / 2 - 7);
  pen.fillStyle = theme.soft;
  pen.font = theme.small;
  pen.fillText(level.capacity ? percent(level.peak / level.capacity) : "peak", 14, base - tall / 2 + 7);
  pen.font = theme.font;
  pen.fillStyle = theme.line;
  pen.fillRect(LEFT, base, width - LEFT - 12, 1);
}

function heldAt(level, cycle) {
  let held = 0;
  for (const [from, size] of level.steps) { if (from > cycle) break; held = size; }
  return held;
}

function hoverMemory(event) {
  const box = memory.getBoundingClientRect();
  const level = scene.levels[Math.floor((event.clientY - box.top) / LANE)];
  const cycle = cycleAt(memory, event.clientX - box.left);
  if (!level || cycle < 0 || cycle > END || event.clientX - box.left < LEFT) return hush();
  const holders = level.boxes.filter((item) => item.start <= cycle && cycle < item.end);
  const lines = holders.slice(0, 12).map((item) => item.name + "   " + bytes(item.size) + " at " + count(item.offset));
  if (holders.length > 12) lines.push("… " + (holders.length - 12) + " more");
  const share = level.capacity ? ", " + percent(heldAt(level, cycle) / level.capacity) + " of " + bytes(level.capacity) : "";
  return tell(event, level.name + "   " + bytes(heldAt(level, cycle)) + share, ["cycle " + count(cycle), ...lines]);
}

function openMemory() {
  painters.push(paintMemory);
  memory.addEventListener("pointermove", hoverMemory);
  memory.addEventListener("pointerleave", hush);
  memory.addEventListener("wheel", (event) => {
    event.preventDefault();
    const cycle = cycleAt(memory, event.clientX - memory.getBoundingClientRect().left);
    zoom(1.0015 ** clamp(event.deltaY, -600, 600), clamp(cycle, view.from, view.to));
  }, { passive: false });
  byId("peaks").append(...scene.levels.map((level) => {
    const held = level.holders.map(([name, size]) => name + " " + bytes(size)).join(", ");
    const of = level.capacity ? " of " + bytes(level.capacity) + " (" + percent(level.peak / level.capacity) + ")" : "";
    const text = " peak " + bytes(level.peak) + of + (level.peak ? " at cycle " + count(level.peak_at) : "") + (held ? ": " + held : "");
    return element("li", "", null, element("b", "", level.name), text);
  }));
}
