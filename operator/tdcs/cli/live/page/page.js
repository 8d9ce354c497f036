"use strict";
// Rows come from the command as server-sent events: all of them first, then those that changed. Nothing is sent back.

const rows = { clusters: new Map(), nodes: new Map(), datasets: new Map(), jobs: new Map(), problems: new Map(), limits: new Map() };
const LISTS = ["nodes", "queue", "jobs", "datasets"];
const RANKS = { Running: 0, Starting: 1, Restarting: 1, Deleting: 1, Queued: 2, Waiting: 2, Suspended: 3, Failed: 4, Succeeded: 5 };
const GROUPS = ["Running", "Starting or ending", "Waiting", "Suspended", "Failed", "Succeeded"];
const COLOURS = ["#4477dd", "#2b9d8f", "#d97a2b", "#a45ec4", "#c94f6d", "#6f9e3a", "#3aa0c9", "#b08a2e", "#7b68d8", "#3f7f5f", "#c0574a", "#5b7fa6"];
const ENDED_SHOWN = 30;
const DATA_RANKS = { Failed: 0, Degraded: 1, Pending: 2, Mounting: 2, Loading: 3, Scheduled: 3 }; // what needs a look first
const PROBLEMS_SHOWN = 200;

const by = id => document.getElementById(id);
const elements = { nodes: new Map(), queue: new Map(), jobs: new Map(), datasets: new Map() };
const dirty = { nodes: new Set(), queue: new Set(), jobs: new Set(), datasets: new Set() };
let chosen = null, folded = false, contact = null, reached = true, planned = false, filter = "";

// ---- words

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const bytes = count => { // as the columns of kubectl and all messages have sizes
  let value = count || 0, unit = 0;
  while (value >= 1023.5 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  return `${(unit && value < 99.95 ? value.toFixed(1) : String(Math.round(value))).replace(/\.0$/, "")} ${UNITS[unit]}`;
};
const percent = (part, whole) => whole ? `${Math.floor(100 * part / whole)}%` : "–";
const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const rank = row => RANKS[row.state ?? "Pending"] ?? 2;
// Problems are of objects: "Dataset/vision/imagenet".
const troubled = key => { for (const problem of rows.problems.keys()) if (problem.startsWith(`${key}/`)) return true; return false; };
const isEmpty = node => !node.gpus && !node.worker && !node.held?.length && !node.pods?.length;
const title = row => row.namespace ? `${row.namespace}/${row.name}` : row.name;
const natural = new Intl.Collator("en", { numeric: true }).compare;

const colours = new Map();
const colour = dataset => {
  if (!colours.has(dataset)) colours.set(dataset, COLOURS[colours.size % COLOURS.length]);
  return colours.get(dataset);
};

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name === "class") element.className = value;
    else if (name === "background") element.style.background = value;
    else if (name === "width") element.style.width = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

// ---- rows of each list

function bar(parts, whole) {
  return make("span", { class: "bar", "aria-hidden": "true" },
    ...parts.filter(([, size]) => size > 0).map(([background, size]) => make("i", { background, width: `${100 * Math.min(size / whole, 1)}%` })));
}

function nodeWords(node) {
  const said = [];
  if (node.ready === false) said.push("not ready");
  if (node.cordoned) said.push("cordoned");
  if (node.worker && node.worker !== "Ready") said.push(`cache worker ${node.worker.toLowerCase()}`);
  return said;
}

function jobsOn(node) {
  const found = new Map();
  for (const [, job] of node.pods ?? []) found.set(job, (found.get(job) ?? 0) + 1);
  return [...found].map(([job, pods]) => `${job.split("/").pop()}${pods > 1 ? ` ×${pods}` : ""}`);
}

