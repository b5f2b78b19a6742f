// The grammars as VS Code reads them, beside the lexers of the languages: comments, strings, numbers and words of every
// text must get the colour that the lexer's own token asks for. Reads the file that is named, else those beside it: [{ language, text, tokens: [[start, end, scope]] }].
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import oniguruma from "vscode-oniguruma";
import textmate from "vscode-textmate";

const require = createRequire(import.meta.url);
await oniguruma.loadWASM(readFileSync(require.resolve("vscode-oniguruma/release/onig.wasm")).buffer);
const here = new URL("../", import.meta.url);
const manifest = JSON.parse(readFileSync(new URL("package.json", here)));
const paths = Object.fromEntries(manifest.contributes.grammars.map((item) => [item.scopeName, item.path]));
const registry = new textmate.Registry({
  onigLib: Promise.resolve({
    createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
    createOnigString: (text) => new oniguruma.OnigString(text),
  }),
  loadGrammar: async (scope) =>
    textmate.parseRawGrammar(readFileSync(new URL(paths[scope], here), "utf8"), "grammar.json"),
});

const cases = JSON.parse(readFileSync(process.argv[2] ?? new URL("test/cases.json", here), "utf8"));
let compared = 0;
const wrong = [];
for (const { language, text, tokens } of cases) {
  const grammar = await registry.loadGrammar(`source.${language}`);
  const scopes = new Map();
  let state = textmate.INITIAL;
  let start = 0;
  for (const line of text.split("\n")) {
    const found = grammar.tokenizeLine(line, state);
    state = found.ruleStack;
    for (const token of found.tokens) {
      for (let place = token.startIndex; place < token.endIndex; place++) {
        scopes.set(start + place, token.scopes[token.scopes.length - 1]);
      }
    }
    start += line.length + 1;
  }
  for (const [first, last, scope] of tokens) {
    compared++;
    const seen = scopes.get(first);
    if (!seen?.startsWith(scope) || !scopes.get(last - 1)?.startsWith(scope)) {
      wrong.push(`${language}: '${text.slice(first, last)}' at ${first} is ${seen}, not ${scope}`);
    }
  }
}
console.log(`${compared} tokens of ${cases.length} texts compared, ${wrong.length} differ`);
console.log(wrong.slice(0, 40).join("\n"));
process.exit(wrong.length || !compared ? 1 : 0);
