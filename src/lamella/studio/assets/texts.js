// Texts of any length: only the lines in view are elements. A line that belongs to operations is a button.
const LINE = 19;
const SPARE = 8;

const SYNTAX = /((?:^|\s)#(?!\d).*$)|("(?:[^"\\]|\\.)*")|([%@][\w.]+)|\b(module|model|block|primitive|extends|params|forward|backward|graph|operator|import|func|parallel|for|foreach|if|else|yield|constant|builtin|arith|load|store|alloca|barrier|define|declare|call|br|ret|phi|buffer|loop|endloop|wait|let|const|program|device|region|parameter|input|output|return|PRELOAD|SAVE_RESULT|FORWARD|FREE)\b|\b(f16|bf16|f32|f64|i8|i16|i32|i64|index|float|double|half|ptr|memref|bool|real|int|float32|int64)\b|(?<![\w.])(\d[\w.]*)\b/g;
const CLASSES = ["", "comment", "string", "name", "word", "type", "number"];


// The languages have their own grammars, which come from their lexers; forms that are not ours have the table above.
const SCOPES = { comment: "comment", string: "string", constant: "number", storage: "type", "keyword.other": "word", "keyword.control": "word", support: "call", "entity.name": "name", variable: "" };
const classOf = (scope) => SCOPES[scope] ?? SCOPES[scope.split(".").slice(0, 2).join(".")] ?? SCOPES[scope.split(".")[0]] ?? "";
const grammars = new Map(Object.entries(data.grammars).map(([language, patterns]) => [language, {
  syntax: new RegExp(patterns.filter(([, , end]) => !end).map(([, match], at) => "(?<k" + at + ">" + match + ")").join("|"), "gm"),
  classes: patterns.filter(([, , end]) => !end).map(([scope, match]) => (match.startsWith("%") ? "name" : classOf(scope))),
  long: patterns.filter(([, , end]) => end).map(([scope, begin, end]) => ({ kind: classOf(scope), begin, end })),
}]));
const ENDINGS = { module: "module", sknd: "skriptnd", tensor: "tensor", ir: "tensor", nem: "nem" };
const languageOf = (name) => ENDINGS[name.split(".").pop().toLowerCase()];

// The parts of a line, coloured ones as elements; `within` says what an earlier line began and this one goes on with.
function highlight(text, language, within) {
  if (text.length > 2000) return [text];
  const grammar = grammars.get(language);
  if (within) {
    const at = text.indexOf(within.end);
    if (at < 0) return [element("span", "s-" + within.kind, text)];
    const end = at + within.end.length;
    return [element("span", "s-" + within.kind, text.slice(0, end)), ...highlight(text.slice(end), language)];
  }
  for (const { kind, begin, end } of grammar ? grammar.long : []) {
    const at = text.indexOf(begin);
    if (at < 0 || text.lastIndexOf("#", at) >= 0) continue;
    const stop = text.indexOf(end, at + begin.length);
    const rest = stop < 0 ? text.length : stop + end.length;
    return [...highlight(text.slice(0, at), language), element("span", "s-" + kind, text.slice(at, rest)), ...highlight(text.slice(rest), language)];
  }
  const parts = [];
  let last = 0;
  const kindOf = grammar
    ? ({ groups }) => grammar.classes[grammar.classes.findIndex((_, at) => groups["k" + at] !== undefined)]
    : (match) => CLASSES[match.findIndex((group, at) => at && group !== undefined)];
  for (const match of text.matchAll(grammar ? grammar.syntax : SYNTAX)) {
    const kind = kindOf(match);
    if (!kind) continue;
    if (match.index > last) parts.push(text.slice(last, match.index));
    parts.push(element("span", "s-" + kind, match[0]));
    last = match.index + match[0].length;
  }
  if (last < text.length) parts.push(text.slice(last));
  return parts;
}

// For each line what an earlier one began and did not end.
function longStretches(lines, language) {
  const { long } = grammars.get(language) || { long: [] };
  const found = [];
  let within;
  for (const line of long.length ? lines : []) {
    found.push(within);
    let at = 0;
    while (at >= 0 && at <= line.length) {
      if (within) {
        at = line.indexOf(within.end, at);
        if (at >= 0) { at += within.end.length; within = undefined; }
      } else {
        const next = long.map((item) => [line.indexOf(item.begin, at), item]).filter(([place]) => place >= 0).sort((a, b) => a[0] - b[0])[0];
        if (!next || line.slice(at, next[0]).includes("#")) break;
        [at, within] = [next[0] + next[1].begin.length, next[1]];
      }
    }
  }
  return found;
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

  set(lines, language) {
    this.lines = lines;
    this.language = language;
    this.within = longStretches(lines, language);
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
      element("span", "n", number + 1), element("span", "t", null, ...highlight(this.lines[number], this.language, this.within[number])));
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
