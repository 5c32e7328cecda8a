// The newest events of the bus: a list without a gap in it, and how old it is.
import { clock } from "./clock.js";

const AGAIN_MS = 5000;
const GAP_MS = 30000;
const ROWS_MAX = 400;
const NEWEST = { last: "100", since: "1800" };

export class Recent {
  constructor(ask) {
    this.ask = ask;
    this.rows = [];
    this.after = "";
    this.refused = "";
    this.problem = "";
    this.problems = [];
    this.goodAt = null;
    this.nextAt = -Infinity;
    this.isAsking = false;
  }

  get isDue() {
    return !this.isAsking && clock() >= this.nextAt;
  }

  async read() {
    this.isAsking = true;
    const began = clock();
    // After a long silence, or where more came than one answer holds, the newest count, and not those in between.
    if (this.goodAt !== null && began - this.goodAt > GAP_MS) this.after = "";
    const isOn = this.after !== "";
    let pauseMs = AGAIN_MS;
    try {
      const answer = await this.ask("events", isOn ? { after: this.after } : NEWEST);
      this.refused = this.problem = "";
      if (isOn && answer.is_more) {
        this.after = "";
        pauseMs = 0;
      } else {
        this.rows = [...[...answer.items].reverse(), ...(isOn ? this.rows : [])].slice(0, ROWS_MAX);
        this.after = answer.after;
        this.problems = answer.problems;
        this.goodAt = began;
      }
    } catch (error) {
      this.problem = error.message;
      if (error.status === 400) this.after = "";
      if (error.status === 403) {
        this.refused = error.message;
        this.rows = [];
        this.after = "";
      }
    }
    this.nextAt = clock() + pauseMs;
    this.isAsking = false;
  }
}
