// Asks the view, and knows how old what it has is.
//
// What must stay true: what is shown as present came with a whole round of answers, at most STALE_MS ago. After
// a gap each table is read whole again before anything counts as present. A table that the user may not see
// (or no longer) is empty.
import { clock } from "./clock.js";
import { STALE_MS, apply, isStale, keyOf } from "./model.js";

const POLL_MS = 900;
const ANSWER_MS = 10000;
const AGAIN_MS = 2000;
const AGAIN_MAX_MS = 30000;
const WHOLE_MS = 3000;
const NAMESPACE_MS = 2500;
const LATE_MAX = 5;
const LOST_MS = 60000;
const FRESHEN_MS = 600000;
const PASSED_MAX = 300;
const BASE = "../";
const TABLES = ["nodes", "jobs", "placements"];

export class AnswerError extends Error {
  constructor(status, message, againMs) {
    super(message);
    this.status = status;
    this.againMs = againMs;
    this.isLost = false;
  }
}

export async function ask(path, query = {}) {
  const text = new URLSearchParams(query).toString();
  let answer;
  let body;
  try {
    const signal = AbortSignal.timeout(ANSWER_MS);
    answer = await fetch(`${BASE}${path}${text ? `?${text}` : ""}`, { signal, cache: "no-store", redirect: "error" });
    body = await answer.json();
  } catch (error) {
    const lost = new AnswerError(answer?.status ?? 0, `no answer: ${error.message}`, AGAIN_MS);
    lost.isLost = answer === undefined;
    throw lost;
  }
  if (answer.ok) return body;
  const after = Number(answer.headers.get("Retry-After")) * 1000 || AGAIN_MS;
  throw new AnswerError(answer.status, String(body.message ?? answer.status), Math.min(after, AGAIN_MAX_MS));
}

export class Follower {
  constructor(changed) {
    this.tables = { nodes: new Map(), jobs: new Map(), placements: new Map() };
    this.refused = {};
    this.problem = "";
    this.problems = [];
    this.passed = [];
    this.time = null;
    this.slurmSeen = {};
    this.lastGood = null;
    this.hasLoaded = false;
    this.namespace = "";
    this.choices = 0;
    this.after = {};
    this.wholeAt = {};
    this.confirmedAt = {};
    this.namespaceAt = -Infinity;
    this.namespaceGood = -Infinity;
    this.answered = null;
    this.late = {};
    this.changed = changed;
    this.wake = () => {};
    this.lostSince = null;
    this.isStopped = false;
  }

  get isStale() {
    return isStale(this.lastGood, clock());
  }

  // The view's clock, as far as it is known: a browser's own may be off.
  now() {
    return this.time === null ? clock() : Date.parse(this.time) + (clock() - this.timeAt);
  }

  // Since when it is stale, by that clock.
  get staleSince() {
    return this.now() - (clock() - this.lastGood);
  }

  chooseNamespace(name) {
    this.namespace = name;
    this.choices += 1;
    this.namespaceAt = this.namespaceGood = -Infinity;
    this.tables.placements.clear();
    delete this.after.placements;
    delete this.wholeAt.placements;
    this.changed({ placements: null });
    this.wake();
  }

  async run() {
    for (;;) {
      let waitMs = POLL_MS;
      if (this.isStopped || (document.hidden && this.hasLoaded)) {
        this.lostSince = null;
        await this.pause(3600000);
        continue;
      }
      try {
        await this.round();
        this.problem = "";
        this.lostSince = null;
      } catch (error) {
        this.problem = error.message;
        waitMs = error.againMs ?? AGAIN_MS;
        this.lostSince = error.isLost ? (this.lostSince ?? clock()) : null;
        // Another program may have the port of the one that answered: it is not asked for ever.
        this.isStopped = this.lostSince !== null && clock() - this.lostSince > LOST_MS;
        this.changed(null);
      }
      await this.pause(waitMs);
    }
  }

  resume() {
    this.isStopped = false;
    this.wake();
  }

