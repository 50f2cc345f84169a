// Live: every agent with its state, worst first, in a list that can be searched and on a map over their habitual ways.

import { ask, inPath, on } from "./api.js";
import { AgentCard } from "./agent_card.js";
import { STATES, stateMark, stateOf } from "./colours.js";
import { make, say, typing } from "./dom.js";
import { boxAround, line, map, point } from "./map.js";
import { pieces } from "./trip_view.js";
import { ago, count, signed } from "./words.js";

const WITH_WAYS = 40; // agents whose habitual ways are drawn, the worst first
const AT_ONCE = 4; // requests for ways under way
const TRAIL = 60; // last places of an agent that are drawn behind it
const PAGE = 1000; // agents asked for at once
const REDRAW = 500; // milliseconds between two drawings of the agents
const REORDER = 2000; // milliseconds between two orderings of the list

const worstFirst = (a, b) =>
  stateOf(a.state).rank - stateOf(b.state).rank || (a.normality ?? 0) - (b.normality ?? 0) || a.agent.localeCompare(b.agent);

export class Live {
  title = "Live";

  constructor() {
    this.agents = new Map();
    this.rows = new Map();
    this.trails = new Map();
    this.ways = new Map();
    this.states = new Set();
    this.chosen = new URLSearchParams(location.search).get("agent");
    this.search = make("input", { type: "search", placeholder: "Find an agent  ( / )", "aria-label": "Find an agent", autocomplete: "off", spellcheck: "false", oninput: () => this.filter() });
    this.chips = make("div", { class: "chips", role: "group", "aria-label": "Only these states" });
    this.counts = make("p", { class: "soft", role: "status" });
    this.list = make("ul", { class: "agents", "aria-label": "Agents, worst first", onkeydown: (event) => this.walk(event) });
    this.frame = make("div", { class: "map-frame" });
    this.card = new AgentCard({ close: () => this.choose(null), track: (trip) => this.follow(trip) });
    this.element = make("div", { class: "live" },
      make("aside", { class: "side", "aria-label": "Agents" }, make("div", { class: "side-head" }, make("h1", { class: "unseen" }, "Live"), this.search, this.chips, this.counts), this.list),
      make("section", { class: "stage", "aria-label": "Map of the agents" }, this.frame, this.card.element));
    this.stops = [on("agent", (agent) => this.arrived(agent)), on("alert", () => this.card.refresh())];
  }

  async enter() {
    map.attach(this.frame);
    await this.reload();
    this.clock = setInterval(() => this.tick(), 15_000);
  }

  async reload() {
    const known = new Map();
    for (let offset = 0; ; offset += PAGE) {
      const { agents, total } = await ask(`/api/agents?limit=${PAGE}&offset=${offset}`);
      for (const agent of agents) known.set(agent.agent, agent);
      if (!agents.length || known.size >= total) break;
    }
    this.agents = known;
    this.rows.clear();
    this.order();
    map.show({ agents: this.places() }, { box: boxAround(this.positions()), onAgent: (name) => this.choose(name) });
    map.label(`Map of ${count(this.agents.size, "agent")}.`);
    if (this.chosen !== null) this.choose(this.chosen);
    this.loadWays();
  }

  // ------------------------------------------------------------------ the list

  order() {
    this.ordered = [...this.agents.values()].sort(worstFirst);
    if (!this.agents.size) return this.teach();
    this.list.replaceChildren(...this.ordered.map((agent) => this.row(agent)));
    this.chooseStates();
    return this.filter();
  }

  row(agent) {
    let row = this.rows.get(agent.agent);
    if (!row) {
      const button = make("button", { type: "button", onclick: () => this.choose(agent.agent) });
      row = make("li", {}, button);
      this.rows.set(agent.agent, row);
    }
    this.fillRow(row.firstChild, agent);
    return row;
  }

  fillRow(button, agent) {
    const is = agent.normality === null || agent.normality === undefined ? "" : signed(agent.normality);
    button.replaceChildren(
      stateMark(agent.state),
      make("span", { class: "fill" }, make("span", { class: "name" }, agent.agent), make("span", { class: "soft" }, `${agent.state}, ${ago(agent.time)}`)),
      make("span", { class: "score", title: is ? "normality of the trip under way" : null }, is));
    button.title = stateOf(agent.state).words;
    button.setAttribute("aria-current", String(agent.agent === this.chosen));
  }

