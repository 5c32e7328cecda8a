// How the page follows the view, with answers of the test's own: run by test_page.py.
import assert from "node:assert/strict";
import test from "node:test";

const { clock } = await import(`${process.env.PAGE}/clock.js`);
const { Follower } = await import(`${process.env.PAGE}/follow.js`);

globalThis.document = { hidden: false };
const node = (name, state = "IDLE") => ({
  cluster: "c1", node: name, state, is_drain: false, is_down: false, is_busy: false, is_cordoned: false, lock: "", reason: "", partitions: [],
});
let second = 0;
const time = () => new Date(Date.UTC(2026, 0, 1, 0, 0, (second += 1))).toISOString();
const changes = (fields = {}) => ({
  time: time(), silent_s: 0, nodes: [], jobs: [], placements: [], gone: {}, after: {}, whole: [], late: [], refused: [], slurm_seen: {}, problems: [], ...fields,
});

// Answers by path; a number is a refusal with that status. Returns what was asked.
function view(answers) {
  const asked = [];
  globalThis.fetch = async (url) => {
    const path = url.replace("../", "").split("?")[0];
    asked.push(path);
    const found = answers[path];
    const body = typeof found === "function" ? found(url) : found;
    const status = typeof body === "number" ? body : 200;
    return { ok: status === 200, status, headers: new Map(), json: async () => (status === 200 ? body : { message: `HTTP ${status}` }) };
  };
  return asked;
}

const whole = (fields = {}) => ({
  nodes: { items: [node("d1")], after: "n1", time: time() }, jobs: { items: [], after: "j1" }, placements: { items: [], after: "p1" }, changes: () => changes(), ...fields,
});

test("a whole round is live, and after it only changes are asked for", async () => {
  const asked = view(whole());
  const one = new Follower(() => {});
  await one.round();
  assert.equal(one.isStale, false);
  await one.round();
  assert.deepEqual(asked, ["nodes", "jobs", "placements", "changes", "changes"]);
});

test("an answer that repeats itself makes nothing live", async () => {
  const same = changes();
  view(whole({ changes: same }));
  const one = new Follower(() => {});
  await one.round();
  one.lastGood = 0;
  await assert.rejects(one.round(), /not newer/);
  assert.equal(one.isStale, true);
});

test("a bus that has been silent makes the answer as old as that", async () => {
  view(whole({ changes: () => changes({ silent_s: 6 }) }));
  const one = new Follower(() => {});
  await one.round();
  assert.equal(one.isStale, true);
});

test("a table that is refused, at once or later, is empty, and the others are live", async () => {
  view(whole({ jobs: 403 }));
  const one = new Follower(() => {});
  await one.round();
  assert.deepEqual([one.isStale, one.refused.jobs, one.tables.nodes.size], [false, "HTTP 403", 1]);
  view(whole({ nodes: 403, changes: () => changes({ refused: ["nodes"] }) }));
  await one.round();
  assert.equal(one.tables.nodes.size, 0);
  await one.round();
  assert.equal(one.refused.nodes, "HTTP 403");
});

test("what is not known is read whole, and until then nothing is live", async () => {
  view(whole());
  const one = new Follower(() => {});
  await one.round();
  view(whole({ changes: () => changes({ whole: ["nodes"] }) }));
  await one.round();
  one.lastGood = 0;
  const asked = view(whole());
  await one.round(); // Too soon after the last time.
  assert.deepEqual([asked, one.isStale], [["changes"], true]);
  one.wholeAt.nodes = 0;
  await one.round();
  assert.deepEqual([asked, one.isStale], [["changes", "nodes", "changes"], false]);
});

test("after a gap each table is read whole, and one that was just read is not read again", async () => {
  view(whole());
  const one = new Follower(() => {});
  await one.round();
  for (const table of ["nodes", "jobs", "placements"]) one.confirmedAt[table] = one.wholeAt[table] = 1;
  const asked = view(whole({ jobs: 429 }));
  await assert.rejects(one.round(), /HTTP 429/);
  await assert.rejects(one.round(), /HTTP 429/);
  assert.deepEqual(asked, ["nodes", "jobs", "jobs"]);
});

test("a user's own namespace takes the place of all Pods", async () => {
  const asked = view(whole({ placements: 403, "namespaces/team-a/pods": { items: [{ cluster: "c1", key: "k", pod: "web" }] } }));
  const one = new Follower(() => {});
  await one.round();
  one.chooseNamespace("team-a");
  await one.round();
  assert.equal(asked.at(-2), "namespaces/team-a/pods");
  assert.deepEqual([one.tables.placements.size, one.refused.placements, one.isStale], [1, undefined, false]);
});

test("a browser's clock that is set back makes no age negative, and a machine that slept makes all old", async () => {
  view(whole());
  const one = new Follower(() => {});
  await one.round();
  const wall = Date.now;
  let byMs = -3600000;
  Date.now = () => wall() + byMs;
  assert.equal(one.isStale, false);
  const asked = view(whole({ changes: () => changes({ after: { nodes: "n2" } }) }));
  await one.round();
  assert.deepEqual([asked, one.isStale], [["changes"], false]);
  byMs += 6000;
  assert.equal(one.isStale, true);
  Date.now = wall;
  one.isStale;
});

