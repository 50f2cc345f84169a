// Settings: a form that explains each setting, and checks it before the service does.

import { ask } from "./api.js";
import { make, say } from "./dom.js";
import { logoutButton } from "./login.js";
import { OUTLETS } from "./outlets.js"; // the service makes this file from its registry of outlets
import { sentence } from "./words.js";

const ASPECTS = ["place", "route", "manner", "time"];

export class Settings {
  title = "Settings";

  constructor() {
    this.form = make("form", {
      novalidate: true,
      onsubmit: (event) => this.save(event),
      oninput: () => this.changed(),
    });
    this.element = make("div", { class: "sheet" }, make("h1", {}, "Settings"), this.form);
  }

  async enter() {
    this.settings = await ask("/api/settings");
    this.render();
  }

  render() {
    const { settings } = this;
    const quiet = settings.quiet_hours;
    const byAspect = typeof settings.false_alarm_rate === "object";
    this.outlets = make(
      "ul",
      { class: "outlets", "aria-label": "Who gets alerts" },
      settings.outlets.map((outlet) => this.outlet(outlet)),
    );
    this.said = make("p", { role: "status", class: "fill" });
    this.submit = make("button", { class: "primary", type: "submit" }, "Save");
    this.form.replaceChildren(
      group(
        "Alerts",
        make(
          "div",
          { class: "pair" },
          number("alerts_a_week.agent", "Alerts per week for one agent", settings.alerts_a_week.agent, {
            min: 0,
            max: 10000,
            step: 1,
          }),
          number("alerts_a_week.all", "Alerts per week in total", settings.alerts_a_week.all, {
            min: 0,
            max: 1000000,
            step: 1,
          }),
        ),
        make("p", { class: "hint" }, "The page lists further alerts under Review, but the service does not send them."),
        check(
          "quiet",
          "Quiet hours",
          quiet !== null,
          "Alerts wait until the quiet hours are over, by the local time of the agent.",
          (on) => this.toggle("quiet_hours", on),
        ),
        make(
          "div",
          { class: "pair", "data-part": "quiet_hours", hidden: quiet === null },
          field(
            "quiet_hours.from",
            "From",
            make("input", { type: "time", value: quiet?.from ?? "22:00", required: true }),
          ),
          field(
            "quiet_hours.to",
            "Until",
            make("input", { type: "time", value: quiet?.to ?? "07:00", required: true }),
          ),
        ),
      ),
      group(
        "Who gets alerts",
        make(
          "p",
          { class: "hint" },
          "The service sends alerts to each of these. It shows secret parts of an address as ***, and keeps them unless you change them.",
        ),
        this.outlets,
        make("p", { class: "error", "data-error": "outlets", hidden: true }),
        make("button", { type: "button", onclick: () => this.addOutlet() }, "Add an outlet"),
      ),
      group(
        "Decision",
        make(
          "div",
          { "data-part": "one_rate", hidden: byAspect },
          number(
            "false_alarm_rate",
            "False-alarm rate, in percent",
            byAspect ? 2 : percentOf(settings.false_alarm_rate),
            { min: 0.01, max: 50, step: "any" },
            "The share of normal trips that the service flags. A lower rate means fewer alerts, and more missed anomalies.",
          ),
        ),
        check(
          "by_aspect",
          "A rate for each aspect",
          byAspect,
          "The service flags a trip if it is rare enough in any of them; an aspect without a rate flags none.",
          (on) => (this.toggle("rates", on), this.toggle("one_rate", !on)),
        ),
        make(
          "div",
          { "data-part": "rates", hidden: !byAspect },
          make(
            "div",
            { class: "pair rates" },
            ASPECTS.map((aspect) =>
              number(
                `false_alarm_rate.${aspect}`,
                `${sentence(aspect)}, %`,
                byAspect && aspect in settings.false_alarm_rate ? percentOf(settings.false_alarm_rate[aspect]) : "",
                { min: 0.01, max: 50, step: "any", required: false },
              ),
            ),
          ),
          make("p", { class: "hint" }, "In total, at most the sum of these rates of normal trips is flagged."),
          make("p", { class: "error", "data-error": "rates", hidden: true }),
        ),
        number(
          "undo_minutes",
          "Minutes to undo a verdict",
          settings.undo_minutes,
          { min: 0, max: 10080, step: "any" },
          "After this time a verdict teaches the model.",
        ),
      ),
      group(
        "Data",
        check(
          "keep",
          "Delete old fixes and trips",
          settings.retention_days !== null,
          "What the model learned from them stays until you erase the agent.",
          (on) => this.toggle("retention_days", on),
        ),
        make(
          "div",
          { "data-part": "retention_days", hidden: settings.retention_days === null },
          number("retention_days", "Days to keep them", settings.retention_days ?? 365, {
            min: 1,
            max: 36500,
            step: 1,
          }),
        ),
        field(
          "tiles",
          "Map file",
          make("input", {
            type: "text",
            value: settings.tiles ?? "",
            placeholder: "none: habitual ways alone",
            spellcheck: "false",
          }),
          "A PMTiles file in the folder of the service. The page never loads tiles from elsewhere.",
        ),
      ),
      make("div", { class: "row save" }, this.said, logoutButton(), this.submit),
    );
  }

  outlet({ kind, to }) {
    const address = make("input", {
      type: "text",
      value: to,
      "aria-label": "Address",
      placeholder: OUTLETS[kind][1],
      spellcheck: "false",
    });
    const choice = make(
      "select",
      { "aria-label": "Kind of outlet", onchange: () => (address.placeholder = OUTLETS[choice.value][1]) },
      Object.entries(OUTLETS).map(([value, [name]]) => make("option", { value, selected: value === kind }, name)),
    );
    const row = make(
      "li",
      { class: "row" },
      choice,
      address,
      make(
        "button",
        { type: "button", "aria-label": "Remove this outlet", onclick: () => (row.remove(), this.changed()) },
        "Remove",
      ),
    );
    return row;
  }

