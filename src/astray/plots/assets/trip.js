// A trip as the page holds it: numbers unrolled, places in metres around the trip's middle, colours, words.

const EARTH_RADIUS = 6371008.8; // metres, the mean radius
const METRES_A_DEGREE = (Math.PI / 180) * EARTH_RADIUS;

/** Sums of differences, divided: [10, 5, -5] over 10 becomes 1, 1.5, 1. */
function unrolled(differences, unit) {
  let sum = 0;
  return differences.map((difference) => (sum += difference) / unit);
}

/** Degrees to metres east and north of a centre; continuous across the antimeridian. */
function projection([lat0, lon0]) {
  const east = METRES_A_DEGREE * Math.cos((Math.PI / 180) * Math.min(Math.abs(lat0), 89.9));
  const wrapped = (degrees) => ((((degrees + 180) % 360) + 360) % 360) - 180;
  return (lat, lon) => [wrapped(lon - lon0) * east, (lat - lat0) * METRES_A_DEGREE];
}

/** A way, written as [differences of latitude, of longitude] in millionths of a degree, as places in metres. */
function places([lat, lon], project) {
  const north = unrolled(lat, 1e6);
  return unrolled(lon, 1e6).map((degrees, i) => project(north[i], degrees));
}

/** A trip of the data, ready to draw. */
function readTrip(raw, ways) {
  const project = raw.centre ? projection(raw.centre) : null;
  const hundredths = (values) => values.map((value) => (value === null ? null : value / 100));
  const faults = new Map(raw.faults);
  const normality = hundredths(raw.normality);
  const trip = {
    ...raw,
    time: unrolled(raw.time, 10),
    normality,
    uncertainty: hundredths(raw.uncertainty),
    faults,
    usable: normality.map((n, i) => (n !== null && !faults.has(i) ? i : -1)).filter((i) => i >= 0),
    path: project ? places(raw.way, project) : [],
    habitual: project ? raw.habitual.map((number) => places(ways[number], project)) : [],
    expected: project ? raw.expected.map((way) => places(way, project)) : [],
  };
  trip.stop = project && raw.stop ? { at: project(raw.stop[0], raw.stop[1]), minutes: raw.stop[2] } : null;
  return trip;
}

/** The smallest box around places: [west, south, east, north]. */
function bounds(...ways) {
  const box = [Infinity, Infinity, -Infinity, -Infinity];
  for (const way of ways) {
    for (const [x, y] of way) {
      box[0] = Math.min(box[0], x);
      box[1] = Math.min(box[1], y);
      box[2] = Math.max(box[2], x);
      box[3] = Math.max(box[3], y);
    }
  }
  return box;
}

/** A function from normality to a colour, in between those of a list of [normality, #rrggbb]. */
function palette(stops) {
  const parts = stops.map(([value, hex]) => [value, [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16))]);
  return (normality) => {
    const n = Math.min(Math.max(normality, parts[0][0]), parts.at(-1)[0]);
    const above = Math.max(1, parts.findIndex(([value]) => value >= n));
    const [low, from] = parts[above - 1];
    const [high, to] = parts[above];
    const mixed = from.map((c, i) => Math.round(c + ((n - low) / (high - low)) * (to[i] - c)));
    return `rgb(${mixed.join(",")})`;
  };
}

/** The largest 1, 2 or 5 times a power of ten that is at most so much. */
function roundLength(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  return [5, 2, 1].find((n) => n * power <= most) * power;
}

function signed(value, digits) {
  return value.toFixed(digits).replace("-", "−").replace(/^−(0(\.0*)?)$/, "$1");
}

function clock(trip, i) {
  if (trip.start === null) return `step ${trip.time[i]}`;
  const [, ahead] = trip.ahead.findLast(([first]) => first <= i);
  return `${new Date((trip.start + trip.time[i] + ahead) * 1000).toISOString().slice(11, 19)} ${trip.zone}`;
}

/** What is known of a fix, as short phrases. */
function wordsOf(trip, i) {
  const said = [clock(trip, i)];
  if (trip.faults.has(i)) return [...said, `left out as faulty: ${trip.faults.get(i)}`];
  if (trip.normality[i] === null) return [...said, "no score"];
  said.push(`normality ${signed(trip.normality[i], 2)} ± ${trip.uncertainty[i].toFixed(2)}`);
  const passed = trip.passed?.[i];
  if (passed !== undefined && passed !== null) said.push(`${passed} of ${trip.history} past trips came through here`);
  const segment = trip.segments.findIndex((s) => s.first <= i && i <= s.last);
  if (segment >= 0) said.push(`in segment ${segment + 1}`);
  return said;
}
