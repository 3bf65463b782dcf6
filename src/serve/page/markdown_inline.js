// markdown_inline.js - parses Markdown within a paragraph into a tree of plain objects: emphasis, code, links, line
// breaks. HTML in the text stays text. Every search is bounded, so hostile input costs linear time.
//
// Nodes: {type: "text" | "code" | "math", text}, {type: "break"},
//        {type: "strong" | "em" | "del", children, depth}, {type: "link", href, children}

const ESCAPABLE = /[!-/:-@[-`{-~]/;
const MAX_LINK = 2000;
const MAX_DEPTH = 16;
const URL_IN_TEXT = /https?:\/\/[^\s<>"'`]+/iy;

export function parseInline(text, depth = 0) {
  const scan = { text, at: 0, depth, items: [], plain: "", noCloser: new Map(), mathEnds: new Map() };
  while (scan.at < text.length) step(scan);
  flush(scan);
  return pairDelimiters(scan.items);
}

// Only http and https: "javascript:" and similar schemes never become links.
export function safeHref(target) {
  let url;
  try {
    url = new URL(target);
  } catch {
    return null;
  }
  return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
}

function flush(scan) {
  if (scan.plain) scan.items.push({ type: "text", text: scan.plain });
  scan.plain = "";
}

function push(scan, node, next) {
  flush(scan);
  scan.items.push(node);
  scan.at = next;
}

function step(scan) {
  const c = scan.text[scan.at];
  const reader = READERS[c];
  if (reader?.(scan)) return;
  scan.plain += c;
  scan.at++;
}

const READERS = {
  "\\": readEscape,
  "`": readCode,
  "\n": readBreak,
  "<": readAngleLink,
  "!": readImage,
  "[": (scan) => readLink(scan, scan.at),
  h: readBareLink,
  H: readBareLink,
  "*": readDelimiter,
  _: readDelimiter,
  "~": readDelimiter,
  $: readMath,
};

function readEscape(scan) {
  const next = scan.text[scan.at + 1];
  if (next === "(" || next === "[") return readMath(scan);
  if (next === undefined || !ESCAPABLE.test(next)) return false;
  scan.plain += next;
  scan.at += 2;
  return true;
}

// Formulas stay as the model wrote them; their underscores and stars are not emphasis.
function readMath(scan) {
  const { text, at } = scan;
  const open = text.slice(at, at + 2);
  const close = { "\\(": "\\)", "\\[": "\\]", $$: "$$" }[open];
  if (!close || scan.mathEnds.get(close) === -1) return false;
  const end = text.indexOf(close, at + 2);
  if (end < 0) {
    scan.mathEnds.set(close, -1);
    return false;
  }
  push(scan, { type: "math", text: text.slice(at + 2, end).trim() }, end + 2);
  return true;
}

function runLength(text, at) {
  let end = at;
  while (text[end] === text[at]) end++;
  return end - at;
}

// A run of backticks closes with the next run of the same length. Lengths without one are remembered.
function readCode(scan) {
  const { text, at } = scan;
  const length = runLength(text, at);
  const end = scan.noCloser.has(length) ? -1 : closingRun(text, at + length, length);
  if (end < 0) {
    scan.noCloser.set(length, true);
    scan.plain += text.slice(at, at + length);
    scan.at += length;
    return true;
  }
  let code = text.slice(at + length, end).replace(/\n/g, " ");
  if (code.startsWith(" ") && code.endsWith(" ") && code.trim()) code = code.slice(1, -1);
  push(scan, { type: "code", text: code }, end + length);
  return true;
}

function closingRun(text, from, length) {
  for (let at = text.indexOf("`", from); at >= 0; at = text.indexOf("`", at)) {
    const run = runLength(text, at);
    if (run === length) return at;
    at += run;
  }
  return -1;
}

// Models intend their line breaks, so every one is kept.
function readBreak(scan) {
  scan.plain = scan.plain.trimEnd();
  push(scan, { type: "break" }, scan.at + 1);
  while (scan.text[scan.at] === " ") scan.at++;
  return true;
}

function readAngleLink(scan) {
  const end = scan.text.slice(scan.at, scan.at + MAX_LINK).indexOf(">");
  if (end < 0) return false;
  const target = scan.text.slice(scan.at + 1, scan.at + end);
  const href = /\s/.test(target) ? null : safeHref(target);
  if (!href) return false;
  push(scan, { type: "link", href, children: [{ type: "text", text: target }] }, scan.at + end + 1);
  return true;
}

function readBareLink(scan) {
  URL_IN_TEXT.lastIndex = scan.at;
  if (scan.at > 0 && /\w/.test(scan.text[scan.at - 1])) return false;
  const found = URL_IN_TEXT.exec(scan.text)?.[0];
  if (!found) return false;
  const target = trimUrl(found.slice(0, MAX_LINK));
  const href = safeHref(target);
  if (!href) return false;
  push(scan, { type: "link", href, children: [{ type: "text", text: target }] }, scan.at + target.length);
  return true;
}

// Punctuation at the end of a sentence, or a bracket that closes around the address, is not part of it.
function trimUrl(url) {
  for (;;) {
    const last = url.at(-1);
    const unbalanced = last === ")" && url.split(")").length > url.split("(").length;
    if (!/[.,:;!?*_~\]]/.test(last) && !unbalanced) return url;
    url = url.slice(0, -1);
  }
}

