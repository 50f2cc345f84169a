// Review: flagged trips and "new habit?" questions, worst first, then trips in doubt; one key gives a verdict and shows
// the next item.

import { ask, on } from "./api.js";
import { badge } from "./badge.js";
import { normalityColour } from "./colours.js";
import { make, say, typing } from "./dom.js";
import { TripView, agentLink, loadTrip } from "./trip_view.js";
import { KEYS, Pending, verdictButtons } from "./verdicts.js";
import { VERDICTS, count, decisionOf, moment, signed, zoneName } from "./words.js";

const MOST = 500; // items in the list
const TOGETHER = 12; // the most trips of a question on the map

const doubted = ({ kind }) => kind === "doubt";
// Sorts as the service does: flagged items, then trips in doubt; items without a score last.
const worstFirst = (a, b) =>
  doubted(a) - doubted(b) ||
  (a.score ?? Infinity) - (b.score ?? Infinity) ||
  (a.id < b.id ? -1 : Number(a.id > b.id));

export class Review {
  title = "Review";

  constructor() {
    this.items = [];
    this.total = 0;
    this.chosen = null;
    this.loads = new Map(); // trip id to its promise: what is shown, and the next one ahead
    this.pending = new Pending((entry) => this.undone(entry));
    this.view = new TripView();
    this.counts = make("p", { class: "soft" });
    this.list = make("ol", { class: "queue", "aria-label": "For review, worst first" });
    this.verdict = make("div", { class: "verdict-bar" });
    this.detail = make("div", { class: "detail" });
    this.element = make(
      "div",
      { class: "review" },
      make(
        "aside",
        { class: "side", "aria-label": "Queue" },
        make("div", { class: "side-head" }, make("h2", {}, "For review"), this.counts),
        this.list,
      ),
      make(
        "section",
        { class: "work", "aria-label": "The chosen item" },
        this.detail,
        make("div", { class: "foot" }, this.pending.element, this.verdict),
      ),
    );
    this.stop = on("review", (item) => this.arrived(item));
  }

  async enter() {
    await this.reload();
  }

  async reload() {
    const { items, total, pending = [] } = await ask(`/api/review?limit=${MOST}`);
    this.items = items.sort(worstFirst);
    this.total = total;
    for (const entry of pending) this.pending.add(entry);
    const still = this.items.find((item) => item.id === this.chosen?.id);
    this.render();
    this.choose(still ?? this.items[0] ?? null, still !== undefined);
  }

  // ------------------------------------------------------------------ the list

  render() {
    const more = this.total > this.items.length ? ` (${this.items.length} shown)` : "";
    const doubts = this.items.filter(doubted).length;
    const last = doubts ? `; ${doubts} in doubt, last` : "";
    this.counts.textContent = this.total
      ? `${this.total.toLocaleString("en")}, worst first${last}${more}`
      : "nothing waits";
    this.refocus ||= this.list.contains(document.activeElement);
    this.list.replaceChildren(...this.items.map((item) => this.row(item)));
    this.mark();
    badge(this.total);
  }

  row(item) {
    const question = item.kind === "question";
    const mark = make("span", { class: "score" }, question ? "?" : signed(item.score));
    if (!question && item.score !== null) mark.style.borderColor = normalityColour(item.score);
    return make(
      "li",
      {},
      make(
        "button",
        { type: "button", "data-id": item.id, onclick: () => this.choose(item) },
        mark,
        make(
          "span",
          { class: "fill" },
          make("span", { class: "name" }, item.agent),
          make(
            "span",
            { class: "soft" },
            question ? `New habit? ${item.trips.length} similar trips` : moment(item.start, item.local),
            doubted(item) ? ", in doubt" : "",
          ),
          make("span", { class: "cause" }, item.words ?? ""),
        ),
      ),
    );
  }

  mark() {
    for (const button of this.list.querySelectorAll("button")) {
      const here = button.dataset.id === this.chosen?.id;
      button.setAttribute("aria-current", String(here));
      if (!here) continue;
      button.scrollIntoView({ block: "nearest" });
      if (this.refocus) button.focus();
      this.refocus = false;
    }
  }

  arrived(item) {
    const known = this.items.findIndex(({ id }) => id === item.id);
    if (item.removed) {
      if (known < 0) return;
      this.take(item.id);
      if (this.chosen?.id === item.id) this.choose(this.items[Math.min(known, this.items.length - 1)] ?? null);
      return;
    }
    if (this.pending.has(item.id)) return;
    if (known >= 0) this.items.splice(known, 1);
    else {
      this.total += 1;
      say(`New for review: ${item.agent}, ${moment(item.start, item.local)}.`);
    }
    this.items = [...this.items, item].sort(worstFirst).slice(0, MOST);
    this.loads.delete(item.id);
    this.render();
    if (!this.chosen) this.choose(this.items[0]);
  }

  take(id) {
    const before = this.items.length;
    this.items = this.items.filter((item) => item.id !== id);
    this.total -= before - this.items.length;
    this.render();
  }

  // ------------------------------------------------------------------ one item

