// Elements, made of text only: what users wrote never becomes markup.
import { clean } from "./model.js";

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") made.addEventListener("click", value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === "") continue;
    made.append(child instanceof Node ? child : document.createTextNode(clean(String(child))));
  }
  return made;
}

export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat().filter(Boolean));
}

// Says a select's choices, and keeps what was chosen.
export function choices(select, options, chosen) {
  const wanted = JSON.stringify(options);
  if (select.dataset.options !== wanted) {
    select.dataset.options = wanted;
    fill(select, options.map(([value, text]) => el("option", { value }, text)));
  }
  select.value = options.some(([value]) => value === chosen) ? chosen : "";
}

const SHOWN_MAX = 400;

// A table with at most SHOWN_MAX rows; says how many there are besides.
export function table(caption, heads, rows, make) {
  const body = el("tbody", {}, rows.slice(0, SHOWN_MAX).map((row) => el("tr", {}, make(row).map((cell) => el("td", {}, cell)))));
  const more = rows.length > SHOWN_MAX ? el("p", { class: "more" }, `${rows.length - SHOWN_MAX} more: filter to see them`) : null;
  const made = el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))), body);
  return [el("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: 0 }, made), more];
}

export function link(text, onclick) {
  return el("button", { type: "button", class: "link", onclick }, text);
}
