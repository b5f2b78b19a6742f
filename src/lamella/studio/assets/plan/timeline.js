// The timeline: one row per unit instance, drawn on a canvas, only what is visible.
const ROW = scene.tracks.filter((track) => track.busy).length > 10 ? 24 : 30;
const RULER = 24;
const timeline = byId("timeline");
const overview = byId("overview");
const ofTrack = scene.tracks.map(() => []);
slices.track.forEach((track, number) => ofTrack[track].push(number));
let rows = [];

// Engines are separated by a heading when there are several.
function arrangeRows() {
  rows = [];
  const groups = new Set(scene.tracks.map((track) => track.group));
  let group = null;
  scene.tracks.forEach((track, number) => {
    if (!byId("idle").checked && !track.busy) return;
    if (track.group !== group && groups.size > 2) rows.push({ heading: track.group });
    group = track.group;
    rows.push({ track: number });
  });
}

const top = (row) => RULER + row * ROW;
const rowOf = (track) => rows.findIndex((row) => row.track === track);

// The first slice of a track that ends after a cycle, as a position in the track's list.
function firstAfter(list, cycle) {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (slices.end[list[middle]] <= cycle) low = middle + 1; else high = middle;
  }
  return low;
}

function paintTimeline() {
  const area = prepare(timeline, RULER + Math.max(rows.length, 1) * ROW + 6);
  if (!area) return;
  paintRuler(area);
  area.pen.save();
  area.pen.beginPath();
  area.pen.rect(LEFT, RULER, area.width - LEFT, area.height);
  area.pen.clip();
  rows.forEach((row, number) => { if (row.track !== undefined) paintTrack(area, row.track, top(number)); });
  if (isCritical()) paintCritical(area);
  if (view.slice >= 0) paintArrows(area, view.slice);
  if (range) paintShade(area, range[0], range[1], theme.accent);
  if (HOME < view.to) paintShade(area, HOME, view.to, theme.soft);
  area.pen.restore();
  rows.forEach((row, number) => paintName(area, row, top(number)));
}

function paintRuler({ pen, width, height, at }) {
  pen.textAlign = "center";
  for (const cycle of ticks(width - LEFT)) {
    const x = Math.round(at(cycle)) + 0.5;
    pen.fillStyle = theme.soft;
    pen.textAlign = cycle === 0 ? "left" : "center";
    if (x < width - 24) pen.fillText(count(cycle), x, RULER / 2 - 1);
    pen.fillStyle = theme.line;
    pen.fillRect(x, RULER - 5, 1, height);
  }
}

function paintName({ pen, width }, row, y) {
  pen.textAlign = "left";
  pen.fillStyle = theme.faint;
  pen.fillRect(0, y + ROW - 1, width, 1);
  if (row.heading !== undefined) {
    pen.fillStyle = theme.soft;
    pen.fillText(row.heading, 14, y + ROW / 2 + 3);
    return;
  }
  const track = scene.tracks[row.track];
  pen.fillStyle = track.busy ? theme.text : theme.soft;
  pen.fillText(shorten(pen, track.name, 56), 14, y + ROW / 2);
  pen.textAlign = "right";
  pen.font = theme.small;
  pen.fillStyle = theme.soft;
  pen.fillText((100 * track.utilisation).toFixed(0) + "%", LEFT - 8, y + ROW / 2);
  pen.font = theme.font;
}

// Slices too narrow to see become columns whose height is the busy share of those few pixels, so that a frame costs no
// more than the pixels it has and a busy row looks busier than an idle one.
const COLUMN = 2;

function paintTrack(area, track, y) {
  const { at, width } = area;
  const list = ofTrack[track];
  let column = { place: -1, shares: new Map() };
  for (let place = firstAfter(list, view.from); place < list.length; place += 1) {
    const slice = list[place];
    if (slices.start[slice] > view.to) break;
    const left = Math.max(at(slices.start[slice]), LEFT - 4);
    const right = Math.min(at(slices.end[slice]), width + 4);
    if (right - left >= COLUMN || slice === view.slice) {
      paintSlice(area, slice, left, Math.max(right - left - (right - left > 4 ? 1 : 0), COLUMN), y);
      continue;
    }
    const border = (Math.floor(left / COLUMN) + 1) * COLUMN; // where the column ends in which the slice begins
    column = fillColumn(area, column, slice, left, Math.min(right, border), y);
    if (right > border) column = fillColumn(area, column, slice, border, right, y);
  }
  paintColumn(area, column, y);
}

function fillColumn(area, column, slice, left, right, y) {
  const place = Math.floor(left / COLUMN);
  const task = slices.task[slice];
  if (place !== column.place) {
    paintColumn(area, column, y);
    column = { place, shares: new Map() };
  }
  column.shares.set(task, (column.shares.get(task) || 0) + (right - left) / COLUMN);
  return column;
}

