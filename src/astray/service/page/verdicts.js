// Verdicts: one key gives a verdict; it can be undone until it teaches the model.

import { ask, inPath } from "./api.js";
import { make, say } from "./dom.js";
import { VERDICTS, left, moment } from "./words.js";

export const KEYS = { n: "normal", a: "anomaly", u: "unsure" };

/** The words on the buttons for verdicts: the verdict and its effect. */
const ALONE = {
  normal: ["Normal", "learn it"],
  anomaly: ["Anomaly", "never learn it"],
  unsure: ["Unsure", "learn nothing"],
};
const MEANS = {
  trip: ALONE,
  doubt: ALONE,
  learned: { anomaly: ["Anomaly", "unlearn it, never learn it"] },
  question: {
    normal: ["A new habit", "learn them"],
    anomaly: ["Not a habit", "never learn them"],
    unsure: ["Unsure", "learn nothing"],
  },
};

/** Returns true if an item can get this verdict: a learned trip can only be called an anomaly. */
export const may = (kind, verdict) => verdict in MEANS[kind];

export function verdictButtons(kind, give) {
  return make(
    "div",
    { class: "verdicts", role: "group", "aria-label": "Verdict" },
    Object.entries(KEYS)
      .filter(([, verdict]) => may(kind, verdict))
      .map(([key, verdict]) =>
        make(
          "button",
          {
            type: "button",
            "data-verdict": verdict,
            class: `verdict-button ${verdict}`,
            "aria-keyshortcuts": key.toUpperCase(),
            onclick: () => give(verdict),
          },
          make("kbd", { "aria-hidden": "true" }, key.toUpperCase()),
          make("span", {}, make("b", {}, MEANS[kind][verdict][0]), make("small", {}, MEANS[kind][verdict][1])),
        ),
      ),
  );
}

/** Verdicts that can still be undone, newest last, and the strip that shows for how long. */
export class Pending {
  constructor(onUndone) {
    this.onUndone = onUndone;
    this.list = [];
    this.element = make("div", { class: "pending", hidden: true });
    this.ticking = setInterval(() => this.tick(), 1000);
  }

  async give(item, verdict) {
    const answer = await ask(`/api/review/${inPath(item.id)}/verdict`, { method: "POST", body: { verdict } });
    this.add({ id: item.id, agent: item.agent, verdict, teaches_at: answer.teaches_at, item });
    return answer;
  }

  add(entry) {
    this.list = [...this.list.filter(({ id }) => id !== entry.id), entry];
    this.render();
  }

  has(id) {
    return this.list.some((entry) => entry.id === id);
  }

  async undo(entry = this.list.at(-1)) {
    if (!entry) return say("There is no verdict to undo.");
    try {
      await ask(`/api/review/${inPath(entry.id)}/verdict`, { method: "DELETE" });
      say("Undone.");
      this.drop(entry.id);
      this.onUndone(entry);
    } catch (error) {
      if (error.status === 409) this.drop(entry.id);
      this.failed(error);
    }
  }

  drop(id) {
    this.list = this.list.filter((entry) => entry.id !== id);
    this.render();
  }

  failed(error) {
    this.trouble = `The service did not accept this. ${error.words ?? error}.`;
    say(this.trouble);
    this.render();
    this.trouble = null;
  }

  tick() {
    const now = Date.now() / 1000;
    if (this.list.some((entry) => entry.teaches_at <= now)) {
      this.list = this.list.filter((entry) => entry.teaches_at > now);
      this.render();
    }
    for (const clock of this.element.querySelectorAll("[data-until]"))
      clock.textContent = left(Number(clock.dataset.until));
  }

  render() {
    const newest = this.list.at(-1);
    const trouble = this.trouble ? make("p", { class: "trouble", role: "alert" }, this.trouble) : null;
    this.element.hidden = !newest && !trouble;
    const row = (entry, newest) =>
      make(
        "div",
        { class: "row" },
        make(
          "span",
          { class: "fill" },
          make("b", { class: `word ${entry.verdict}` }, VERDICTS[entry.verdict]),
          `: ${entry.agent}`,
          entry.item ? `, ${moment(entry.item.start, entry.item.local)}` : "",
          ". Can be undone for ",
          make("span", { "data-until": String(entry.teaches_at), class: "clock" }, left(entry.teaches_at)),
        ),
        make(
          "button",
          { type: "button", onclick: () => this.undo(entry) },
          newest ? make("kbd", { "aria-hidden": "true" }, "Z") : null,
          "Undo",
        ),
      );
    const earlier = this.list.slice(0, -1).reverse();
    this.element.replaceChildren(
      ...[
        trouble,
        newest && row(newest, true),
        earlier.length
          ? make(
              "details",
              {},
              make("summary", {}, `${earlier.length} earlier`),
              earlier.map((entry) => row(entry, false)),
            )
          : null,
      ].filter(Boolean),
    );
  }

  leave() {
    clearInterval(this.ticking);
  }
}