// Images would be fetched from other servers, so they become links.
function readImage(scan) {
  return scan.text[scan.at + 1] === "[" && readLink(scan, scan.at + 1);
}

// [text](target "title"); a link that is not safe stays text.
function readLink(scan, open) {
  if (scan.depth >= MAX_DEPTH) return false;
  const part = scan.text.slice(open, open + MAX_LINK);
  const close = closingBracket(part);
  if (close < 0 || part[close + 1] !== "(") return false;
  const target = /^\(\s*<?((?:[^\s()<>]|\([^\s()]*\))*)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(part.slice(close + 1));
  const href = target && safeHref(target[1]);
  if (!href) return false;
  const label = part.slice(1, close);
  const children = label ? parseInline(label, scan.depth + 1) : [{ type: "text", text: target[1] }];
  push(scan, { type: "link", href, children: withoutLinks(children) }, open + close + 1 + target[0].length);
  return true;
}

function closingBracket(part) {
  let depth = 0;
  for (let i = 0; i < part.length; i++) {
    if (part[i] === "\\") i++;
    else if (part[i] === "[") depth++;
    else if (part[i] === "]" && --depth === 0) return i;
  }
  return -1;
}

const withoutLinks = (nodes) =>
  nodes.flatMap((node) =>
    node.type === "link"
      ? withoutLinks(node.children)
      : node.children
        ? [{ ...node, children: withoutLinks(node.children) }]
        : [node],
  );

// ---- emphasis ----------------------------------------------------------------------------------

const isSpace = (c) => c === undefined || /\s/.test(c);
const isPunctuation = (c) => c !== undefined && /[\p{P}\p{S}]/u.test(c);

// A run of * _ or ~: whether it can open or close depends on its neighbours (CommonMark's flanking rule).
function readDelimiter(scan) {
  const { text, at } = scan;
  const c = text[at];
  const length = runLength(text, at);
  if (c === "~" && length !== 2) return false;
  const before = text[at - 1];
  const after = text[at + length];
  const left = !isSpace(after) && (!isPunctuation(after) || isSpace(before) || isPunctuation(before));
  const right = !isSpace(before) && (!isPunctuation(before) || isSpace(after) || isPunctuation(after));
  const inWord = c === "_" && left && right;
  push(
    scan,
    {
      type: "run",
      c,
      length,
      opens: left && (!inWord || isPunctuation(before)),
      closes: right && (!inWord || isPunctuation(after)),
    },
    at + length,
  );
  return true;
}

// Pairs closers with the nearest opener of the same kind. Everything is pushed and popped once. Waiting openers are
// counted by kind, so that a closer without an opener does not search.
function pairDelimiters(items) {
  const out = [];
  const openers = { stack: [], waiting: { "*": 0, _: 0, "~": 0 } };
  for (const item of items) {
    if (item.type !== "run") {
      out.push(item);
      continue;
    }
    if (item.closes) closeRuns(item, out, openers);
    if (!item.length) continue;
    if (item.opens) {
      openers.stack.push(item);
      openers.waiting[item.c]++;
    }
    out.push(item);
  }
  return mergeText(out);
}

function closeRuns(closer, out, openers) {
  const { stack, waiting } = openers;
  while (closer.length && waiting[closer.c]) {
    while (stack.at(-1).c !== closer.c) waiting[stack.pop().c]--;
    const opener = stack.at(-1);
    const used = Math.min(2, opener.length, closer.length);
    const children = mergeText(out.splice(out.lastIndexOf(opener) + 1));
    const type = closer.c === "~" ? "del" : used === 2 ? "strong" : "em";
    opener.length -= used;
    closer.length -= used;
    if (!opener.length) {
      out.pop();
      waiting[stack.pop().c]--;
    }
    for (const node of emphasis(type, children)) out.push(node);
  }
}

// Emphasis nested deeper than any real text has no effect, so that code that walks the tree can recurse.
function emphasis(type, children) {
  const depth = 1 + children.reduce((most, child) => Math.max(most, child.depth ?? 0), 0);
  return depth > MAX_DEPTH ? children : [{ type, children, depth }];
}

// Makes text of runs that found no partner, and joins neighbouring texts.
function mergeText(items) {
  const merged = [];
  for (const item of items) {
    const node = item.type === "run" ? { type: "text", text: item.c.repeat(item.length) } : item;
    const last = merged.at(-1);
    if (node.type === "text" && last?.type === "text")
      merged[merged.length - 1] = { type: "text", text: last.text + node.text };
    else merged.push(node);
  }
  return merged;
}