function nodeContent(node) {
  const gpus = node.gpus ?? 0, used = Math.min(node.gpusUsed ?? 0, gpus), held = node.held ?? [];
  const sum = held.reduce((total, [, size]) => total + size, 0);
  const words = nodeWords(node), runs = jobsOn(node);
  const dots = make("span", { class: "gpus", "aria-hidden": "true" }, make("span", { class: "level", width: gpus ? `${100 * used / gpus}%` : "0" }));
  for (let index = 0; index < Math.min(gpus, 16); index += 1) dots.append(make("i", { class: index < used ? "dot on" : "dot" }));
  const label = [node.name, ...words, gpus ? `${used} of ${counted(gpus, "GPU")} in use` : "", sum ? `holds ${bytes(sum)}` : "holds no data", runs.length ? `runs ${runs.join(", ")}` : ""];
  return {
    label: label.filter(Boolean).join(", "),
    className: words.length && !node.ready ? "tile away" : "tile",
    children: [
      make("span", { class: "name" }, node.name), dots,
      bar(held.map(([dataset, size]) => [colour(dataset), size]), Math.max(node.capacity ?? 0, sum, 1)),
      make("span", { class: "said" }, words.join(", ") || runs.join(", ") || (sum ? bytes(sum) : "")),
    ],
  };
}

function jobContent(job) {
  const place = job.position ? `${job.position}. ` : "";
  const ended = rank(job) >= 4;
  const figure = ended ? job.state : [`${job.ready ?? 0}/${job.wanted ?? 0}`, job.locality ? `${job.locality} near its data` : ""].filter(Boolean).join(" · ");
  const said = job.message || (job.nodes?.length ? `on ${job.nodes.slice(0, 6).map(([node, pods]) => pods > 1 ? `${node} ×${pods}` : node).join(", ")}${job.nodes.length > 6 ? " …" : ""}` : job.reason || "");
  return {
    label: [`${place}${job.kind} ${title(job)}`, job.state ?? "Pending", figure, said].filter(Boolean).join(", "),
    className: "row",
    children: [
      make("span", { class: "name" }, make("i", { class: "state", "data-rank": job.troubled ? 4 : rank(job) }), place, job.name,
        make("small", {}, ` ${job.namespace}${job.kind === "TrainingJob" ? "" : ` · ${job.kind}`} `),
        ...(job.datasets ?? []).map(dataset => make("i", { class: "swatch", background: colour(dataset), title: dataset }))),
      make("span", { class: "figure" }, figure), said ? make("span", { class: "said" }, said) : null,
    ],
  };
}

function datasetContent(dataset) {
  const key = title(dataset), wanted = dataset.wanted || dataset.total || 0, done = dataset.wanted ? dataset.loaded ?? 0 : dataset.cached ?? 0;
  const rate = dataset.rate || dataset.copied ? ` · ${bytes((dataset.rate ?? 0) + (dataset.copied ?? 0))}/s` : "";
  const uses = [dataset.active ? `read by ${counted(dataset.active, "job")}` : "", dataset.waiting ? `awaited by ${dataset.waiting}` : "", dataset.nodes ? `on ${counted(dataset.nodes, "node")}` : "on no node"];
  const total = dataset.total || wanted, copies = wanted > total ? ` × ${Math.round(10 * wanted / total) / 10} copies` : "";
  const size = `${bytes(Math.min(wanted, total) || total)}${copies}`;
  const figure = total ? `${percent(done, wanted)} of ${size}` : "size not known";
  const said = dataset.message && dataset.state !== "Ready" ? dataset.message : uses.filter(Boolean).join(" · ");
  return {
    label: [`dataset ${key}`, dataset.state ?? "Pending", figure, said].join(", "),
    className: "row",
    children: [
      make("span", { class: "name" }, make("i", { class: "swatch", background: colour(key) }), dataset.name, make("small", {}, ` ${dataset.namespace} `),
        dataset.state && dataset.state !== "Ready" ? make("small", { class: dataset.state === "Failed" ? "word-bad" : "word-wait" }, dataset.state) : null),
      make("span", { class: "figure" }, `${figure}${rate}`),
      bar([[colour(key), done]], wanted || 1), make("span", { class: "said" }, said),
    ],
  };
}

const CONTENT = { nodes: nodeContent, queue: jobContent, jobs: jobContent, datasets: datasetContent };

// The lists of jobs and of those that wait show the same rows.
const kindOf = section => section === "queue" ? "jobs" : section;
const waits = row => rank(row) === 2 || rank(row) === 3;
const belongs = (section, row) => section === "queue" ? waits(row) : section !== "jobs" || !waits(row);