  pause(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  // An answer to a question from before another namespace was chosen counts for nothing: it may be of Pods that
  // are not to be shown any more. The round begins again at once.
  async ask(path, query) {
    const choices = this.choices;
    const answer = await ask(path, query).catch((error) => error);
    if (choices !== this.choices) throw new AnswerError(0, "", 0);
    if (answer instanceof Error) throw answer;
    return answer;
  }

  async round() {
    let isWhole = true;
    for (const table of TABLES) isWhole = (await this.load(table)) && isWhole;
    const isNamespaceNew = await this.loadNamespace();
    const followed = Object.fromEntries(TABLES.filter((table) => this.after[table]).map((table) => [table, this.after[table]]));
    const asked = clock();
    let answer;
    try {
      answer = await this.ask("changes", followed);
    } catch (error) {
      if (error.status === 400) this.forget();
      throw error;
    }
    // Something between us and the view may answer by itself, with what it kept; or a clock was set back.
    const isRepeated = answer.time === this.answered;
    this.answered = answer.time;
    if (isRepeated || Date.parse(answer.time) < Date.parse(this.time) - STALE_MS) {
      if (!isRepeated) this.forget();
      throw new AnswerError(0, "an answer was not newer than the one before", AGAIN_MS);
    }
    this.take(answer);
    const silentMs = 1000 * answer.silent_s;
    if (isNamespaceNew) this.namespaceGood = this.namespaceAt - silentMs;
    const good = asked - silentMs;
    if (isWhole && !answer.late.length) this.lastGood = this.namespace ? Math.min(good, this.namespaceGood) : good;
    this.hasLoaded = true;
    this.changed(null);
  }

  // Everything is read whole, and the view's time is what it says next.
  forget() {
    this.after = {};
    this.time = null;
  }

  take(answer) {
    const { changed, passed } = apply(this.tables, answer);
    this.passed = [...passed.reverse(), ...this.passed].slice(0, PASSED_MAX);
    this.time = answer.time;
    this.timeAt = clock();
    this.slurmSeen = answer.slurm_seen;
    this.problems = answer.problems;
    for (const table of TABLES) {
      if (!answer.after[table]) continue;
      this.after[table] = answer.after[table];
      this.confirmedAt[table] = clock();
    }
    for (const table of answer.whole) delete this.after[table];
    for (const table of TABLES) {
      this.late[table] = answer.late.includes(table) ? (this.late[table] ?? 0) + 1 : 0;
      // Once: perhaps the bucket itself went back. A replica that is behind is waited for.
      if (this.late[table] === LATE_MAX) delete this.after[table];
    }
    for (const table of answer.refused) {
      delete this.after[table];
      this.tables[table].clear();
      this.wholeAt[table] = -Infinity;
      changed[table].add("");
    }
    if (Object.values(changed).some((keys) => keys.size)) this.changed(changed);
  }

  // Reads a table whole, where it must be. Returns whether the table is current then.
  async load(table) {
    if (table === "placements" && this.namespace) return true;
    if (clock() - (this.confirmedAt[table] ?? -Infinity) > STALE_MS) delete this.after[table];
    const age = clock() - (this.wholeAt[table] ?? -Infinity);
    if (this.after[table] && age < FRESHEN_MS) return true;
    if (this.refused[table] && age < AGAIN_MAX_MS) return true;
    if (age < WHOLE_MS) return false;
    let answer;
    try {
      answer = await this.ask(table);
      delete this.refused[table];
    } catch (error) {
      if (error.status !== 403) throw error;
      this.refused[table] = error.message;
      answer = { items: [], after: "" };
    }
    this.wholeAt[table] = clock();
    this.confirmedAt[table] = clock();
    this.tables[table] = new Map(answer.items.map((row) => [keyOf(table, row), row]));
    this.after[table] = answer.after;
    if (answer.time) {
      this.time = answer.time;
      this.timeAt = clock();
    }
    this.changed({ [table]: null });
    return true;
  }

  // A user who may list Pods of a namespace, and not all, has those: there is no question for their changes.
  // Returns whether they were read.
  async loadNamespace() {
    if (!this.namespace || clock() - this.namespaceAt < NAMESPACE_MS) return false;
    const asked = clock();
    let items = [];
    try {
      items = (await this.ask(`namespaces/${encodeURIComponent(this.namespace)}/pods`)).items;
      delete this.refused.placements;
    } catch (error) {
      if (![400, 403, 404].includes(error.status)) throw error;
      this.refused.placements = error.message;
    }
    delete this.after.placements;
    this.namespaceAt = asked;
    this.tables.placements = new Map(items.map((row) => [keyOf("placements", row), row]));
    this.changed({ placements: null });
    return true;
  }
}
