// The list of agents: worst first, with a search by name and a filter by state; rows change in place.

import { STATES, stateMark, stateOf } from "./colours.js";
import { make } from "./dom.js";
import { ago, count, signed } from "./words.js";

const worstFirst = (a, b) =>
  stateOf(a.state).rank - stateOf(b.state).rank ||
  (a.normality ?? 0) - (b.normality ?? 0) ||
  a.agent.localeCompare(b.agent);

export class AgentList {
  /** Calls `choose` with the name of an agent that was clicked, and `narrowed` when the filter changes. */
  constructor({ choose, narrowed }) {
    Object.assign(this, { choose, narrowed });
    this.rows = new Map();
    this.states = new Set();
    this.chosen = null;
    this.search = make("input", {
      type: "search",
      placeholder: "Find an agent  ( / )",
      "aria-label": "Find an agent",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.filter(),
    });
    this.chips = make("div", { class: "chips", role: "group", "aria-label": "Only these states" });
    this.counts = make("p", { class: "soft", role: "status" });
    this.list = make("ul", {
      class: "agents",
      "aria-label": "Agents, worst first",
      onkeydown: (event) => this.walk(event),
    });
    const title = make("h1", { class: "unseen" }, "Live");
    this.element = make(
      "aside",
      { class: "side", "aria-label": "Agents" },
      make("div", { class: "side-head" }, title, this.search, this.chips, this.counts),
      this.list,
    );
  }

  /** True while somebody is using the list, which must then keep its order. */
  get busy() {
    return this.list.matches(":hover") || this.list.contains(document.activeElement);
  }

  /** Shows agents (name to agent) in their present order. */
  show(agents) {
    this.agents = agents;
    if (!agents.size) return this.teach();
    const focused = this.list.contains(document.activeElement) ? document.activeElement : null;
    for (const name of this.rows.keys()) if (!agents.has(name)) this.rows.delete(name);
    this.ordered = [...agents.values()].sort(worstFirst);
    this.list.replaceChildren(...this.ordered.map((agent) => this.row(agent)));
    focused?.focus();
    this.offerStates();
    return this.filter();
  }

  row(agent) {
    if (!this.rows.has(agent.agent)) {
      this.rows.set(
        agent.agent,
        make("li", {}, make("button", { type: "button", onclick: () => this.choose(agent.agent) })),
      );
    }
    this.update(agent);
    return this.rows.get(agent.agent);
  }

  update(agent) {
    const button = this.rows.get(agent.agent)?.firstChild;
    if (!button) return;
    const is = agent.normality === null || agent.normality === undefined ? "" : signed(agent.normality);
    const name = make("span", { class: "name" }, agent.agent);
    const state = make("span", { class: "soft" }, `${agent.state}, ${ago(agent.time)}`);
    button.replaceChildren(
      stateMark(agent.state),
      make("span", { class: "fill" }, name, state),
      make("span", { class: "score", title: is ? "normality of the trip under way" : null }, is),
    );
    button.title = stateOf(agent.state).words;
    button.setAttribute("aria-current", String(agent.agent === this.chosen));
  }

  mark(name) {
    this.chosen = name;
    for (const [other, row] of this.rows) row.firstChild.setAttribute("aria-current", String(other === name));
    this.rows.get(name)?.scrollIntoView({ block: "nearest" });
  }

  /** Updates the ages of the last fixes. */
  tick() {
    for (const [name, row] of this.rows) {
      const agent = this.agents.get(name);
      if (agent) row.querySelector(".soft").textContent = `${agent.state}, ${ago(agent.time)}`;
    }
  }

  // ------------------------------------------------------------------ filters

  offerStates() {
    const numbers = {};
    for (const { state } of this.agents.values()) numbers[state] = (numbers[state] ?? 0) + 1;
    const focused = document.activeElement?.dataset?.state;
    const there = Object.keys(STATES).filter((state) => numbers[state] || this.states.has(state));
    this.chips.replaceChildren(...there.map((state) => this.chip(state, numbers[state] ?? 0)));
    if (focused) this.chips.querySelector(`[data-state="${focused}"]`)?.focus();
  }

  chip(state, number) {
    const attributes = {
      type: "button",
      "data-state": state,
      title: STATES[state].words,
      "aria-pressed": String(this.states.has(state)),
      onclick: () => this.only(state),
    };
    return make("button", attributes, stateMark(state), `${state} `, make("b", {}, number.toLocaleString("en")));
  }

  only(state) {
    if (!this.states.delete(state)) this.states.add(state);
    this.offerStates();
    this.filter();
  }

  matches(agent) {
    const wanted = this.search.value.trim().toLowerCase();
    return (!this.states.size || this.states.has(agent.state)) && agent.agent.toLowerCase().includes(wanted);
  }

  filter() {
    let shown = 0;
    for (const [name, row] of this.rows) {
      row.hidden = !this.matches(this.agents.get(name));
      shown += row.hidden ? 0 : 1;
    }
    const all = count(this.rows.size, "agent");
    const some = `${shown.toLocaleString("en")} of ${all}`;
    this.counts.textContent = shown === this.rows.size ? `${all}, worst first` : some;
    this.narrowed();
  }

  /** Moves through the list by arrow keys. */
  walk(event) {
    const rows = [...this.list.children].filter((row) => !row.hidden);
    const at = rows.indexOf(event.target.closest("li"));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (to === undefined || !rows[to]) return;
    event.preventDefault();
    rows[to].firstChild.focus();
  }

  /** Explains how to begin, while there is no agent. */
  teach() {
    this.rows.clear();
    this.ordered = [];
    this.chips.replaceChildren();
    this.counts.textContent = "";
    const fix = `{"agent": "ana", "time": ${Math.round(Date.now() / 1000)}, "lat": 52.52, "lon": 13.405}`;
    const command = `curl ${location.origin}/api/fixes -H 'Content-Type: application/json' \\\n  -d '${fix}'`;
    this.list.replaceChildren(
      make(
        "li",
        { class: "empty" },
        make("h2", {}, "No agents yet"),
        make("p", {}, "An agent appears with its first fix. Send one:"),
        make("pre", { tabindex: "0" }, command),
        make("p", {}, "Or point OwnTracks to /pub, Overland to /overland, Traccar to /traccar, OsmAnd to /osmand."),
        make("p", {}, "If the service asks for a token, add ", make("code", {}, "-H 'Authorization: Bearer TOKEN'"), "."),
      ),
    );
  }
}
