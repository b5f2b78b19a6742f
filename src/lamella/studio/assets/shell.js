// The shell: views in two panes, search, overlays, theme, keys; document.body.dataset says what is shown.
window.addEventListener("error", (event) => { document.body.dataset.error = event.message; });

const VIEWS = [
  ["graph", "Graph", (model, root) => new GraphView(model, root)],
  ["source", "Source", (model, root) => new SourceView(model, root)],
  ["nac", "NAC", (model, root) => new NacView(model, root)],
  ["kernels", "Kernels", (model, root) => new KernelView(model, root)],
  ["plan", "Plan", (model, root) => new PlanView(model, root)],
  ["weights", "Weights", (model, root) => new WeightsView(model, root)],
  ["changes", "Changes", (_, root) => new ChangesView(root)],
];
const has = (model, key) => {
  if (key === "source") return (models[model].sources || []).length > 0;
  if (key === "changes") return model === 0 && models.length > 1 && (data.comparison || models.every((item) => item.plan));
  return Boolean(models[model][key]) && (!Array.isArray(models[model][key]) || models[model][key].length > 0);
};
const available = models.flatMap((_, model) => VIEWS.filter(([key]) => has(model, key)).map(([key, title, make]) => ({ model, key, title, make, id: key + "-" + model })));
const opened = new Map();
const panes = [0, 1].map((number) => ({ number, shown: null }));
let overlay = "kind";

class PlanView {
  constructor(model, root) {
    const copy = $("plan-page").content.cloneNode(true);
    const suffix = model ? "-" + model : "";
    if (suffix) for (const item of copy.querySelectorAll("[id],[aria-labelledby],[aria-describedby]")) for (const name of ["id", "aria-labelledby", "aria-describedby"]) if (item.hasAttribute(name)) item.setAttribute(name, item.getAttribute(name) + suffix);
    const box = element("div", "plan", null, copy);
    root.append(box);
    this.model = model;
    this.scene = models[model].plan;
    this.index = lineIndex(this.scene.things);
    this.inner = openPlan(box, this.scene, { suffix, title: models[model].title, pick: (task) => this.pick(task) });
  }

  pick(task) {
    if (!this.isQuiet && task >= 0 && this.scene.things[task].length) choose(this.model, this.scene.things[task], { from: "plan" });
  }

  select() {
    if (selection.from === "plan") return;
    const [task] = this.index(selection.things[this.model]);
    this.isQuiet = true; // what another view selected is not selected again
    if (task !== undefined) this.inner.choose(task); else if (this.scene.things.some((list) => list.length)) this.inner.clear();
    this.isQuiet = false;
  }
}

// What two models, or two runs of plans, do not have in common.
class ChangesView {
  constructor(root) {
    const box = element("div", "changes");
    root.append(box);
    if (data.comparison) box.append(...this.operations());
    if (models.every((model) => model.plan)) box.append(...this.runs());
  }

  operations() {
    const rows = [];
    const tally = [0, 0, 0];
    data.comparison.status[0].forEach((status, op) => {
      tally[status] += 1;
      if (status) rows.push(this.row(0, op, status));
    });
    let added = 0;
    data.comparison.status[1].forEach((status, op) => { if (status === 2) { added += 1; rows.push(this.row(1, op, status)); } });
    const words = count(tally[0]) + " operations alike, " + count(tally[1]) + " changed, " + count(tally[2]) + " only in " + models[0].title + ", " + count(added) + " only in " + models[1].title;
    return [element("h2", "", "Operations"), element("p", "hint wrap", words), element("ul", "", null, ...rows.slice(0, 2000)), ...this.weights()];
  }

  weights() {
    const found = data.comparison.weights;
    if (!found) return [];
    const words = count(found.same + found.changed.length) + " weights are read by corresponding operations: " + count(found.same) + " with the same numbers, " + count(found.changed.length) + " with others";
    const rows = found.changed.slice(0, 2000).map(({ names, unlike, relative, cosine }) => {
      const at = weightOf(0, names[0]);
      const name = at < 0 ? element("span", "", names[0]) : button(names[0], () => chooseWeight(0, at), "link");
      const facts = unlike ? unlike : relative === undefined ? "not finite" : "by " + figure(relative) + " of the largest, cosine " + cosine.toFixed(3);
      return element("li", "changed", null, element("span", "sign", "~"), name, ...(names[0] === names[1] ? [] : [element("span", "type", "here, " + names[1] + " there")]), element("span", "type", facts));
    });
    return [element("h2", "", "Weights"), element("p", "hint wrap", words), element("ul", "", null, ...rows)];
  }

