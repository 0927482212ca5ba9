"use strict";

// Texts of clients become text nodes only, never markup.
const PHASES = ["rows", "graph", "repair", "order", "pages"];
const STEPS = { rows: "rows", graph: "elements", repair: "elements", order: "elements", pages: "pages" };
const PERIOD_MS = 1000;
const byId = (id) => document.getElementById(id);

function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const number = (value) => Math.round(value).toLocaleString("en");

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${value.toFixed(unit > 0 && value < 10 ? 1 : 0)} ${units[unit]}`;
}

function span(seconds) {
  if (seconds > 0 && seconds < 0.1) return "< 0.1 s";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

function ago(now, then) {
  const seconds = Math.max(0, (now - then) / 1000);
  return seconds < 10 ? "just now" : `${span(seconds)} ago`;
}

const typeOf = (build) => `${build.type}(${number(build.dims)}) ${build.metric}`;
const titleOf = (build) => build.label || typeOf(build);
const clientOf = (build) => `from ${build.client || build.peer}`;
const detailOf = (build) => [build.label ? typeOf(build) : null, `m ${build.m}`, `ef ${build.ef_construction}`]
  .filter(Boolean).join(" · ");

function bar(fraction, label) {
  const fill = make("i");
  fill.style.width = `${(fraction * 100).toFixed(1)}%`;
  return make("div", {
    class: "bar", role: "progressbar", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100,
    "aria-valuenow": Math.floor(fraction * 100),
  }, fill);
}

function tile(value, name, extra) {
  return make("div", { class: extra ? "tile wide" : "tile" }, make("b", {}, value), ...(extra || []), make("span", {}, name));
}

// The CPU time between the last two reports gives the number of busy cores.
let before = null;
let cores = null;

function busyCores({ cpu_seconds: cpu, now_ms: now, started_ms: started }) {
  if (typeof cpu !== "number") return null;
  if (before && before.started === started && now > before.now) cores = Math.max(0, (cpu - before.cpu) * 1000 / (now - before.now));
  before = { cpu, now, started };
  return cores;
}

function showTiles(report) {
  const { limit_bytes: limit, reserved_bytes: reserved, resident_bytes: resident } = report.memory;
  const tiles = [
    tile(number(report.builds.length), "running"),
    tile(number(report.queue.length), "waiting"),
    tile(number(report.connections), "connections"),
  ];
  if (report.threads > 0) tiles.push(tile(number(report.threads), "threads"));
  const busy = busyCores(report);
  if (busy !== null) tiles.push(tile(busy.toFixed(1), "cores busy"));
  const used = limit ? Math.min(1, reserved / limit) : null;
  const ofLimit = limit ? `reserved of ${bytes(limit)} · ${bytes(resident)} in use` : "in use";
  tiles.push(tile(bytes(limit ? reserved : resident), ofLimit, [used === null ? null : bar(used, "memory reserved")]));
  byId("tiles").replaceChildren(...tiles);
}

// Cards are kept while their build runs, so that bars move smoothly.
const cards = new Map();

function card(build) {
  const fill = make("i");
  const parts = {
    eta: make("span", { class: "eta" }),
    bar: make("div", { class: "bar", role: "progressbar", "aria-label": "progress", "aria-valuemin": 0, "aria-valuemax": 100 }, fill),
    fill,
    phases: make("ol", { class: "phases" }, ...PHASES.map((phase) => make("li", {}, phase))),
    facts: make("p", { class: "facts" }),
  };
  parts.node = make("article", { class: "card", "data-build": build.id },
    make("h3", {}, titleOf(build), make("span", {}, detailOf(build)), parts.eta), parts.bar, parts.phases, parts.facts);
  return parts;
}

function showBuild(parts, build) {
  const percent = build.fraction * 100;
  parts.fill.style.width = `${percent.toFixed(1)}%`;
  parts.bar.setAttribute("aria-valuenow", Math.floor(percent));
  const left = build.eta_seconds;
  parts.eta.textContent = `${Math.floor(percent)} %` + (left === null ? "" : ` · ~${span(left)} left`);
  parts.eta.dataset.seconds = left === null ? "" : left;
  const current = PHASES.indexOf(build.phase);
  [...parts.phases.children].forEach((item, index) => {
    item.className = index < current ? "past" : index === current ? "now" : "";
    const steps = build.total > 0 ? `${number(build.done)} of ${number(build.total)}` : number(build.done);
    item.textContent = index === current ? `${build.phase} ${steps}` : PHASES[index];
  });
  const facts = [
    `${number(build.rows)} rows`,
    build.rate > 0 ? `${number(build.rate)} ${STEPS[build.phase] || "steps"}/s` : null,
    build.memory_bytes > 0 ? bytes(build.memory_bytes) : null,
    `for ${span(build.elapsed_seconds)}`,
    clientOf(build),
    build.builder ? `on ${build.builder}` : null,
    `#${build.id}`,
  ];
  parts.facts.replaceChildren(...facts.filter(Boolean).map((fact) => make("span", {}, fact)));
}