function paintColumn({ pen }, { place, shares }, y) {
  let base = y + ROW - 4;
  for (const [task, share] of shares) {
    const tall = clamp(share * (ROW - 7), 1.5, base - y - 3);
    base -= tall;
    pen.globalAlpha = isCritical() || (view.task >= 0 && task !== view.task) ? 0.4 : 1;
    pen.fillStyle = colours[task];
    pen.fillRect(place * COLUMN, base, COLUMN, tall);
  }
  pen.globalAlpha = 1;
}

function paintSlice({ pen }, slice, x, width, y) {
  const task = slices.task[slice];
  const dimmed = isFaded(slice);
  pen.globalAlpha = dimmed ? 0.4 : 1;
  pen.fillStyle = colours[task];
  pen.beginPath();
  pen.roundRect(x, y + 3, width, ROW - 7, width > 6 ? 3 : 0);
  pen.fill();
  pen.globalAlpha = 1;
  if (isCritical() && critical.has(slice)) {
    pen.strokeStyle = theme.bad;
    pen.lineWidth = 1.5;
    pen.stroke();
  }
  if (slice === view.hover || slice === view.slice) {
    pen.strokeStyle = theme.text;
    pen.lineWidth = slice === view.slice ? 2 : 1;
    pen.stroke();
  }
  pen.fillStyle = dimmed ? theme.text : inkOn(colours[task]);
  pen.textAlign = "left";
  const label = width > 26 ? barLabel(pen, slice, width - 10) : "";
  if (label) pen.fillText(label, x + 5, y + ROW / 2);
}

// The name of a task; its opcode, which many have, goes first where there is no room for both.
function barLabel(pen, slice, room) {
  const whole = shorten(pen, sliceName(slice), room, slices.track[slice]);
  if (!whole.includes("…") && whole) return whole;
  return shorten(pen, sliceName(slice).replace(/ \([\w.]+\)(?=  |$)/, ""), room, slices.track[slice]);
}

function paintArrows(area, slice) {
  for (const earlier of slices.after[slice]) paintArrow(area, earlier, slice, theme.accent);
  for (const later of after(slice).slice(0, 200)) paintArrow(area, slice, later, theme.soft);
}

function paintArrow({ pen, at, width }, from, to, colour) {
  const [first, second] = [rowOf(slices.track[from]), rowOf(slices.track[to])];
  if (first < 0 || second < 0) return;
  const x0 = clamp(at(slices.end[from]), -width, 3 * width);
  const x1 = clamp(at(slices.start[to]), -width, 3 * width);
  const [y0, y1] = [top(first) + ROW / 2, top(second) + ROW / 2];
  const bend = clamp((x1 - x0) / 2, 14, 60);
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = 1.6;
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 3, y1);
  pen.stroke();
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x1 - 7, y1 - 4);
  pen.lineTo(x1 - 7, y1 + 4);
  pen.fill();
}

// The chain of tasks that decides the end: each began when the one before it had ended.
const critical = new Set(scene.critical);
const isCritical = () => byId("critical").checked;

function paintCritical(area) {
  const { pen, at } = area;
  pen.strokeStyle = theme.bad;
  pen.lineWidth = 2;
  pen.beginPath();
  for (let place = 0; place + 1 < scene.critical.length; place += 1) {
    const [later, earlier] = [scene.critical[place], scene.critical[place + 1]];
    const [x0, x1] = [at(slices.end[earlier]), at(slices.start[later])];
    if (x1 < LEFT - 50 || x0 > area.width + 50) continue;
    pen.moveTo(x0, top(rowOf(slices.track[earlier])) + ROW / 2);
    pen.lineTo(x1, top(rowOf(slices.track[later])) + ROW / 2);
  }
  pen.stroke();
}

const isFaded = (slice) => (isCritical() ? !critical.has(slice) : view.task >= 0 && slices.task[slice] !== view.task);

function paintShade({ pen, at, height }, from, to, colour) {
  pen.fillStyle = colour;
  pen.globalAlpha = 0.18;
  pen.fillRect(at(from), 0, at(to) - at(from), height);
  pen.globalAlpha = 1;
}

// --- the overview: everything, small, with the shown part framed ------------------------------------------------

const busyTracks = scene.tracks.map((_, number) => number).filter((number) => ofTrack[number].length);
const LINE = clamp(Math.floor(36 / Math.max(busyTracks.length, 1)), 1, 5);
const small = { canvas: document.createElement("canvas"), key: "" }; // drawn once for a width and a choice of colours

