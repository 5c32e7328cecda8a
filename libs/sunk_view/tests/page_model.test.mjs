// The page's decisions: run by test_page.py.
import assert from "node:assert/strict";
import test from "node:test";

const model = await import(`${process.env.PAGE}/model.js`);

const node = (fields) => ({
  cluster: "c1", node: "d1", state: "IDLE", flags: [], reason: "", reason_user: "", reason_changed: null, is_drain: false, is_busy: false,
  is_down: false, partitions: [], kube_node: "", nodeset: "", is_cordoned: false, lock: "false", ...fields,
});
const job = (fields) => ({ cluster: "c1", job: 1, name: "x", state: "RUNNING", nodes: "", priority: null, is_held: false, is_placeholder: false, partition: "p", ...fields });
const pod = (fields) => ({
  cluster: "c1", key: "k1", namespace: "team-a", pod: "web", phase: "bound", job: null, node: "", is_gang: false, gang: "", rank: null, ...fields,
});
const filter = (fields) => ({ text: "", cluster: "", partition: "", lock: "", work: "", states: new Set(), ...fields });
const answer = (fields) => ({ time: "2026-01-01T00:00:00Z", nodes: [], jobs: [], placements: [], gone: {}, ...fields });

test("each state has one word, in the order of the counts of sunk-view", () => {
  const words = [
    {}, { state: "MIXED" }, { state: "ALLOCATED" }, { is_drain: true, is_busy: true }, { is_drain: true }, { is_down: true, is_drain: true },
    { state: "FUTURE" }, { state: "" },
  ].map((fields) => model.stateOf(node(fields)));
  assert.deepEqual(words, model.STATES);
});

test("hostlists are expanded, with their zeros, and never without end", () => {
  assert.deepEqual(model.hosts("gpu-[008-010,12],login1"), ["gpu-008", "gpu-009", "gpu-010", "gpu-12", "login1"]);
  assert.deepEqual(model.hosts("r[1-2]n[3-4]").sort(), ["r1n3", "r1n4", "r2n3", "r2n4"].sort());
  assert.deepEqual(model.hosts(""), []);
  assert.equal(model.hosts("x[0-999999999]").length, model.HOSTS_MAX);
  assert.deepEqual(model.hosts("a[1-"), ["a[1-"]);
});

test("a placeholder is no job of a user, and a job's name makes none of it", () => {
  const found = model.workloads(
    [job({ nodes: "d1" }), job({ job: 2, nodes: "d1", is_placeholder: true }), job({ job: 3, nodes: "d2", name: model.HIDDEN, is_placeholder: true }), job({ job: 4, nodes: "d3", is_placeholder: true }), job({ job: 5, nodes: "d4", state: "COMPLETING" }), job({ job: 6, nodes: "d[6-7]", name: "exp/lr0.1" }), job({ job: 7, nodes: "d7", name: model.HIDDEN })],
    [pod({ node: "d1", job: 2 }), pod({ node: "d3", job: 4, phase: "ending" }), pod({ node: "d5", phase: "released" })],
  );
  assert.equal(model.workOf(found.get("c1/d1")), "both");
  assert.equal(model.workOf(found.get("c1/d2")), "none");
  assert.equal(model.workOf(found.get("c1/d3")), "Pod");
  assert.equal(found.get("c1/d3").leaving, true);
  assert.equal(found.get("c1/d4").leaving, true);
  assert.equal(model.workOf(found.get("c1/d5")), "none");
  assert.deepEqual([model.workOf(found.get("c1/d6")), found.get("c1/d7").jobs.length], ["job", 2]);
});

test("a label says all that colour and shape say, and that what is old was so", () => {
  const one = node({ is_drain: true, is_busy: true, lock: "pending", reason: "bad\u0007fan", is_cordoned: true });
  const here = { jobs: [1], pods: [], leaving: true };
  assert.equal(model.labelOf(one, here, false), "d1: draining, lock pending, a job, leaving, cordoned, bad\\u0007fan");
  assert.match(model.labelOf(one, here, true), /^d1: was draining/);
  assert.deepEqual([model.wasText("bound", true), model.wasText("bound", false), model.wasText("", true)], ["was bound", "bound", ""]);
});

