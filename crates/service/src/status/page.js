"use strict";

// Texts from clients reach the page only as text nodes, never as markup.
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

function showTiles(report) {
  const { limit_bytes: limit, reserved_bytes: reserved, resident_bytes: resident } = report.memory;
  const tiles = [
    tile(number(report.builds.length), "running"),
    tile(number(report.queue.length), "waiting"),
    tile(number(report.connections), "connections"),
  ];
  if (report.threads > 0) tiles.push(tile(number(report.threads), "threads"));
  const used = limit ? Math.min(1, reserved / limit) : null;
  const ofLimit = limit ? `reserved of ${bytes(limit)} · ${bytes(resident)} in use` : "in use";
  tiles.push(tile(bytes(limit ? reserved : resident), ofLimit, [used === null ? null : bar(used, "memory reserved")]));
  byId("tiles").replaceChildren(...tiles);
}

// Cards stay while their build runs, so that bars move instead of jumping.
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
  parts.eta.textContent = `${Math.floor(percent)} %` + (left === null ? "" : ` · ${span(left)} left`);
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
    `from ${build.peer}`,
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
      build.memory_bytes ? make("span", {}, `needs ${bytes(build.memory_bytes)}`) : null,
      make("span", {}, `about ${number(build.expected_rows)} rows`), make("span", {}, `from ${build.peer}`)))));
}

function showBuilders(builders) {
  byId("builders-section").hidden = builders.length === 0;
  byId("builders").replaceChildren(...builders.map((builder) => make("li", { class: "card" },
    make("h3", {}, builder.name, make("span", {}, builder.state)),
    make("p", { class: "facts" }, make("span", {}, `${number(builder.builds)} builds`),
      builder.threads ? make("span", {}, `${number(builder.threads)} threads`) : null,
      builder.memory_free_bytes === null ? null : make("span", {}, `${bytes(builder.memory_free_bytes)} free`)))));
}

function drawing(name, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

function plot(title, values, unit) {
  // Soon after the start a shorter time fills the picture.
  const [slots, height] = [Math.max(60, values.length), 100];
  const most = values.reduce((most, value) => Math.max(most, value), 0);
  const picture = drawing("svg", { viewBox: `0 0 ${slots} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  picture.append(drawing("path", { class: "axis", d: `M0 ${height}H${slots}` }));
  if (most > 0) {
    const from = slots - values.length;
    const points = values.map((value, index) => `${from + index} ${(height - value / most * (height - 4)).toFixed(1)}`);
    picture.append(drawing("path", { class: "area", d: `M${from} ${height}L${points.join("L")}L${slots - 1} ${height}Z` }));
    picture.append(drawing("path", { class: "curve", d: `M${points.join("L")}` }));
  }
  const now = values.length > 0 ? values[values.length - 1] : 0;
  return make("figure", {}, make("figcaption", {}, make("b", {}, title),
    make("span", {}, `${number(now)} now, most ${number(most)} ${unit}`)), picture);
}

function showPlots(throughput) {
  const seconds = throughput.rows_per_second.length * throughput.interval_seconds;
  byId("period").textContent = span(seconds);
  byId("plots").replaceChildren(
    plot("Rows taken", throughput.rows_per_second, "/s"),
    plot("Elements linked", throughput.elements_per_second, "/s"),
    plot("Pages sent", throughput.pages_per_second, "/s"));
}

function endedRow(build, now) {
  const { rows, graph, repair, order, pages } = build.phases;
  const times = build.seconds > 0
    ? `rows ${span(rows)}, graph ${span(graph + repair + order)}, pages ${span(pages)}` : null;
  const what = make("td", { class: "what" }, titleOf(build), " ", make("span", { class: "note" }, detailOf(build)));
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

function show(report) {
  byId("role").textContent = report.role;
  byId("state").textContent = report.readiness;
  byId("state").className = `chip ${report.readiness}`;
  byId("about").textContent = `version ${report.software} · up ${span((report.now_ms - report.started_ms) / 1000)}`;
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