// Each pixel is the mean of what runs there, so that thousands of short tasks give an even tone and no pattern.
function smallPicture(width, height) {
  const key = [width, height, byId("colour").value].join();
  if (small.key === key) return small.canvas;
  small.key = key;
  [small.canvas.width, small.canvas.height] = [width, height];
  const pen = small.canvas.getContext("2d");
  const image = pen.createImageData(width, height);
  const inks = colours.map((colour) => parse(colour));
  busyTracks.forEach((track, number) => {
    const first = Math.round((4 + number * LINE) * height / overview.clientHeight);
    const last = Math.max(first + 1, Math.round((4 + number * LINE + Math.max(LINE - 1, 1)) * height / overview.clientHeight));
    const sums = new Float32Array(4 * width);
    for (const slice of ofTrack[track]) {
      const [from, to] = [slices.start[slice] * width / HOME, slices.end[slice] * width / HOME];
      for (let x = Math.floor(from); x < to && x < width; x += 1) {
        const part = Math.min(to, x + 1) - Math.max(from, x);
        const ink = inks[slices.task[slice]];
        for (let at = 0; at < 3; at += 1) sums[4 * x + at] += part * ink[at];
        sums[4 * x + 3] += part;
      }
    }
    for (let x = 0; x < width; x += 1) {
      const share = sums[4 * x + 3];
      if (share <= 0) continue;
      for (let y = first; y < last && y < height; y += 1) {
        const at = 4 * (y * width + x);
        for (let part = 0; part < 3; part += 1) image.data[at + part] = sums[4 * x + part] / share;
        image.data[at + 3] = 255 * Math.min(1, share);
      }
    }
  });
  pen.putImageData(image, 0, 0);
  return small.canvas;
}

function paintOverview() {
  const area = prepare(overview, busyTracks.length * LINE + 10);
  if (!area) return;
  const { pen, width, height } = area;
  const room = width - LEFT - 12;
  pen.drawImage(smallPicture(Math.round(room * devicePixelRatio), Math.round(height * devicePixelRatio)), LEFT, 0, room, height);
  if (view.from <= 0 && view.to >= HOME) return;
  const from = LEFT + Math.min(view.from / HOME, 1) * room;
  const wide = Math.max(LEFT + Math.min(view.to / HOME, 1) * room - from, 2);
  pen.fillStyle = pen.strokeStyle = theme.accent;
  pen.lineWidth = 1;
  pen.globalAlpha = 0.14;
  pen.fillRect(from, 0, wide, height);
  pen.globalAlpha = 1;
  pen.strokeRect(from + 0.5, 0.5, wide - 1, height - 1);
}

// --- pointer and keys -------------------------------------------------------------------------------------------

let drag = null;
let range = null;

function under(event) {
  const box = timeline.getBoundingClientRect();
  const cycle = cycleAt(timeline, event.clientX - box.left);
  const row = rows[Math.floor((event.clientY - box.top - RULER) / ROW)];
  const found = { cycle, track: -1, slice: -1, next: -1, previous: -1 };
  if (!row || row.track === undefined || event.clientX - box.left < LEFT) return found;
  found.track = row.track;
  const list = ofTrack[row.track];
  const place = firstAfter(list, cycle);
  found.previous = place > 0 ? list[place - 1] : -1;
  found.next = place < list.length ? list[place] : -1;
  const slack = 2 * (view.to - view.from) / timeline.clientWidth; // thin slices are as easy to hit as wide ones
  if (found.next >= 0 && slices.start[found.next] <= cycle + slack) found.slice = found.next;
  else if (found.previous >= 0 && slices.end[found.previous] > cycle - slack) found.slice = found.previous;
  return found;
}

const waitLines = (slice) => scene.waits[slices.waits[slice]].map((wait) => "waited " + count(wait.cycles) + ": " + wait.reason + (wait.cause ? ", " + wait.cause : ""));

function explainSlice(event, slice) {
  const task = scene.tasks[slices.task[slice]];
  const [start, end] = [slices.start[slice], slices.end[slice]];
  const place = (task.profile ? "@profile " + task.profile + "   " : "") + (task.line ? "line " + task.line : "");
  const lines = [count(start) + " – " + count(end) + "   " + count(end - start) + " cycles on " + scene.tracks[slices.track[slice]].name, ...waitLines(slice), place];
  tell(event, sliceName(slice), lines.filter(Boolean));
}

function explainGap(event, found) {
  const start = found.previous >= 0 ? slices.end[found.previous] : 0;
  const name = scene.tracks[found.track].name;
  if (found.cycle > HOME) return tell(event, name, ["beyond cycle " + count(HOME) + " the timeline is not complete"]);
  if (found.next < 0) return tell(event, name + " idle", [count(END - start) + " cycles, until the end"]);
  return tell(event, name + " idle", [count(slices.start[found.next] - start) + " cycles, until " + sliceName(found.next), ...waitLines(found.next)]);
}

