// How the page follows the view, with answers of the test's own: run by test_page.py.
import assert from "node:assert/strict";
import test from "node:test";

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