  row(model, op, status) {
    const { graph } = models[model];
    const kind = status === 1 ? "changed" : model ? "added" : "removed";
    const made = element("li", kind, null, element("span", "sign", { changed: "~", added: "+", removed: "−" }[kind]), button(opName(graph, op), () => choose(model, [op]), "link"), element("span", "type", operatorOf(graph, op)));
    if (status === 1) made.append(...changes(graph, op, models[1].graph, data.comparison.partner[0][op]).map((line) => element("p", "mono", line)));
    return made;
  }

  runs() {
    const [one, other] = models.map((model) => model.plan);
    const rows = [["cycles", one.cycles, other.cycles], ...merged(one.tracks, other.tracks, "name", "busy").map(([name, a, b]) => [name + " busy", a, b])];
    const named = one.layers.length && other.layers.length ? ["layer", spans(one.layers), spans(other.layers)] : ["task", totals(one.tasks), totals(other.tasks)];
    const parts = [...new Set([...named[1].keys(), ...named[2].keys()])].map((name) => [name, named[1].get(name), named[2].get(name)]);
    parts.sort((a, b) => Math.abs((b[2] || 0) - (b[1] || 0)) - Math.abs((a[2] || 0) - (a[1] || 0)));
    return [element("h2", "", "Runs"), numbersTable(["", ...models.map((model) => model.title), "change"], rows), element("h2", "", "By " + named[0] + ", cycles"), numbersTable([named[0], ...models.map((model) => model.title), "change"], parts.slice(0, 500))];
  }

  select() {}
}

const spans = (layers) => new Map(layers.map((layer) => [layer.name, layer.end - layer.start]));

function totals(tasks) {
  const found = new Map();
  for (const task of tasks) found.set(task.title, (found.get(task.title) || 0) + task.cycles);
  return found;
}

function merged(one, other, key, value) {
  const [left, right] = [one, other].map((list) => new Map(list.map((item) => [item[key], item[value]])));
  return [...new Set([...left.keys(), ...right.keys()])].map((name) => [name, left.get(name), right.get(name)]);
}

function numbersTable(heads, rows) {
  const body = rows.map(([name, a, b]) => {
    const change = a === undefined || b === undefined ? "" : (b > a ? "+" : "") + (a ? percent((b - a) / a).replace("-", "−") : count(b));
    const row = element("tr", "", null, element("td", "", name), ...[a, b].map((value) => element("td", "num", value === undefined ? "—" : count(value))), element("td", "num " + (b > a ? "more" : b < a ? "less" : ""), a === b ? "" : change));
    return row;
  });
  return element("table", "", null, element("thead", "", null, element("tr", "", null, ...heads.map((head, at) => element("th", at ? "num" : "", head)))), element("tbody", "", null, ...body));
}

// --- panes -----------------------------------------------------------------------------------------------------------

function openView(item) {
  if (!opened.has(item.id)) {
    const root = element("div", "view view-" + item.key);
    root.setAttribute("role", "tabpanel");
    root.setAttribute("aria-label", item.title);
    opened.set(item.id, { root, view: null, item });
  }
  return opened.get(item.id);
}

function showIn(pane, item) {
  const other = panes[1 - pane.number];
  if (other.shown && other.shown.id === item.id) {
    const swap = pane.shown;
    pane.shown = null;
    place(other, swap);
  }
  place(pane, item);
  drawTabs();
}

function place(pane, item) {
  const room = $("pane-" + pane.number).querySelector(".room");
  pane.shown = item;
  if (!item) return room.replaceChildren();
  const made = openView(item);
  room.replaceChildren(made.root);
  if (!made.view) {
    made.view = item.make(item.model, made.root);
    if (made.view.setOverlay) made.view.setOverlay(overlay);
    listeners.push(() => { if (made.view.select) made.view.select(); });
    if (selection.first >= 0 && made.view.select) made.view.select();
  }
  document.body.dataset["pane" + pane.number] = item.id;
  return undefined;
}

function showView(model, key) {
  const item = available.find((view) => view.model === model && view.key === key);
  if (!item || panes.some((pane) => pane.shown && pane.shown.id === item.id)) return;
  const isSplit = !$("pane-1").hidden;
  showIn(panes[isSplit && (!panes[0].shown || panes[0].shown.key === "graph") ? 1 : 0], item);
}

function drawTabs() {
  for (const pane of panes) {
    const strip = $("pane-" + pane.number).querySelector(".tabs");
    const ordered = [...available].sort((a, b) => (a.model === b.model ? 0 : (a.model === pane.number ? -1 : 1)));
    const tabs = (models.length > 1 ? ordered : available).map((item) => {
      const title = models.length > 1 && item.key !== "changes" ? item.title + " " + "AB"[item.model] : item.title;
      const tab = button(title, () => showIn(pane, item), "tab tab-" + item.id);
      tab.setAttribute("role", "tab");
      const isShown = Boolean(pane.shown) && pane.shown.id === item.id;
      tab.setAttribute("aria-selected", isShown);
      tab.tabIndex = isShown ? 0 : -1;
      return tab;
    });
    strip.replaceChildren(...tabs);
    strip.classList.toggle("many", tabs.length > 8);
    const shown = tabs.find((tab) => tab.tabIndex === 0);
    if (shown) strip.scrollLeft = Math.max(0, shown.offsetLeft + shown.offsetWidth - strip.clientWidth);
  }
}

