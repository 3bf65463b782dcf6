// markdown.js - parses Markdown as models write it into a tree of plain objects: headings, lists, quotes, tables, code,
// rules, paragraphs. markdown_inline.js parses the text within them; markdown_dom.js makes elements of the tree.
//
// Blocks: {type: "paragraph", inline}, {type: "heading", level, inline}, {type: "code", language, text},
// {type: "quote", blocks}, {type: "list", ordered, start, items: [blocks]}, {type: "rule"},
// {type: "table", align, head, rows}; the topmost also have `source`, the lines they came from.
import { parseInline } from "./markdown_inline.js";

const MAX_DEPTH = 12;
const MAX_COLUMNS = 64;

const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})(?:([-+*])|(\d{1,9})[.)])(?:([ \t]+)|$)/;
const TABLE_LINE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

export function parseMarkdown(text) {
  return parseLines(text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n"), 0);
}

function parseLines(lines, depth) {
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (!lines[at].trim()) {
      at++;
      continue;
    }
    const { block, next } = readBlock(lines, at, depth);
    if (depth === 0) block.source = lines.slice(at, next).join("\n");
    blocks.push(block);
    at = next;
  }
  return blocks;
}

function readBlock(lines, at, depth) {
  const line = lines[at];
  if (FENCE.test(line)) return readFence(lines, at);
  const heading = HEADING.exec(line);
  if (heading) {
    return {
      block: { type: "heading", level: heading[1].length, inline: parseInline(heading[2] ?? "") },
      next: at + 1,
    };
  }
  if (RULE.test(line)) return { block: { type: "rule" }, next: at + 1 };
  if (depth < MAX_DEPTH && QUOTE.test(line)) return readQuote(lines, at, depth);
  if (depth < MAX_DEPTH && ITEM.test(line)) return readList(lines, at, depth);
  if (startsTable(lines, at)) return readTable(lines, at);
  return readParagraph(lines, at, depth);
}

// An unclosed fence extends to the end, as for code that is still being written.
function readFence(lines, at) {
  const [, indent, fence, info] = FENCE.exec(lines[at]);
  const closing = new RegExp(`^ {0,3}${fence[0]}{${fence.length},}[ \\t]*$`);
  const body = [];
  let next = at + 1;
  while (next < lines.length && !closing.test(lines[next])) {
    body.push(lines[next].replace(new RegExp(`^ {0,${indent.length}}`), ""));
    next++;
  }
  const language = info.trim().split(/\s/)[0].slice(0, 40);
  return { block: { type: "code", language, text: body.join("\n") }, next: Math.min(next + 1, lines.length) };
}

function readQuote(lines, at, depth) {
  const inner = [];
  let next = at;
  for (; next < lines.length && QUOTE.test(lines[next]); next++) inner.push(lines[next].replace(QUOTE, ""));
  return { block: { type: "quote", blocks: parseLines(inner, depth + 1) }, next };
}

// Consecutive items of one kind. Lines that are indented as far as an item's text belong to the item.
function readList(lines, at, depth) {
  const ordered = ITEM.exec(lines[at])[3] !== undefined;
  const block = { type: "list", ordered, start: ordered ? Number(ITEM.exec(lines[at])[3]) : 1, items: [] };
  let next = at;
  while (next < lines.length) {
    const item = ITEM.exec(lines[next]);
    if (!item || (item[3] !== undefined) !== ordered || RULE.test(lines[next])) break;
    const end = endOfItem(lines, next, item);
    block.items.push(parseLines(itemLines(lines.slice(next, end), item), depth + 1));
    next = end;
    const following = skipBlank(lines, next);
    if (following > next && following < lines.length && ITEM.test(lines[following])) next = following;
  }
  return { block, next };
}

// The next item of a nested list may be indented by less than its parent's text: two columns are enough.
function endOfItem(lines, at, item) {
  const indent = item[1].length;
  let end = at + 1;
  for (; end < lines.length; end++) {
    const line = lines[end];
    if (!line.trim()) {
      const following = skipBlank(lines, end);
      if (following === lines.length || leading(lines[following]) < indent + 2) return end;
    } else if (leading(line) < indent + 2 && startsBlock(lines, end)) {
      return end;
    }
  }
  return end;
}

function itemLines(lines, item) {
  const width = item[0].length;
  return [lines[0].slice(width), ...lines.slice(1).map((line) => line.slice(Math.min(leading(line), width)))];
}

function skipBlank(lines, at) {
  while (at < lines.length && !lines[at].trim()) at++;
  return at;
}

const leading = (line) => line.length - line.trimStart().length;

function startsBlock(lines, at) {
  const line = lines[at];
  return (
    FENCE.test(line) ||
    HEADING.test(line) ||
    RULE.test(line) ||
    QUOTE.test(line) ||
    ITEM.test(line) ||
    startsTable(lines, at)
  );
}

function readParagraph(lines, at, depth) {
  let next = at + 1;
  while (next < lines.length && lines[next].trim() && (depth >= MAX_DEPTH || !startsBlock(lines, next))) next++;
  const text = lines
    .slice(at, next)
    .map((line) => line.trimStart())
    .join("\n")
    .trimEnd();
  return { block: { type: "paragraph", inline: parseInline(text) }, next };
}

// ---- tables ------------------------------------------------------------------------------------

function startsTable(lines, at) {
  return (
    lines[at].includes("|") &&
    at + 1 < lines.length &&
    lines[at + 1].includes("-") &&
    TABLE_LINE.test(lines[at + 1]) &&
    cells(lines[at]).length === cells(lines[at + 1]).length
  );
}

// Splits "a | b" into cells; a bar after a backslash is not a border.
function cells(line) {
  const inner = line
    .trim()
    .replace(/^\|/, "")
    .replace(/(^|[^\\])\|$/, "$1");
  return inner
    .split(/(?<!\\)\|/)
    .slice(0, MAX_COLUMNS)
    .map((cell) => cell.trim().replace(/\\\|/g, "|"));
}

function readTable(lines, at) {
  const head = cells(lines[at]);
  const align = cells(lines[at + 1]).map((cell) =>
    cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : null,
  );
  const rows = [];
  let next = at + 2;
  for (; next < lines.length && lines[next].trim() && lines[next].includes("|"); next++) {
    const row = cells(lines[next]);
    rows.push(head.map((_, i) => parseInline(row[i] ?? "")));
  }
  return { block: { type: "table", align, head: head.map((cell) => parseInline(cell)), rows }, next };
}