  chooseStates() {
    const numbers = {};
    for (const { state } of this.agents.values()) numbers[state] = (numbers[state] ?? 0) + 1;
    const focused = document.activeElement?.dataset?.state;
    this.chips.replaceChildren(
      ...Object.keys(STATES).filter((state) => numbers[state]).map((state) =>
        make("button", { type: "button", "data-state": state, title: STATES[state].words, "aria-pressed": String(this.states.has(state)), onclick: () => this.only(state) },
          stateMark(state), `${state} `, make("b", {}, numbers[state].toLocaleString("en")))));
    if (focused) this.chips.querySelector(`[data-state="${focused}"]`)?.focus();
  }

  only(state) {
    if (!this.states.delete(state)) this.states.add(state);
    this.chooseStates();
    this.filter();
  }

  matches(agent) {
    const wanted = this.search.value.trim().toLowerCase();
    return (!this.states.size || this.states.has(agent.state)) && agent.agent.toLowerCase().includes(wanted);
  }

  filter() {
    let shown = 0;
    for (const agent of this.agents.values()) {
      const hidden = !this.matches(agent);
      this.rows.get(agent.agent).hidden = hidden;
      shown += hidden ? 0 : 1;
    }
    const all = count(this.agents.size, "agent");
    this.counts.textContent = shown === this.agents.size ? `${all}, worst first` : `${shown.toLocaleString("en")} of ${all}`;
    map.set("agents", this.places());
  }

  /** Arrow keys walk through the list. */
  walk(event) {
    const rows = [...this.list.children].filter((row) => !row.hidden);
    const at = rows.indexOf(event.target.closest("li"));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (to === undefined || !rows[to]) return;
    event.preventDefault();
    rows[to].firstChild.focus();
  }

  teach() {
    this.chips.replaceChildren();
    this.counts.textContent = "";
    const example = `curl ${location.origin}/api/fixes -H 'Content-Type: application/json' \\\n  -d '{"agent": "ana", "time": ${Math.round(Date.now() / 1000)}, "lat": 52.52, "lon": 13.405}'`;
    this.list.replaceChildren(
      make("li", { class: "empty" },
        make("h2", {}, "No agents yet"),
        make("p", {}, "An agent appears with its first fix. Send one:"),
        make("pre", { tabindex: "0" }, example),
        make("p", {}, "Or point OwnTracks to /pub, Overland to /overland, Traccar to /traccar, OsmAnd to /osmand. With a token, add ", make("code", {}, "-H 'Authorization: Bearer TOKEN'"), ".")));
  }

  // ------------------------------------------------------------------ the map

  positions() {
    return [...this.agents.values()].filter(({ lat }) => lat !== null && lat !== undefined).map(({ lon, lat }) => [lon, lat]);
  }

  places() {
    const few = this.agents.size <= 60;
    return [...this.agents.values()]
      .filter((agent) => agent.lat !== null && agent.lat !== undefined && this.matches(agent))
      .map((agent) => {
        const { rank } = stateOf(agent.state);
        const chosen = agent.agent === this.chosen;
        const name = few || chosen || agent.state === "alert" ? agent.agent : "";
        return point([agent.lon, agent.lat], { agent: agent.agent, name, state: agent.state in STATES ? agent.state : "at rest", rank: chosen ? 1 : -rank, chosen });
      });
  }

  async loadWays() {
    const wanted = this.ordered?.slice(0, WITH_WAYS).map(({ agent }) => agent).filter((agent) => !this.ways.has(agent)) ?? [];
    const next = async () => {
      for (let agent = wanted.shift(); agent !== undefined && !this.left; agent = wanted.shift()) {
        await this.loadWay(agent);
        this.drawWays();
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, next));
  }

  async loadWay(agent) {
    const { features } = await ask(`/api/agents/${inPath(agent)}/ways`).catch(() => ({ features: [] }));
    this.ways.set(agent, features);
  }

  drawWays() {
    if (this.left) return;
    const all = [...this.ways].sort(([a], [b]) => (a === this.chosen) - (b === this.chosen));
    map.set("ways", all.flatMap(([agent, ways]) => ways.map((way) => ({ ...way, properties: { ...way.properties, chosen: agent === this.chosen } }))));
  }

