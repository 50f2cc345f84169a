// Remembers choices in this browser, if storage is allowed: the colours, and that somebody has logged in.

export function recall(name) {
  try {
    return localStorage.getItem(`astray-${name}`);
  } catch {
    return null; // storage is switched off
  }
}

/** Stores a value (null removes it); returns true if that worked. */
export function remember(name, value) {
  try {
    if (value === null) localStorage.removeItem(`astray-${name}`);
    else localStorage.setItem(`astray-${name}`, value);
    return true;
  } catch {
    return false;
  }
}