function moveTabs(event) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step) return;
  const tabs = [...event.currentTarget.children];
  const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
  const name = next.className.split(" ").find((word) => word.startsWith("tab-"));
  next.click();
  event.currentTarget.querySelector("." + CSS.escape(name)).focus();
}

function split(isSplit) {
  $("pane-1").hidden = !isSplit;
  $("splitter").hidden = !isSplit;
  $("split").setAttribute("aria-pressed", isSplit);
  if (isSplit && !panes[1].shown) {
    const free = available.filter((item) => !panes[0].shown || item.id !== panes[0].shown.id);
    const mine = free.find((item) => item.key === panes[0].shown.key) || free[0];
    if (mine) showIn(panes[1], mine);
  }
  if (!isSplit) { place(panes[1], null); drawTabs(); }
}

function dragSplitter(event) {
  const box = $("panes").getBoundingClientRect();
  const move = (at) => { $("panes").style.setProperty("--left", clamp((at.clientX - box.left) / box.width, 0.15, 0.85) * 100 + "%"); };
  $("splitter").setPointerCapture(event.pointerId);
  $("splitter").addEventListener("pointermove", move);
  $("splitter").addEventListener("pointerup", () => $("splitter").removeEventListener("pointermove", move), { once: true });
}

function moveSplitter(event) {
  const step = { ArrowLeft: -5, ArrowRight: 5 }[event.key];
  if (!step) return;
  event.preventDefault();
  const part = clamp((parseFloat($("panes").style.getPropertyValue("--left")) || 50) + step, 15, 85);
  $("panes").style.setProperty("--left", part + "%");
  $("splitter").setAttribute("aria-valuenow", Math.round(part));
}

// --- search ----------------------------------------------------------------------------------------------------------

let results = [];
let cursor = -1;

function entries(model) {
  const { graph, weights, kernels, plan } = models[model];
  const found = [];
  if (graph) {
    graph.modules.name.forEach((name, module) => { if (module) found.push({ text: name, kind: "module", act: () => choose(model, opsOfModule(model, module), { module }) }); });
    graph.ops.operator.forEach((_, op) => found.push({ text: opName(graph, op), also: operatorOf(graph, op), kind: shortOperator(graph, op), op, model, act: () => choose(model, [op]) }));
  }
  (weights || []).forEach((row, number) => found.push({ text: row.name, kind: "weight", act: () => chooseWeight(model, number) }));
  (kernels || []).forEach((kernel, number) => found.push({ text: kernel.name, kind: "kernel", act: () => { showView(model, "kernels"); const view = opened.get("kernels-" + model); if (view && view.view) view.view.open(number, true); } }));
  if (plan) plan.tasks.forEach((task, number) => found.push({ text: task.title, also: task.opcode, kind: "task", act: () => { showView(model, "plan"); const view = opened.get("plan-" + model); if (view && view.view) view.view.inner.choose(number); } }));
  return found;
}

let known = null;

function search(text) {
  if (!known) known = models.flatMap((_, model) => entries(model));
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = words.length ? known.filter((item) => words.every((word) => item.text.toLowerCase().includes(word) || (item.also || "").toLowerCase().includes(word))) : [];
  for (const { view, item } of opened.values()) if (view && view.mark) view.mark(words.length ? new Set(hits.filter((hit) => hit.op !== undefined && hit.model === item.model).map((hit) => hit.op)) : null);
  hits.sort((a, b) => (a.text.toLowerCase() === text.toLowerCase() ? -1 : 0) - (b.text.toLowerCase() === text.toLowerCase() ? -1 : 0));
  results = hits.slice(0, 40);
  cursor = results.length ? 0 : -1;
  $("search").setAttribute("aria-expanded", results.length > 0);
  $("hits").textContent = words.length ? count(hits.length) : "";
  drawResults();
}

function drawResults() {
  const rows = results.map((item, at) => {
    const row = element("li", at === cursor ? "on" : "", null, element("span", "", item.text), element("small", "", item.kind));
    row.id = "result-" + at;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", at === cursor);
    row.addEventListener("pointerdown", (event) => { event.preventDefault(); take(at); });
    return row;
  });
  $("results").replaceChildren(...rows);
  $("results").hidden = !rows.length;
  $("search").setAttribute("aria-activedescendant", cursor >= 0 ? "result-" + cursor : "");
}

function take(at) {
  const item = results[at];
  $("results").hidden = true;
  if (item) item.act();
}

