// Live: all agents with their states, worst first, in a list and on a map over their habitual ways.

import { ask, inPath, on } from "./api.js";
import { AgentCard } from "./agent_card.js";
import { AgentList } from "./agent_list.js";
import { stateOf } from "./colours.js";
import { make, say, typing } from "./dom.js";
import { boxAround, line, map, point } from "./map.js";
import { trackOf } from "./shared/trip.js";
import { count } from "./words.js";

const WITH_WAYS = 40; // agents whose habitual ways the map shows, worst first
const AT_ONCE = 4; // simultaneous requests for ways
const TRAIL = 60; // last places of an agent that form its trail
const LABELLED = 60; // with more agents the map names only those with an alert
const PAGE = 1000; // agents asked for at once
const REDRAW = 500; // milliseconds between two drawings of what has arrived
const REORDER = 2000; // milliseconds after which the list is sorted again

const placed = ({ lat }) => lat !== null && lat !== undefined;

export class Live {
  title = "Live";

  constructor() {
    this.agents = new Map();
    this.arrivals = new Map(); // agents that have changed since the last drawing
    this.trails = new Map();
    this.ways = new Map();
    this.loads = new Map(); // agent to the promise of its ways
    this.chosen = new URLSearchParams(location.search).get("agent");
    this.list = new AgentList({ choose: (name) => this.choose(name), narrowed: () => this.drawAgents() });
    this.frame = make("div", { class: "map-frame" });
    this.card = new AgentCard({ close: () => this.choose(null), track: (trip) => this.follow(trip) });
    const stage = make("section", { class: "stage", "aria-label": "Map of the agents" }, this.frame, this.card.element);
    this.element = make("div", { class: "live" }, this.list.element, stage);
    this.stops = [on("agent", (agent) => this.arrived(agent)), on("alert", () => this.card.refresh())];
  }

  async enter() {
    map.attach(this.frame);
    await this.reload();
    this.clock = setInterval(() => this.list.tick(), 15_000);
  }

  async reload() {
    const known = new Map();
    for (let offset = 0; ; offset += PAGE) {
      const { agents, total } = await ask(`/api/agents?limit=${PAGE}&offset=${offset}`);
      for (const agent of agents) known.set(agent.agent, agent);
      if (!agents.length || known.size >= total) break;
    }
    if (this.left) return;
    this.agents = known;
    map.show({}, { box: boxAround(this.positions()), onAgent: (name) => this.choose(name) });
    map.label(`Map of ${count(known.size, "agent")}.`);
    this.list.show(known);
    if (this.chosen !== null) this.choose(this.chosen);
    this.loadWays();
  }

  // ------------------------------------------------------------------ what arrives

  arrived(agent) {
    const before = this.arrivals.get(agent.agent) ?? this.agents.get(agent.agent);
    if (before?.state !== "alert" && agent.state === "alert") say(`Alert: ${agent.agent}.`);
    this.arrivals.set(agent.agent, agent);
    if (!agent.removed) this.trail(agent, before);
    this.drawing ??= setTimeout(() => this.redraw(), REDRAW);
    this.ordering ??= setTimeout(() => this.order(), REORDER);
  }

  redraw() {
    this.drawing = null;
    for (const [name, arrived] of this.arrivals) {
      if (arrived.removed) this.forget(name);
      else {
        const agent = { ...this.agents.get(name), ...arrived }; // an event does not hold everything
        this.agents.set(name, agent);
        this.list.update(agent);
        if (name === this.card.agent?.agent) this.card.update(agent);
      }
    }
    this.arrivals.clear();
    this.drawAgents();
    map.set("trails", this.trailLines());
  }

  order() {
    this.ordering = null;
    const same = this.agents.size === this.list.rows.size;
    if (this.list.busy && same) {
      this.ordering = setTimeout(() => this.order(), REORDER);
      return;
    }
    const first = this.list.rows.size === 0;
    this.list.show(this.agents);
    if (!same) this.loadWays();
    if (first) map.whole(boxAround(this.positions()));
  }

  forget(name) {
    this.agents.delete(name);
    this.ways.delete(name);
    this.loads.delete(name);
    this.trails.delete(name);
    if (name === this.chosen) this.choose(null);
    this.drawWays();
    this.list.show(this.agents);
  }

