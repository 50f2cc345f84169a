// The card of one agent on the live map: its state, open trip and last trips; buttons to pause alerts and to erase it.

import { ask, inPath } from "./api.js";
import { stateMark, stateOf } from "./colours.js";
import { confirmed, make, say } from "./dom.js";
import { loadTrip } from "./trip_view.js";
import { ago, count, decisionOf, inDoubt, lasting, moment, sentence, signed, zoneName } from "./words.js";

const TRIPS = 8; // last trips in the list
const PAUSE = 24 * 3600; // seconds without alerts
const FEW = 5; // past trips below which no trip is called an anomaly

export class AgentCard {
  constructor({ close, track }) {
    Object.assign(this, { close, track });
    this.element = make("aside", { class: "card", "aria-label": "The chosen agent", hidden: true });
  }

  show(agent, name) {
    this.agent = agent;
    this.element.hidden = name === null;
    if (name === null) return;
    if (agent === null) {
      this.element.replaceChildren(this.head(name), make("p", {}, "The service knows no agent of this name."));
      return;
    }
    this.facts = make("div", { class: "facts" });
    this.trips = make(
      "ul",
      { class: "trips", "aria-label": "Last trips" },
      make("li", { class: "soft" }, "Loading the last trips …"),
    );
    this.alerts = make("div", { class: "alerts" });
    this.said = make("p", { class: "soft", role: "status" });
    this.pauseButton = make("button", { type: "button", onclick: () => this.pause() });
    this.element.replaceChildren(
      this.head(agent.agent),
      this.facts,
      this.alerts,
      make("h3", {}, "Last trips"),
      this.trips,
      make(
        "div",
        { class: "row" },
        this.pauseButton,
        make("button", { type: "button", class: "danger", onclick: () => this.erase() }, "Erase …"),
      ),
      this.said,
    );
    this.update(agent);
    this.refresh();
  }

  head(name) {
    return make(
      "div",
      { class: "row top" },
      make("h2", { class: "fill" }, name),
      make(
        "button",
        { type: "button", class: "close", "aria-label": "Close", title: "Close (Esc)", onclick: this.close },
        "×",
      ),
    );
  }

  get paused() {
    return this.agent.paused_until > Date.now() / 1000;
  }

  update(agent) {
    this.agent = agent;
    this.pauseButton.textContent = this.paused ? "Resume alerts" : "No alerts for a day";
    const trip = agent.trip ? make("a", { href: `/trip/${inPath(agent.trip)}` }, "Trip under way") : null;
    this.facts.replaceChildren(
      make("p", { class: "row" }, stateMark(agent.state), sentence(wordsOf(agent))),
      make(
        "p",
        { class: "soft" },
        agent.time
          ? `Last fix ${ago(agent.time)}: ${moment(agent.time, agent.local)} ${zoneName(agent.zone)}`
          : "No fix yet",
      ),
      make(
        "p",
        { class: "soft" },
        count(agent.trips, "past trip"),
        " known",
        agent.trips < FEW ? "; with fewer than five the service calls nothing an anomaly" : "",
      ),
      ...(this.paused
        ? [make("p", {}, `No alerts until ${moment(agent.paused_until, agent.local)} ${zoneName(agent.zone)}`)]
        : []),
      ...(trip ? [make("p", {}, trip, agent.normality === null ? "" : `, normality ${signed(agent.normality)}`)] : []),
    );
  }

  async refresh() {
    const { agent } = this;
    if (!agent) return;
    const path = `/api/agents/${inPath(agent.agent)}/trips?limit=${TRIPS}`;
    const [trips, alerts] = await Promise.all([
      ask(path).catch((error) => error),
      agent.alert ? ask("/api/alerts?open=1&limit=100").catch(() => null) : null,
    ]);
    if (this.agent?.agent !== agent.agent) return;
    this.list(trips);
    const mine = alerts?.alerts.filter((alert) => alert.agent === agent.agent) ?? [];
    this.alerts.replaceChildren(
      ...mine.map((alert) =>
        make(
          "p",
          { class: "alert" },
          make("b", {}, `Alert since ${moment(alert.opened, alert.local)}. `),
          sentence(alert.words),
          " ",
          make("span", { class: "soft" }, told(alert)),
        ),
      ),
    );
    if (agent.trip)
      loadTrip(agent.trip).then(
        (trip) => this.agent?.agent === agent.agent && this.track(trip),
        () => null,
      );
  }

  list(answer) {
    if (answer instanceof Error)
      return this.trips.replaceChildren(make("li", { class: "soft" }, answer.words ?? String(answer)));
    const trips = Array.isArray(answer) ? answer : (answer.trips ?? answer.items ?? []);
    if (!trips.length)
      return this.trips.replaceChildren(make("li", { class: "soft" }, "None yet. A trip ends with a stay or a gap."));
    return this.trips.replaceChildren(
      ...trips.map((trip) =>
        make(
          "li",
          {},
          make(
            "a",
            { href: `/trip/${inPath(trip.id)}` },
            make(
              "span",
              { class: "fill" },
              moment(trip.start, trip.local),
              make("span", { class: "soft" }, ` ${lasting(60 * (trip.minutes ?? 0))}`),
            ),
            inDoubt(trip) || (trip.decision && trip.decision !== "normal")
              ? make("span", { class: `chip ${inDoubt(trip) ? "plain" : trip.decision}` }, decisionOf(trip))
              : make("span", { class: "soft" }, signed(trip.score)),
          ),
        ),
      ),
    );
  }

  async pause() {
    const { agent } = this;
    const until = this.paused ? null : Math.round(Date.now() / 1000) + PAUSE;
    await this.does(
      ask(`/api/agents/${inPath(agent.agent)}/pause`, { method: "POST", body: { until } }).then((answer) => {
        agent.paused_until = answer.paused_until;
        if (this.agent.agent === agent.agent) this.update({ ...this.agent, paused_until: answer.paused_until });
      }),
      until === null
        ? "The service sends alerts about this agent again."
        : "The service sends no alerts about this agent for 24 hours. It still scores and lists its trips.",
    );
  }

  async erase() {
    const { agent } = this.agent;
    if (
      !(await confirmed(
        `Erase ${agent}? This deletes all its fixes, trips, scores and verdicts, and everything learned from them. It cannot be undone.`,
        "Erase",
      ))
    )
      return;
    await this.does(ask(`/api/agents/${inPath(agent)}`, { method: "DELETE" }), "Erased.");
  }

  async does(request, words) {
    const said = await request.then(
      () => words,
      (error) => error.words ?? String(error),
    );
    this.said.textContent = said;
    say(said);
  }
}

function wordsOf({ state, trips }) {
  const moving = state === "moving" && trips < FEW;
  return moving ? "moving: a trip is under way; too few past trips to judge it" : stateOf(state).words;
}

function told(alert) {
  const words = { yes: "Sent.", held: "Held back", no: "Not sent" }[alert.told] ?? "";
  return alert.told === "yes" || !alert.reason ? words : `${words}: ${alert.reason}.`;
}