test("a late answer makes nothing live, and only the late table is read whole, once", async () => {
  view(whole());
  const one = new Follower(() => {});
  await one.round();
  one.lastGood = 0;
  const known = () => ({ nodes: "n1", jobs: "j1", placements: "p1" });
  const asked = view(whole({ changes: () => changes({ late: ["nodes"], after: known() }) }));
  for (let count = 0; count < 30; count += 1) {
    one.wholeAt.nodes = Math.min(one.wholeAt.nodes, clock() - 10000);
    await one.round();
  }
  assert.deepEqual([asked.filter((path) => path !== "changes"), one.isStale], [["nodes"], true]);
  view(whole({ changes: () => changes({ after: known() }) }));
  await one.round();
  assert.equal(one.isStale, false);
});

test("where the view's clock went back, or a place is not known, all is read whole and is live again", async () => {
  view(whole());
  const one = new Follower(() => {});
  await one.round();
  second -= 3600;
  for (const answers of [whole(), whole({ changes: 400 })]) {
    view(answers);
    await assert.rejects(one.round());
    for (const table of ["nodes", "jobs", "placements"]) one.wholeAt[table] = clock() - 10000;
    one.lastGood = 0;
    const asked = view(whole());
    await one.round();
    assert.deepEqual([asked, one.isStale], [["nodes", "jobs", "placements", "changes"], false]);
  }
});

test("an answer that is kept elsewhere and repeated makes nothing live, however often it comes", async () => {
  const old = changes();
  second += 100;
  view(whole({ nodes: 403 }));
  const one = new Follower(() => {});
  await one.round();
  one.lastGood = 0;
  view(whole({ nodes: 403, changes: old }));
  for (let count = 0; count < 5; count += 1) {
    one.wholeAt = {};
    await assert.rejects(one.round(), /not newer/);
  }
  assert.equal(one.isStale, true);
});

test("Pods of one namespace are as old as their list, and as the bus was silent then", async () => {
  const pods = { "namespaces/team-a/pods": { items: [] } };
  view(whole({ nodes: 403, jobs: 403, placements: 403, ...pods }));
  const one = new Follower(() => {});
  await one.round();
  one.chooseNamespace("team-a");
  await one.round();
  assert.equal(one.isStale, false);
  one.chooseNamespace("team-a");
  view(whole({ ...pods, changes: () => changes({ silent_s: 12 }) }));
  await one.round();
  assert.equal(one.isStale, true);
  view(whole({ ...pods }));
  await one.round();
  assert.equal(one.isStale, true);
  one.namespaceAt = 0;
  await one.round();
  assert.equal(one.isStale, false);
});

test("after a minute without any answer nothing is asked until the user wants it", async () => {
  view(whole());
  const one = new Follower(() => {});
  await one.round();
  let asks = 0;
  globalThis.fetch = async () => {
    asks += 1;
    throw new TypeError("connection refused");
  };
  const wall = Date.now;
  let byMs = 0;
  Date.now = () => wall() + byMs;
  let pauses = 0;
  let atStop = 0;
  one.pause = async (ms) => {
    pauses += 1;
    byMs += Math.min(ms, 2000);
    if (one.isStopped && !atStop) atStop = asks;
    if (pauses === 90) {
      assert.deepEqual([one.isStopped, asks], [true, atStop]);
      one.resume();
    }
    if (pauses === 100) throw new Error("enough");
  };
  await assert.rejects(one.run(), /enough/);
  Date.now = wall;
  assert.ok(atStop > 20 && atStop < 40, String(atStop));
  assert.ok(asks > atStop);
});

test("an answer from before another namespace was chosen is not shown", async () => {
  const items = (name) => ({ items: [{ cluster: "c1", key: name, pod: name }] });
  const one = new Follower(() => {});
  let choose = "";
  const whileAsked = (answer) => () => {
    if (choose) one.chooseNamespace(choose);
    choose = "";
    return answer();
  };
  const placements = () => changes({ placements: [{ cluster: "c1", key: "of all", pod: "of all" }], after: { placements: "p2" } });
  view(whole({
    placements: () => ({ items: items("of all").items, after: "p1" }),
    changes: whileAsked(placements),
    "namespaces/team-a/pods": whileAsked(() => items("of team-a")),
    "namespaces/team-b/pods": () => items("of team-b"),
  }));
  const shown = () => [...one.tables.placements.values()].map((row) => row.pod);

  choose = "team-a";
  await assert.rejects(one.round(), { message: "", againMs: 0 });
  assert.deepEqual(shown(), []);
  choose = "team-b";
  await assert.rejects(one.round(), { message: "", againMs: 0 });
  assert.deepEqual(shown(), []);
  await one.loadNamespace();
  assert.deepEqual(shown(), ["of team-b"]);
});

test("a refusal from before another namespace was chosen does not count for that one", async () => {
  const one = new Follower(() => {});
  view(whole({
    "namespaces/team-a/pods": () => {
      one.chooseNamespace("team-b");
      return 403;
    },
  }));
  one.chooseNamespace("team-a");

  await assert.rejects(one.round(), { message: "" });
  assert.deepEqual(one.refused, {});
});
