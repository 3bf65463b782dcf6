// format.js - formats numbers for people.
const whole = new Intl.NumberFormat("en");

export const count = (n, word) => `${whole.format(n)} ${word}${n === 1 ? "" : "s"}`;
export const integer = (n) => whole.format(n);
export const percent = (share) => `${(share * 100).toFixed(share < 0.0995 ? 1 : 0)}%`;
export const rate = (perSecond) => `${perSecond.toFixed(perSecond < 9.95 ? 1 : 0)} tokens/s`;
export const seconds = (ms) => (ms < 995 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 9950 ? 1 : 0)} s`);

export function parameters(n) {
  if (n >= 1e9) return `${(n / 1e9).toFixed(1)}B`;
  if (n >= 1e6) return `${(n / 1e6).toFixed(1)}M`;
  return n >= 1e3 ? `${(n / 1e3).toFixed(0)}K` : String(n);
}

// The figures of an answer in one line.
export function figuresLine({ promptTokens, cachedTokens, completionTokens, perSecond, firstTokenMs } = {}) {
  const parts = [];
  if (perSecond) parts.push(rate(perSecond));
  if (firstTokenMs !== undefined) parts.push(`first token after ${seconds(firstTokenMs)}`);
  if (completionTokens !== undefined) parts.push(count(completionTokens, "token"));
  if (promptTokens !== undefined) {
    parts.push(
      `prompt of ${count(promptTokens, "token")}${cachedTokens ? `, ${integer(cachedTokens)} from the cache` : ""}`,
    );
  }
  return parts.join(" · ");
}

// A token's text with visible spaces and line breaks.
export const visible = (text) => text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ | $/g, "␣") || "∅";