  // ------------------------------------------------------------------ what arrives

  arrived(agent) {
    if (agent.removed) {
      this.agents.delete(agent.agent);
      this.rows.get(agent.agent)?.remove();
      this.rows.delete(agent.agent);
      this.ways.delete(agent.agent);
      this.trails.delete(agent.agent);
      if (agent.agent === this.chosen) this.choose(null);
      this.drawWays();
    } else {
      const before = this.agents.get(agent.agent);
      this.agents.set(agent.agent, agent);
      if (before?.state !== "alert" && agent.state === "alert") say(`Alert: ${agent.agent}.`);
      this.trail(agent, before);
      if (this.rows.has(agent.agent)) this.fillRow(this.rows.get(agent.agent).firstChild, agent);
      if (agent.agent === this.card.agent?.agent) this.card.update(agent);
    }
    this.waiting ??= setTimeout(() => this.settle(), REORDER);
    this.drawing ??= setTimeout(() => this.redraw(), REDRAW);
  }

  redraw() {
    this.drawing = null;
    if (this.left) return;
    map.set("agents", this.places());
    map.set("trails", this.trailLines());
  }

  /** Order the list anew, but not under somebody's hand. */
  settle() {
    this.waiting = null;
    if (this.left) return;
    const busy = this.list.matches(":hover") || this.list.contains(document.activeElement);
    const grown = this.agents.size !== this.rows.size;
    if (busy && !grown) this.waiting = setTimeout(() => this.settle(), REORDER);
    else {
      const first = this.rows.size === 0;
      const focused = this.list.contains(document.activeElement) ? document.activeElement : null;
      this.order();
      focused?.focus();
      if (first) map.whole(boxAround(this.positions()));
    }
  }

  trail(agent, before) {
    if (agent.lat === null || agent.lat === undefined) return;
    if (agent.state !== "moving" && agent.state !== "alert" && agent.state !== "learning") return void this.trails.delete(agent.agent);
    const trail = this.trails.get(agent.agent) ?? (before?.lat ? [[before.lon, before.lat]] : []);
    this.trails.set(agent.agent, [...trail, [agent.lon, agent.lat]].slice(-TRAIL));
  }

  trailLines() {
    return [...this.trails].filter(([, trail]) => trail.length > 1).map(([agent, trail]) => line(trail, { alert: this.agents.get(agent)?.state === "alert" }));
  }

  tick() {
    for (const [name, row] of this.rows) {
      const said = row.querySelector(".soft");
      const agent = this.agents.get(name);
      if (said && agent) said.textContent = `${agent.state}, ${ago(agent.time)}`;
    }
  }

  // ------------------------------------------------------------------ one agent

  async choose(name) {
    this.chosen = name;
    const agent = this.agents.get(name) ?? null;
    history.replaceState(null, "", name === null ? "/live" : `/live?agent=${inPath(name)}`);
    for (const [other, row] of this.rows) row.firstChild.setAttribute("aria-current", String(other === name));
    this.rows.get(name)?.scrollIntoView({ block: "nearest" });
    this.card.show(agent, name);
    map.set("agents", this.places());
    for (const part of ["track", "odd", "ends"]) map.set(part, []);
    if (agent === null) return this.drawWays();
    if (!this.ways.has(name)) await this.loadWay(name);
    if (this.chosen !== name) return undefined;
    this.drawWays();
    const near = this.ways.get(name).flatMap((way) => way.geometry.coordinates);
    const box = boxAround([...near, ...(agent.lat === null ? [] : [[agent.lon, agent.lat]])]);
    return box && map.fit(box, true);
  }

  /** The trip under way of the chosen agent, coloured by normality where that is known. */
  follow(trip) {
    const { places, usable } = trip;
    map.set("track", pieces(trip));
    map.set("ends", usable.length ? [point(places[usable[0]], { end: false })] : []);
  }

  key(event) {
    if (typing(event)) return;
    if (event.key === "/") this.search.focus();
    else if (event.key === "Escape" && this.chosen !== null) this.choose(null);
    else return;
    event.preventDefault();
  }

  leave() {
    this.left = true;
    clearInterval(this.clock);
    clearTimeout(this.waiting);
    clearTimeout(this.drawing);
    this.stops.forEach((stop) => stop());
  }
}