  async choose(item, quietly = false) {
    this.chosen = item;
    this.mark();
    if (!item) return this.nothing();
    // The buttons stay from item to item, so that they keep the focus.
    if (this.buttons !== item.kind)
      this.verdict.replaceChildren(verdictButtons(item.kind, (verdict) => this.give(verdict)));
    this.buttons = item.kind;
    try {
      const trips = await Promise.all(item.trips.slice(0, TOGETHER).map((id) => this.load(id)));
      if (this.chosen !== item) return;
      this.detail.replaceChildren(this.view.element);
      this.show(item, trips, 0);
      if (!quietly) this.detail.scrollTop = 0;
      this.ahead(item);
    } catch (error) {
      if (this.chosen !== item) return;
      this.loads.clear();
      this.detail.replaceChildren(
        make(
          "div",
          { class: "empty", role: "alert" },
          make("h1", {}, "The page cannot show this trip"),
          make("p", {}, error.words ?? String(error)),
          make("button", { type: "button", onclick: () => this.choose(item) }, "Try again"),
        ),
      );
    }
  }

  show(item, trips, which) {
    const { view } = this;
    const several = item.kind === "question";
    const title = several ? [make("span", { class: "chip question" }, "New habit?"), " ", agentLink(item.agent)] : null;
    view.show(trips[which], { others: trips.filter((_, i) => i !== which), title, late: item.late });
    view.tabs.hidden = !several;
    if (!several) return;
    view.why.prepend(
      make(
        "li",
        {},
        `${count(item.trips.length, "unusual trip")} are unusual in the same way. About the selected one:`,
      ),
    );
    view.tabs.replaceChildren(
      ...trips.map((trip, i) =>
        make(
          "button",
          {
            type: "button",
            "aria-pressed": String(i === which),
            "aria-keyshortcuts": i < 9 ? String(i + 1) : null,
            onclick: () => this.show(item, trips, i),
          },
          i < 9 ? make("kbd", { "aria-hidden": "true" }, String(i + 1)) : null,
          moment(trip.start, trip.local),
        ),
      ),
    );
    this.several = (i) => trips[i] && this.show(item, trips, i);
  }

  load(id) {
    if (!this.loads.has(id)) this.loads.set(id, loadTrip(id));
    return this.loads.get(id);
  }

  /** Loads the next item in advance. */
  ahead(item) {
    const next = this.items[this.items.indexOf(item) + 1];
    const keep = new Set([...item.trips, ...(next?.trips ?? [])]);
    for (const id of this.loads.keys()) if (!keep.has(id)) this.loads.delete(id);
    for (const id of next?.trips.slice(0, TOGETHER) ?? []) this.load(id).catch(() => this.loads.delete(id));
  }

  nothing() {
    this.buttons = null;
    this.verdict.replaceChildren();
    this.detail.replaceChildren(
      make(
        "div",
        { class: "empty" },
        make("h1", {}, "Nothing waits for you"),
        make(
          "p",
          {},
          "Trips that are not normal appear here by themselves, worst first. Give each a verdict: the service learns normal trips, and never learns anomalies.",
        ),
        make(
          "p",
          { class: "soft" },
          "To get alerts elsewhere, add an outlet in the ",
          make("a", { href: "/settings" }, "settings"),
          ".",
        ),
      ),
    );
  }

  // ------------------------------------------------------------------ verdicts

  async give(verdict) {
    const item = this.chosen;
    if (!item) return;
    const at = this.items.indexOf(item);
    this.take(item.id);
    const next = this.items[at] ?? this.items[at - 1] ?? null;
    const after = next
      ? `Next: ${next.agent}, ${moment(next.start, next.local)} ${zoneName(next.zone)}, ${decisionOf(next)}, normality ${signed(next.score)}. ${next.words ?? ""}`
      : "The queue is empty.";
    say(`${VERDICTS[verdict]}. ${after}`);
    this.choose(next);
    try {
      await this.pending.give(item, verdict);
    } catch (error) {
      if (error.status !== 404 && error.status !== 409) {
        this.putBack(item);
        this.choose(item);
      }
      this.pending.failed(error);
    }
  }

  undone(entry) {
    if (!entry.item) return this.reload();
    if (entry.item.kind === "unasked") return; // it was not in the queue
    this.putBack(entry.item);
    return this.choose(this.items.find(({ id }) => id === entry.id));
  }

  putBack(item) {
    if (!this.items.some(({ id }) => id === item.id)) {
      this.items = [...this.items, item].sort(worstFirst);
      this.total += 1;
    }
    this.render();
  }

  step(by) {
    const at = this.items.findIndex(({ id }) => id === this.chosen?.id);
    const next = this.items[Math.min(Math.max(at + by, 0), this.items.length - 1)];
    if (next && next !== this.chosen) {
      this.choose(next);
      say(`${next.agent}, ${moment(next.start, next.local)}. ${next.words ?? ""}`);
    }
  }

  key(event) {
    if (typing(event)) return;
    const key = event.key.toLowerCase();
    const inside = event.target.closest?.(".map, .chart"); // arrows there move the map, or the fix
    const keys = { j: () => this.step(1), k: () => this.step(-1), z: () => this.pending.undo() };
    if (!inside)
      Object.assign(keys, {
        arrowdown: () => this.step(1),
        arrowup: () => this.step(-1),
        arrowright: () => this.step(1),
        arrowleft: () => this.step(-1),
      });
    if (key in KEYS && !event.repeat) this.give(KEYS[key]);
    else if (/^[1-9]$/.test(key) && this.chosen?.kind === "question") this.several?.(Number(key) - 1);
    else if (key in keys) keys[key]();
    else return;
    event.preventDefault();
  }

  leave() {
    this.stop();
    this.pending.leave();
  }
}