function update(section, key) {
  const seen = rows[kindOf(section)].get(key), known = elements[section].get(key);
  const row = seen && kindOf(section) === "jobs" ? { ...seen, troubled: troubled(key) } : seen;
  if (!row || !belongs(section, row)) { known?.remove(); elements[section].delete(key); return; }
  const { label, className, children } = CONTENT[section](row);
  const element = known ?? make("button", { type: "button", "data-section": kindOf(section), "data-key": key, "aria-pressed": "false", tabindex: "-1" });
  element.className = className;
  element.setAttribute("aria-label", label);
  element.title = label;
  element.replaceChildren(...children.filter(Boolean));
  elements[section].set(key, element);
}

// ---- order and selection

const passes = row => !filter || title(row).toLowerCase().includes(filter);

function ordered(section) {
  const found = [...rows[kindOf(section)]].filter(([, row]) => belongs(section, row) && passes(row));
  if (section === "nodes") return found.sort(([a, one], [b, other]) => isEmpty(one) - isEmpty(other) || natural(a, b));
  const order = row => DATA_RANKS[row.state ?? "Pending"] ?? 4;
  if (section === "datasets") return found.sort(([a, one], [b, other]) => order(one) - order(other) || natural(a, b));
  return found.sort(([, a], [, b]) => rank(a) - rank(b) || (a.position ?? 0) - (b.position ?? 0) || natural(b.created ?? "", a.created ?? "") || natural(title(a), title(b)));
}

function arrange(section) {
  const list = by(`${section}-list`), found = ordered(section), wanted = [];
  let group = null, ended = 0;
  for (const [key, row] of found) {
    if (kindOf(section) === "jobs") {
      if (rank(row) !== group) { group = rank(row); if (section === "jobs" || group === 3) wanted.push(make("h3", {}, GROUPS[group])); }
      if (group >= 4 && ++ended > ENDED_SHOWN) continue;
    }
    wanted.push(elements[section].get(key));
  }
  const focused = document.activeElement;
  const same = list.childNodes.length === wanted.length && wanted.every((element, index) => list.childNodes[index] === element);
  if (!same) {
    list.replaceChildren(...wanted);
    if (focused && focused !== document.activeElement && list.contains(focused)) focused.focus({ preventScroll: true });
  }
  const total = elements[section].size;
  by(`${section}-count`).textContent = filter && found.length !== total ? `${found.length} of ${total}` : total || "";
  const empty = by(`${section}-empty`);
  empty.hidden = found.length > 0;
  empty.textContent = emptyWords(section, total);
  const inTab = list.querySelector("button[tabindex='0']") ?? list.querySelector("button");
  if (inTab) inTab.tabIndex = 0;
  if (section === "queue") by("queue").hidden = total === 0;
  if (section === "nodes") list.dataset.size = found.length <= 60 ? "large" : found.length <= 240 ? "middle" : "small";
  if (section === "nodes") list.dataset.room = found.length <= 500 ? "more" : "less";
}

function emptyWords(section, total) {
  if (!contact?.settled) return "Reading the cluster …";
  if (total) return `Nothing here has “${filter}” in its name.`;
  const limit = rows.limits.get({ nodes: "nodes", queue: "trainingjobs", jobs: "trainingjobs", datasets: "datasets" }[section]);
  if (limit) return `Nothing to show: ${limit.why}.`;
  return { nodes: "There are no nodes.", jobs: "No job reads a dataset. Apply a TrainingJob, or mount a Dataset's claim in any pod.", datasets: "There is no Dataset yet." }[section];
}

function linkedTo(section, key) {
  const row = rows[section].get(key), nodes = new Set(), jobs = new Set(), datasets = new Set();
  if (!row) return { nodes, jobs, datasets };
  if (section === "nodes") {
    for (const [, job] of row.pods ?? []) jobs.add(job);
    for (const [dataset] of row.held ?? []) datasets.add(dataset);
  } else if (section === "jobs") {
    for (const [node] of row.nodes ?? []) nodes.add(node);
    for (const dataset of row.datasets ?? []) datasets.add(dataset);
  } else {
    for (const [node, each] of rows.nodes) if ((each.held ?? []).some(([dataset]) => dataset === key)) nodes.add(node);
    for (const [job, each] of rows.jobs) if ((each.datasets ?? []).includes(key)) jobs.add(job);
  }
  return { nodes, jobs, datasets };
}

