// Health: promised and observed false alarms, feeds, queues, drift.

import { ask, inPath, on } from "./api.js";
import { make } from "./dom.js";
import { ago, bytes, lasting, percent, sentence } from "./words.js";

const FEEDS = 50; // agents in the list, longest delays first

export class Health {
  title = "Health";

  constructor() {
    this.body = make("div", { class: "cards" });
    this.element = make("div", { class: "sheet wide" }, make("h1", {}, "Health"), this.body);
    this.stop = on("health", (health) => this.show(health));
  }

  async enter() {
    await this.reload();
    this.clock = setInterval(() => this.reload().catch(() => null), 30_000);
  }

  async reload() {
    this.show(await ask("/api/health"));
  }

  show(health) {
    if (!health?.queue && !health?.false_alarms) return; // an event may only say that something changed
    const warnings = [...(health.warnings ?? []), ...(health.broker?.warnings ?? [])];
    this.body.replaceChildren(
      ...[
        this.alarms(health.false_alarms),
        this.state(health, warnings),
        this.drift(health.drift ?? []),
        this.refused(health.refused ?? []),
        this.feeds(health.feeds ?? []),
      ].filter(Boolean),
    );
  }

  alarms(alarms) {
    if (!alarms) return null;
    const { promised, observed } = alarms;
    const most = 1.25 * Math.max(promised, observed ?? 0, 0.01);
    const bar = (words, share, kind) => {
      const fill = make("span", { class: `fillbar ${kind}` });
      fill.style.width = `${Math.min(100, (100 * (share ?? 0)) / most)}%`;
      return make(
        "div",
        { class: "measure" },
        make("span", {}, words),
        make("span", { class: "bar", "aria-hidden": "true" }, fill),
        make("b", {}, percent(share)),
      );
    };
    const words = alarms.words || "not known yet: the service needs verdicts on flagged trips";
    return panel(
      "False alarms",
      "Share of normal trips that are flagged",
      bar("promised", promised, "normal"),
      bar("observed", observed, observed > 1.5 * promised ? "odd" : "normal"),
      make("p", {}, sentence(words), "."),
    );
  }

  state(health, warnings) {
    const facts = [
      ["Version", health.version],
      ["Running for", health.uptime === undefined ? null : lasting(health.uptime)],
      [
        "Fixes waiting",
        health.queue &&
          `${health.queue.waiting.toLocaleString("en")} (room for ${health.queue.limit.toLocaleString("en")})`,
      ],
      [
        "Messages waiting",
        health.outbox &&
          `${health.outbox.waiting.toLocaleString("en")}${health.outbox.failing ? `, ${health.outbox.failing} failing` : ""}`,
      ],
      [
        "Broker",
        health.broker && `${health.broker.url ?? ""} ${health.broker.connected ? "connected" : "not connected"}`,
      ],
      ["Store", health.store && `${health.store.kind}, ${bytes(health.store.bytes)}`],
    ];
    return panel(
      "Service",
      null,
      ...(warnings.length
        ? [
            make(
              "ul",
              { class: "warnings" },
              warnings.map((words) => make("li", {}, words)),
            ),
          ]
        : [make("p", { class: "fine" }, "No warnings.")]),
      make(
        "dl",
        {},
        facts.filter(([, value]) => value).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]),
      ),
    );
  }

  drift(remarks) {
    return panel(
      "Drift",
      "Agents whose habits seem to change",
      remarks.length
        ? make(
            "ul",
            {},
            remarks.map(({ agent, words }) =>
              make("li", {}, make("a", { href: `/live?agent=${inPath(agent)}` }, agent), `: ${words}`),
            ),
          )
        : make("p", { class: "fine" }, "None."),
    );
  }

  refused(rows) {
    if (!rows.length)
      return panel(
        "Refused fixes",
        null,
        make("p", { class: "fine" }, "None. Refused fixes appear here with the reason."),
      );
    const part = panel(
      "Refused fixes",
      "By reason; the service told each sender",
      table(
        ["Reason", "Fixes", "Last"],
        rows.map(({ reason, count: n, last }) => [reason, n.toLocaleString("en"), last ? ago(last) : "–"]),
      ),
    );
    part.classList.add("tall");
    return part;
  }

  feeds(feeds) {
    if (!feeds.length) return panel("Feeds", null, make("p", { class: "fine" }, "No fixes have come yet."));
    const slowest = [...feeds].sort((a, b) => (b.delay ?? 0) - (a.delay ?? 0)).slice(0, FEEDS);
    const part = panel(
      "Feeds",
      feeds.length > FEEDS
        ? `The ${FEEDS} of ${feeds.length.toLocaleString("en")} agents with the longest delays`
        : "How late fixes arrive",
      table(
        ["Agent", "Delay", "Last fix"],
        slowest.map(({ agent, delay, time }) => [
          make("a", { href: `/live?agent=${inPath(agent)}` }, agent),
          delay === null || delay === undefined ? "–" : lasting(delay),
          ago(time),
        ]),
      ),
    );
    part.classList.add("tall");
    return part;
  }

  leave() {
    clearInterval(this.clock);
    this.stop();
  }
}

function panel(title, about, ...children) {
  return make(
    "section",
    { class: "panel" },
    make("h2", {}, title),
    about ? make("p", { class: "soft" }, about) : null,
    ...children,
  );
}

function table(heads, rows) {
  return make(
    "table",
    {},
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        heads.map((head) => make("th", { scope: "col" }, head)),
      ),
    ),
    make(
      "tbody",
      {},
      rows.map((row) =>
        make(
          "tr",
          {},
          row.map((cell) => make("td", {}, cell)),
        ),
      ),
    ),
  );
}
