// page.test.mjs - the page in a browser: what a person can do, what is shown, and what must not happen.
// CHROMIUM is the path of the browser (/usr/bin/chromium), SCREENSHOTS a folder for pictures.
import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, writeFile, mkdir } from "node:fs/promises";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import puppeteer from "puppeteer-core";
import { getJson, hasServer, Pacer, startServer } from "./server.mjs";

const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const DESKTOP = { width: 1360, height: 860 };
const PHONE = { width: 390, height: 780, isMobile: true, hasTouch: true, deviceScaleFactor: 2 };

describe("the page", { skip: hasServer ? false : "needs DSMOE and MODEL, or DSMOE_URL" }, () => {
  let server, pacer, browser, context, page, problems, folder;

  before(async () => {
    server = await startServer();
    browser = await puppeteer.launch({
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      args: ["--no-sandbox"],
    });
    folder = await mkdtemp(join(tmpdir(), "dsmoe-page-"));
    if (process.env.SCREENSHOTS) await mkdir(process.env.SCREENSHOTS, { recursive: true });
  });

  after(async () => {
    await browser?.close();
    await server?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  beforeEach(async () => {
    pacer = await new Pacer(server.url).listen();
    context = await browser.createBrowserContext();
    page = await context.newPage();
    problems = [];
    page.on("pageerror", (error) => problems.push(error.message));
    // The browser logs a line for each answer with an error status; tests that cause such answers check the
    // page.
    page.on(
      "console",
      (message) =>
        message.type() === "error" && !/status of 4|status of 5/.test(message.text()) && problems.push(message.text()),
    );
    page.setDefaultTimeout(15000);
    await page.setViewport(DESKTOP);
  });

  afterEach(async () => {
    await context.close();
    pacer.close();
    assert.deepEqual(problems, [], "nothing went wrong on the page");
  });

  // ---- helpers -----------------------------------------------------------------------------------

  async function open() {
    await page.goto(pacer.url, { waitUntil: "load" });
    const { model } = await getJson(pacer.url, "/props");
    await page.waitForFunction((name) => document.getElementById("server-state").textContent === name, {}, model);
  }

  const textOf = (selector) => page.$eval(selector, (node) => node.textContent);
  const all = (selector) => page.$$eval(selector, (nodes) => nodes.map((node) => node.textContent));
  const answers = () => all(".message.assistant .body");
  const finished = () =>
    page.waitForFunction(
      () => document.querySelector(".message.assistant") && !document.querySelector(".message.running"),
    );

  async function write(text) {
    await page.type("#input", text);
    await page.keyboard.press("Enter");
  }

  async function ask(text) {
    await write(text);
    await page.waitForSelector(".message.assistant");
    await finished();
  }

  // Also presses buttons that show only under the pointer.
  const press = (selector) => page.$eval(selector, (node) => node.click());
  const picture = async (name) =>
    process.env.SCREENSHOTS && page.screenshot({ path: join(process.env.SCREENSHOTS, `${name}.png`) });
  const theme = (name) => page.select("#theme", name);

  const fingerprint = (selector) => page.$eval(selector, (canvas) => canvas.toDataURL());

  // The number of colours on a canvas, enough to tell dark from lit.
  const coloursOf = (selector) =>
    page.$eval(selector, (canvas) => {
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return new Set(new Uint32Array(data.buffer)).size;
    });

  async function findings() {
    await page.evaluate(await readFile(AXE, "utf8"));
    const { violations } = await page.evaluate(() => globalThis.axe.run({ resultTypes: ["violations"] }));
    return violations
      .filter(({ impact }) => impact === "serious" || impact === "critical")
      .flatMap(({ id, nodes }) =>
        nodes.map((node) => `${id}: ${node.target.join(" ")} ${node.failureSummary.split("\n")[1] ?? ""}`),
      );
  }

  async function downloaded() {
    for (let i = 0; i < 100; i++) {
      const names = (await readdir(folder)).filter((name) => name.endsWith(".json"));
      if (names.length) return join(folder, names[0]);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error("nothing was downloaded");
  }

  // ---- the conversation ----------------------------------------------------------------------------

  test("is served under a policy that allows nothing from elsewhere", async () => {
    const answer = await fetch(`${server.url}/`);
    assert.match(answer.headers.get("content-security-policy"), /default-src 'none'.*script-src 'self'/);
    const asked = [];
    page.on("request", (request) => asked.push(request.url()));
    await open();
    assert.deepEqual(
      asked.filter((url) => !url.startsWith(pacer.url)),
      [],
    );
  });

  test("another page of this machine can use the server, with the headers of the official client", async () => {
    const elsewhere = createServer((_, answer) => answer.setHeader("Content-Type", "text/html").end("<!doctype html>"));
    await new Promise((resolve) => elsewhere.listen(0, "127.0.0.1", resolve));
    try {
      await page.goto(`http://127.0.0.1:${elsewhere.address().port}`);
      const seen = await page.evaluate(async (url) => {
        const headers = { Authorization: "Bearer any", "X-Stainless-OS": "Linux", "Content-Type": "application/json" };
        const answer = await fetch(`${url}/v1/completions`, { method: "POST", headers, body: '{"prompt": 5}' });
        return { status: answer.status, id: answer.headers.get("x-request-id") };
      }, server.url);
      assert.equal(seen.status, 400);
      assert.ok(seen.id);
    } finally {
      elsewhere.closeAllConnections();
      elsewhere.close();
    }
  });

  test("an answer grows while it is written and then has its figures", async () => {
    pacer.eventMs = 25;
    await open();
    await write("What is a mixture of experts?");
    const lengths = [];
    await page.waitForFunction(() => document.querySelector(".message.assistant .body")?.textContent.length > 5);
    lengths.push((await answers())[0].length);
    await page.waitForFunction(
      (n) => document.querySelector(".message.assistant .body").textContent.length > n,
      {},
      lengths[0] + 5,
    );
    assert.ok(await page.$(".message.running"));
    assert.equal(await textOf("#announce"), "", "single tokens are not announced");
    await finished();
    assert.match(await textOf(".figures"), /tokens\/s · first token after .* · 60 tokens · prompt of \d+ tokens/);
    assert.match(await textOf("#context-text"), /of [\d,]+ tokens of context/);
    assert.match(await textOf("#announce"), /^Answer: /);
    assert.equal(pacer.requests[0].routing, undefined, "experts are asked for only while they are watched");
    assert.deepEqual(await page.evaluate(() => document.getElementById("input").value), "");
  });

  test("Esc stops an answer, and what came stays", async () => {
    pacer.eventMs = 40;
    pacer.tokens = 400;
    await open();
    await write("Tell me a long story.");
    await page.waitForFunction(() => document.querySelector(".message.assistant .body")?.textContent.length > 10);
    await page.keyboard.press("Escape");
    await finished();
    assert.match(await textOf(".message.assistant .foot"), /You stopped this answer/);
    assert.match(
      await textOf(".message.assistant .figures"),
      /\d+ tokens · prompt of \d+ tokens/,
      "it has its figures all the same",
    );
    assert.ok((await answers())[0].length > 10);
  });

  test("an edited message is a branch, and both branches stay", async () => {
    pacer.tokens = 12;
    await open();
    await ask("first version");
    await press(".message.user .edit");
    await page.$eval(".edit-text", (input) => {
      input.value = "second version";
    });
    await page.focus(".edit-text");
    await page.keyboard.press("Enter");
    await finished();
    assert.deepEqual(await all(".message.user .body"), ["second version"]);
    assert.match(await textOf(".message.user .branches"), /2\/2/);
    await press(".message.user .branches button[aria-label='Previous branch']");
    assert.deepEqual(await all(".message.user .body"), ["first version"]);
    assert.match(await textOf(".message.user .branches"), /1\/2/);
    assert.equal((await answers()).length, 1);
  });

  test("another answer is a branch of the answer", async () => {
    pacer.tokens = 12;
    await open();
    await ask("again and again");
    await press(".message.assistant .again");
    await finished();
    await press(".message.assistant .again");
    await finished();
    assert.match(await textOf(".message.assistant .branches"), /3\/3/);
    await press(".message.assistant .branches button[aria-label='Previous branch']");
    assert.match(await textOf(".message.assistant .branches"), /2\/3/);
    assert.deepEqual(await all(".message.user .body"), ["again and again"]);
  });

  test("the arrow up edits the last message, Shift+Enter ends a line, Ctrl+K begins another conversation", async () => {
    pacer.tokens = 8;
    await open();
    await page.type("#input", "one");
    await page.keyboard.down("Shift");
    await page.keyboard.press("Enter");
    await page.keyboard.up("Shift");
    await write("two");
    await finished();
    assert.deepEqual(await all(".message.user .body"), ["one\ntwo"]);
    await page.focus("#input");
    await page.keyboard.press("ArrowUp");
    assert.equal(await page.$eval(".edit-text", (input) => input.value), "one\ntwo");
    await page.keyboard.press("Escape");
    assert.equal(await page.$(".edit-text"), null);
    await page.keyboard.down("Control");
    await page.keyboard.press("k");
    await page.keyboard.up("Control");
    assert.equal((await all(".message")).length, 0);
    assert.equal((await all("#conversation-list li")).length, 1);
  });

  test("conversations are kept, found, renamed and deleted", async () => {
    pacer.tokens = 8;
    await open();
    await ask("about zebras");
    await press("#new-conversation");
    await ask("about lions");
    await page.reload();
    assert.deepEqual(await all(".entry"), ["about lions", "about zebras"]);
    assert.deepEqual(await all(".message.user .body"), ["about lions"], "a reload comes back to the conversation");
    await page.type("#search", "zebra");
    assert.deepEqual(await all(".entry"), ["about zebras"]);
    await press("#conversation-list button[aria-label^='Rename']");
    await page.$eval("#question-field", (input) => {
      input.value = "stripes";
    });
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelector(".entry")?.textContent === "stripes");
    await press("#conversation-list button[aria-label^='Delete']");
    await page.waitForSelector("#question[open]");
    await press("#question .danger");
    await page.waitForFunction(() => !document.querySelector(".entry"));
    await page.$eval("#search", (input) => {
      input.value = "";
      input.dispatchEvent(new Event("input"));
    });
    assert.deepEqual(await all(".entry"), ["about lions"]);
  });

  test("what is exported can be imported, and other files are refused with a sentence", async () => {
    pacer.tokens = 8;
    await open();
    await ask("to be exported");
    const [answer] = await answers();
    const session = await browser.target().createCDPSession();
    await session.send("Browser.setDownloadBehavior", {
      behavior: "allow",
      downloadPath: folder,
      browserContextId: context.id,
    });
    await press("#export-all");
    const file = await downloaded();
    assert.equal(JSON.parse(await readFile(file, "utf8")).conversations.length, 1);
    await press("#conversation-list button[aria-label^='Delete']");
    await page.waitForSelector("#question[open]");
    await press("#question .danger");
    await page.waitForFunction(() => !document.querySelector(".entry"));
    const input = await page.$("#import-file");
    await input.uploadFile(file);
    await page.waitForSelector(".message.assistant");
    assert.deepEqual(await answers(), [answer]);
    const bad = join(folder, "bad.txt");
    await writeFile(bad, "{ not json");
    await input.uploadFile(bad);
    await page.waitForFunction(() => /not JSON/.test(document.getElementById("notice").textContent));
    assert.equal((await all(".entry")).length, 1);
  });

  test("settings and the system prompt go into the request", async () => {
    pacer.tokens = 8;
    await open();
    await press("#open-settings");
    const set = (id, value) =>
      page.$eval(
        `#settings-${id}`,
        (input, text) => {
          input.value = text;
        },
        value,
      );
    await set("temperature", "0.25");
    await set("top_k", "7");
    await set("seed", "42");
    await set("max_tokens", "9");
    await set("stop", "END\\n");
    await set("system", "Be brief.");
    await press("#settings-save");
    await ask("with settings");
    const body = pacer.requests.at(-1);
    assert.deepEqual(
      [body.temperature, body.top_k, body.seed, body.max_tokens, body.stop],
      [0.25, 7, 42, 9, ["END\n"]],
    );
    assert.equal("top_p" in body, false);
    if (body.messages) assert.deepEqual(body.messages[0], { role: "system", content: "Be brief." });
    await press("#open-settings");
    await set("temperature", "-3");
    await press("#settings-save");
    assert.ok(await page.$("#settings[open]"), "a value out of range is not taken");
  });

  test("a model without a chat form continues text", async () => {
    pacer.props = { chat_template: null };
    pacer.tokens = 10;
    await open();
    await ask("Once upon a time");
    assert.equal(pacer.requests[0].prompt, "Once upon a time");
    const [first] = await answers();
    await page.focus("#input");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelectorAll(".message.assistant").length === 2);
    await finished();
    assert.equal(pacer.requests[1].prompt, `Once upon a time${first}`);
  });

  test("errors of the server are told, and the answer can be asked for again", async () => {
    pacer.tokens = 8;
    await open();
    const path =
      (await getJson(pacer.url, "/props")).chat_template === null ? "/v1/completions" : "/v1/chat/completions";
    pacer.answerNext(path, {
      status: 429,
      headers: { "Content-Type": "application/json", "Retry-After": "3" },
      body: '{"error":{"message":"full","code":429}}',
    });
    await ask("too many");
    assert.match(await textOf(".message.assistant .bad"), /no room.*3 s/);
    pacer.answerNext(path, {
      status: 200,
      headers: { "Content-Type": "text/event-stream" },
      body: 'data: {"error":{"message":"The engine stopped.","code":500}}\n\n',
    });
    await press(".message.assistant .again");
    await page.waitForFunction(() =>
      /engine stopped/.test(document.querySelector(".message.assistant .bad")?.textContent ?? ""),
    );
    await press(".message.assistant .again");
    await page.waitForFunction(() => !document.querySelector(".message.assistant .bad"));
    await finished();
    assert.ok((await answers())[0].length > 0);
  });

  test("a key is asked for once", async () => {
    const refusal = {
      status: 401,
      headers: { "Content-Type": "application/json" },
      body: '{"error":{"message":"no key","code":401}}',
    };
    pacer.answerNext("/props", refusal);
    await page.goto(pacer.url);
    await page.waitForSelector("#question[open] input[type=password]");
    await page.type("#question-field", "secret");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".welcome-name");
    assert.equal(await page.$("#question[open]"), null);
    assert.equal(await page.evaluate(() => sessionStorage.getItem("dsmoe.key")), "secret");
    await ask("With a key");
    assert.equal(pacer.authorization, "Bearer secret");
    assert.equal(await page.evaluate(() => Object.values(localStorage).some((text) => text.includes("secret"))), false);
  });

  // ---- Markdown ------------------------------------------------------------------------------------

  const HOSTILE = [
    "<script>globalThis.hacked = 1</script>",
    '<img src=x onerror="globalThis.hacked = 2">',
    "[click](javascript:globalThis.hacked=3)",
    "![x](javascript:globalThis.hacked=4)",
    "<javascript:globalThis.hacked=5>",
    "[a](data:text/html,<script>hacked=6</script>)",
    '<svg onload="globalThis.hacked = 7">',
    '<iframe srcdoc="<script>parent.hacked=8</script>"></iframe>',
    "[b](JaVaScRiPt&#58;hacked=9)",
    '```html"><script>globalThis.hacked = 10</script>\ncode</script>\n```',
    "| <img src=x onerror=hacked=11> | b |\n|---|---|\n| c | d |",
    "# Heading with **bold**",
    "- item `code`",
    "[fine](https://example.org/)",
  ].join("\n\n");

  test("a hostile answer runs nothing", async () => {
    pacer.props = { chat_template: "made up" };
    await open();
    pacer.answerNextWith(HOSTILE);
    await ask("be evil");
    await new Promise((resolve) => setTimeout(resolve, 300));
    assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
    const made = await page.$$eval(".message.assistant .body *", (nodes) =>
      [...new Set(nodes.map((node) => node.localName))].sort(),
    );
    for (const tag of ["script", "img", "iframe"]) assert.equal(made.includes(tag), false, tag);
    assert.equal(await page.$(".message.assistant .body svg:not(.icon)"), null);
    assert.deepEqual(
      await page.$$eval(".message.assistant .body a", (links) => links.map((link) => [link.href, link.rel])),
      [["https://example.org/", "noopener noreferrer"]],
    );
    assert.equal(
      await page.$$eval(".message.assistant .body *", (nodes) =>
        nodes.some((node) => [...node.attributes].some(({ name }) => name.startsWith("on"))),
      ),
      false,
    );
    assert.ok(made.includes("h3") && made.includes("strong") && made.includes("table") && made.includes("pre"));
    assert.match((await answers())[0], /<script>globalThis\.hacked = 1<\/script>/);
  });

  // ---- the experts -----------------------------------------------------------------------------------

  async function openExperts() {
    await page.click("#toggle-experts");
    await page.waitForSelector("#experts:not([hidden])");
    await page.click("#tab-live");
  }

  test("the grid lights up while an answer is written, and fades", async () => {
    pacer.eventMs = 20;
    await open();
    await openExperts();
    const dark = await coloursOf("#view-live canvas");
    await write("Which experts answer?");
    await page.waitForFunction(() => document.querySelector(".message.assistant .body")?.textContent.length > 10);
    const lit = await coloursOf("#view-live canvas");
    assert.ok(lit > dark, `${lit} colours while lit, ${dark} before`);
    assert.equal(pacer.requests[0].routing, true);
    await finished();
    const bright = await fingerprint("#view-live canvas");
    await new Promise((resolve) => setTimeout(resolve, 3000));
    const faded = await fingerprint("#view-live canvas");
    assert.notEqual(faded, bright);
    await new Promise((resolve) => setTimeout(resolve, 300));
    assert.equal(await fingerprint("#view-live canvas"), faded, "then it is at rest");
    await page.click("#view-live summary");
    await page.waitForSelector("#view-live tbody tr");
    const { moe } = await getJson(pacer.url, "/props");
    assert.equal((await all("#view-live tbody tr")).length, moe.n_layers, "the table has a row for each layer");
    assert.match(await textOf("#view-live tbody td"), /\d+ \([01]\.\d+\)/);
  });

  test("without motion the grid shows the last token and does not fade", async () => {
    await page.emulateMediaFeatures([{ name: "prefers-reduced-motion", value: "reduce" }]);
    await open();
    await openExperts();
    const dark = await coloursOf("#view-live canvas");
    await ask("Calmly, please.");
    await new Promise((resolve) => setTimeout(resolve, 600));
    const after = await coloursOf("#view-live canvas");
    assert.ok(after > dark);
    await new Promise((resolve) => setTimeout(resolve, 600));
    assert.equal(await coloursOf("#view-live canvas"), after);
  });

  test("a token shows the experts it met, by click and by arrow key", async () => {
    pacer.tokens = 20;
    await open();
    await openExperts();
    await ask("Show me tokens.");
    await page.click(".message.assistant .tokens");
    await page.waitForSelector(".token");
    const { moe } = await getJson(pacer.url, "/props");
    const spans = await page.$$(".strip-tokens > span:last-child .token");
    assert.ok(spans.length >= 19);
    await spans[3].click();
    assert.equal(await page.$eval("#tab-token", (tab) => tab.getAttribute("aria-selected")), "true");
    assert.equal((await all("#view-token tbody tr")).length, moe.n_layers);
    assert.equal((await all("#view-token tbody tr:first-child .chip")).length, moe.num_experts_per_tok);
    const position = async () => Number(/position (\d+)/.exec(await textOf(".token-head"))[1]);
    const before = await position();
    await page.keyboard.press("ArrowRight");
    assert.equal(await position(), before + 1);
    await page.keyboard.press("ArrowLeft");
    assert.equal(await position(), before);
    assert.equal((await all(".token[aria-selected=true]")).length, 1);
    await page.keyboard.press("End");
    assert.match(await textOf("#view-token"), /never an input/);
    assert.equal((await all(".strip-tokens > span:last-child .token")).join("").replaceAll("⏎", "").length > 0, true);
  });

  test("use, comparison and crowd say in numbers what they show", async () => {
    pacer.tokens = 16;
    await open();
    await openExperts();
    await ask("The first of two.");
    await ask("The second of two.");
    await page.click("#tab-use");
    assert.match(await textOf("#view-use .facts"), /tokens\d+.*experts used\d+/);
    assert.ok((await coloursOf("#view-use canvas")) > 3);
    assert.ok((await all("#view-use table.bars tbody tr")).length > 0);
    await page.click("#tab-compare");
    assert.match(await textOf("#view-compare .facts"), /in common[\d.]+%cosine/);
    await page.click("#tab-crowd");
    await page.waitForFunction(() => /No request is running/.test(document.getElementById("view-crowd").textContent));
    pacer.tokens = 60;
    pacer.eventMs = 25;
    await write("For the crowd.");
    await page.waitForFunction(() => /Distinct experts/.test(document.getElementById("view-crowd").textContent));
    await finished();
  });

  test("the experts of short answers are still there after a reload", async () => {
    pacer.tokens = 4;
    await open();
    await openExperts();
    await ask("Hi");
    const { moe } = await getJson(pacer.url, "/props");
    await page.reload();
    await page.waitForSelector(".message.assistant");
    const small = moe.n_layers * moe.num_experts_per_tok * 4 * 40 < 64 << 10;
    if (small) assert.ok(await page.$(".message.assistant .tokens"));
  });

  test("another conversation shows its own experts, not those of the one before", async () => {
    await open();
    await openExperts();
    const dark = await coloursOf("#view-live canvas");
    await ask("Light up.");
    await new Promise((resolve) => setTimeout(resolve, 3000));
    assert.ok((await coloursOf("#view-live canvas")) > dark);
    await press("#new-conversation");
    await page.waitForFunction(() => /Send a message/.test(document.getElementById("view-live").textContent));
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    assert.equal(await coloursOf("#view-live canvas"), dark);
    await press(".entry");
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    assert.ok((await coloursOf("#view-live canvas")) > dark);
  });

  // ---- appearance and accessibility --------------------------------------------------------------------

  const SHOWCASE =
    "## Mixture of experts\n\nA layer with **many small** networks and a *gate* that picks `6` of them:\n\n- only those work\n- the rest waits\n\n```c\ny += gate[k] * expert(index[k], x);\n```\n\n| model | active |\n|---|--:|\n| 16B | 2.8B |\n\n> Routing is decided for each token.\n\n[Read on](https://example.org/)";

  for (const name of ["light", "dark"]) {
    test(`nothing serious is found by axe in ${name}`, async () => {
      await open();
      await theme(name);
      const background = await page.evaluate(() =>
        getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number),
      );
      assert.equal(background[0] > 128, name === "light");
      assert.deepEqual(await findings(), [], "empty conversation");
      await picture(`empty-${name}`);
      await openExperts();
      await ask("What do you see?");
      await press(".message.assistant .again");
      await finished();
      assert.deepEqual(await findings(), [], "live");
      await picture(`live-${name}`);
      for (const tab of ["use", "compare", "crowd"]) {
        await page.click(`#tab-${tab}`);
        assert.deepEqual(await findings(), [], tab);
        await picture(`${tab}-${name}`);
      }
      await page.click(".message.assistant .tokens");
      assert.deepEqual(await findings(), [], "tokens");
      await picture(`token-${name}`);
      await page.click("#open-settings");
      assert.deepEqual(await findings(), [], "settings");
      await picture(`settings-${name}`);
      await page.click("#settings-cancel");
      await page.click("#open-help");
      assert.deepEqual(await findings(), [], "help");
      await picture(`help-${name}`);
    });

    test(`Markdown in ${name} has no serious finding either`, async () => {
      pacer.props = { chat_template: "made up" };
      await open();
      await theme(name);
      pacer.answerNextWith(SHOWCASE);
      await ask("Show me what you can write.");
      assert.deepEqual(await findings(), []);
      await picture(`markdown-${name}`);
    });
  }

  test("the choice of colours is kept", async () => {
    await open();
    await theme("dark");
    await page.reload();
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
    assert.equal(await page.$eval("#theme", (select) => select.value), "dark");
  });

  test("on a phone there is one column, a drawer, and no sideways scrolling", async () => {
    pacer.tokens = 30;
    await page.setViewport(PHONE);
    await open();
    const sideways = () => page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
    await ask("From a phone");
    assert.equal(await sideways(), false);
    await picture("phone");
    await page.click("#open-sidebar");
    await page.waitForFunction(() => document.getElementById("sidebar").getBoundingClientRect().left === 0);
    assert.deepEqual(await findings(), []);
    await picture("phone-drawer");
    await page.click("#close-sidebar");
    await page.click("#toggle-experts");
    await page.waitForSelector("#experts:not([hidden])");
    assert.equal(await sideways(), false);
    assert.deepEqual(await findings(), []);
    await picture("phone-experts");
    await page.keyboard.press("Escape");
    assert.equal(await page.$eval("#experts", (panel) => panel.hidden), true);
  });

  test("every control can be reached and has a name", async () => {
    await open();
    const names = await page.$$eval("button, input, select, textarea", (nodes) =>
      nodes
        .filter((node) => node.checkVisibility())
        .map(
          (node) =>
            node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.[0]?.textContent.trim() || "",
        ),
    );
    assert.ok(names.every(Boolean), names.join(" | "));
    assert.equal(
      await page.$eval("a[href], button, input, select, textarea, [tabindex]", (node) => node.textContent),
      "Go to the input",
    );
    await page.$eval(".skip", (link) => link.click());
    assert.equal(await page.evaluate(() => document.activeElement.id), "input");
  });
});