function highlight() {
  if (chosen && !rows[chosen.section].has(chosen.key)) chosen = null;
  const linked = chosen ? linkedTo(chosen.section, chosen.key) : null;
  document.body.classList.toggle("choosing", chosen !== null);
  for (const section of LISTS) for (const [key, element] of elements[section]) {
    element.setAttribute("aria-pressed", String(chosen?.section === kindOf(section) && chosen.key === key));
    element.classList.toggle("linked", Boolean(linked?.[kindOf(section)].has(key)));
  }
  detail();
}

// Rows out of sight have the height that they are guessed to have until they are shown: once more, when they have been.
function bring(selector, block) {
  const scroll = () => document.querySelector(selector)?.scrollIntoView({ block });
  scroll();
  requestAnimationFrame(() => requestAnimationFrame(scroll));
}

function choose(section, key) {
  chosen = chosen?.section === section && chosen.key === key ? null : { section, key };
  highlight();
  if (!chosen) return;
  const small = matchMedia("(max-width: 800px)").matches;
  for (const other of ["queue", "jobs", "datasets"]) if (kindOf(other) !== section) bring(`#${other}-list .linked`, "nearest");
  if (small) bring("main [aria-pressed=true]", "start"); // the details cover what is below
  if (section !== "nodes") bring("#nodes-list .linked", small ? "start" : "nearest");
}

const line = (name, ...values) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, ...values));
const dataset = (key, size) => [make("i", { class: "swatch", background: colour(key) }), `${key}${size ? ` (${bytes(size)})` : ""}`];

function detail() {
  by("detail").hidden = chosen === null;
  if (!chosen) return;
  const row = rows[chosen.section].get(chosen.key), table = make("table", {});
  const add = (name, ...values) => { if (values.some(Boolean)) table.append(line(name, ...values)); };
  let head = `${chosen.section === "jobs" ? row.kind : { nodes: "Node", datasets: "Dataset" }[chosen.section]} ${title(row)}`;
  if (chosen.section === "nodes") {
    add("State", nodeWords(row).join(", ") || "ready");
    if (row.gpus) add("GPUs", `${row.gpusUsed ?? 0} of ${row.gpus} in use`);
    if (row.capacity) add("Cache", `${bytes(row.used)} of ${bytes(row.capacity)}`);
    for (const [key, size] of row.held ?? []) add("Holds", ...dataset(key, size));
    for (const [pod, job] of (row.pods ?? []).slice(0, 20)) add("Runs", `${pod} of ${job}`);
  } else if (chosen.section === "jobs") {
    add("State", [row.state ?? "Pending", row.reason].filter(Boolean).join(": "));
    add("Why", row.message);
    if (row.position) add("In the queue", `place ${row.position}`);
    add("Pods", row.outcome || `${row.ready ?? 0} of ${row.wanted ?? 0} ${row.kind === "TrainingJob" ? "ready" : "running"}`);
    add("Locality", row.locality);
    add("Scheduler", row.scheduler);
    for (const key of row.datasets ?? []) add("Reads", ...dataset(key));
    add("Runs on", (row.nodes ?? []).map(([node, pods]) => `${node}${pods > 1 ? ` ×${pods}` : ""}`).join(", "));
    add("More", row.kind === "TrainingJob" ? `tdcs explain job ${row.name} -n ${row.namespace}` : "tdcs explain pod NAME");
  } else {
    add("State", row.state ?? "Pending");
    add("Why", row.message);
    add("Size", bytes(row.total));
    add("Cached", `${bytes(row.cached)}, each byte once (${percent(row.cached ?? 0, row.total)})`);
    if (row.wanted) add("Loaded", `${bytes(row.loaded)} of ${bytes(row.wanted)}, every copy counted`);
    if (row.rate) add("From the source", `${bytes(row.rate)}/s`);
    if (row.copied) add("Between nodes", `${bytes(row.copied)}/s`);
    add("Jobs", [row.active ? `${row.active} read it` : "", row.waiting ? `${row.waiting} wait` : ""].filter(Boolean).join(", "));
    add("More", `tdcs explain dataset ${row.name} -n ${row.namespace}`);
  }
  by("detail-body").replaceChildren(make("h3", {}, head), table);
}

