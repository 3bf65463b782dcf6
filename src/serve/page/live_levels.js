// live_levels.js - how bright each cell of the live grid is. A token lights its experts by their gate values; light fades
// by half in a third of a second; experts met earlier in the answer keep a faint glow. No DOM here.

const HALF_LIFE_MS = 330;
const DARK = 0.012;
const GLOW = 0.3; // of the scale, for the expert met most

export class LiveLevels {
  constructor(layers, experts) {
    this.layers = layers;
    this.experts = experts;
    this.levels = new Float32Array(layers * experts);
    this.used = new Float32Array(layers * experts);
    this.steps = new Uint8Array(layers * experts);
    this.brightest = 0.05; // gate value that counts as full light
    this.mostUsed = 0;
  }

  clear() {
    this.levels.fill(0);
    this.used.fill(0);
    this.mostUsed = 0;
  }

  // A token's experts. Without `fade` only the last token is lit.
  light(log, index, fade = true) {
    if (!fade) this.levels.fill(0);
    this.brightest *= 0.995;
    log.forEach(index, index + 1, (l, e, gate) => {
      if (l >= this.layers || e >= this.experts) return;
      const i = l * this.experts + e;
      this.brightest = Math.max(this.brightest, gate);
      this.levels[i] = Math.max(this.levels[i], 0.35 + 0.65 * (gate / this.brightest));
      this.used[i] += gate;
      this.mostUsed = Math.max(this.mostUsed, this.used[i]);
    });
  }

  // Fades by what `ms` take. True while anything is still lit.
  fade(ms) {
    const factor = 0.5 ** (ms / HALF_LIFE_MS);
    let lit = false;
    for (let i = 0; i < this.levels.length; i++) {
      if (this.levels[i] === 0) continue;
      this.levels[i] = this.levels[i] * factor < DARK ? 0 : this.levels[i] * factor;
      lit ||= this.levels[i] > 0;
    }
    return lit;
  }

  // Steps of a scale with `count` colours.
  toSteps(count = 64) {
    const glow = this.mostUsed > 0 ? GLOW / this.mostUsed : 0;
    for (let i = 0; i < this.levels.length; i++) {
      const value = Math.min(1, Math.max(this.levels[i], this.used[i] * glow));
      this.steps[i] = Math.round(value * (count - 1));
    }
    return this.steps;
  }
}
