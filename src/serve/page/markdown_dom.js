// markdown_dom.js - makes elements of the tree of markdown.js. It makes only the elements named here, and all text
// becomes text nodes, so nothing that a model writes can run.
import { button, copyFrom, el } from "./dom.js";
import { parseMarkdown } from "./markdown.js";

// Shows Markdown in an element and keeps the blocks that did not change: while an answer grows, only its last blocks
// are made again, and a selection further up stays.
export class MarkdownView {
  #sources = [];

  constructor(element) {
    this.element = element;
  }

  show(text) {
    const blocks = parseMarkdown(text);
    let same = 0;
    while (same < blocks.length && blocks[same].source === this.#sources[same]) same++;
    while (this.element.childNodes.length > same) this.element.lastChild.remove();
    this.element.append(...blocks.slice(same).map(blockNode));
    this.#sources = blocks.map((block) => block.source);
  }
}

function blockNode(block) {
  switch (block.type) {
    // The page's own headings are h1 and h2; an answer's begin below them.
    case "heading":
      return el(`h${Math.min(6, block.level + 2)}`, { class: `level-${block.level}` }, inlineNodes(block.inline));
    case "code":
      return codeNode(block);
    case "quote":
      return el("blockquote", null, block.blocks.map(blockNode));
    case "list":
      return listNode(block);
    case "rule":
      return el("hr");
    case "table":
      return tableNode(block);
    default:
      return el("p", null, inlineNodes(block.inline));
  }
}

function listNode(block) {
  const items = block.items.map((blocks) => el("li", null, itemNodes(blocks)));
  return block.ordered ? el("ol", { start: block.start === 1 ? null : block.start }, items) : el("ul", null, items);
}

// The first paragraph of an item has no space around it.
function itemNodes(blocks) {
  const [first, ...rest] = blocks;
  if (first?.type !== "paragraph") return blocks.map(blockNode);
  return [...inlineNodes(first.inline), ...rest.map(blockNode)];
}

function codeNode(block) {
  const copy = button({ name: "copy", label: "Copy code", class: "quiet", onClick: () => copyFrom(copy, block.text) });
  const bar = el("div", { class: "code-bar" }, el("span", null, block.language || "text"), copy);
  const text = el(
    "pre",
    { tabindex: "0", "aria-label": block.language ? `Code, ${block.language}` : "Code", role: "region" },
    el("code", null, block.text),
  );
  return el("div", { class: "code" }, bar, text);
}

function tableNode(block) {
  const cell = (tag) => (inline, i) => {
    const node = el(tag, { scope: tag === "th" ? "col" : null }, inlineNodes(inline));
    if (block.align[i]) node.style.textAlign = block.align[i];
    return node;
  };
  const rows = block.rows.map((row) => el("tr", null, row.map(cell("td"))));
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" },
    el("table", null, el("thead", null, el("tr", null, block.head.map(cell("th")))), el("tbody", null, rows)),
  );
}

function inlineNodes(nodes) {
  return nodes.map((node) => {
    switch (node.type) {
      case "text":
        return document.createTextNode(node.text);
      case "break":
        return el("br");
      case "code":
        return el("code", null, node.text);
      case "math":
        return el("code", { class: "math" }, node.text);
      case "link":
        return el("a", { href: node.href, rel: "noopener noreferrer", target: "_blank" }, inlineNodes(node.children));
      default:
        return el(node.type, null, inlineNodes(node.children));
    }
  });
}
