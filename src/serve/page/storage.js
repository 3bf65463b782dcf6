// storage.js - localStorage and sessionStorage, or memory where a browser forbids them: then nothing outlives the
// page, but everything else works.

class MemoryStorage {
  #entries = new Map();
  get length() {
    return this.#entries.size;
  }
  key(i) {
    return [...this.#entries.keys()][i] ?? null;
  }
  getItem(name) {
    return this.#entries.get(name) ?? null;
  }
  setItem(name, value) {
    this.#entries.set(name, String(value));
  }
  removeItem(name) {
    this.#entries.delete(name);
  }
}

function usable(name) {
  try {
    const storage = globalThis[name];
    storage.getItem("dsmoe");
    return storage;
  } catch {
    return new MemoryStorage();
  }
}

export const local = usable("localStorage");
export const session = usable("sessionStorage");

// Keeps a small thing; without room it is simply not kept.
export function remember(storage, name, value) {
  try {
    storage.setItem(name, value);
  } catch {
    // The page works without it.
  }
}
