// reports.test.mjs - the pages that the command writes, in a browser: on a desktop and on a phone, light and
// dark, with pointer and keyboard. They are files, so no server is needed. CHROMIUM and SCREENSHOTS as in
// page.test.mjs.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import puppeteer from "puppeteer-core";

const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const SOURCES = fileURLToPath(new URL("../..", import.meta.url));
const WIDTHS = [1280, 400];
const { DSMOE, SCREENSHOTS } = process.env;

// The log of a run that has not ended, with everything that a page shows.
function metricsOfRun() {
  const config = { n_routed_experts: 16, num_experts_per_tok: 3, num_hidden_layers: 2, hidden_size: 64 };
  const settings = { steps: 200, schedule: "step" };
  const lines = [{ type: "start", step: 0, time: 1000, parameters: 2e6, active_parameters: 1e6, config, settings }];
  for (let step = 1; step <= 120; step++) {
    const loss = 2 + 4 / step + 0.1 * Math.sin(step * step);
    const load = [0, 1].map((layer) => Array.from({ length: 16 }, (_, e) => 1 + Math.sin(e * step + layer)));
    lines.push({ type: "step", step, tokens: 64 * step, loss, lr: step < 80 ? 1e-3 : 3e-4, grad_norm: 20 / step });
    lines.at(-1).time = 1000 + step;
    if (step % 10 === 0) lines.push({ type: "load", step, load });
    if (step % 20 === 0) lines.push({ type: "eval", step, loss, kinds: { prose: loss, code: loss + 0.1 } });
  }
  return lines.map((line) => JSON.stringify(line)).join("\n") + "\n";
}