// ---- head, banners

function figures() {
  const nodes = [...rows.nodes.values()], jobs = [...rows.jobs.values()], sets = [...rows.datasets.values()];
  const sum = (list, field) => list.reduce((total, row) => total + (row[field] ?? 0), 0);
  const set = (id, value, rest) => by(id).replaceChildren(value, rest ? make("small", {}, ` ${rest}`) : "");
  const gpus = sum(nodes, "gpus"), caches = [...rows.clusters.values()];
  if (gpus) set("stat-gpus", Math.min(sum(nodes, "gpusUsed"), gpus), `of ${gpus}`); else set("stat-gpus", "–");
  const capacity = sum(caches, "capacity");
  if (capacity) set("stat-cache", bytes(sum(caches, "used")), `of ${bytes(capacity)}`); else set("stat-cache", "–");
  const starting = jobs.filter(job => rank(job) === RANKS.Starting).length;
  set("stat-running", jobs.filter(job => rank(job) === RANKS.Running).length, starting ? `+ ${starting} starting` : "");
  set("stat-waiting", jobs.filter(job => rank(job) === 2).length);
  const rate = sum(sets, "rate"), copied = sum(sets, "copied");
  set("stat-loading", rate || copied ? `${bytes(rate)}/s` : "nothing", copied ? `+ ${bytes(copied)}/s copied` : "");
}

const PLACES = { TrainingJob: each => ["jobs", `TrainingJob/${title(each)}`], Dataset: each => ["datasets", title(each)] };

function needsAPerson(problems) {
  const list = make("ul", {}, ...problems.slice(0, PROBLEMS_SHOWN).map(each => {
    const [section, key] = PLACES[each.kind]?.(each) ?? [], name = `${each.kind} ${title(each)}`;
    const link = section && rows[section].has(key) ? make("button", { type: "button", class: "link", "data-section": section, "data-key": key }, name) : make("b", {}, name);
    return make("li", {}, link, `: ${each.message}`);
  }));
  if (problems.length > PROBLEMS_SHOWN) list.append(make("li", {}, `and ${problems.length - PROBLEMS_SHOWN} more: tdcs status -A`));
  const head = `${counted(problems.length, "object")} ${problems.length === 1 ? "needs" : "need"} a person`;
  const found = make("details", { open: folded ? null : "" }, make("summary", {}, head), list);
  found.addEventListener("toggle", () => { folded = !found.open; });
  return make("div", { class: "banner problems" }, found);
}

let shownBanners = "";
function banners() {
  const since = contact?.lostSince ? new Date(1000 * contact.lostSince).toLocaleTimeString() : "";
  const problems = [...rows.problems.values()], limits = [...rows.limits.values()];
  const state = JSON.stringify([reached, since, contact?.problem, problems, limits, contact?.settled]);
  const lost = !reached || since;
  const pill = by("contact");
  pill.dataset.state = lost ? "lost" : contact?.settled ? "live" : "starting";
  pill.textContent = !reached ? "tdcs ui has ended" : since ? `Lost at ${since}` : contact?.settled ? "Live" : "Connecting";
  document.body.classList.toggle("stale", Boolean(lost));
  if (state === shownBanners) return;
  shownBanners = state;
  const found = [];
  if (!reached) found.push(make("div", { class: "banner bad" }, make("b", {}, "The command tdcs ui does not answer."), "What you see is old. Start it again, and open the address that it prints."));
  else if (since) found.push(make("div", { class: "banner bad" }, make("b", {}, `The API server does not answer since ${since}.`), `What you see is from then. It is asked again every few seconds. (${contact.problem})`));
  if (limits.length) found.push(make("div", { class: "banner note" }, make("b", {}, "Not everything is shown:"), `${limits.map(limit => limit.why).join("; ")}.`));
  if (problems.length) found.push(needsAPerson(problems));
  by("banners").replaceChildren(...found);
}

