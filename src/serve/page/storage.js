// storage.js - localStorage and sessionStorage, or memory if the browser forbids them. Then nothing outlives the page,
// but everything else works.

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

// Saves a small value; if there is no room, it is not saved.
export function remember(storage, name, value) {
  try {
    storage.setItem(name, value);
  } catch {
    // The page works without it.
  }
}