describe("the pages of the command", { skip: DSMOE ? false : "needs DSMOE" }, () => {
  let folder, browser, page, problems;
  const pages = {};

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "dsmoe-reports-"));
    const dsmoe = (...args) => execFileSync(DSMOE, args, { stdio: ["ignore", "ignore", "pipe"] });
    const at = (name) => join(folder, name);
    const made = ["--preset", "tiny", "--vocab-size", "268", "--hidden", "32", "--heads", "2", "--ffn", "32"];
    const words = "one two three, two and three; {\"a\": [1, 2]} the end. The beginning of another tale\n";
    writeFileSync(at("tale.txt"), words.repeat(40));
    for (const [name, routed] of [["few", "24"], ["many", "160"]]) {
      const sizes = ["--moe", "8", "--routed", routed, "--k", "4", "--layers", "3", "--dense-layers", "1"];
      dsmoe("init", ...made, ...sizes, "--tokenizer", join(SOURCES, "tests/data/text_cli"), at(name));
      dsmoe("inspect", "-m", at(name), "--routing", at("tale.txt"), "--html", at(`${name}.html`));
      pages[name] = at(`${name}.html`);
    }
    writeFileSync(at("line.txt"), "one two three\n");
    dsmoe("inspect", "-m", at("many"), "--routing", at("line.txt"), "--html", at("line.html"));
    pages.line = at("line.html");
    for (const [name, end] of [["live", ""], ["report", '{"type":"end","step":120}\n']]) {
      mkdirSync(at(name));
      writeFileSync(at(`${name}/metrics.jsonl`), metricsOfRun() + end);
      dsmoe("report", at(name));
      pages[name] = at(`${name}/report.html`);
    }
    const short = ["--steps", "3", "--batch", "1", "--seq", "32", "--vocab-size", "300", "--seeds", "2", "-t", "2"];
    const what = ["--data", join(SOURCES, "docs"), "--only", "dense,gshard,deepseekmoe", "--out", at("ablation")];
    dsmoe("ablate", ...what, ...short);
    pages.ablation = at("ablation/ablation.html");
    browser = await puppeteer.launch({
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      args: ["--no-sandbox"],
    });
    if (SCREENSHOTS) mkdirSync(SCREENSHOTS, { recursive: true });
  });

  after(async () => {
    await browser?.close();
    rmSync(folder, { recursive: true, force: true });
  });

  beforeEach(async () => {
    page = await browser.newPage();
    problems = [];
    page.on("pageerror", (error) => problems.push(error.message));
    page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
    page.on("request", (request) => request.url().startsWith("file:") || problems.push(request.url()));
  });

  afterEach(async () => {
    await page.close();
    assert.deepEqual(problems, [], "nothing went wrong on the page, and it loads nothing");
  });

  // ---- helpers -----------------------------------------------------------------------------------

  async function open(name, width = 1280, scheme = "light") {
    await page.setViewport({ width, height: 900, isMobile: width < 600, hasTouch: width < 600 });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    await page.goto(pathToFileURL(pages[name]).href);
  }

  const tip = () => page.$eval(".tip", (node) => (node.hidden ? null : node.textContent));

  // The tooltip at the middle of a mark.
  async function hover(selector, index = 0) {
    const place = await page.$$eval(
      selector,
      (nodes, i) => {
        nodes[i].scrollIntoView({ block: "center" });
        const box = nodes[i].getBoundingClientRect();
        return [box.left + box.width / 2, box.top + box.height / 2];
      },
      index,
    );
    await page.mouse.move(...place);
    return tip();
  }

  // Moves to an element with the Tab key only.
  async function tabTo(selector) {
    await page.mouse.move(0, 0);
    for (let i = 0; i < 200; i++) {
      await page.keyboard.press("Tab");
      if (await page.evaluate((wanted) => document.activeElement.matches(wanted), selector)) return;
    }
    assert.fail(`the Tab key does not come to ${selector}`);
  }

  // ---- every page --------------------------------------------------------------------------------

  for (const name of ["few", "many", "live", "report", "ablation"])
    for (const width of WIDTHS)
      for (const scheme of ["light", "dark"])
        test(`${name} at ${width} pixels, ${scheme}`, async () => {
          await open(name, width, scheme);
          if (SCREENSHOTS)
            await page.screenshot({ path: join(SCREENSHOTS, `${name}-${width}-${scheme}.png`), fullPage: true });
          const looks = await page.evaluate(() => ({
            wide: document.documentElement.scrollWidth,
            cut: [...document.querySelectorAll("svg.plot,table,canvas,code,h1,h2,p")]
              .filter((node) => node.getClientRects().length > 0 && !node.closest(".wide.cut"))
              .filter((node) => {
                const box = node.getBoundingClientRect();
                return box.left < 0 || box.right > innerWidth + 0.5 || node.scrollWidth > node.clientWidth + 80;
              })
              .map((node) => node.outerHTML.slice(0, 80)),
            unnamed: [...document.querySelectorAll("svg.plot")]
              .filter((plot) => plot.querySelectorAll(".name").length < (plot.matches(".rows") ? 1 : 2))
              .map((plot) => plot.getAttribute("aria-label")),
            refresh: document.querySelectorAll("meta[http-equiv]").length,
          }));
          assert.equal(looks.wide, width, "the page is no wider than the screen");
          assert.deepEqual(looks.cut, [], "nothing is cut");
          assert.deepEqual(looks.unnamed, [], "every axis has a title");
          assert.equal(looks.refresh, name === "live" ? 1 : 0);
          await page.evaluate(() => document.querySelectorAll("details").forEach((node) => (node.open = true)));
          await page.addScriptTag({ path: AXE });
          const rules = { "meta-refresh": { enabled: false } }; // a live page reloads itself and says so
          const { violations } = await page.evaluate((options) => window.axe.run(options), { rules });
          assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes[0].html.slice(0, 120)]), []);
        });

  // ---- values ------------------------------------------------------------------------------------

  for (const name of ["few", "report", "ablation"])
    test(`${name}: every chart tells the keyboard what it tells the pointer`, async () => {
      await open(name);
      const n = await page.$$eval(".plot", (plots) => plots.filter((plot) => plot.getClientRects().length).length);
      assert.ok(n >= 3);
      for (let i = 0; i < n; i++) {
        const mark = async () =>
          page.evaluate(() => [...document.querySelectorAll(".hit")].indexOf(document.querySelector(".hit.on")));
        await tabTo(".plot");
        const first = await tip(), at = await mark();
        assert.ok(first && at >= 0, "the first value is there");
        await page.keyboard.press("ArrowRight");
        if ((await mark()) === at) await page.keyboard.press("ArrowDown");
        const second = await tip(), there = await mark();
        assert.ok(second && there !== at, "an arrow key goes on");
        await page.keyboard.press("Escape");
        assert.equal(await tip(), null);
        assert.equal(await hover(".hit", there), second);
        assert.equal(await hover(".hit", at), first);
      }
    });

  test("a chart tells of all its lines at once, and Home and End go to its ends", async () => {
    await open("report");
    await tabTo(".plot");
    await page.keyboard.press("End");
    assert.match(await tip(), /^step 120\ntraining, as logged [\d.]+\ntraining, smoothed [\d.]+\nheld-out [\d.]+$/);
    await page.keyboard.press("Home");
    assert.match(await tip(), /^step 1\n/);
    await page.keyboard.press("Tab");
    assert.doesNotMatch((await tip()) ?? "", /held-out/);
  });

  test("tokens that an expert likes have counts, for the keyboard as well", async () => {
    await open("few");
    await tabTo("table.marks");
    await page.keyboard.press("ArrowRight");
    const told = await tip();
    assert.match(told, /^token \d+: [\d,]+ of its [\d,]+ occurrences, .* times as often as by chance$/);
    const at = await page.$$eval("code", (nodes) => nodes.findIndex((node) => node.matches(".on")));
    assert.equal(await hover("code", at), told);
  });

  test("a short text: one token is not called tokens, and an expert without any has no gate value", async () => {
    await open("line");
    const cells = (name) => page.$$eval(`td[data-name="${name}"]`, (nodes) => nodes.map((node) => node.textContent));
    const counts = await cells("chosen by"), gates = await cells("mean gate");
    assert.ok(counts.includes("1 token") && counts.includes("0 tokens"));
    await tabTo("canvas");
    assert.match(await tip(), /: (1 token|[02-9] tokens) chose both,/);
    counts.forEach((count, i) => assert.equal(gates[i] === "–", count === "0 tokens"));
  });

  test("columns near the mean stand out from the background", async () => {
    await open("many", 1280, "dark");
    const contrast = await page.$$eval(".column.s6", (columns) => {
      const light = (colour) => {
        const part = (v) => (v / 255 <= 0.04 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
        const [r, g, b] = colour.match(/\d+/g).map(Number).map(part);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
      };
      const card = getComputedStyle(columns[0].closest(".card")).backgroundColor;
      return light(getComputedStyle(columns[0]).fill) / light(card);
    });
    assert.ok(contrast > 2, `contrast ${contrast}`);
  });

  // ---- experts -----------------------------------------------------------------------------------

  test("the matrix tells counts to the pointer and to the keyboard", async () => {
    await open("few");
    await tabTo("canvas");
    assert.match(await tip(), /^experts \d+ and \d+: [\d,]+ tokens chose both,\n[\d.]+ times as often as by chance/);
    await page.keyboard.press("ArrowDown"); // to the diagonal
    assert.match(await tip(), /^expert \d+: chosen by [\d,]+ tokens$/);
    await page.keyboard.press("ArrowDown");
    const told = await tip();
    const place = await page.$eval("canvas", (canvas) => {
      const box = canvas.getBoundingClientRect(), n = canvas.dataset.experts.split(",").length;
      const label = 30, cell = (box.width - label) / n; // third row, second column
      return [box.left + label + 1.5 * cell, box.top + label + 2.5 * cell];
    });
    await page.keyboard.press("Escape");
    assert.equal(await tip(), null);
    await page.mouse.move(...place);
    assert.equal(await tip(), told);
  });

  test("experts that fire together stand side by side", async () => {
    await open("few");
    const [ordered, byNumber] = await page.evaluate(() => {
      const matrix = [...drawn.values()][0], n = matrix.experts.length; // eslint-disable-line no-undef
      const numbers = matrix.experts.map((_, i) => i).sort((a, b) => matrix.experts[a] - matrix.experts[b]);
      const go = (a, b) => Math.log((matrix.both(a, b) + 1) / (matrix.expected(a, b) + 1));
      const sum = (order) => order.slice(1).reduce((all, b, i) => all + go(order[i], b), 0) / n;
      return [sum(numbers.map((_, i) => i)), sum(numbers)];
    });
    assert.ok(ordered > byNumber, `neighbours go together: ${ordered} by order, ${byNumber} by number`);
  });

  test("a row of the map leads to its layer, by click and by Enter", async () => {
    await open("few");
    const layer = () => page.$eval(".layer.on h2", (node) => node.textContent);
    assert.equal(await layer(), "Layer 1");
    await tabTo(".map");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    assert.equal(await layer(), "Layer 2");
    await hover(".map .hit");
    await page.mouse.down();
    await page.mouse.up();
    assert.equal(await layer(), "Layer 1");
    await page.select(".layers select", "Layer 2");
    assert.equal(await layer(), "Layer 2");
    assert.ok(await page.$eval(".layer.on canvas", (canvas) => canvas.width > 100));
  });

  test("what is wider than a phone says that it can be scrolled", async () => {
    const hint = () =>
      page.$eval(".wide:has(.map)", (box) => [getComputedStyle(box, "::before").content, box.matches(".more")]);
    await open("many", 400);
    const [text, more] = await hint();
    assert.match(text, /scroll/);
    assert.ok(more, "the right edge fades");
    await page.$eval(".wide:has(.map)", (box) => box.scrollTo(1e4, 0));
    await page.waitForFunction(() => !document.querySelector(".wide:has(.map)").matches(".more"));
    await open("few", 400);
    assert.deepEqual(await hint(), ["none", false], "what fits says nothing");
  });

  test("on a phone an expert's tokens have the width of the screen, and rows of tables become lists", async () => {
    await open("few", 400);
    assert.ok(await page.$eval("td.tokens", (cell) => cell.clientWidth > 300));
    await open("ablation", 400);
    const names = await page.$$eval(".stack tbody tr:first-child td", (cells) =>
      cells.map((cell) => getComputedStyle(cell, "::before").content),
    );
    assert.ok(names.length > 5 && names.every((name) => /^".+"$/.test(name)), "every number has its name beside it");
  });
});