  trail(agent, before) {
    if (!placed(agent)) return;
    const underWay = agent.state !== "at rest" && agent.state !== "silent";
    const trail = this.trails.get(agent.agent) ?? (before && placed(before) ? [[before.lon, before.lat]] : []);
    if (underWay) this.trails.set(agent.agent, [...trail, [agent.lon, agent.lat]].slice(-TRAIL));
    else this.trails.delete(agent.agent);
  }

  // ------------------------------------------------------------------ the map

  positions() {
    return [...this.agents.values()].filter(placed).map(({ lon, lat }) => [lon, lat]);
  }

  drawAgents() {
    const few = this.agents.size <= LABELLED;
    const shown = [...this.agents.values()].filter((agent) => placed(agent) && this.list.matches(agent));
    map.set(
      "agents",
      shown.map(({ agent, state, lon, lat }) => {
        const chosen = agent === this.chosen;
        return point([lon, lat], {
          agent,
          name: few || chosen || state === "alert" ? agent : "",
          path: stateOf(state).path,
          colour: stateOf(state).colour,
          rank: chosen ? 1 : -stateOf(state).rank,
          chosen,
        });
      }),
    );
  }

  trailLines() {
    return [...this.trails]
      .filter(([, trail]) => trail.length > 1)
      .map(([agent, trail]) => line(trail, { alert: this.agents.get(agent)?.state === "alert" }));
  }

  async loadWays() {
    const wanted = this.list.ordered.slice(0, WITH_WAYS).map(({ agent }) => agent);
    const next = async () => {
      for (let agent = wanted.shift(); agent !== undefined && !this.left; agent = wanted.shift()) {
        if (this.loads.has(agent)) continue;
        await this.loadWay(agent);
        this.drawWays();
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, next));
  }

  /** Loads the ways of an agent, once. */
  loadWay(agent) {
    if (!this.loads.has(agent)) {
      const asked = ask(`/api/agents/${inPath(agent)}/ways`).catch(() => ({ features: [] }));
      this.loads.set(
        agent,
        asked.then(({ features }) => this.ways.set(agent, features)),
      );
    }
    return this.loads.get(agent);
  }

  drawWays() {
    if (this.left) return;
    const chosenLast = [...this.ways].sort(([a], [b]) => (a === this.chosen) - (b === this.chosen));
    const marked = (way, chosen) => ({ ...way, properties: { ...way.properties, chosen } });
    map.set(
      "ways",
      chosenLast.flatMap(([agent, ways]) => ways.map((way) => marked(way, agent === this.chosen))),
    );
  }

  // ------------------------------------------------------------------ one agent

  async choose(name) {
    this.chosen = name;
    const agent = this.agents.get(name) ?? null;
    history.replaceState(null, "", name === null ? "/live" : `/live?agent=${inPath(name)}`);
    this.list.mark(name);
    this.card.show(agent, name);
    this.drawAgents();
    for (const part of ["track", "ends"]) map.set(part, []);
    if (agent === null) return this.drawWays();
    await this.loadWay(name);
    if (this.chosen !== name || this.left) return undefined;
    this.drawWays();
    const near = this.ways.get(name).flatMap((way) => way.geometry.coordinates);
    const box = boxAround([...near, ...(placed(agent) ? [[agent.lon, agent.lat]] : [])]);
    return box && map.fit(box, true);
  }

  /** Shows the open trip of the chosen agent, coloured by normality where it is known. */
  follow(trip) {
    if (this.left) return;
    map.set("track", [trackOf(trip)]);
    map.set("ends", trip.usable.length ? [point(trip.places[trip.usable[0]], { end: false })] : []);
  }

  key(event) {
    if (typing(event)) return;
    if (event.key === "/") this.list.search.focus();
    else if (event.key === "Escape" && this.chosen !== null) this.choose(null);
    else return;
    event.preventDefault();
  }

  leave() {
    this.left = true;
    clearInterval(this.clock);
    clearTimeout(this.drawing);
    clearTimeout(this.ordering);
    this.stops.forEach((stop) => stop());
  }
}
