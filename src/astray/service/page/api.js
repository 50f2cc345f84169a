// Talks to the service: JSON requests, and server-sent events.

import { sentence } from "./words.js";

const UNSEEN = 60_000; // milliseconds in the background after which a page disconnects, since a browser has few connections

export class ServiceError extends Error {
  constructor(status, { reason, remedy, field } = {}) {
    super(reason ?? `the service answered ${status}`);
    Object.assign(this, { status, remedy, field });
  }

  /** Reason and remedy, one sentence each. */
  get words() {
    return [this.message, this.remedy].filter(Boolean).map(sentence).join(". ");
  }
}

const listeners = new Set(); // called with the state of the connection: "up", "gone", "login"
export const onConnection = (listener) => listeners.add(listener);
const tell = (state) => listeners.forEach((listener) => listener(state));

/** Returns an answer of the service as JSON (null if empty); throws a ServiceError if it refuses or does not answer. */
export async function ask(path, { method = "GET", body, signal } = {}) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      signal,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    tell("gone");
    throw new ServiceError(0, { reason: "the service does not answer", remedy: "the page continues when it is back" });
  }
  const text = await answer.text();
  let data = null;
  try {
    data = text ? JSON.parse(text) : null;
  } catch {
    throw new ServiceError(answer.status, { reason: `the service answered ${answer.status}, but not in JSON` });
  }
  if (answer.ok) return data;
  if (answer.status === 401 && path !== "/login") tell("login");
  throw new ServiceError(answer.status, data?.error);
}

export const inPath = encodeURIComponent;

// ------------------------------------------------------------------ events

const handlers = new Map(); // kinds of events to functions
let source = null;
let retry = 0;
let hangUp = 0;
let resting = false; // true: disconnected, because the page is in the background

/** Calls a function with every event of a kind; returns a function that stops this. */
export function on(kind, handler) {
  if (!handlers.has(kind)) handlers.set(kind, new Set());
  handlers.get(kind).add(handler);
  return () => handlers.get(kind).delete(handler);
}

export function connect() {
  disconnect();
  resting = false;
  source = new EventSource("/api/events");
  let opened = false;
  source.onopen = () => {
    opened = true;
    tell("up");
  };
  for (const kind of ["agent", "alert", "review", "health"]) {
    source.addEventListener(kind, (event) => {
      const data = JSON.parse(event.data);
      handlers.get(kind)?.forEach((handler) => handler(data));
    });
  }
  source.onerror = () => {
    // A browser reconnects by itself after a broken connection, but not after a refusal.
    if (source.readyState === EventSource.CLOSED) retry = setTimeout(again, 3000);
    if (opened || source.readyState === EventSource.CLOSED) look();
  };
}

export function disconnect() {
  clearTimeout(retry);
  source?.close();
  source = null;
}

/** Makes a small request: 401 shows the login form, no answer shows that the service is gone. */
async function look() {
  try {
    await ask("/api/agents?limit=1");
    return true;
  } catch (error) {
    return error.status !== 401 && error.status !== 0;
  }
}

async function again() {
  if (await look()) connect();
  else if (source) retry = setTimeout(again, 3000);
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(hangUp);
  if (document.hidden && source) {
    hangUp = setTimeout(() => {
      disconnect();
      resting = true;
    }, UNSEEN);
  } else if (resting) connect();
});
