// What is said of one node, job, Pod or gang: why it is so, and what happened.
import { el, fill, table } from "./dom.js";
import { ask } from "./follow.js";
import { ageText, clockText } from "./model.js";

const AGAIN_MS = 10000;

export class Story {
  constructor(element, follower, facts) {
    this.element = element;
    this.follower = follower;
    this.facts = facts;
    this.of = null;
    this.asked = 0;
    this.readAt = -Infinity;
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
    this.readAt = -Infinity;
    this.draw();
    this.read();
  }

  close() {
    this.of = null;
    this.asked += 1;
    this.element.hidden = true;
    this.before?.isConnected ? this.before.focus() : document.getElementById("main").focus();
  }

  // Shows what the tables have; asks again if that changed, or from time to time.
  draw(hasChanged = false) {
    if (!this.of) return;
    fill(this.now, this.facts(this.of));
    if (hasChanged || Date.now() - this.readAt > AGAIN_MS) this.read();
    this.tick();
  }

  tick() {
    if (!this.of || this.readAt < 0) return;
    this.age.textContent = `Answered ${ageText((Date.now() - this.readAt) / 1000)} ago`;
  }

  async read() {
    if (this.follower.isStale && this.readAt > 0) return;
    const asked = (this.asked += 1);
    this.readAt = this.readAt > 0 ? this.readAt : 0;
    const path = pathOf(this.of);
    const [why, past] = await Promise.allSettled([ask(`${path}/explain`), this.of.what === "gang" ? { items: [] } : ask(`${path}/events`, { last: "50" })]);
    if (asked !== this.asked || !this.of) return;
    if (why.status === "fulfilled" || past.status === "fulfilled") this.readAt = Date.now();
    fill(this.why, el("h3", {}, "Why"), why.status === "rejected" ? refused(why.reason) : explained(why.value));
    fill(this.past, el("h3", {}, "What happened"), past.status === "rejected" ? refused(past.reason) : events(past.value, this.of.what));
    this.tick();
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
    part.findings.length ? el("ul", {}, part.findings.map(finding)) : part.problem ? null : el("p", {}, "nothing stands out"),
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
