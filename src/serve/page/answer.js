// answer.js - one answer from the request to its last token: makes the request, and reads the stream into the message.
import { RoutingLog } from "./routing_log.js";
import { samplingFields } from "./settings.js";
import { pathTo } from "./store.js";

// The body and the path of the request that continues a conversation after `last`.
export function requestFor({ conversation, last, settings, props, routing }) {
  const before = last ? pathTo(conversation, last).filter((message) => message.content) : [];
  const common = {
    model: props.model,
    stream: true,
    stream_options: { include_usage: true },
    timings_per_token: true, // so that a stopped answer has its figures too
    ...samplingFields(settings),
    ...(routing ? { routing: true } : {}),
  };
  if (props.chat_template === null) {
    return { path: "v1/completions", body: { ...common, prompt: before.map((message) => message.content).join("") } };
  }
  const system = conversation.system ? [{ role: "system", content: conversation.system }] : [];
  const messages = [...system, ...before.map(({ role, content }) => ({ role, content }))];
  return { path: "v1/chat/completions", body: { ...common, messages } };
}

// Reads the stream into the message. Calls `on.text()` after new text, and `on.routed(log, index, isPrompt)` for each
// token whose experts are now known. Throws the stream's errors; the message then has everything up to that point.
export async function receive(events, message, moe, on) {
  const began = performance.now();
  const figures = (message.figures = {});
  let log = null;
  let count = 0;
  let firstAt = 0;
  for await (const event of events) {
    const choice = event.choices?.[0];
    const text = choice?.delta?.content ?? choice?.text ?? "";
    if (Array.isArray(event.routing) && moe) {
      log ??= new RoutingLog(moe.n_layers, moe.num_experts_per_tok);
      takeRouting(log, event.routing, !choice && !count, on);
    }
    if (text) {
      const now = performance.now();
      if (!count++) {
        firstAt = now;
        figures.firstTokenMs = now - began;
      } else {
        // A chunk is about one token. If the server sends its own speed, takeFigures uses that instead.
        figures.perSecond = ((count - 1) / (now - firstAt)) * 1000;
      }
      message.content += text;
    }
    if (choice?.finish_reason) message.finish = choice.finish_reason;
    takeFigures(figures, event);
    if (text) on.text();
  }
}

function takeRouting(log, entries, isPrompt, on) {
  for (const entry of entries) {
    const i = log.add(entry, isPrompt);
    if (i >= 0 && entry.experts?.length) on.routed(log, i, isPrompt);
    else on.logged(log);
  }
}

function takeFigures(figures, { usage, timings }) {
  if (timings) {
    figures.promptTokens = timings.prompt_n + timings.cache_n;
    figures.cachedTokens = timings.cache_n;
    figures.completionTokens = timings.predicted_n;
  }
  if (usage) {
    figures.promptTokens = usage.prompt_tokens;
    figures.completionTokens = usage.completion_tokens;
    figures.cachedTokens = usage.prompt_tokens_details?.cached_tokens ?? 0;
  }
  if (Number.isFinite(timings?.predicted_per_second) && timings.predicted_n > 1)
    figures.perSecond = timings.predicted_per_second;
}
