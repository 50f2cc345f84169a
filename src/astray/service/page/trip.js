// Trip: one trip with its reasons, map, chart and verdict, at its own address.

import { on } from "./api.js";
import { make, say, typing } from "./dom.js";
import { TripView, loadTrip } from "./trip_view.js";
import { KEYS, Pending, may, verdictButtons } from "./verdicts.js";
import { VERDICTS, left } from "./words.js";

export class Trip {
  title = "Trip";

  constructor(id) {
    this.id = id;
    this.view = new TripView();
    this.pending = new Pending(() => this.reload());
    this.said = make("p", { class: "soft given" });
    this.verdict = make("div", { class: "verdict-bar" });
    this.element = make(
      "div",
      { class: "single" },
      make("div", { class: "detail" }, this.view.element),
      make("div", { class: "foot" }, this.pending.element, this.said, this.verdict),
    );
    this.stop = on("review", (item) => item.id === this.id && !this.busy && this.reload());
  }

  async enter() {
    await this.reload();
  }

  async reload() {
    const trip = await loadTrip(this.id);
    this.trip = trip;
    this.title = `Trip of ${trip.agent}`;
    this.view.show(trip);
    const given = trip.verdict;
    const none = trip.open ? "You can give a verdict when the trip has ended." : "";
    const learned = trip.state === "learned" && !given;
    const unasked = learned
      ? "The service did not flag this trip, so it learned it. If it should not have, call it an anomaly."
      : "";
    const taught = given?.taught
      ? `Verdict: ${VERDICTS[given.verdict]}${given.by ? `, by ${given.by}` : ""}. The model has learned from it, so it is final.`
      : "";
    if (given && !given.taught && !this.pending.has(this.id))
      this.pending.add({
        id: this.id,
        agent: trip.agent,
        verdict: given.verdict,
        teaches_at: given.teaches_at,
        item: trip,
      });
    this.said.textContent = none || taught || unasked;
    this.said.hidden = !this.said.textContent;
    this.kind = none || given?.taught ? null : trip.state === "learned" ? "learned" : "trip";
    this.verdict.replaceChildren(...(this.kind ? [verdictButtons(this.kind, (verdict) => this.give(verdict))] : []));
    for (const button of this.verdict.querySelectorAll("button"))
      button.setAttribute("aria-pressed", String(button.dataset.verdict === given?.verdict));
  }

  async give(verdict) {
    this.busy = true;
    try {
      const { teaches_at: at } = await this.pending.give(this.trip, verdict);
      say(`${VERDICTS[verdict]}. Can be undone for ${left(at)}.`);
      await this.reload();
    } catch (error) {
      this.pending.failed(error);
    }
    this.busy = false;
  }

  key(event) {
    if (typing(event)) return;
    const key = event.key.toLowerCase();
    if (key in KEYS && this.kind && may(this.kind, KEYS[key]) && !event.repeat) this.give(KEYS[key]);
    else if (key === "z") this.pending.undo();
    else return;
    event.preventDefault();
  }

  leave() {
    this.stop();
    this.pending.leave();
  }
}