function showBuilds(builds) {
  const list = byId("builds");
  const ids = new Set(builds.map((build) => build.id));
  for (const [id, parts] of cards) {
    if (!ids.has(id)) { parts.node.remove(); cards.delete(id); }
  }
  list.querySelector(".none")?.remove();
  for (const build of builds) {
    if (!cards.has(build.id)) {
      cards.set(build.id, card(build));
      list.append(cards.get(build.id).node);
    }
    showBuild(cards.get(build.id), build);
  }
  if (builds.length === 0) list.append(make("p", { class: "none card" }, "Nothing is being built."));
}

function showQueue(queue) {
  byId("queue-section").hidden = queue.length === 0;
  byId("queue").replaceChildren(...queue.map((build) => make("li", { class: "card" },
    make("h3", {}, build.position ? `${build.position}. ` : "", titleOf(build), make("span", {}, detailOf(build))),
    make("p", { class: "facts" },
      make("span", {}, `for ${span(build.waiting_seconds)}`),
      typeof build.eta_seconds === "number" ? make("span", {}, `its turn in ~${span(build.eta_seconds)}`) : null,
      build.memory_bytes ? make("span", {}, `needs ${bytes(build.memory_bytes)}`) : null,
      make("span", {}, `about ${number(build.expected_rows)} rows`), make("span", {}, clientOf(build))))));
}

function showBuilders(builders) {
  byId("builders-section").hidden = builders.length === 0;
  byId("builders").replaceChildren(...builders.map((builder) => make("li", { class: "card" },
    make("h3", {}, builder.name, make("span", {}, builder.state)),
    make("p", { class: "facts" }, make("span", {}, `${number(builder.builds)} builds`)))));
}

function drawing(name, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

const HEIGHT = 100;

// The end of an axis: the next 1, 2 or 5 times a power of ten.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => top >= value) || value;
}

// Figures are kept, so that the pointer keeps its place while values move.
function plot(title, key) {
  const picture = drawing("svg", { preserveAspectRatio: "none", "aria-hidden": "true" });
  const parts = { key, picture, values: [], interval: 1, pointer: null };
  for (const name of ["said", "top", "middle", "begin", "half"]) parts[name] = make("span");
  parts.node = make("figure", { "data-plot": key }, make("figcaption", {}, make("b", {}, title), parts.said),
    make("div", { class: "chart" }, make("div", { class: "rates" }, parts.top, parts.middle, make("span", {}, "0")), picture),
    make("div", { class: "times" }, parts.begin, parts.half, make("span", {}, "now")));
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    parts.pointer = (event.clientX - box.left) / box.width;
    drawPlot(parts);
  });
  picture.addEventListener("pointerleave", () => { parts.pointer = null; drawPlot(parts); });
  return parts;
}

function drawPlot({ picture, values, interval, pointer, said, top, middle, begin, half }) {
  // Soon after the start, the plot is one minute wide.
  const slots = Math.max(60, values.length);
  const from = slots - values.length;
  const most = values.reduce((most, value) => Math.max(most, value), 0);
  const highest = most > 0 ? roundUp(most) : 1;
  const y = (value) => (HEIGHT * (1 - value / highest)).toFixed(1);
  picture.setAttribute("viewBox", `0 0 ${slots - 1} ${HEIGHT}`);
  picture.replaceChildren(...[0, 0.5, 1].map((share) => drawing("path", { class: "axis", d: `M0 ${y(share * highest)}H${slots}` })));
  if (most > 0) {
    const points = values.map((value, index) => `${from + index} ${y(value)}`);
    picture.append(drawing("path", { class: "area", d: `M${from} ${HEIGHT}L${points.join("L")}L${slots - 1} ${HEIGHT}Z` }));
    picture.append(drawing("path", { class: "curve", d: `M${points.join("L")}` }));
  }
  [top.textContent, middle.textContent] = most > 0 ? [rate(highest), rate(highest / 2)] : ["", ""];
  begin.textContent = `${span(slots * interval)} ago`;
  half.textContent = `${span(slots * interval / 2)} ago`;
  const at = pointer === null ? -1 : Math.round(pointer * (slots - 1)) - from;
  if (at in values) {
    picture.append(drawing("path", { class: "mark", d: `M${from + at} 0V${HEIGHT}` }));
    const before = (values.length - 1 - at) * interval;
    said.textContent = `${rate(values[at])}/s ${before > 0 ? `${span(before)} ago` : "now"}`;
  } else {
    said.textContent = `${rate(values.at(-1) ?? 0)}/s now, most ${rate(most)}/s`;
  }
}

