// Milliseconds that only grow, near those of the epoch: for ages of what this page has.
//
// The browser's clock may be set back, and performance.now() may stand still while the machine sleeps.
const SLEPT_MS = 1000;

let steady = performance.now();
let wall = Date.now();
let total = wall;

export function clock() {
  const [steadyNow, wallNow] = [performance.now(), Date.now()];
  const passed = Math.max(0, steadyNow - steady);
  const slept = wallNow - wall - passed;
  total += passed + (slept > SLEPT_MS ? slept : 0);
  [steady, wall] = [steadyNow, wallNow];
  return total;
}
