// markdown.test.mjs - Markdown as models write it, what must stay text, and that no input takes long to
// render.
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseMarkdown } from "../../src/serve/page/markdown.js";
import { parseInline, safeHref } from "../../src/serve/page/markdown_inline.js";

// The tree as short text, "em(a)" or "[label](href)", so that each case fits a line.
const show = (nodes) =>
  nodes
    .map((node) => {
      if (node.type === "text") return node.text;
      if (node.type === "break") return "↵";
      if (node.type === "link") return `link<${node.href}>(${show(node.children)})`;
      return `${node.type}(${node.children ? show(node.children) : node.text})`;
    })
    .join("");

const inlineCases = [
  ["plain text", "plain text"],
  ["**strong** and *em* and ~~gone~~", "strong(strong) and em(em) and del(gone)"],
  ["***both***", "em(strong(both))"],
  ["**a *b* c**", "strong(a em(b) c)"],
  ["snake_case_word", "snake_case_word"],
  ["_word_", "em(word)"],
  ["2 * 3 * 4", "2 * 3 * 4"],
  ["open **only", "open **only"],
  ["`a*b*c` after", "code(a*b*c) after"],
  ["``a ` b``", "code(a ` b)"],
  ["`open", "`open"],
  ["one\ntwo", "one↵two"],
  ["\\*not em\\*", "*not em*"],
  ["\\(a_1 * b_2 * c\\)", "math(a_1 * b_2 * c)"],
  ["[a *b*](https://example.org/x_(y))", "link<https://example.org/x_(y)>(a em(b))"],
  ["see https://example.org/a, then", "see link<https://example.org/a>(https://example.org/a), then"],
  ["(https://example.org)", "(link<https://example.org/>(https://example.org))"],
  ["<https://example.org>", "link<https://example.org/>(https://example.org)"],
  ["![picture](https://example.org/p.png)", "link<https://example.org/p.png>(picture)"],
  ["<b onclick=x>text</b>", "<b onclick=x>text</b>"],
  ["[x](javascript:alert(1))", "[x](javascript:alert(1))"],
  ["[x](data:text/html,y)", "[x](data:text/html,y)"],
  ["[x](/relative)", "[x](/relative)"],
  ["<javascript:alert(1)>", "<javascript:alert(1)>"],
];

for (const [text, expected] of inlineCases) {
  test(`inline: ${JSON.stringify(text)}`, () => assert.equal(show(parseInline(text)), expected));
}

test("only http and https are addresses", () => {
  for (const bad of [
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    " javascript:alert(1)",
    "java\nscript:alert(1)",
    "vbscript:x",
    "data:text/html,x",
    "file:///etc/passwd",
    "blob:x",
    "//example.org",
    "about:blank",
  ]) {
    assert.equal(safeHref(bad), null, bad);
  }
  assert.equal(safeHref("https://example.org/a b"), "https://example.org/a%20b");
});

const types = (text) => parseMarkdown(text).map((block) => block.type);

test("blocks are told apart", () => {
  assert.deepEqual(
    types("# A\n\ntext\n\n---\n\n> quote\n\n- item\n\n```\ncode\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |"),
    ["heading", "paragraph", "rule", "quote", "list", "code", "table"],
  );
});

test("a heading has its level and no closing signs", () => {
  const [heading] = parseMarkdown("### Title ##");
  assert.equal(heading.level, 3);
  assert.equal(show(heading.inline), "Title");
});

test("code keeps its text, also while its end is missing", () => {
  const [code] = parseMarkdown("```js extra\n<script>\n  *x*\n\n# no heading\n");
  assert.equal(code.language, "js");
  assert.equal(code.text, "<script>\n  *x*\n\n# no heading\n");
  const [longer, after] = parseMarkdown("````\n```\n````\nafter");
  assert.equal(longer.text, "```");
  assert.equal(show(after.inline), "after");
});

test("lists nest and keep their numbers", () => {
  const [list] = parseMarkdown("3. three\n   - inner\n     - deepest\n4. four\n\n   more of four\n5. five");
  assert.equal(list.ordered, true);
  assert.equal(list.start, 3);
  assert.equal(list.items.length, 3);
  assert.equal(list.items[0][1].type, "list");
  assert.equal(list.items[0][1].items[0][1].type, "list");
  assert.deepEqual(
    list.items[1].map((block) => block.type),
    ["paragraph", "paragraph"],
  );
});

test("a list directly after a paragraph begins", () =>
  assert.deepEqual(types("Points:\n- a\n- b"), ["paragraph", "list"]));
test("bullets and numbers are two lists", () => assert.deepEqual(types("- a\n1. b"), ["list", "list"]));

test("tables know their alignment and fill short rows", () => {
  const [table] = parseMarkdown("| a | b | c |\n|:--|:-:|--:|\n| 1 | `x \\| y` |\n");
  assert.deepEqual(table.align, [null, "center", "right"]);
  assert.equal(show(table.rows[0][1]), "code(x | y)");
  assert.deepEqual(table.rows[0][2], []);
});

test("a line with a bar alone is no table", () => assert.deepEqual(types("a | b\nc | d"), ["paragraph"]));

test("growing text changes only its last blocks", () => {
  const before = parseMarkdown("# A\n\nfirst\n\nsecond par");
  const after = parseMarkdown("# A\n\nfirst\n\nsecond paragraph");
  assert.equal(before[0].source, after[0].source);
  assert.equal(before[1].source, after[1].source);
  assert.notEqual(before[2].source, after[2].source);
});

const HOSTILE = [
  "[",
  "](",
  "*a ",
  "_a *b ",
  "`",
  "`a``b",
  "> ",
  "- ",
  "  - a\n",
  "**a*",
  "|",
  "|-",
  "\n",
  "- a\n\n",
  "https://",
  "~~a",
  "\\(",
  "<",
  "<a",
  "*_",
  "#",
  "1. ",
];

for (const piece of HOSTILE) {
  test(`100 kB of ${JSON.stringify(piece)} is read at once`, () => {
    const text = piece.repeat(100000 / piece.length);
    const began = performance.now();
    const depth = (node) =>
      1 +
      Math.max(0, ...(node.children ?? node.inline ?? node.blocks ?? node.items?.flat() ?? []).slice(0, 9).map(depth));
    for (const block of parseMarkdown(text).slice(0, 9)) assert.ok(depth(block) < 100);
    assert.ok(performance.now() - began < 5000);
  });
}

test("emphasis nested very deep is read without a deep stack", () => {
  assert.ok(parseInline("*a _b ".repeat(20000) + "c_ d* ".repeat(20000)).length > 0);
});

test("emphasis nested without end does not nest the tree without end", () => {
  const depth = (nodes) =>
    1 + Math.max(0, ...nodes.filter((node) => node.children).map((node) => depth(node.children)));
  assert.ok(depth(parseInline("*a _b ".repeat(200) + "c_ d* ".repeat(200))) < 50);
});
