// The page: asks once a second, and shows what was counted since the last answer. Whatever a plan or a peer has named goes into
// the page as text, never as markup.

const EVERY_MS = 1000;
const samples = new Samples();
const place = id => document.getElementById(id);
// What the run keeps is not known yet, or nothing (null).
let hello = null, plan = null, awake = {}, kept, lostSince = null;

function tag(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(2500) });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

async function look() {
  try {
    const now = await ask("/hello.json");
    if (!hello || now.since_unix_ms !== hello.since_unix_ms) {
      plan = layout(await ask("/graph.json"));
      kept = undefined;
      samples.all = [];
      samples.follow();
    }
    hello = now;
    samples.add(await ask("/report.json"));
    if (!samples.isHeld()) awake = await ask("/awake.json");
    if (!samples.isHeld() && kept !== null) kept = await ask("/kept.json");
    lostSince = null;
  } catch (error) {
    lostSince ??= Date.now();
    // A browser's own words for a server that is gone say less than these.
    notice(error.message && error.name === "Error" ? error.message : `no answer for ${Math.round((Date.now() - lostSince) / 1000)} s: the run has ended, or can't be reached`);
  }
  show();
  setTimeout(look, document.hidden ? 5 * EVERY_MS : EVERY_MS);
}

function notice(text) {
  place("notice").textContent = text ?? "";
  place("notice").hidden = !text;
}

function show() {
  const at = samples.place(), sample = samples.all[at], change = samples.change(at);
  showHead(sample);
  if (!sample) return;
  if (lostSince === null) notice(troubles(sample.report));
  place("rate").textContent = change ? short(change.packets()) : "";
  place("when").textContent = samples.isHeld() ? `held still, ${lasted((Date.now() - sample.at) / 1000)} ago` : "";
  place("line").replaceChildren(timeLine(samples, Math.max(200, place("line").clientWidth), at => { samples.show(at); show(); }));
  if (!change) return;
  place("lcores").replaceChildren(...sample.report.lcores.map(lcore => showLcore(lcore, change)));
  if (plan) place("graph").replaceChildren(drawGraph(plan, change));
  const times = showHistograms(change);
  place("times").replaceChildren(...(times.length ? times : [tag("p", { class: "nothing" }, "none was timed")]));
  showTables(change);
  showKept(kept);
}

function showHead(sample) {
  document.title = hello ? `${hello.plan}: Verbline` : "Verbline";
  place("plan").textContent = hello?.plan ?? "…";
  const up = sample ? `, up ${lasted(sample.report.elapsed_ns / 1e9)}` : "";
  place("who").textContent = hello ? `${hello.app}, process ${hello.pid}${up}` : "";
  const state = place("state");
  state.textContent = lostSince !== null ? "no answer" : samples.isHeld() ? "held" : hello?.state ?? "";
  state.className = lostSince !== null ? "lost" : samples.isHeld() ? "" : "live";
  place("pause").textContent = samples.isHeld() ? "Follow" : "Pause";
}

function troubles(report) {
  const failures = report.failures.map(failure => `${failure.stage ?? failure.lcore}: ${failure.message}`);
  const down = report.ports.filter(port => port.down).map(port => `port ${port.name} is down${port.down_reason ? `: ${port.down_reason}` : ""}`);
  return [...failures, ...down].join("; ");
}

const TIMES = [["busy", "busy_ns"], ["idle", "idle_ns"], ["asleep", "asleep_ns"], ["stolen", "stolen_ns"]];

function timeShares(change, lcore) {
  const times = TIMES.map(([, key]) => change.counted("lcores", lcore, key));
  const whole = times.reduce((sum, time) => sum + time, 0) || 1;
  return times.map(time => time / whole);
}

function showLcore(lcore, change) {
  const all = timeShares(change, lcore);
  const words = TIMES.map(([name], at) => `${name} ${percent(all[at])}`).join(", ");
  const bar = tag("div", { class: "bar", role: "img", "aria-label": words, title: words },
    ...TIMES.map(([name], at) => tag("i", { class: name, style: `width:${100 * all[at]}%` })));
  const busy = samples.all.map((_, at) => samples.change(at)).filter(Boolean).map(change => {
    const then = change.now.lcores.find(other => other.name === lcore.name);
    return then ? timeShares(change, then)[0] : 0;
  });
  const why = samples.isHeld() ? "" : awake[lcore.name] ?? "";
  return tag("div", { class: "lcore" }, tag("span", {}, tag("b", {}, lcore.name), tag("small", {}, ` CPU ${lcore.cpu}`)),
    tag("span", {}, percent(all[0])), bar, tag("span", { class: "spark-box" }, spark(busy, 150, 20)), tag("span", { class: "why" }, why));
}

