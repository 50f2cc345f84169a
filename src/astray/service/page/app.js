// The frame of the page: the view of each address, the connection, light and dark, keys.

import { ask, connect, disconnect, on, onConnection } from "./api.js";
import { badge } from "./badge.js";
import { make, part, say, typing } from "./dom.js";
import { recall, remember } from "./remembered.js";

// The page loads each view when it first shows it.
const VIEWS = {
  live: async () => new (await import("./live.js")).Live(),
  review: async () => new (await import("./review.js")).Review(),
  trip: async (id) => new (await import("./trip.js")).Trip(id),
  health: async () => new (await import("./health.js")).Health(),
  settings: async () => new (await import("./settings.js")).Settings(),
  export: async () => new (await import("./export.js")).Export(),
};
const HOME = "live";
const KEYS = [
  [
    "Review",
    [
      ["N", "normal: learn it"],
      ["A", "anomaly: never learn it (also on the page of a trip that was learned)"],
      ["U", "unsure: learn nothing"],
      ["Z", "undo the last verdict"],
      ["J or ↓", "next"],
      ["K or ↑", "previous"],
      ["1 to 9", "trip of a question"],
    ],
  ],
  [
    "Live",
    [
      ["/", "find an agent"],
      ["↑ ↓", "through the list"],
      ["Esc", "close the card"],
    ],
  ],
  [
    "Map and chart",
    [
      ["← →", "move the map, or the fix"],
      ["+ −", "zoom"],
      ["0", "show everything"],
    ],
  ],
  [
    "Everywhere",
    [
      ["G then L R H S E", "go to Live, Review, Health, Settings, Export"],
      ["?", "these keys"],
    ],
  ],
];

let view = null;
let turn = 0; // counts navigations: the page drops what an earlier one loaded
let going = 0; // when G was pressed

// ------------------------------------------------------------------ views

async function show() {
  const mine = ++turn;
  const [, name = "", ...rest] = location.pathname.split("/");
  const known = name in VIEWS ? name : HOME;
  for (const link of document.querySelectorAll("#top nav a")) {
    if (link.getAttribute("href") === `/${known}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  try {
    const made = await VIEWS[known](decodeURIComponent(rest.join("/")));
    if (mine !== turn) return void made.leave();
    put(made);
    await made.enter();
    if (mine === turn) titled(made.title);
  } catch (error) {
    if (mine === turn && error.status !== 401) trouble(error);
  }
}

function put(made) {
  view?.leave();
  view = made;
  part("view").replaceChildren(made.element);
  titled(made.title);
  document.body.dataset.view = made.constructor.name.toLowerCase();
}

function titled(title) {
  const before = /^\(\S+\) /.exec(document.title)?.[0] ?? "";
  document.title = `${before}${title} · astray`;
}

function trouble(error) {
  if (!(error instanceof Error) || error.status === undefined) console.error(error);
  part("view").replaceChildren(
    make(
      "div",
      { class: "empty", role: "alert" },
      make("h1", {}, error.status === 404 ? "Not found" : "The page cannot show this"),
      make("p", {}, error.words ?? "Something unexpected happened. Reload the page."),
      make("button", { type: "button", onclick: show }, "Try again"),
    ),
  );
}

function go(path) {
  history.pushState(null, "", path);
  show();
  part("view").focus({ preventScroll: true });
}

addEventListener("popstate", show);
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (
    !link ||
    event.defaultPrevented ||
    event.button ||
    event.ctrlKey ||
    event.metaKey ||
    event.shiftKey ||
    link.hasAttribute("download")
  )
    return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || !(url.pathname.split("/")[1] in VIEWS) || link.classList.contains("skip"))
    return;
  event.preventDefault();
  if (url.pathname + url.search !== location.pathname + location.search) go(url.pathname + url.search);
});

// ------------------------------------------------------------------ the connection

let wasGone = false;
let loggingIn = false;

onConnection(async (state) => {
  const gone = part("gone");
  if (state === "gone") {
    wasGone = true;
    gone.textContent =
      "The service does not answer. What you see may be old; the page continues by itself when the service is back.";
    gone.hidden = false;
  } else if (state === "up") {
    gone.hidden = true;
    if (!wasGone) return;
    wasGone = false;
    say("The service is back.");
    if (view?.reload && part("view").contains(view.element)) view.reload().catch(trouble);
    else if (!view || !part("view").contains(view.element)) show();
  } else if (state === "login" && !loggingIn) {
    loggingIn = true;
    disconnect();
    turn += 1;
    const { Login } = await import("./login.js");
    const form = new Login(() => {
      loggingIn = false;
      connect();
      countWaiting();
      show();
    });
    put(form);
    form.enter();
  }
});

let counting = 0;
async function countWaiting() {
  const { total } = await ask("/api/review?limit=1").catch(() => ({ total: null }));
  if (total !== null) badge(total);
}
on("review", () => {
  clearTimeout(counting);
  if (document.body.dataset.view !== "review") counting = setTimeout(countWaiting, 500);
});

// ------------------------------------------------------------------ light and dark

const NEXT = { auto: "light", light: "dark", dark: "auto" };
const SHADES = { auto: ["◐", "as the system"], light: ["☀", "light"], dark: ["☾", "dark"] };
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

let theme = recall("theme") in NEXT ? recall("theme") : "auto";
function shade() {
  const dark = theme === "dark" || (theme === "auto" && prefersDark.matches);
  document.documentElement.dataset.shade = dark ? "dark" : "light";
  const [sign, words] = SHADES[theme];
  part("theme").replaceChildren(
    make("span", { "aria-hidden": "true" }, sign),
    make("span", { class: "unseen" }, `Colours: ${words}`),
  );
  part("theme").title = `Colours: ${words}`;
}

async function reshade() {
  shade();
  if (!view) return;
  const { map } = await import("./map.js");
  map.restyle();
  await view.reload?.().catch(trouble);
}
part("theme").addEventListener("click", () => {
  theme = NEXT[theme];
  if (!remember("theme", theme)) say("The browser forgets this choice when you close the page, because storage is switched off.");
  reshade();
});
prefersDark.addEventListener("change", reshade);

// ------------------------------------------------------------------ keys

function showKeys() {
  part("keys").replaceChildren(
    make(
      "form",
      { method: "dialog" },
      make(
        "div",
        { class: "row top" },
        make("h2", { id: "keys-title", class: "fill" }, "Keys"),
        make("button", { "aria-label": "Close", class: "close" }, "×"),
      ),
    ),
    make(
      "div",
      { class: "key-groups" },
      KEYS.map(([title, keys]) =>
        make(
          "section",
          {},
          make("h3", {}, title),
          make(
            "dl",
            {},
            keys.flatMap(([key, does]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, does)]),
          ),
        ),
      ),
    ),
  );
  part("keys").showModal();
}
part("show-keys").addEventListener("click", showKeys);

document.addEventListener("keydown", (event) => {
  if (!typing(event)) {
    const to = { l: "/live", r: "/review", h: "/health", s: "/settings", e: "/export" }[event.key.toLowerCase()];
    if (event.key === "?") return showKeys();
    if (to && Date.now() - going < 1500) {
      going = 0;
      event.preventDefault();
      return go(to);
    }
    going = event.key.toLowerCase() === "g" ? Date.now() : 0;
  }
  return view?.key?.(event);
});

shade();
show();
connect();
countWaiting();
