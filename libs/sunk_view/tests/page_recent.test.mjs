// The newest events, with answers of the test's own: run by test_page.py.
import assert from "node:assert/strict";
import test from "node:test";

const { Recent } = await import(`${process.env.PAGE}/recent.js`);

const answer = (names, fields = {}) => ({ items: names, after: `after-${names.at(-1) ?? ""}`, is_more: false, problems: [], ...fields });

function recent(...answers) {
  const asked = [];
  const one = new Recent(async (_, query) => {
    asked.push(query.after ?? "newest");
    const found = answers.shift();
    if (found instanceof Error) throw found;
    return found;
  });
  return [one, asked];
}

test("events come after those before, the newest first", async () => {
  const [one, asked] = recent(answer(["a", "b"]), answer(["c"]));
  await one.read();
  assert.equal(one.isDue, false);
  await one.read();
  assert.deepEqual([one.rows, asked], [["c", "b", "a"], ["newest", "after-b"]]);
});

test("where more came than one answer holds the newest are read at once, and nothing old is called new", async () => {
  const [one, asked] = recent(answer(["a"]), answer(["b"], { is_more: true }), answer(["y", "z"], { is_more: true }));
  await one.read();
  await one.read();
  assert.deepEqual([one.rows, one.isDue], [["a"], true]);
  await one.read();
  assert.deepEqual([one.rows, asked], [["z", "y"], ["newest", "after-a", "newest"]]);
});

test("after half a minute without an answer the newest are read, and until then the problem is told", async () => {
  const away = Object.assign(new Error("away"), { status: 503 });
  const [one, asked] = recent(answer(["a"]), away, answer(["z"]));
  await one.read();
  await one.read();
  assert.deepEqual([one.problem, one.rows], ["away", ["a"]]);
  one.goodAt -= 30001;
  await one.read();
  assert.deepEqual([one.problem, one.rows, asked], ["", ["z"], ["newest", "after-a", "newest"]]);
});

test("who may not see events has none, and a place that is not known is forgotten", async () => {
  const [one, asked] = recent(answer(["a"]), Object.assign(new Error("no such place"), { status: 400 }), Object.assign(new Error("no"), { status: 403 }));
  for (let count = 0; count < 3; count += 1) await one.read();
  assert.deepEqual([one.rows, one.refused, asked], [[], "no", ["newest", "after-a", "newest"]]);
});
