// What this browser remembers from visit to visit, where it is allowed to: the colours, and that somebody has logged in.

export function recall(name) {
  try {
    return localStorage.getItem(`astray-${name}`);
  } catch {
    return null; // storage is switched off
  }
}

/** Whether it will be remembered; null forgets. */
export function remember(name, value) {
  try {
    if (value === null) localStorage.removeItem(`astray-${name}`);
    else localStorage.setItem(`astray-${name}`, value);
    return true;
  } catch {
    return false;
  }
}
