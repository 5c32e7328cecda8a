// What is said of one node, job, Pod or gang: why it is so, and what happened.
import { clock } from "./clock.js";
import { el, fill, table } from "./dom.js";
import { ask } from "./follow.js";
import { ageText, clockText } from "./model.js";

const AGAIN_MS = 10000;
const SOON_MS = 3000;
const LATER = [0, 401, 429, 503];

export class Story {
  constructor(element, follower, facts) {
    this.element = element;
    this.follower = follower;
    this.facts = facts;
    this.of = null;
    this.asking = null;
    this.readAt = this.nextAt = -Infinity;
    this.before = null;
    element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
  }

  open(of) {
    this.before = document.activeElement;
    this.of = of;
    this.title = el("h2", {}, `${of.what} ${of.namespace ? `${of.namespace}/` : ""}${of.name}`);
    this.now = el("div");
    this.why = el("div", {}, el("p", {}, "Asking …"));
    this.past = el("div");
    this.age = el("p", { class: "legend" });
    fill(this.element, el("button", { type: "button", class: "close", "aria-label": "Close the story", onclick: () => this.close() }, "×"), this.title, this.age, this.now, this.why, this.past);
    this.element.hidden = false;
    this.element.focus();
    this.readAt = this.nextAt = -Infinity;
    this.said = "";
    this.draw();
  }

  close() {
    this.of = null;
    this.element.hidden = true;
    this.before?.isConnected ? this.before.focus() : document.getElementById("main").focus();
  }

  // Shows what the tables have; asks again soon if that changed.
  draw(hasChanged = false) {
    if (!this.of) return;
    fill(this.now, this.facts(this.of));
    if (hasChanged) this.nextAt = Math.min(this.nextAt, Math.max(this.readAt + SOON_MS, clock()));
    this.tick();
  }

  tick() {
    if (!this.of) return;
    if (!document.hidden && clock() >= this.nextAt) this.read();
    if (this.readAt > 0) this.age.textContent = `Answered ${ageText((clock() - this.readAt) / 1000)} ago`;
  }

  async read() {
    const of = this.of;
    if (this.asking === of || this.follower.isStopped || (this.follower.isStale && this.readAt > 0)) return;
    this.asking = of;
    const path = pathOf(of);
    const [why, past] = await Promise.allSettled([ask(`${path}/explain`), of.what === "gang" ? { items: [] } : ask(`${path}/events`, { last: "50" })]);
    if (this.of !== of) return;
    this.asking = null;
    const isLater = [why, past].some((one) => one.status === "rejected" && LATER.includes(one.reason.status));
    this.nextAt = clock() + (isLater ? SOON_MS : AGAIN_MS);
    if (!isLater) this.readAt = clock();
    if (isLater && this.said) return; // What is there stays, as old as it says.
    this.tick();
    const said = JSON.stringify([why, past, why.reason?.message, past.reason?.message]);
    if (this.said === said) return; // Who reads it keeps the place.
    this.said = said;
    fill(this.why, el("h3", {}, "Why"), why.status === "rejected" ? refused(why.reason) : explained(why.value));
    fill(this.past, el("h3", {}, "What happened"), past.status === "rejected" ? refused(past.reason) : events(past.value, of.what));
  }
}

function pathOf(of) {
  const name = encodeURIComponent(of.name);
  return of.namespace ? `namespaces/${encodeURIComponent(of.namespace)}/${of.what === "gang" ? "gangs" : "pods"}/${name}` : `${of.what}s/${name}`;
}

function refused(error) {
  return el("p", { class: "refused" }, error.message);
}

function explained(answer) {
  const parts = answer.parts.map((part) => [
    el("h4", {}, `${part.cluster} ${part.service}`.trim()),
    part.problem ? el("p", { class: "refused" }, part.problem) : null,
    part.findings.length ? el("ul", {}, part.findings.map(finding)) : part.problem ? null : el("p", {}, "nothing to report"),
  ]);
  const near = answer.near.length ? el("p", {}, `Names that are near: ${answer.near.join(", ")}`) : null;
  return [...parts.flat(), near, answer.parts.length ? null : el("p", {}, "nothing is known of it")].filter(Boolean);
}

function finding(one) {
  return el("li", {},
    el("strong", {}, one.what), one.since ? `, since ${clockText(one.since)}` : "",
    one.because ? el("div", {}, `because: ${one.because}`) : null,
    one.would_change ? el("div", {}, `would change it: ${one.would_change}`) : null);
}

export function events(answer, what = "") {
  const notes = answer.problems?.length ? el("p", { class: "refused" }, answer.problems.join("; ")) : null;
  if (what === "gang") return el("p", {}, "The events of a gang are those of its members.");
  if (!answer.items.length) return [notes, el("p", {}, "no events are kept")].filter(Boolean);
  return [notes, ...eventTable("Events, the newest first", [...answer.items].reverse())].filter(Boolean);
}

export function eventTable(caption, rows) {
  return table(caption, ["Time", "What", "Details"], rows, (row) => [
    clockText(row.time),
    `${row.about ? `${row.about} ` : ""}${row.namespace ? `${row.namespace}/` : ""}${row.name} ${row.what}`,
    row.details.join(" · "),
  ]);
}
