// With #selftest the page uses itself through its own handlers and writes what happened into document.body.dataset.
function fire(target, type, event) {
  const Kind = type.startsWith("key") ? KeyboardEvent : type === "wheel" ? WheelEvent : type.startsWith("pointer") ? PointerEvent : MouseEvent;
  target.dispatchEvent(new Kind(type, { bubbles: true, cancelable: true, ...event }));
}

function middleOf(slice) {
  const box = timeline.getBoundingClientRect();
  const middle = (slices.start[slice] + slices.end[slice]) / 2;
  const x = LEFT + (middle - view.from) * (timeline.clientWidth - LEFT - 12) / (view.to - view.from);
  return { clientX: box.left + x, clientY: box.top + top(rowOf(slices.track[slice])) + ROW / 2 };
}

function click(point) {
  fire(timeline, "pointerdown", point);
  fire(timeline, "pointerup", point);
}

const TRIALS = {
  layers() {
    if (!scene.layers.length) return byId("layers-card").hidden;
    byId("layers").tBodies[0].rows[0].click();
    const some = byId("tasks").tBodies[0].rows.length === scene.layers[0].tasks.length && view.to === Math.min(scene.layers[0].end, HOME);
    byId("all-layers").click();
    return some && byId("tasks").tBodies[0].rows.length === scene.tasks.length && view.to === HOME;
  },
  wheel() {
    const before = view.to - view.from;
    fire(timeline, "wheel", { ...middleOf(0), deltaY: -300 });
    return view.to - view.from < before;
  },
  fit() {
    byId("fit").click();
    return view.from === 0 && view.to === HOME;
  },
  buttons() {
    byId("zoom-in").click();
    const narrow = view.to - view.from;
    byId("zoom-out").click();
    return narrow < HOME && view.to - view.from > narrow;
  },
  keys() {
    timeline.focus();
    fire(timeline, "keydown", { key: "+" });
    fire(timeline, "keydown", { key: "+" });
    const narrow = view.to - view.from;
    const from = view.from;
    fire(timeline, "keydown", { key: "ArrowRight" });
    const moved = view.from > from;
    fire(timeline, "keydown", { key: "0" });
    return narrow < HOME && moved && view.to === HOME;
  },
  drag() {
    zoom(0.5);
    const from = view.from;
    const point = middleOf(0);
    const start = { clientX: timeline.getBoundingClientRect().left + 500, clientY: point.clientY };
    fire(timeline, "pointerdown", start);
    fire(timeline, "pointermove", { ...start, clientX: start.clientX - 80 });
    fire(timeline, "pointerup", { ...start, clientX: start.clientX - 80 });
    const moved = view.from > from;
    fire(timeline, "pointerdown", { ...start, shiftKey: true });
    fire(timeline, "pointermove", { ...start, clientX: start.clientX + 100 });
    const before = view.to - view.from;
    fire(timeline, "pointerup", { ...start, clientX: start.clientX + 100 });
    const ranged = view.to - view.from < before;
    show(0, HOME);
    return moved && ranged;
  },
  hover() {
    fire(timeline, "pointermove", middleOf(0));
    document.body.dataset.tip = $("tip").textContent;
    return !$("tip").hidden && $("tip").textContent.includes(scene.tasks[slices.task[0]].title);
  },
  click() {
    click(middleOf(0));
    const line = byId("source").querySelector(".line.on .n");
    document.body.dataset.line = line ? line.textContent : "";
    const row = byId("tasks").querySelector("tr.on");
    return view.slice === 0 && Boolean(row) && Number(row.dataset.task) === slices.task[0];
  },
  source() {
    const task = scene.tasks.findIndex((item, number) => item.line && number !== view.task);
    if (task < 0) return true;
    byId("source").children[scene.tasks[task].line - 1].click();
    return scene.tasks[view.task].line === scene.tasks[task].line && byId("selected").textContent.includes(scene.tasks[view.task].title);
  },
  table() {
    const row = byId("tasks").tBodies[0].rows[0];
    row.click();
    return view.task === Number(row.dataset.task) && row.classList.contains("on");
  },
  sort() {
    const head = byId("tasks").tHead.rows[0].cells[4];
    head.firstChild.click();
    return head.getAttribute("aria-sort") === "descending";
  },
  arrows() {
    const slice = slices.after.findIndex((before) => before.length);
    if (slice < 0) return true;
    select(slices.task[slice], slice);
    byId("selected").querySelector(".links button").click();
    return view.slice === slices.after[slice][0];
  },
  escape() {
    fire(timeline, "keydown", { key: "Escape" });
    return view.task === -1 && !byId("source").querySelector(".line.on");
  },
  memory() {
    const box = memory.getBoundingClientRect();
    fire(memory, "pointermove", { clientX: box.left + LEFT + 40, clientY: box.top + LANE / 2 });
    return !scene.levels.length || $("tip").textContent.startsWith(scene.levels[0].name);
  },
};

// Milliseconds of a frame while the view moves from everything to a few tasks.
function frameTime() {
  const frames = 20;
  const began = performance.now();
  for (let frame = 0; frame < frames; frame += 1) { zoom(0.8); paintNow(); }
  show(0, HOME);
  return (performance.now() - began) / frames;
}

function selftest() {
  for (const [name, trial] of Object.entries(TRIALS)) {
    document.body.dataset["trial" + name[0].toUpperCase() + name.slice(1)] = slices.task.length ? String(trial()) : "nothing to try";
  }
  hush();
  document.body.dataset.frame = frameTime().toFixed(1);
}
