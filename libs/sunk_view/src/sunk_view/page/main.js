// Puts the page together: the views, the filters, and what is drawn when.
import { clock } from "./clock.js";
import { choices, el, fill, link, table } from "./dom.js";
import { Follower, ask } from "./follow.js";
import { Grid } from "./grid.js";
import { HIDDEN, LOCKS, WORKS, ageText, clockText, drains, gangs, keyOf, lockOf, matchesRow, queue, stateOf, wasText, workloads } from "./model.js";
import { Recent } from "./recent.js";
import { Story, eventTable } from "./story.js";

const TABS = ["Nodes", "Queue", "Pods", "Gangs", "Drains", "Changes"];
const TICK_MS = 500;
const AGES_MS = 10000;
const byId = (id) => document.getElementById(id);

const filter = { text: "", cluster: "", partition: "", lock: "", work: "", states: new Set() };
const events = new Recent(ask);
let tab = "Nodes";
let work = new Map();
let isWorkOld = true;
let isDrawn = false;
let wasStale = true;
let planned = false;
let drawnAt = 0;

const follower = new Follower((changed) => {
  if (changed && (changed.jobs !== undefined || changed.placements !== undefined)) isWorkOld = true;
  if (changed) plan();
  const of = story.of;
  if (of?.what === "node" && changed?.nodes instanceof Set && [...changed.nodes].some((key) => key.endsWith(`/${of.name}`))) story.draw(true);
  if (of?.what === "job" && changed?.jobs instanceof Set && [...changed.jobs].some((key) => key.endsWith(`/${of.name}`))) story.draw(true);
  tick();
});
const story = new Story(byId("story"), follower, factsOf);
const grid = new Grid((name) => story.open({ what: "node", name, namespace: "" }), (state) => {
  filter.states.has(state) ? filter.states.delete(state) : filter.states.add(state);
  plan();
});

function plan() {
  if (planned) return;
  planned = true;
  // A page that nobody sees gets no frames: it draws when it is seen.
  requestAnimationFrame(() => {
    planned = false;
    draw();
  });
}

// What is old is called so at once, whether or not anything else comes.
function tick() {
  const isStale = follower.isStale;
  const live = byId("live");
  let text;
  if (!follower.hasLoaded) text = follower.problem ? `No answer yet: ${follower.problem}` : "Asking …";
  else if (isStale) text = `Stale since ${clockText(follower.staleSince)} (${ageText((clock() - follower.lastGood) / 1000)})${follower.problem ? `: ${follower.problem}` : ""}. All that is shown is what was then.`;
  else text = "Live";
  if (follower.isStopped) text += " Nothing is asked any more.";
  byId("again").hidden = !follower.isStopped;
  const look = !follower.hasLoaded ? "wait" : isStale ? "stale" : "live";
  if (live.className !== look) live.className = look;
  // A screen reader hears that it is stale, and not each second of it.
  live.setAttribute("aria-live", live.dataset.said === look ? "off" : "polite");
  live.dataset.said = look;
  if (live.textContent !== text) live.textContent = text;
  document.body.classList.toggle("stale", isStale);
  const problems = isStale ? [] : follower.problems;
  const said = problems.join("\n");
  if (byId("problems").dataset.said !== said) {
    byId("problems").dataset.said = said;
    byId("problems").hidden = !problems.length;
    fill(byId("problems"), problems.map((one) => el("li", {}, one)));
  }
  if (wasStale !== isStale) {
    wasStale = isStale;
    plan();
    story.draw();
  }
  story.tick();
  if (tab !== "Nodes" && clock() - drawnAt > AGES_MS) plan();
  if (tab === "Changes") readEvents();
}

function tables() {
  return { nodes: [...follower.tables.nodes.values()], jobs: [...follower.tables.jobs.values()], pods: [...follower.tables.placements.values()] };
}

function draw() {
  drawnAt = clock();
  const all = tables();
  if (isWorkOld) {
    work = workloads(all.jobs, all.pods);
    isWorkOld = false;
  }
  const clusters = [...new Set([...all.nodes, ...all.jobs, ...all.pods].map((row) => row.cluster))].sort();
  const partitions = [...new Set(all.nodes.flatMap((node) => node.partitions))].sort();
  choices(byId("cluster"), [["", "all"], ...clusters.map((one) => [one, one])], filter.cluster);
  choices(byId("partition"), [["", "all"], ...partitions.map((one) => [one, one])], filter.partition);
  choices(byId("lock"), [["", "any"], ...LOCKS.map((one) => [one, one])], filter.lock);
  choices(byId("work"), [["", "any"], ...WORKS.map((one) => [one, one])], filter.work);
  const main = byId("main");
  main.setAttribute("aria-labelledby", `tab-${tab}`);
  if (tab === "Nodes") {
    if (follower.refused.nodes) fill(main, refusal(follower.refused.nodes));
    else {
      if (grid.element.parentNode !== main) fill(main, grid.element);
      grid.draw(follower.tables.nodes, work, filter, follower.isStale);
    }
  } else drawRows(main, all);
  story.draw();
  if (follower.hasLoaded && !isDrawn) {
    isDrawn = true;
    performance.mark("drawn");
  }
}

