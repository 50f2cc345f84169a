// Puts numbers, times and states into words.

const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

export const DECISIONS = { anomaly: "Anomaly", review: "For review", normal: "Normal", open: "Under way" };
/** Returns true if a trip is in doubt: neither flagged nor learned. */
export const inDoubt = (trip) => trip.state === "waiting" && trip.decision === "normal";
export const decisionOf = (trip) => (inDoubt(trip) ? "In doubt" : (DECISIONS[trip.decision] ?? trip.decision));
export const VERDICTS = { normal: "Normal", anomaly: "Anomaly", unsure: "Unsure" };

export { signed } from "./shared/canvas.js";

/** Capitalises the first letter. */
export const sentence = (words) => (words ? words[0].toUpperCase() + words.slice(1) : "");

export function count(n, what) {
  const plural = /(x|s|ch)$/.test(what) ? "es" : "s";
  return `${n.toLocaleString("en")} ${what}${n === 1 ? "" : plural}`;
}

const USUAL = 0.25; // an aspect is as usual if more than this share of normal trips is as unusual in it

/** Returns the p-value of an aspect in words. */
export function rarity(p) {
  if (p === null || p === undefined) return "not looked for";
  return p > USUAL ? "as usual" : `1 in ${Math.round(1 / Math.max(p, 1e-9)).toLocaleString("en")}`;
}

/** Returns a p-value in words. */
export function frequency(p) {
  if (p === null || p === undefined) return "no p-value: too few past trips";
  if (p <= 0.25)
    return `about 1 normal trip in ${Math.round(1 / Math.max(p, 1e-9)).toLocaleString("en")} scores as low`;
  return `about ${Math.round(100 * p)} % of normal trips score as low`;
}

export function percent(share, digits = 1) {
  return share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits).replace(/\.0+$/, "")} %`;
}

// ------------------------------------------------------------------ times, on the local clock of the trip

/** Returns the seconds that local clocks are ahead of UTC, from an ISO date-time. */
export function ahead(local) {
  const found = /([+-])(\d\d):?(\d\d)$/.exec(local ?? "");
  return found ? (found[1] === "-" ? -1 : 1) * (3600 * Number(found[2]) + 60 * Number(found[3])) : 0;
}

const shifted = (time, offset) => new Date((time + offset) * 1000);

/** Returns "08:12" or "08:12:30" for clocks that are `offset` seconds ahead of UTC. */
export function clock(time, offset, seconds = false) {
  return shifted(time, offset)
    .toISOString()
    .slice(11, seconds ? 19 : 16);
}

/** Returns "Fri 3 May, 08:12", with the year if it is not the present one. */
export function moment(time, local) {
  if (time === null || time === undefined) return "never";
  const at = shifted(time, ahead(local));
  const year = at.getUTCFullYear() === new Date().getFullYear() ? "" : ` ${at.getUTCFullYear()}`;
  return `${DAYS[at.getUTCDay()]} ${at.getUTCDate()} ${MONTHS[at.getUTCMonth()]}${year}, ${at.toISOString().slice(11, 16)}`;
}

/** Returns the name of a zone: "UTC+8" for "UTC+8, by longitude". */
export const zoneName = (zone) => (zone ?? "UTC").split(",")[0];

/** Returns a duration: "40 s", "12 min", "3 h 5 min", "2 days". */
export function lasting(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 90) return `${s} s`;
  const minutes = Math.round(s / 60);
  if (minutes < 90) return `${minutes} min`;
  if (minutes < 48 * 60)
    return `${Math.floor(minutes / 60)} h${minutes < 600 && minutes % 60 ? ` ${minutes % 60} min` : ""}`;
  return count(Math.round(minutes / 1440), "day");
}

export function ago(time) {
  if (time === null || time === undefined) return "no fix yet";
  const seconds = Date.now() / 1000 - time;
  return seconds < 10 ? "just now" : `${lasting(seconds)} ago`;
}

/** Returns the time left until a moment: "9:58". */
export function left(until) {
  const s = Math.max(0, Math.round(until - Date.now() / 1000));
  if (s >= 5400) return lasting(s);
  return `${Math.floor(s / 60)}:${String(s % 60).padStart(2, "0")}`;
}

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const [size, unit] = [
    [1e9, "GB"],
    [1e6, "MB"],
    [1e3, "KB"],
  ].find(([size]) => n >= size) ?? [1, "bytes"];
  return `${(n / size).toFixed(size > 1e3 && n / size < 100 ? 1 : 0)} ${unit}`;
}
