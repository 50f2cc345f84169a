// Shows how many items wait for review, in the navigation and in the title.

import { part } from "./dom.js";
import { count } from "./words.js";

export function badge(total) {
  const mark = part("waiting");
  mark.hidden = !total;
  mark.textContent = total > 999 ? "999+" : String(total);
  mark.setAttribute("aria-label", count(total, "item"));
  document.title = `${total ? `(${mark.textContent}) ` : ""}${document.title.replace(/^\(\S+\) /, "")}`;
}