function paint() {
  planned = false;
  for (const section of LISTS) {
    for (const key of dirty[section]) update(section, key);
    dirty[section].clear();
    arrange(section);
  }
  figures();
  banners();
  highlight();
  document.body.dataset.rows = rows.nodes.size + rows.jobs.size + rows.datasets.size;
}
const plan = () => { if (!planned) { planned = true; requestAnimationFrame(paint); } };

// ---- events from the command

function soil(section, key) {
  dirty[section]?.add(key);
  if (section === "jobs") dirty.queue.add(key);
}

function take(section, changed) {
  for (const [key, row] of Object.entries(changed)) {
    if (row === null) rows[section].delete(key); else rows[section].set(key, row);
    soil(section, key);
    // A problem colours its job.
    if (section === "problems") for (const job of rows.jobs.keys()) if (key.startsWith(`${job}/`)) soil("jobs", job);
  }
}

function connect() {
  const source = new EventSource("events");
  let heard = Date.now();
  source.addEventListener("rows", event => {
    heard = Date.now();
    const { first, rows: sections } = JSON.parse(event.data);
    if (first) for (const section of Object.keys(rows)) {
      for (const key of rows[section].keys()) soil(section, key);
      rows[section].clear();
    }
    for (const key of Object.keys(sections.datasets ?? {}).sort(natural)) colour(key);
    for (const [section, changed] of Object.entries(sections)) take(section, changed);
    plan();
  });
  source.addEventListener("contact", event => {
    heard = Date.now();
    reached = true;
    contact = JSON.parse(event.data);
    by("title").textContent = contact.title;
    document.title = contact.title ? `TDCS · ${contact.title}` : "TDCS";
    plan();
  });
  source.addEventListener("error", () => {
    reached = false;
    plan();
    // After an answer that is no stream of events a browser does not try again by itself.
    if (source.readyState === EventSource.CLOSED) { clearInterval(watch); setTimeout(connect, 3000); }
  });
  const watch = setInterval(() => { if (Date.now() - heard > 15000 && reached) { reached = false; plan(); } }, 1000);
}

// ---- keyboard and pointer

function move(list, from, key) {
  const all = [...list.querySelectorAll("button")], at = all.indexOf(from);
  const columns = Math.max(all.filter(each => each.offsetTop === all[0].offsetTop).length, 1);
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -at, End: all.length - 1 - at, PageDown: 10 * columns, PageUp: -10 * columns };
  if (!(key in steps)) return false;
  const next = all[Math.max(0, Math.min(all.length - 1, at + steps[key]))];
  from.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
  return true;
}

function show(section) {
  document.querySelector("main").dataset.tab = section;
  for (const tab of document.querySelectorAll("[data-tab][aria-pressed]")) tab.setAttribute("aria-pressed", String(tab.dataset.tab === section));
}

document.addEventListener("click", event => {
  const item = event.target.closest("[data-section]"), tab = event.target.closest(".tabs [data-tab]");
  if (item) {
    const link = item.classList.contains("link");
    if (!link) {
      for (const other of item.parentElement.querySelectorAll("button[tabindex='0']")) other.tabIndex = -1;
      item.tabIndex = 0;
    }
    choose(item.dataset.section, item.dataset.key);
    if (link) { show(item.dataset.section); document.querySelector("main [aria-pressed=true]")?.scrollIntoView({ block: "nearest" }); }
  } else if (tab) show(tab.dataset.tab);
});
by("close").addEventListener("click", () => { chosen = null; highlight(); });
by("filter").addEventListener("input", event => { filter = event.target.value.trim().toLowerCase(); plan(); });
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input"), item = event.target.closest?.("[data-section]");
  if (event.key === "Escape") {
    if (typing) { event.target.value = ""; filter = ""; event.target.blur(); plan(); }
    else if (chosen) { chosen = null; highlight(); }
  } else if (typing) { /* what is typed goes into the filter */ }
  else if (event.key === "/") { event.preventDefault(); show("nodes"); by("filter").focus(); }
  else if ("1234".includes(event.key)) {
    const section = LISTS[Number(event.key) - 1];
    show(section === "queue" ? "jobs" : section);
    (by(`${section}-list`).querySelector("button[tabindex='0']") ?? by(section)).focus();
  } else if (item && !item.classList.contains("link") && move(item.parentElement, item, event.key)) event.preventDefault();
});

connect();