// Tables are made anew; who reads one with the keyboard keeps the place.
function drawRows(main, all) {
  const scrolled = main.querySelector(".scroll")?.scrollTop ?? 0;
  const active = main.contains(document.activeElement) ? document.activeElement : null;
  if (active?.tagName === "INPUT") return;
  const place = active ? [...main.querySelectorAll("button, [tabindex]")].indexOf(active) : -1;
  fill(main, { Queue: queueView, Pods: podsView, Gangs: gangsView, Drains: drainsView, Changes: changesView }[tab](all));
  const scroll = main.querySelector(".scroll");
  if (scroll) scroll.scrollTop = scrolled;
  if (place >= 0) [...main.querySelectorAll("button, [tabindex]")][place]?.focus();
}

function refusal(text) {
  return el("p", { class: "refused" }, text);
}

function was(text) {
  return wasText(text, follower.isStale);
}

// What a table has: as it is, or as it was.
function titled(text) {
  return follower.isStale ? `${text}, as it was at ${clockText(follower.staleSince)}` : text;
}

function since(moment) {
  return moment ? ageText((follower.now() - Date.parse(moment)) / 1000) : "";
}

function queueView({ jobs }) {
  if (follower.refused.jobs) return [refusal(follower.refused.jobs)];
  const shown = jobs.filter((job) => matchesRow(job, filter, job.job, job.name, job.user, job.account, job.reason, job.state));
  const open = (job) => link(job.job, () => story.open({ what: "job", name: String(job.job), namespace: "" }));
  const running = shown.filter((job) => job.state !== "PENDING").sort((a, b) => a.job - b.job);
  const waiting = queue(shown);
  return [
    ...table(titled(`${waiting.length} jobs wait, the highest priority first`), ["Job", "Name", "User", "Account", "Partition", "Priority", "Waits for", "Since"], waiting, (job) => [
      open(job), job.name, job.user, job.account, job.partition, job.is_held ? was("held") : job.priority ?? "", was(job.reason || "no reason yet"), since(job.submitted),
    ]),
    ...table(titled(`${running.length} jobs are not waiting`), ["Job", "Name", "User", "Account", "Partition", "State", "Nodes", "For"], running, (job) => [
      open(job), job.name, job.user, job.account, job.partition, was(job.state), job.nodes, since(job.started),
    ]),
  ];
}

function namespaceForm() {
  const input = el("input", { id: "namespace", value: follower.namespace, autocomplete: "off", maxlength: 63 });
  const form = el("form", { class: "own" }, el("label", {}, "Only the Pods of namespace ", input), el("button", { type: "submit" }, "Show"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    input.blur();
    follower.chooseNamespace(input.value.trim());
    plan();
  });
  return form;
}

function nameOf(row) {
  return row.namespace ? `${row.namespace}/${row.pod}` : row.pod;
}

function openPod(row) {
  if (row.pod === HIDDEN) return row.pod;
  const namespace = row.namespace || follower.namespace;
  return link(nameOf(row), () => story.open({ what: row.is_gang ? "gang" : "pod", name: row.pod, namespace }));
}

function podsView({ pods }) {
  if (follower.refused.placements) return [refusal(follower.refused.placements), namespaceForm()];
  const shown = pods.filter((row) => !row.is_gang && matchesRow(row, filter, row.namespace, row.pod, row.phase, row.node, row.reason, row.job));
  shown.sort((a, b) => a.namespace.localeCompare(b.namespace) || a.pod.localeCompare(b.pod));
  return [namespaceForm(), ...table(titled(`${shown.length} Pods that Slurm places`), ["Pod", "Phase", "For", "Job", "Node", "Reason", "Expected"], shown, (row) => [
    openPod(row), was(row.phase), since(row.since), row.job ?? "", row.node, row.reason, row.start ? clockText(row.start) : "",
  ])];
}

function gangsView({ pods }) {
  if (follower.refused.placements) return [refusal(follower.refused.placements), namespaceForm()];
  const shown = gangs(pods).filter((one) => matchesRow(one, filter, one.namespace, one.name, one.gang?.reason, ...one.members.map((member) => member.node)));
  return [namespaceForm(), ...table(titled(`${shown.length} gangs`), ["Gang", "Phase", "Job", "Ranks", "Reason"], shown, (one) => [
    one.gang ? openPod(one.gang) : one.name, was(one.gang?.phase ?? ""), one.gang?.job ?? "",
    el("ol", { class: "ranks", "aria-label": "Ranks" }, one.members.slice(0, 256).map((member) => el("li", { class: `p-${member.phase}`, title: `rank ${member.rank ?? "not known"}: ${nameOf(member)}, ${was(member.phase)}${member.node ? ` on ${member.node}` : ""}` },
      `${member.rank ?? "?"} ${was(member.phase)}${member.node ? ` ${member.node}` : ""}`))),
    one.gang?.reason ?? "",
  ])];
}

