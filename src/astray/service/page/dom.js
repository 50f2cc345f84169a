// Makes elements with text, never with markup: names in the data may hold anything.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Makes an element. Attributes that are functions are listeners ("onclick"); null, undefined and false leave one out.
 * Children are elements or text; null, undefined and false are left out.
 */
export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function makeSvg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const part = (id) => document.getElementById(id);

/** Announces something to people who do not see the page change. */
export function say(words) {
  part("said").textContent = words;
}

/** Asks for confirmation of something that cannot be undone. */
export function confirmed(question, does) {
  return new Promise((answered) => {
    const box = make(
      "dialog",
      { class: "ask", "aria-label": question, onclose: () => (answered(box.returnValue === "yes"), box.remove()) },
      make(
        "form",
        { method: "dialog" },
        make("p", {}, question),
        make(
          "div",
          { class: "row end" },
          make("button", { value: "no", autofocus: true }, "Cancel"),
          make("button", { value: "yes", class: "danger" }, does),
        ),
      ),
    );
    document.body.append(box);
    box.showModal();
  });
}

/** Returns true if keys belong to the focused field or an open dialog. */
export function typing(event) {
  const { target } = event;
  return (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    target.isContentEditable ||
    /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) ||
    document.querySelector("dialog[open]") !== null
  );
}
