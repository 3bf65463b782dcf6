// experts_math.js - statistics of routing. A heat is a Float64Array of layers by experts with the sum of gate values
// (or the number of choices) of each expert. Shares are a heat in which each layer sums to 1.

// The heat of logs. `part` is "answer", "prompt" or "all"; `measure` is "gate" or "choices".
export function heatOf(logs, layers, experts, { part = "all", measure = "gate" } = {}) {
  const heat = new Float64Array(layers * experts);
  for (const log of logs) {
    const from = part === "answer" ? log.nPrompt : 0;
    const to = part === "prompt" ? log.nPrompt : log.length;
    log.forEach(from, to, (l, e, gate) => {
      if (l < layers && e < experts) heat[l * experts + e] += measure === "gate" ? gate : 1;
    });
  }
  return heat;
}

// The number of tokens in the logs that have experts.
export function routedTokens(logs, part = "all") {
  let count = 0;
  for (const log of logs) {
    const to = part === "prompt" ? log.nPrompt : log.length;
    for (let i = part === "answer" ? log.nPrompt : 0; i < to; i++) if (log.isRouted(i)) count++;
  }
  return count;
}

export function sharesOf(heat, layers, experts) {
  const shares = new Float64Array(heat.length);
  for (let l = 0; l < layers; l++) {
    let sum = 0;
    for (let e = 0; e < experts; e++) sum += heat[l * experts + e];
    if (sum > 0) for (let e = 0; e < experts; e++) shares[l * experts + e] = heat[l * experts + e] / sum;
  }
  return shares;
}

// Entropy of each layer's shares in bits: log2(experts) if all are used equally, 0 if only one is used.
export function entropies(shares, layers, experts) {
  return Array.from({ length: layers }, (_, l) => {
    let bits = 0;
    for (let e = 0; e < experts; e++) {
      const p = shares[l * experts + e];
      if (p > 0) bits -= p * Math.log2(p);
    }
    return bits;
  });
}

// The number of experts used in each layer.
export function usedExperts(heat, layers, experts) {
  return Array.from({ length: layers }, (_, l) => {
    let used = 0;
    for (let e = 0; e < experts; e++) if (heat[l * experts + e] > 0) used++;
    return used;
  });
}

// [{layer, expert, share}], the most used first; ties in order of layers and experts.
export function ranking(shares, layers, experts) {
  const list = [];
  for (let l = 0; l < layers; l++) {
    for (let e = 0; e < experts; e++) list.push({ layer: l, expert: e, share: shares[l * experts + e] });
  }
  return list.sort((a, b) => b.share - a.share || a.layer - b.layer || a.expert - b.expert);
}

// How similar two routings are, per layer: the share that both have in common (the sum of minima: 1 if equal, 0 if
// no expert is shared), the cosine of the angle between them, and, of the experts that a or b used, the fraction that
// both used (Jaccard).
export function overlaps(a, b, layers, experts) {
  return Array.from({ length: layers }, (_, l) => {
    let common = 0,
      dot = 0,
      aa = 0,
      bb = 0,
      both = 0,
      either = 0;
    for (let i = l * experts; i < (l + 1) * experts; i++) {
      common += Math.min(a[i], b[i]);
      dot += a[i] * b[i];
      aa += a[i] * a[i];
      bb += b[i] * b[i];
      if (a[i] > 0 && b[i] > 0) both++;
      if (a[i] > 0 || b[i] > 0) either++;
    }
    return {
      common,
      cosine: aa > 0 && bb > 0 ? dot / Math.sqrt(aa * bb) : 0,
      jaccard: either ? both / either : 0,
    };
  });
}

export const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : 0);

// The number of experts that `rows` tokens would use in a layer if each chose `top` of them at random.
export function expectedDistinct(experts, top, rows) {
  return experts * (1 - (1 - top / experts) ** rows);
}

// Where `share` is between a quarter of an even share (-1) and four times it (1), on a scale of powers of two.
export function overEven(share, experts) {
  if (share <= 0) return -1;
  return Math.max(-1, Math.min(1, Math.log2(share * experts) / 2));
}