function drainsView({ nodes }) {
  if (follower.refused.nodes) return [refusal(follower.refused.nodes)];
  const shown = drains(nodes).filter((cause) => matchesRow(cause, filter, cause.reason, ...cause.nodes));
  return table(titled(`${shown.length} causes of nodes that are drained or down`), ["Cause", "Nodes", "State", "Oldest", "Which"], shown, (cause) => [
    cause.reason, cause.nodes.length, was(cause.isDown ? "down" : cause.busy ? `${cause.busy} draining` : "drained"), since(cause.oldest),
    [...cause.nodes.sort().slice(0, 20).flatMap((name) => [link(name, () => story.open({ what: "node", name, namespace: "" })), " "]), cause.nodes.length > 20 ? `and ${cause.nodes.length - 20} more` : ""],
  ]);
}

function changesView() {
  const isOwn = Boolean(events.refused);
  const rows = (isOwn ? follower.passed : events.rows).filter((row) => matchesRow({ cluster: row.cluster }, filter, row.name, row.namespace, row.what, row.details.join(" ")));
  const note = isOwn ? el("p", { class: "legend" }, `What this page has seen of nodes since it was opened. ${events.refused}`) : null;
  const age = isOwn || events.goodAt === null ? null : el("p", { class: "legend" }, `Answered ${ageText((clock() - events.goodAt) / 1000)} ago`);
  const problems = [events.refused ? "" : events.problem, ...events.problems].filter(Boolean);
  return [note, age, problems.length ? refusal(problems.join("; ")) : null, ...eventTable(titled("What changed, the newest first"), rows)].filter(Boolean);
}

// Facts of the last half hour, then those after: only while somebody looks at them.
async function readEvents() {
  if (!events.isDue || follower.isStopped || follower.isStale || document.hidden) return;
  await events.read();
  plan();
}

function factsOf(of) {
  if (of.what !== "node") return [];
  const rows = tables().nodes.filter((node) => node.node === of.name);
  return rows.flatMap((node) => {
    const here = work.get(keyOf("nodes", node));
    const said = [
      ["Slurm", `${was(stateOf(node))}${node.flags.length ? ` (${[node.state, ...node.flags].join(" ")})` : ""}`],
      ["Reason", node.reason ? `${node.reason}${node.reason_user ? `, by ${node.reason_user}` : ""}${node.reason_changed ? `, ${clockText(node.reason_changed)}` : ""}` : ""],
      ["Lock", was(lockOf(node))],
      ["Node", `${node.kube_node}${node.is_cordoned ? `, ${was("cordoned")}` : ""}`],
      ["Pod of the NodeSet", node.pod_phase ? `${node.nodeset}: ${was(node.pod_phase)}${node.is_pod_ready ? ", ready" : ", not ready"}` : ""],
      ["CPUs", `${node.cpus_allocated} of ${node.cpus}`],
      ["GPUs", node.gpus ? `${node.gpus_allocated} of ${node.gpus}` : ""],
      ["Partitions", node.partitions.join(", ")],
      ["Jobs", here?.jobs.map((job) => `${job.job} ${job.user}${job.state === "COMPLETING" ? " (leaving)" : ""}`).join(", ")],
      ["Pods", here?.pods.map((pod) => `${nameOf(pod)}${pod.phase === "ending" ? " (leaving)" : ""}`).join(", ")],
    ].filter(([, text]) => text);
    return [el("h3", {}, titled(follower.isStale ? node.cluster : `${node.cluster}, now`)), el("dl", {}, said.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]))];
  });
}

function choose(name) {
  tab = name;
  for (const one of byId("tabs").children) {
    one.setAttribute("aria-selected", String(one.dataset.tab === tab));
    one.tabIndex = one.dataset.tab === tab ? 0 : -1;
  }
  plan();
}

function start() {
  fill(byId("tabs"), TABS.map((name) => el("button", { type: "button", role: "tab", id: `tab-${name}`, "data-tab": name, "aria-controls": "main", onclick: () => choose(name) }, name)));
  byId("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = TABS[(TABS.indexOf(tab) + step + TABS.length) % TABS.length];
    choose(next);
    byId(`tab-${next}`).focus();
  });
  byId("main").setAttribute("role", "tabpanel");
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("input", () => {
    for (const name of ["text", "cluster", "partition", "lock", "work"]) filter[name] = byId(name).value.trim();
    plan();
  });
  for (const type of ["visibilitychange", "pageshow", "online", "focus"]) {
    window.addEventListener(type, () => {
      tick();
      follower.wake();
    });
  }
  document.addEventListener("visibilitychange", () => {
    tick();
    follower.wake();
  });
  byId("again").addEventListener("click", () => {
    follower.resume();
    tick();
  });
  setInterval(tick, TICK_MS);
  choose("Nodes");
  follower.run();
}

start();