// Tables: a title, a list of the report, and of each column its head and what stands in it. Rows without an entry are left out.
const TABLES = [
  ["Stages", "stages", [["stage", s => s.name], ["lcore", s => s.lcore], ["in/s", (s, r) => short(r("packets_in"))], ["out/s", (s, r) => short(r("packets_out"))],
    ["batch", (s, r) => r("calls") > 0 ? (r("packets_in") / r("calls")).toFixed(1) : "–"], ["of its lcore", (s, r) => percent(r("busy_ns") / 1e9)], ["no packet/s", (s, r) => short(r("alloc_failed"))]]],
  ["Ports", "ports", [["port", p => p.name], ["lcore", p => p.lcore], ["rx/s", (p, r) => short(r("rx_packets"))], ["tx/s", (p, r) => short(r("tx_packets"))],
    ["rx bit/s", (p, r) => short(8 * r("rx_bytes"))], ["tx bit/s", (p, r) => short(8 * r("tx_bytes"))], ["open", p => p.connections ? short(p.connections.open) : "–"],
    ["errors", p => short(p.errors.reduce((sum, error) => sum + error.count, 0))], ["state", p => p.down || p.link_down ? "down" : "up"]]],
  ["Rings", "rings", [["ring", q => q.name], ["from", q => q.producer], ["to", q => q.consumer], ["in/s", (q, r) => short(r("pushed"))], ["queued", q => short(q.pushed - q.popped)],
    ["most", q => short(q.most)], ["depth", q => short(q.depth)], ["full/s", (q, r) => short(r("full"))]]],
  ["Pools", "pools", [["pool", p => p.name], ["packets", p => short(p.packets)], ["free", p => short(p.free)], ["cached", p => short(p.cached)], ["held", p => short(p.held)]]],
  ["Drops", "drops", [["dropped at", d => d.place], ["reason", d => d.reason], ["a second", (d, r) => short(r("packets"))], ["in all", d => short(d.packets)]]],
  ["Connections", "connections", [["port", c => c.port], ["role", c => c.role], ["peer", c => c.peer_address], ["state", c => c.state], ["connected", c => `${c.times_connected} times`]]],
];

// The words of a table stand on the left.
const WORDS = new Set(["lcore", "from", "to", "reason", "role", "peer", "state", "where", "meanwhile", "way"]);

function showTables(change) {
  for (const [title, list, columns] of TABLES) {
    const rows = change.now[list];
    if (!rows.length && title !== "Drops") continue;
    const id = `table-${list}`;
    const box = place(id) ?? place("tables").appendChild(tag("details", { id, open: "" }, tag("summary", {}, title), tag("div")));
    box.lastChild.replaceChildren(rows.length ? table(columns, rows, change, list) : tag("p", { class: "nothing" }, "none so far"));
  }
  const holders = [...change.now.packets.holders].sort((a, b) => b.packets - a.packets);
  const box = place("holders") ?? place("tables").appendChild(tag("details", { id: "holders" }, tag("summary", {}, "Who holds packets"), tag("div")));
  box.lastChild.replaceChildren(table([["place", h => h.place], ["packets", h => short(h.packets)]], holders, change, "pools"));
}

function table(columns, rows, change, list) {
  const style = head => WORDS.has(head) ? { class: "word" } : {};
  return tag("table", {}, tag("tr", {}, ...columns.map(([head]) => tag("th", { scope: "col", ...style(head) }, head))),
    ...rows.slice(0, 500).map(row => tag("tr", {}, ...columns.map(([head, text]) => tag("td", style(head), String(text(row, counter => change.rate(list, row, counter)) ?? "–"))))));
}

const KEYS = {
  " ": () => samples.isHeld() ? samples.follow() : samples.hold(),
  ArrowLeft: () => samples.show(samples.place() - 1),
  ArrowRight: () => samples.place() + 1 >= samples.all.length - 1 ? samples.follow() : samples.show(samples.place() + 1),
  Home: () => samples.show(1),
  End: () => samples.follow(),
  "?": () => place("keys").showModal(),
};

function act(key) { if (samples.all.length > 1 || key === "?") KEYS[key](); show(); }

addEventListener("keydown", event => {
  if (event.ctrlKey || event.altKey || event.metaKey || place("keys").open || !(event.key in KEYS)) return;
  // A space on a button or a heading is that one's.
  if (event.key === " " && event.target.closest("button, summary")) return;
  event.preventDefault();
  act(event.key);
});
for (const [id, key] of [["back", "ArrowLeft"], ["pause", " "], ["on", "ArrowRight"], ["help", "?"]]) place(id).addEventListener("click", () => act(key));
addEventListener("resize", show);
look();
