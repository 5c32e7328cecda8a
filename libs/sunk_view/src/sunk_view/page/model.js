// What the page decides: values to values. No DOM, no network, no clock.

export const HIDDEN = "a Pod of another team";
export const HOSTS_MAX = 10000;
export const TEXT_MAX = 1024;
export const STATES = ["idle", "mixed", "allocated", "draining", "drained", "down", "other", "unknown"];
export const LOCKS = ["pending", "locked", "locked_strict"];
export const WORKS = ["job", "Pod", "both", "none"];

// The one word under which a node is counted, in the order of sunk-view's own counts.
export function stateOf(node) {
  if (!node.state) return "unknown";
  if (node.is_down) return "down";
  if (node.is_drain) return node.is_busy ? "draining" : "drained";
  const word = node.state.toLowerCase();
  return STATES.includes(word) ? word : "other";
}

export function lockOf(node) {
  return LOCKS.includes(node.lock) ? node.lock : "";
}

export function keyOf(table, row) {
  if (table === "nodes") return `${row.cluster}/${row.node}`;
  return table === "jobs" ? `${row.cluster}/${row.job}` : `${row.cluster}/${row.key}`;
}

// Texts of users on one line: what would move the cursor, or turn the direction of text, is written out.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

export function clean(text) {
  const short = text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)} …` : text;
  return short.replace(UNSEEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

// Slurm's hostlists: gpu-[001-003,7],login1. What is none of that stands for itself.
export function hosts(text, max = HOSTS_MAX) {
  const found = [];
  for (const part of partsOf(text)) {
    expand(part, found, max);
    if (found.length >= max) break;
  }
  return found;
}

function partsOf(text) {
  const parts = [];
  let depth = 0;
  let begin = 0;
  for (let at = 0; at <= text.length; at += 1) {
    const one = text[at];
    if (one === "[") depth += 1;
    if (one === "]") depth -= 1;
    if (at === text.length || (one === "," && depth === 0)) {
      if (at > begin) parts.push(text.slice(begin, at));
      begin = at + 1;
    }
  }
  return parts;
}

function expand(part, found, max) {
  const match = /^([^[\]]*)\[([0-9,-]+)\](.*)$/.exec(part);
  if (match === null) {
    if (found.length < max) found.push(part);
    return;
  }
  for (const range of match[2].split(",")) {
    const [first, last = first] = range.split("-");
    for (let number = Number(first); number <= Number(last) && found.length < max; number += 1) {
      expand(`${match[1]}${String(number).padStart(first.length, "0")}${match[3]}`, found, max);
    }
    if (found.length >= max) return;
  }
}

// What is on each node, by `cluster/node`: jobs of users, and Pods that Slurm placed there.
export function workloads(jobs, placements) {
  const found = new Map();
  const at = (key) => {
    if (!found.has(key)) found.set(key, { jobs: [], pods: [], leaving: false });
    return found.get(key);
  };
  for (const pod of placements) {
    if (pod.is_gang || !pod.node || !["started", "bound", "ending"].includes(pod.phase)) continue;
    const here = at(`${pod.cluster}/${pod.node}`);
    here.pods.push(pod);
    here.leaving ||= pod.phase === "ending";
  }
  for (const job of jobs) {
    if (!job.nodes || job.state === "PENDING" || job.is_placeholder) continue;
    for (const host of hosts(job.nodes)) {
      const here = at(`${job.cluster}/${host}`);
      here.jobs.push(job);
      here.leaving ||= job.state === "COMPLETING";
    }
  }
  return found;
}

export function workOf(here) {
  if (!here) return "none";
  if (here.jobs.length && here.pods.length) return "both";
  return here.jobs.length ? "job" : here.pods.length ? "Pod" : "none";
}

// What was so when the page had its last answers.
export function wasText(text, isStale) {
  return isStale && text ? `was ${text}` : text;
}

export function labelOf(node, here, isStale) {
  const lock = lockOf(node);
  const work = workOf(here);
  const parts = [
    `${node.node}: ${wasText(stateOf(node), isStale)}`,
    lock ? `lock ${lock}` : "",
    work === "none" ? "" : work === "both" ? "a job and a Pod" : `a ${work}`,
    here?.leaving ? "leaving" : "",
    node.is_cordoned ? "cordoned" : "",
    node.reason ? clean(node.reason) : "",
  ];
  return parts.filter(Boolean).join(", ");
}

export function matchesNode(node, here, filter) {
  if (filter.cluster && node.cluster !== filter.cluster) return false;
  if (filter.partition && !node.partitions.includes(filter.partition)) return false;
  if (filter.states.size && !filter.states.has(stateOf(node))) return false;
  if (filter.lock && lockOf(node) !== filter.lock) return false;
  if (filter.work && workOf(here) !== filter.work) return false;
  return hasText(filter.text, node.node, node.kube_node, node.nodeset, node.reason, node.reason_user, ...node.partitions);
}

export function matchesRow(row, filter, ...texts) {
  if (filter.cluster && row.cluster !== filter.cluster) return false;
  if (filter.partition && row.partition !== undefined && !row.partition.split(",").includes(filter.partition)) return false;
  return hasText(filter.text, ...texts);
}

function hasText(wanted, ...texts) {
  if (!wanted) return true;
  const low = wanted.toLowerCase();
  return texts.some((text) => String(text ?? "").toLowerCase().includes(low));
}

export function countsOf(nodes) {
  const found = Object.fromEntries(STATES.map((state) => [state, 0]));
  for (const node of nodes) found[stateOf(node)] += 1;
  return found;
}

// Why nodes are drained or down, the cause of most nodes first.
export function drains(nodes) {
  const found = new Map();
  for (const node of nodes) {
    if (!node.is_drain && !node.is_down) continue;
    const key = JSON.stringify([node.cluster, node.reason, node.is_down]);
    const cause = found.get(key) ?? {
      cluster: node.cluster, reason: node.reason || "no reason given", isDown: node.is_down, nodes: [], oldest: null, busy: 0,
    };
    cause.nodes.push(node.node);
    cause.busy += node.is_busy ? 1 : 0;
    const since = node.reason_changed;
    if (since && (cause.oldest === null || Date.parse(since) < Date.parse(cause.oldest))) cause.oldest = since;
    found.set(key, cause);
  }
  return [...found.values()].sort((a, b) => b.nodes.length - a.nodes.length || a.reason.localeCompare(b.reason));
}

// Jobs that wait: those with the highest priority first, as Slurm takes them.
export function queue(jobs) {
  return [...jobs]
    .filter((job) => job.state === "PENDING")
    .sort((a, b) => a.is_held - b.is_held || (b.priority ?? -1) - (a.priority ?? -1) || a.job - b.job);
}

// Each gang with its members by rank. Members of gangs of other teams cannot be told apart.
export function gangs(placements) {
  const found = new Map();
  const at = (row, name) => {
    const key = JSON.stringify([row.cluster, row.namespace, name]);
    if (!found.has(key)) found.set(key, { cluster: row.cluster, namespace: row.namespace, name, gang: null, members: [] });
    return found.get(key);
  };
  for (const row of placements) {
    if (row.is_gang && row.pod !== HIDDEN) at(row, row.pod).gang = row;
    else if (!row.is_gang && row.gang) at(row, row.gang).members.push(row);
  }
  for (const one of found.values()) one.members.sort((a, b) => (a.rank ?? 1e9) - (b.rank ?? 1e9) || a.pod.localeCompare(b.pod));
  return [...found.values()].sort((a, b) => a.namespace.localeCompare(b.namespace) || a.name.localeCompare(b.name));
}

// Takes over an answer of /changes. Returns which keys of each table are otherwise, and what nodes went through.
export function apply(tables, answer) {
  const changed = { nodes: new Set(), jobs: new Set(), placements: new Set() };
  const passed = [];
  for (const table of Object.keys(changed)) {
    for (const row of answer[table]) {
      const key = keyOf(table, row);
      const before = tables[table].get(key);
      if (table === "nodes") passed.push(...passages(before, row, answer.time));
      tables[table].set(key, row);
      changed[table].add(key);
    }
    for (const key of answer.gone[table] ?? []) {
      if (table === "nodes" && tables.nodes.has(key)) {
        passed.push({ time: answer.time, cluster: tables.nodes.get(key).cluster, name: tables.nodes.get(key).node, what: "gone", details: [] });
      }
      if (tables[table].delete(key)) changed[table].add(key);
    }
  }
  return { changed, passed };
}

export function passages(before, now, time) {
  const found = [];
  const say = (what, details) => found.push({ time, cluster: now.cluster, name: now.node, what, details: details.filter(Boolean) });
  if (!before) {
    say("new", [stateOf(now)]);
    return found;
  }
  const [was, is] = [stateOf(before), stateOf(now)];
  if (was !== is) say(is, [`was ${was}`, now.is_drain || now.is_down ? now.reason : ""]);
  const [had, has] = [lockOf(before), lockOf(now)];
  if (had !== has) say(has ? `lock ${has}` : "no lock", [`was ${had || "no lock"}`]);
  if (before.is_cordoned !== now.is_cordoned) say(now.is_cordoned ? "cordoned" : "uncordoned", []);
  return found;
}

// What is shown is present only for so long after the last whole round of answers.
export const STALE_MS = 5000;

export function isStale(lastGood, now) {
  return lastGood === null || now < lastGood || now - lastGood > STALE_MS;
}

export function ageText(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 48 * 3600) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d`;
}

export function clockText(moment) {
  const date = new Date(moment);
  return Number.isNaN(date.getTime()) ? "" : `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}