const rate = (value) => (value > 0 && value < 10 ? value.toFixed(1) : number(value));

const plots = [["Rows received", "rows_per_second"], ["Elements processed", "elements_per_second"], ["Pages sent", "pages_per_second"]]
  .map(([title, key]) => plot(title, key));
byId("plots").replaceChildren(...plots.map((parts) => parts.node));

function showPlots(throughput) {
  const seconds = throughput.rows_per_second.length * throughput.interval_seconds;
  byId("period").textContent = span(seconds);
  for (const parts of plots) {
    [parts.values, parts.interval] = [throughput[parts.key], throughput.interval_seconds];
    drawPlot(parts);
  }
}

function found(build) {
  const texts = [];
  if (typeof build.recall === "number") texts.push(`; recall ${build.recall.toFixed(3)} at ef_search 40`);
  if (typeof build.self_recall === "number") texts.push(`; self-recall ${build.self_recall.toFixed(3)}`);
  return texts.join("");
}

function endedRow(build, now) {
  const { rows, graph, repair, order, pages } = build.phases;
  const times = build.seconds > 0
    ? `rows ${span(rows)}, graph ${span(graph + repair + order)}, pages ${span(pages)}${found(build)}` : null;
  const what = make("td", { class: "what" }, titleOf(build), " ", make("span", { class: "note" }, `${detailOf(build)} · ${clientOf(build)}`));
  const note = build.outcome === "succeeded" ? times : build.reason;
  if (note) what.append(make("div", { class: "note" }, note));
  return make("tr", { "data-ended": build.id },
    make("td", { class: build.outcome }, build.outcome), what,
    make("td", { class: "number" }, build.rows > 0 ? `${number(build.rows)} rows` : "–"),
    make("td", { class: "number" }, build.pages > 0 ? bytes(build.pages * 8192) : "–"),
    make("td", { class: "number" }, build.seconds > 0 ? span(build.seconds) : "–"),
    make("td", { class: "number note" }, ago(now, build.ended_ms)));
}

function showEnded(ended, now) {
  if (ended.length === 0) return byId("ended").replaceChildren(make("p", { class: "none" }, "None yet."));
  const heads = ["outcome", "index", "rows", "size", "time", ""]
    .map((name, index) => make("th", index > 1 ? { class: "number" } : {}, name));
  byId("ended").replaceChildren(make("table", {},
    make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...ended.map((build) => endedRow(build, now)))));
}

const SOON_MS = 30 * 24 * 3600 * 1000;

// A daemon without a certificate reports no expiry.
function showCertificate(expires, now) {
  const chip = byId("certificate");
  chip.hidden = typeof expires !== "number";
  if (chip.hidden) return;
  const left = expires - now;
  chip.textContent = left < 0 ? `certificate expired ${span(-left / 1000)} ago` : `certificate expires in ${span(left / 1000)}`;
  chip.className = left < 0 ? "chip lost" : left < SOON_MS ? "chip" : "chip calm";
}

function show(report) {
  byId("role").textContent = report.role;
  byId("state").textContent = report.readiness;
  byId("state").className = `chip ${report.readiness}`;
  byId("about").textContent = `version ${report.software} · up ${span((report.now_ms - report.started_ms) / 1000)}`;
  showCertificate(report.certificate_expires_ms, report.now_ms);
  document.title = report.builds.length > 0
    ? `${Math.floor(report.builds[0].fraction * 100)} % · lantern-index` : "lantern-index";
  showTiles(report);
  showBuilds(report.builds);
  showQueue(report.queue);
  showBuilders(report.builders || []);
  showPlots(report.throughput);
  showEnded(report.ended, report.now_ms);
}

async function refresh() {
  try {
    const answer = await fetch("status", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    show(await answer.json());
  } catch {
    byId("state").textContent = "no answer";
    byId("state").className = "chip lost";
  }
}

async function watch() {
  for (;;) {
    if (!document.hidden) await refresh();
    await new Promise((resume) => { setTimeout(resume, PERIOD_MS); });
  }
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
watch();
