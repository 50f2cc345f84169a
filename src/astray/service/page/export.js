// Export: the data of the service as files.

import { ask, inPath } from "./api.js";
import { make } from "./dom.js";

const WHAT = {
  trips: ["Trips", "one row per trip: scores, decision, words", ["csv", "geojson", "parquet"]],
  fixes: ["Fixes", "one row per fix: time, place, accuracy", ["csv", "geojson", "parquet"]],
  alerts: ["Alerts", "when and why, and whether the service sent them", ["csv", "parquet"]],
  reviews: ["Reviews", "verdicts and what they taught", ["csv", "parquet"]],
};
const NAMES = { csv: "CSV", geojson: "GeoJSON", parquet: "Parquet" };

export class Export {
  title = "Export";

  constructor() {
    this.agents = make("datalist", { id: "agent-names" });
    this.agent = make("input", {
      list: "agent-names",
      id: "export-agent",
      placeholder: "everybody",
      autocomplete: "off",
      oninput: () => this.link(),
    });
    this.since = make("input", { type: "date", id: "export-since", oninput: () => this.link() });
    this.until = make("input", { type: "date", id: "export-until", oninput: () => this.link() });
    this.links = make("div", { class: "downloads" });
    const field = (name, input) => make("div", { class: "field" }, make("label", { for: input.id }, name), input);
    this.element = make(
      "div",
      { class: "sheet" },
      make("h1", {}, "Export"),
      make("p", { class: "soft" }, "These files say where people were and when. Handle them with care."),
      make(
        "form",
        { class: "filters", onsubmit: (event) => event.preventDefault() },
        field("Agent", this.agent),
        field("From", this.since),
        field("Until (inclusive)", this.until),
        this.agents,
      ),
      make("p", { class: "soft" }, "Days are in UTC."),
      this.links,
    );
    this.link();
  }

  async enter() {
    const { agents } = await ask("/api/agents?limit=1000");
    this.agents.replaceChildren(...agents.map(({ agent }) => make("option", { value: agent })));
  }

  link() {
    const day = (value) => (value ? Date.parse(`${value}T00:00:00Z`) / 1000 : null);
    const until = day(this.until.value);
    const filters = Object.entries({
      agent: this.agent.value,
      since: day(this.since.value),
      until: until === null ? null : until + 86400,
    });
    const query = filters
      .filter(([, value]) => value !== null && value !== "")
      .map(([name, value]) => `${name}=${inPath(value)}`)
      .join("&");
    this.links.replaceChildren(
      ...Object.entries(WHAT).map(([what, [name, about, formats]]) =>
        make(
          "section",
          { class: "panel row" },
          make("div", { class: "fill" }, make("h2", {}, name), make("p", { class: "soft" }, about)),
          formats.map((format) =>
            make(
              "a",
              {
                class: "button",
                download: `${what}.${format}`,
                href: `/api/export/${what}.${format}${query && `?${query}`}`,
                "aria-label": `${name} as ${NAMES[format]}`,
              },
              NAMES[format],
            ),
          ),
        ),
      ),
    );
  }

  leave() {}
}
