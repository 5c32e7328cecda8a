// The nodes as cells: shape and colour by state, outline by lock, a letter by what runs there.
import { el, fill } from "./dom.js";
import { STATES, countsOf, keyOf, labelOf, lockOf, matchesNode, stateOf, workOf } from "./model.js";

const ORDER = new Intl.Collator("en", { numeric: true });
const LETTERS = { job: "J", Pod: "P", both: "B", none: "" };

export class Grid {
  constructor(open, toggle) {
    this.open = open;
    this.toggle = toggle;
    this.element = el("section", { "aria-label": "Nodes" });
    this.chips = el("div", { class: "chips", role: "group", "aria-label": "States: show only these" });
    this.groups = el("div", { class: "groups" });
    this.empty = el("p", { class: "more", role: "status" });
    this.element.append(this.chips, el("p", { class: "legend" }, "Letters: J a job, P a Pod, B both; struck through: leaving. Outline: dashed a lock that waits, solid locked, double strict."), this.empty, this.groups);
    this.cells = new Map();
    this.shown = "";
    this.number = 0;
  }

  // Draws what there is; cells that stay as they are are not touched.
  draw(nodes, work, filter, isStale) {
    this.drawChips(countsOf([...nodes.values()].filter((node) => !filter.cluster || node.cluster === filter.cluster)), filter);
    const found = [...nodes.values()].filter((node) => matchesNode(node, work.get(keyOf("nodes", node)), filter));
    found.sort((a, b) => ORDER.compare(groupOf(a), groupOf(b)) || ORDER.compare(a.node, b.node));
    const order = found.map((node) => keyOf("nodes", node)).join("\n");
    if (order !== this.shown) {
      this.shown = order;
      this.build(found);
    }
    for (const node of found) this.set(node, work.get(keyOf("nodes", node)), isStale);
    this.empty.textContent = found.length === nodes.size ? `${nodes.size} nodes` : `${found.length} of ${nodes.size} nodes`;
  }

  drawChips(counts, filter) {
    for (const state of STATES) {
      let chip = this.chips.querySelector(`[data-state="${state}"]`);
      if (!chip) {
        chip = el("button", { type: "button", "data-state": state, onclick: () => this.toggle(state) }, el("span", { class: `n s-${state}`, "aria-hidden": "true" }), el("span", { class: "count" }));
        this.chips.append(chip);
      }
      chip.hidden = !counts[state] && !filter.states.has(state);
      chip.setAttribute("aria-pressed", String(filter.states.has(state)));
      chip.lastChild.textContent = `${counts[state]} ${state}`;
    }
  }

  build(found) {
    const old = this.cells;
    this.cells = new Map();
    const groups = new Map();
    for (const node of found) {
      const key = keyOf("nodes", node);
      const cell = old.get(key) ?? this.cell(node);
      this.cells.set(key, cell);
      const group = groupOf(node);
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(cell);
    }
    fill(this.groups, [...groups].map(([name, cells]) => this.group(name, cells)));
  }

  group(name, cells) {
    const list = el("div", { class: "cells", role: "listbox", tabindex: 0, "aria-label": name, "aria-activedescendant": cells[0].id }, cells);
    list.addEventListener("keydown", (event) => this.key(event, list));
    list.addEventListener("click", (event) => {
      const cell = event.target.closest("[role=option]");
      if (!cell) return;
      this.mark(list, cell);
      this.open(cell.dataset.node);
    });
    list.addEventListener("focus", () => this.mark(list, this.active(list)));
    list.addEventListener("blur", () => this.active(list)?.classList.remove("at"));
    return el("section", { class: "group" }, el("h2", {}, name, el("span", { class: "count" }, ` ${cells.length}`)), list);
  }

  cell(node) {
    this.number += 1;
    return el("div", { role: "option", id: `n${this.number}`, "data-key": keyOf("nodes", node), "data-node": node.node, "aria-selected": "false" });
  }

  set(node, here, isStale) {
    const cell = this.cells.get(keyOf("nodes", node));
    const look = `n s-${stateOf(node)} l-${lockOf(node) || "no"}${here?.leaving ? " leaving" : ""}`;
    const label = labelOf(node, here, isStale);
    if (cell.dataset.look !== look) {
      cell.dataset.look = look;
      cell.className = look;
    }
    const letter = LETTERS[workOf(here)];
    if (cell.dataset.letter !== letter) {
      cell.dataset.letter = letter;
    }
    if (cell.dataset.label !== label) {
      cell.dataset.label = label;
      cell.setAttribute("aria-label", label);
      cell.title = label;
    }
  }

  active(list) {
    return document.getElementById(list.getAttribute("aria-activedescendant")) ?? list.firstElementChild;
  }

  mark(list, cell) {
    if (!cell) return;
    this.active(list)?.classList.remove("at");
    this.active(list)?.setAttribute("aria-selected", "false");
    list.setAttribute("aria-activedescendant", cell.id);
    cell.setAttribute("aria-selected", "true");
    cell.classList.add("at");
    cell.scrollIntoView({ block: "nearest" });
  }

  key(event, list) {
    const cells = [...list.children];
    const at = Math.max(0, cells.indexOf(this.active(list)));
    const columns = Math.max(1, cells.findIndex((cell) => cell.offsetTop > cells[0].offsetTop));
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -at, End: cells.length - 1 - at }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      this.mark(list, cells[Math.min(cells.length - 1, Math.max(0, at + step))]);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.open(cells[at].dataset.node);
    }
  }
}

function groupOf(node) {
  return `${node.cluster}: ${node.nodeset || node.partitions[0] || "no NodeSet"}`;
}