function searchKey(event) {
  const acts = {
    ArrowDown: () => { cursor = Math.min(cursor + 1, results.length - 1); drawResults(); },
    ArrowUp: () => { cursor = Math.max(cursor - 1, 0); drawResults(); },
    Enter: () => take(cursor),
    Escape: () => { $("search").value = ""; search(""); $("search").blur(); },
  };
  if (!acts[event.key]) return;
  event.preventDefault();
  acts[event.key]();
  const row = $("result-" + cursor);
  if (row) row.scrollIntoView({ block: "nearest" });
}

// --- the page --------------------------------------------------------------------------------------------------------

function openBar() {
  const single = models.length === 1 ? models[0] : null;
  $("title").textContent = models.map((model) => model.title).join("  ↔  ");
  $("kind").textContent = single ? single.kind : models.map((model, number) => "AB"[number] + " " + model.kind).join(" · ");
  const facts = single && !single.plan ? single.facts : single ? single.facts : [];
  $("model-facts").append(...facts.map(([name, value]) => element("div", "", null, element("dt", "", name), element("dd", "", value))));
  const graphs = models.filter((model) => model.graph);
  const probe = { kind: true, status: Boolean(data.comparison) };
  for (const key of ["macs", "bytes", "seconds", "error"]) probe[key] = graphs.some((model) => (model.graph.ops[key] || []).some((value) => value));
  for (const [key, title] of OVERLAYS) if (probe[key]) { const item = element("option", "", title); item.value = key; $("overlay").append(item); }
  $("overlay-label").hidden = !graphs.length;
  $("overlay").addEventListener("change", () => setOverlay($("overlay").value));
  $("theme").addEventListener("click", () => setTheme(theme.dark ? "light" : "dark"));
  $("split").addEventListener("click", () => split($("pane-1").hidden));
  $("help").addEventListener("click", () => $("help-keys").showModal());
  $("help-close").addEventListener("click", () => $("help-keys").close());
  $("search").addEventListener("input", () => search($("search").value));
  $("search").addEventListener("keydown", searchKey);
  $("search").addEventListener("blur", () => setTimeout(() => { $("results").hidden = true; }, 120));
  $("splitter").addEventListener("pointerdown", dragSplitter);
  $("splitter").addEventListener("keydown", moveSplitter);
  for (const pane of panes) $("pane-" + pane.number).querySelector(".tabs").addEventListener("keydown", moveTabs);
  document.addEventListener("keydown", pageKey);
}

function setOverlay(key) {
  overlay = key;
  $("overlay").value = key;
  for (const { view } of opened.values()) if (view && view.setOverlay) view.setOverlay(key);
}

function pageKey(event) {
  if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const acts = { "/": () => $("search").focus(), "?": () => $("help-keys").showModal(), t: () => setTheme(theme.dark ? "light" : "dark"), "|": () => split($("pane-1").hidden) };
  if (!acts[event.key]) return;
  event.preventDefault();
  acts[event.key]();
}

function openSides() {
  const withGraph = models.map((model, number) => number).filter((number) => models[number].graph);
  $("tree").hidden = !withGraph.length;
  $("inspector").hidden = !withGraph.length && !models.some((model) => model.weights);
  for (const number of withGraph) {
    if (models.length > 1) $("tree").append(element("h2", "side", "AB"[number] + "  " + models[number].title));
    const view = new TreeView(number, $("tree"));
    listeners.push(() => view.select());
  }
  const inspector = new Inspector($("inspector"));
  listeners.push(() => inspector.select());
}

function openPanes() {
  const pick = (key, model = 0) => available.find((item) => item.key === key && item.model === model);
  const first = pick("graph") || available[0];
  if (first) showIn(panes[0], first);
  const second = models.length > 1 ? pick(first.key, 1) : first && first.key === "graph" && innerWidth > 1250 ? pick("source") || pick("nac") || pick("weights") : null;
  if (second) { $("pane-1").hidden = false; $("splitter").hidden = false; showIn(panes[1], second); }
  $("split").hidden = available.length < 2;
  $("split").setAttribute("aria-pressed", Boolean(second));
  document.body.classList.toggle("alone", available.length === 1);
  if (data.comparison) setOverlay("status");
}

// A page that is served asks whether its files changed.
function watch() {
  if (!data.served) return;
  setInterval(() => { fetch(data.served).then((answer) => answer.text()).then((text) => { if (text === "changed") location.reload(); }).catch(() => {}); }, 1000);
}

const opening = performance.now();
readTheme();
openBar();
openSides();
openPanes();
watch();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(""));
for (const { view } of opened.values()) if (view && view.paint) { view.fit(); view.paint(); }
document.body.dataset.opened = (performance.now() - opening).toFixed(1);
document.body.dataset.ready = "true";
