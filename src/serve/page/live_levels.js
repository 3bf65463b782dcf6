// live_levels.js - how bright each cell of the live grid is. A token lights its experts by their gate values. The light
// fades by half within about two tokens, so that slow models leave a trail and fast ones do not light everything.
// Experts used earlier in the answer keep a faint glow. No DOM here.

const TOKENS_TO_HALF = 2;
const SHORTEST_MS = 60;
const LONGEST_MS = 350;
const DARK = 0.012;
const DIMMEST = 0.4; // of the scale, for a token's smallest gate value
const GLOW = 0.22; // for the expert used most

export class LiveLevels {
  constructor(layers, experts) {
    this.layers = layers;
    this.experts = experts;
    this.levels = new Float32Array(layers * experts);
    this.used = new Float32Array(layers * experts);
    this.steps = new Uint8Array(layers * experts);
    this.brightest = 0.05; // gate value that counts as full light
    this.mostUsed = 0;
    this.halfLife = LONGEST_MS;
    this.litAt = 0;
  }

  clear() {
    this.levels.fill(0);
    this.used.fill(0);
    this.mostUsed = 0;
  }

  // Lights a token's experts at a time in milliseconds. Without `fade` only the last token is lit.
  light(log, index, now, fade = true) {
    if (!fade) this.levels.fill(0);
    this.#keepPace(now);
    this.brightest *= 0.995;
    log.forEach(index, index + 1, (l, e, gate) => {
      if (l >= this.layers || e >= this.experts) return;
      const i = l * this.experts + e;
      this.brightest = Math.max(this.brightest, gate);
      this.levels[i] = Math.max(this.levels[i], DIMMEST + (1 - DIMMEST) * (gate / this.brightest) ** 2);
      this.#use(i, gate);
    });
  }

  // Adds the glow of an answer that was written earlier.
  recall(log) {
    log.forEach(0, log.length, (l, e, gate) => {
      if (l < this.layers && e < this.experts) this.#use(l * this.experts + e, gate);
    });
  }

  #use(i, gate) {
    this.used[i] += gate;
    this.mostUsed = Math.max(this.mostUsed, this.used[i]);
  }

  #keepPace(now) {
    const wanted = Math.max(SHORTEST_MS, Math.min(LONGEST_MS, (now - this.litAt) * TOKENS_TO_HALF));
    this.halfLife += (wanted - this.halfLife) * 0.1;
    this.litAt = now;
  }

  // Fades the light for `ms` milliseconds. True while anything is still lit.
  fade(ms) {
    const factor = 0.5 ** (ms / this.halfLife);
    let lit = false;
    for (let i = 0; i < this.levels.length; i++) {
      if (this.levels[i] === 0) continue;
      this.levels[i] = this.levels[i] * factor < DARK ? 0 : this.levels[i] * factor;
      lit ||= this.levels[i] > 0;
    }
    return lit;
  }

  // The brightness of each cell as a step of a scale with `count` colours.
  toSteps(count = 64) {
    const glow = this.mostUsed > 0 ? GLOW / this.mostUsed : 0;
    for (let i = 0; i < this.levels.length; i++) {
      const value = Math.min(1, Math.max(this.levels[i], this.used[i] * glow));
      this.steps[i] = Math.round(value * (count - 1));
    }
    return this.steps;
  }
}