function hover(event) {
  const found = under(event);
  if (found.slice !== view.hover) { view.hover = found.slice; repaint(); }
  if (found.slice >= 0) explainSlice(event, found.slice);
  else if (found.track >= 0 && found.cycle >= 0 && found.cycle <= END) explainGap(event, found);
  else hush();
}

function press(event) {
  const box = timeline.getBoundingClientRect();
  timeline.focus({ preventScroll: true });
  drag = { x: event.clientX, from: view.from, to: view.to, moved: false, range: event.shiftKey || event.clientY - box.top < RULER };
  if (event.pointerId !== undefined && event.isTrusted) timeline.setPointerCapture(event.pointerId);
}

function follow(event) {
  if (!drag) return hover(event);
  if (Math.abs(event.clientX - drag.x) > 3) drag.moved = true;
  if (!drag.moved) return undefined;
  hush();
  const box = timeline.getBoundingClientRect();
  if (drag.range) {
    range = [cycleAt(timeline, drag.x - box.left), cycleAt(timeline, event.clientX - box.left)].sort((a, b) => a - b);
    return repaint();
  }
  const shift = (drag.x - event.clientX) * (drag.to - drag.from) / (timeline.clientWidth - LEFT - 12);
  return show(drag.from + shift, drag.to + shift);
}

function release(event) {
  if (!drag) return;
  const { moved } = drag;
  drag = null;
  if (range) show(range[0], range[1]);
  range = null;
  if (moved) return;
  const found = under(event);
  if (found.slice >= 0) select(slices.task[found.slice], found.slice); else select(-1);
}

function turn(event) {
  event.preventDefault();
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) return move(event.deltaX / timeline.clientWidth);
  const box = timeline.getBoundingClientRect();
  return zoom(1.0015 ** clamp(event.deltaY, -600, 600), clamp(cycleAt(timeline, event.clientX - box.left), view.from, view.to));
}

function step(direction) {
  const current = view.slice >= 0 ? view.slice : firstSlice(Math.max(view.task, 0));
  if (current < 0) return;
  const list = ofTrack[slices.track[current]];
  const next = view.slice < 0 ? current : list[list.indexOf(current) + direction];
  if (next === undefined) return;
  select(slices.task[next], next);
  reveal(next);
}

const KEYS = {
  "+": () => zoom(0.6), "=": () => zoom(0.6), w: () => zoom(0.6), "-": () => zoom(1 / 0.6), s: () => zoom(1 / 0.6),
  ArrowLeft: () => move(-0.2), a: () => move(-0.2), ArrowRight: () => move(0.2), d: () => move(0.2),
  0: () => show(0, HOME), ",": () => step(-1), ".": () => step(1), Escape: () => { select(-1); hush(); },
  Home: () => show(0, view.to - view.from), End: () => show(END - (view.to - view.from), END),
};

function key(event) {
  const act = KEYS[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act();
}

function scrub(event) {
  if (event.type === "pointermove" && !event.buttons) return;
  const box = overview.getBoundingClientRect();
  const cycle = (event.clientX - box.left - LEFT) * HOME / (overview.clientWidth - LEFT - 12);
  const half = (view.to - view.from) / 2;
  show(cycle - half, cycle + half);
}

function openTimeline() {
  arrangeRows();
  painters.push(paintTimeline, paintOverview);
  timeline.addEventListener("pointerdown", press);
  timeline.addEventListener("pointermove", follow);
  timeline.addEventListener("pointerup", release);
  timeline.addEventListener("pointerleave", () => { hush(); view.hover = -1; repaint(); });
  timeline.addEventListener("dblclick", (event) => {
    const { slice } = under(event);
    if (slice >= 0) show(slices.start[slice] - 0.1 * (slices.end[slice] - slices.start[slice]), slices.end[slice] + 0.1 * (slices.end[slice] - slices.start[slice]));
  });
  timeline.addEventListener("wheel", turn, { passive: false });
  timeline.addEventListener("keydown", key);
  overview.addEventListener("pointerdown", scrub);
  overview.addEventListener("pointermove", scrub);
  byId("zoom-in").addEventListener("click", () => zoom(0.6));
  byId("zoom-out").addEventListener("click", () => zoom(1 / 0.6));
  byId("fit").addEventListener("click", () => show(0, HOME));
  byId("idle").addEventListener("change", () => { arrangeRows(); repaint(); });
  byId("critical").addEventListener("change", repaint);
  byId("image").addEventListener("click", () => download(timeline, hooks.title + "-timeline"));
}