  addOutlet() {
    const row = this.outlet({ kind: "webhook", to: "" });
    this.outlets.append(row);
    row.querySelector("select").focus();
    this.changed();
  }

  toggle(name, shown) {
    this.form.querySelector(`[data-part="${name}"]`).hidden = !shown;
  }

  changed() {
    this.said.textContent = "Not saved yet.";
  }

  value(name) {
    return this.form.querySelector(`[name="${name}"]`).value;
  }

  /** Returns the settings in the form, as the service expects them. */
  read() {
    const on = (name) => this.form.querySelector(`[name="${name}"]`).checked;
    return {
      ...this.settings,
      alerts_a_week: { agent: Number(this.value("alerts_a_week.agent")), all: Number(this.value("alerts_a_week.all")) },
      quiet_hours: on("quiet") ? { from: this.value("quiet_hours.from"), to: this.value("quiet_hours.to") } : null,
      outlets: [...this.outlets.children].map((row) => ({
        kind: row.querySelector("select").value,
        to: row.querySelector("input").value.trim(),
      })),
      false_alarm_rate: on("by_aspect") ? this.rates() : Number(this.value("false_alarm_rate")) / 100,
      undo_minutes: Number(this.value("undo_minutes")),
      retention_days: on("keep") ? Number(this.value("retention_days")) : null,
      tiles: this.value("tiles").trim() || null,
    };
  }

  /** Returns the rate of each aspect that has one. */
  rates() {
    const given = ASPECTS.map((aspect) => [aspect, this.value(`false_alarm_rate.${aspect}`)]);
    return Object.fromEntries(given.filter(([, rate]) => rate !== "").map(([aspect, rate]) => [aspect, rate / 100]));
  }

  /** Returns the first invalid value as [field, words]; null if all are valid. */
  wrong() {
    for (const input of this.form.querySelectorAll("input[name]")) {
      if (input.closest("[hidden]") || input.type === "checkbox") continue;
      if (input.type === "number" && ((input.required && input.value === "") || !input.validity.valid)) {
        return [
          input.name,
          `Give ${input.step === "1" ? "a whole number" : "a number"} from ${input.min} to ${input.max}.`,
        ];
      }
      if (input.type === "time" && !input.value) return [input.name, "Give an hour, such as 22:00."];
    }
    if (this.form.querySelector('[name="by_aspect"]').checked && !Object.keys(this.rates()).length)
      return ["rates", "Give a rate for at least one aspect."];
    for (const row of this.outlets.children) {
      if (!row.querySelector("input").value.trim())
        return ["outlets", "An outlet has no address. Give one, or remove it."];
    }
    return null;
  }

  async save(event) {
    event.preventDefault();
    this.complain(null);
    const wrong = this.wrong();
    if (wrong) return this.complain(...wrong);
    this.submit.disabled = true;
    try {
      this.settings = (await ask("/api/settings", { method: "PUT", body: this.read() })) ?? this.read();
      this.said.textContent = "Saved.";
    } catch (error) {
      const split = error.field === "false_alarm_rate" && this.form.querySelector('[name="by_aspect"]').checked;
      this.complain(split ? "rates" : (error.field ?? null), error.words ?? String(error));
    }
    this.submit.disabled = false;
    return undefined;
  }

  complain(name, words = "") {
    for (const place of this.form.querySelectorAll("[data-error]")) place.hidden = true;
    for (const input of this.form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
    if (!words) return;
    const place =
      this.form.querySelector(`[data-error="${CSS.escape(name ?? "")}"]`) ??
      this.form.querySelector(`[data-error="${CSS.escape((name ?? "").split(/[.[]/)[0])}"]`);
    this.said.textContent = place ? "Not saved: see above." : words;
    say(words);
    if (!place) return;
    place.textContent = words;
    place.hidden = false;
    const input = this.form.querySelector(`[name="${CSS.escape(name)}"]`);
    input?.setAttribute("aria-invalid", "true");
    (input ?? place).scrollIntoView({ block: input ? "nearest" : "center" }); // a line of text could be under Save
    input?.focus();
  }

  leave() {}
}

/** Returns 0.02 as 2, without rounding noise. */
const percentOf = (share) => Number((100 * share).toPrecision(6));

function group(title, ...children) {
  return make("fieldset", {}, make("legend", {}, title), ...children);
}

function field(name, words, input, hint) {
  const id = `set-${name.replace(/\W/g, "-")}`;
  input.id = id;
  input.name = name;
  input.setAttribute("aria-describedby", `${id}-hint ${id}-error`);
  return make(
    "div",
    { class: "field" },
    make("label", { for: id }, words),
    input,
    make("p", { class: "hint", id: `${id}-hint`, hidden: !hint }, hint ?? ""),
    make("p", { class: "error", id: `${id}-error`, "data-error": name, hidden: true }),
  );
}

function number(name, words, value, limits, hint) {
  return field(
    name,
    words,
    make("input", { type: "number", inputmode: "decimal", value: String(value), required: true, ...limits }),
    hint,
  );
}

function check(name, words, checked, hint, does) {
  const box = make("input", { type: "checkbox", name, id: `set-${name}`, checked, onchange: () => does(box.checked) });
  return make(
    "div",
    { class: "field check" },
    make("label", { for: box.id }, box, words),
    make("p", { class: "hint" }, hint),
  );
}