test("texts of users stay on one line and do not turn the direction", () => {
  assert.equal(model.clean("a\u202eb\nc\u001b[31m"), "a\\u202eb\\u000ac\\u001b[31m");
  assert.equal(model.clean("x".repeat(5000)).length, model.TEXT_MAX + 2);
  assert.equal(model.clean("<img src=x onerror=alert(1)>"), "<img src=x onerror=alert(1)>");
});

test("a filter takes what has all that it names", () => {
  const one = node({ partitions: ["gpu"], reason: "Bad Fan", lock: "locked" });
  const takes = (fields) => model.matchesNode(one, undefined, filter(fields));
  assert.deepEqual(
    [{}, { text: "bad fan" }, { partition: "gpu" }, { states: new Set(["idle"]) }, { lock: "locked" }, { work: "none" }].map(takes),
    Array(6).fill(true),
  );
  assert.deepEqual(
    [{ text: "disk" }, { partition: "cpu" }, { states: new Set(["down"]) }, { lock: "pending" }, { work: "job" }, { cluster: "c2" }].map(takes),
    Array(6).fill(false),
  );
});

test("drains by cause: most nodes first, with the oldest", () => {
  const found = model.drains([
    node({ node: "a", is_drain: true, reason: "x", reason_changed: "2026-01-02T00:00:00Z" }),
    node({ node: "b", is_drain: true, reason: "x", reason_changed: "2026-01-01T00:00:00Z", is_busy: true }),
    node({ node: "c", is_down: true, is_drain: true }), node({ node: "d" }),
  ]);
  assert.deepEqual(found.map((one) => [one.reason, one.nodes, one.isDown, one.busy, one.oldest]), [
    ["x", ["a", "b"], false, 1, "2026-01-01T00:00:00Z"], ["no reason given", ["c"], true, 0, null],
  ]);
});

test("the queue has the highest priority first and held jobs last", () => {
  const jobs = [job({ job: 1, state: "PENDING", priority: 1 }), job({ job: 2, state: "PENDING", priority: 9 }), job({ job: 3, state: "PENDING", priority: 99, is_held: true }), job({ job: 4 })];
  assert.deepEqual(model.queue(jobs).map((one) => one.job), [2, 1, 3]);
});

test("gangs are rows of ranks", () => {
  const found = model.gangs([
    pod({ pod: "g", is_gang: true, phase: "started" }), pod({ pod: "g-1", gang: "g", rank: 1 }), pod({ pod: "g-0", gang: "g", rank: 0 }), pod({ pod: "g-x", gang: "g" }), pod({ pod: "alone" }),
  ]);
  assert.deepEqual(found.map((one) => [one.name, one.gang.phase, one.members.map((member) => member.pod)]), [["g", "started", ["g-0", "g-1", "g-x"]]]);
});

test("changes replace rows, what went goes, and what a node went through is told", () => {
  const tables = { nodes: new Map([["c1/d1", node({})], ["c1/d2", node({ node: "d2" })]]), jobs: new Map(), placements: new Map() };
  const { changed, passed } = model.apply(tables, answer({ nodes: [node({ is_drain: true, reason: "fan", lock: "pending" })], gone: { nodes: ["c1/d2", "c1/none"] } }));
  assert.deepEqual([...changed.nodes], ["c1/d1", "c1/d2"]);
  assert.deepEqual([...tables.nodes.keys()], ["c1/d1"]);
  assert.deepEqual(passed.map((one) => [one.name, one.what, one.details.join()]), [
    ["d1", "drained", "was idle,fan"], ["d1", "lock pending", "was no lock"], ["d2", "gone", ""],
  ]);
});

test("what is shown is present for five seconds after the last whole round, and never by a clock that went back", () => {
  assert.deepEqual([[null, 0], [1000, 1000], [1000, 6000], [1000, 6001], [1000, 999]].map(([good, now]) => model.isStale(good, now)), [true, false, false, true, true]);
});

test("ages are short words", () => {
  assert.deepEqual([0, 59.9, 61, 3700, 200000].map(model.ageText), ["0 s", "59 s", "1 min", "1 h 1 min", "2 d"]);
});
