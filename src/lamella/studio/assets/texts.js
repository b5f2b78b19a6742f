// Texts of any length: only the lines in view are elements. A line that belongs to operations is a button.
const LINE = 19;
const SPARE = 8;

const SYNTAX = /((?:^|\s)#(?!\d).*$)|("(?:[^"\\]|\\.)*")|([%@][\w.]+)|\b(module|model|block|primitive|extends|params|forward|backward|graph|operator|import|func|parallel|for|foreach|if|else|yield|constant|builtin|arith|load|store|alloca|barrier|define|declare|call|br|ret|phi|buffer|loop|endloop|wait|let|const|program|device|region|parameter|input|output|return|PRELOAD|SAVE_RESULT|FORWARD|FREE)\b|\b(f16|bf16|f32|f64|i8|i16|i32|i64|index|float|double|half|ptr|memref|bool|real|int|float32|int64)\b|(?<![\w.])(\d[\w.]*)\b/g;
const CLASSES = ["", "comment", "string", "name", "word", "type", "number"];

function highlight(text) {
  if (text.length > 2000) return [text];
  const parts = [];
  let last = 0;
  for (const match of text.matchAll(SYNTAX)) {
    const kind = match.findIndex((group, at) => at && group !== undefined);
    if (match.index > last) parts.push(text.slice(last, match.index));
    parts.push(element("span", "s-" + CLASSES[kind], match[0]));
    last = match.index + match[0].length;
  }
  if (last < text.length) parts.push(text.slice(last));
  return parts;
}

class Lines {
  // `pick(line)` is called for lines that `has(line)`; `look(line)` gives classes, `mark(line)` a colour for the edge.
  constructor(root, label, { pick, has, look, edge }) {
    this.options = { pick, has: has || (() => false), look: look || (() => ""), edge: edge || (() => "") };
    this.box = element("div", "lines");
    this.box.tabIndex = 0;
    this.box.setAttribute("role", "listbox");
    this.box.setAttribute("aria-label", label);
    this.inner = element("div", "lines-inner");
    this.box.append(this.inner);
    root.append(this.box);
    this.on = new Set();
    this.cursor = -1;
    this.lines = [];
    this.box.addEventListener("scroll", () => this.draw());
    this.box.addEventListener("click", (event) => { const at = event.target.closest(".l"); if (at) this.choose(Number(at.dataset.line)); });
    this.box.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw(true)).observe(this.box);
  }

  set(lines) {
    this.lines = lines;
    this.on = new Set();
    this.cursor = -1;
    this.inner.style.height = lines.length * LINE + 8 + "px";
    this.inner.style.minWidth = Math.min(4000, 70 + 7.3 * lines.reduce((most, line) => Math.max(most, line.length), 0)) + "px";
    this.box.scrollTop = 0;
    this.draw(true);
  }

  draw(force) {
    const first = clamp(Math.floor(this.box.scrollTop / LINE) - SPARE, 0, Math.max(this.lines.length - 1, 0));
    const last = Math.min(this.lines.length, first + Math.ceil(this.box.clientHeight / LINE) + 2 * SPARE);
    if (!force && this.first === first && this.last === last) return;
    [this.first, this.last] = [first, last];
    const made = [];
    for (let line = first; line < last; line += 1) made.push(this.line(line));
    this.inner.replaceChildren(...made);
  }

  line(number) {
    const has = this.options.has(number);
    const made = element("div", "l" + (has ? " has" : "") + (this.on.has(number) ? " on" : "") + " " + this.options.look(number), null,
      element("span", "n", number + 1), element("span", "t", null, ...highlight(this.lines[number])));
    made.style.top = number * LINE + "px";
    const colour = this.options.edge(number);
    if (colour) made.firstChild.style.borderLeftColor = colour;
    made.dataset.line = number;
    made.setAttribute("role", "option");
    made.setAttribute("aria-selected", this.on.has(number));
    return made;
  }

  choose(line) {
    this.cursor = line;
    if (this.options.has(line)) this.options.pick(line);
  }

  mark(lines, move) {
    this.on = new Set(lines);
    if (move && lines.length) this.show(lines[0]);
    this.draw(true);
  }

  show(line) {
    const [top, height] = [line * LINE, this.box.clientHeight];
    if (top < this.box.scrollTop + 20 || top > this.box.scrollTop + height - 60) this.box.scrollTop = Math.max(0, top - height * 0.35);
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const from = this.cursor >= 0 ? this.cursor : this.on.size ? Math.min(...this.on) : step > 0 ? -1 : this.lines.length;
    for (let line = from + step; line >= 0 && line < this.lines.length; line += step) {
      if (!this.options.has(line)) continue;
      this.choose(line);
      this.show(line);
      return;
    }
  }
}

// Which lines belong to which operations, both ways.
function lineIndex(things) {
  const lines = new Map();
  things.forEach((list, line) => {
    for (const thing of list) if (lines.has(thing)) lines.get(thing).push(line); else lines.set(thing, [line]);
  });
  return (selected) => [...new Set([...selected].flatMap((thing) => lines.get(thing) || []))].sort((a, b) => a - b);
}
