// The drawings: lines of time, and the graph. An lcore is a lane; its ports stand twice in it, where packets come in and where
// they leave, so that they flow from left to right.

function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// How many reports a line of time has room for: a minute, and more as there are more.
function room(count) { return Math.max(count, 61) - 1; }

function timeLine(samples, width, chosen) {
  const height = 110, top = 14, low = height - 16;
  const steps = room(samples.all.length);
  const x = place => width - (samples.all.length - 1 - place) * width / steps;
  const points = samples.all.map((_, place) => samples.change(place)).map((change, place) => change && {
    place, packets: change.packets(), drops: change.drops(),
  }).filter(Boolean);
  const most = Math.max(1, ...points.map(point => Math.max(point.packets, point.drops)));
  const y = value => low - (low - top) * value / most;
  const drawing = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Packets a second" });
  drawing.append(svg("line", { class: "grid", x1: 0, x2: width, y1: top, y2: top }), svg("line", { class: "grid", x1: 0, x2: width, y1: low, y2: low }));
  if (points.length) {
    const path = kind => points.map(point => `${x(point.place).toFixed(1)},${y(point[kind]).toFixed(1)}`).join(" ");
    const [first, last] = [points[0], points.at(-1)];
    drawing.append(svg("polygon", { class: "area", points: `${x(first.place)},${low} ${path("packets")} ${x(last.place)},${low}` }));
    if (points.some(point => point.drops > 0)) drawing.append(svg("polyline", { class: "dropped", points: path("drops") }));
  }
  const at = x(samples.place());
  if (samples.isHeld()) drawing.append(svg("line", { class: "cursor", x1: at, x2: at, y1: 0, y2: low }));
  drawing.append(svg("text", { class: "faint", x: 2, y: 10 }, `${short(most)} at most`), svg("text", { class: "faint", x: 2, y: height - 4 }, `${lasted(steps * samples.everySeconds())} ago`),
    svg("text", { class: "faint", x: width, y: height - 4, "text-anchor": "end" }, "now"));
  drawing.addEventListener("click", event => {
    const from = width - (event.clientX - drawing.getBoundingClientRect().left);
    chosen(samples.all.length - 1 - Math.round(from * steps / width));
  });
  return drawing;
}

function spark(values, width, height) {
  const x = place => width - (values.length - 1 - place) * width / room(values.length);
  const points = values.map((value, place) => `${x(place).toFixed(1)},${(height - 1 - (height - 2) * value).toFixed(1)}`).join(" ");
  return svg("svg", { width, height, "aria-hidden": "true" }, svg("polyline", { class: "spark", points }));
}

const BOX = { width: 148, height: 36, gap: 14, column: 236, margin: 16, title: 22 };

// Where each node stands. `graph` has ports once; here `port.x` takes packets in and `port.x ` (with a space) sends them.
function layout(graph) {
  const edges = graph.edges.filter(edge => edge.kind !== "wire")
    .map(edge => ({ ...edge, end: edge.to.startsWith("port.") ? `${edge.to} ` : edge.to }));
  const wires = graph.edges.filter(edge => edge.kind === "wire");
  const lanes = new Map(graph.lcores.map(name => [name, []]));
  const column = columns(graph.nodes, edges);
  const last = Math.max(0, ...[...column.values()]) + 1;
  const places = new Map();
  const stand = (id, lcore, at) => lanes.get(lcore)?.push(places.set(id, { column: at }).get(id));
  for (const node of graph.nodes) {
    const lcore = node.lcore ?? laneOf(node.id, graph);
    if (!node.id.startsWith("port.")) { stand(node.id, lcore, column.get(node.id)); continue; }
    if (edges.some(edge => edge.from === node.id)) stand(node.id, lcore, 0);
    if (edges.some(edge => edge.to === node.id)) stand(`${node.id} `, lcore, last);
  }
  let top = 0;
  const drawn = [];
  for (const [name, members] of lanes) {
    const rows = new Map();
    for (const place of members) {
      const row = rows.get(place.column) ?? 0;
      rows.set(place.column, row + 1);
      place.x = BOX.margin + place.column * BOX.column;
      place.y = top + BOX.title + row * (BOX.height + BOX.gap);
    }
    const height = BOX.title + Math.max(1, ...rows.values()) * (BOX.height + BOX.gap);
    drawn.push({ name, top, height });
    top += height + 10;
  }
  return { edges, wires, places, lanes: drawn, width: 2 * BOX.margin + last * BOX.column + BOX.width, height: top };
}

// A ring or a spread stands with who reads it.
function laneOf(id, graph, seen = new Set()) {
  seen.add(id);
  for (const edge of graph.edges.filter(edge => edge.from === id && !seen.has(edge.to))) {
    const lcore = graph.nodes.find(node => node.id === edge.to)?.lcore ?? laneOf(edge.to, graph, seen);
    if (lcore) return lcore;
  }
  return graph.lcores[0];
}

// How many nodes come before each one, ports apart: the longest way to it that passes none twice.
function columns(nodes, edges) {
  const column = new Map();
  const visit = (id, way) => {
    if (way.has(id)) return 0;
    if (column.has(id)) return column.get(id);
    way.add(id);
    const before = edges.filter(edge => edge.to === id && !edge.from.startsWith("port."));
    const found = 1 + Math.max(0, ...before.map(edge => visit(edge.from, way)));
    way.delete(id);
    column.set(id, found);
    return found;
  };
  nodes.filter(node => !node.id.startsWith("port.")).forEach(node => visit(node.id, new Set()));
  return column;
}

function drawGraph(plan, change) {
  const rates = change ? edgeRates(change, plan.edges) : [];
  const most = Math.max(1, ...rates.filter(rate => rate !== undefined));
  const drawing = svg("svg", { width: plan.width, height: plan.height, role: "img", "aria-label": "The graph of the plan" });
  drawing.append(svg("defs", {}, svg("marker", { id: "tip", viewBox: "0 0 6 6", refX: 6, refY: 3, markerWidth: 7, markerHeight: 7, orient: "auto", markerUnits: "userSpaceOnUse" },
    svg("path", { d: "M0 0L6 3L0 6z" }))));
  for (const lane of plan.lanes) {
    drawing.append(svg("rect", { class: "lane", x: 1, y: lane.top + 1, width: plan.width - 2, height: lane.height, rx: 6 }),
      svg("text", { class: "faint", x: 10, y: lane.top + 15 }, `lcore ${lane.name}`));
  }
  const labels = plan.edges.map((edge, at) => drawArrow(drawing, plan, edge, rates[at], most)).filter(Boolean);
  for (const [id, place] of plan.places) drawing.append(drawNode(id, place, plan, change));
  drawing.append(...labels);
  return drawing;
}

// Draws an arrow, and gives its label: that is drawn above all nodes.
function drawArrow(drawing, plan, edge, rate, most) {
  const [from, to] = [plan.places.get(edge.from), plan.places.get(edge.end)];
  if (!from || !to) return null;
  const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
  const bend = Math.max(30, Math.abs(x2 - x1) / 2);
  const kind = rate === undefined ? "unknown" : rate > 0 ? "flows" : "";
  drawing.append(svg("path", { class: `arrow ${kind}`, d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`,
    "stroke-width": (1 + 3 * (rate ?? 0) / most).toFixed(1), "marker-end": "url(#tip)" }));
  if (rate === undefined) return null;
  // At the end that it shares with fewer others.
  const atStart = neighbours(plan, "from", edge) <= neighbours(plan, "end", edge);
  return svg("text", { class: "rate", x: atStart ? x1 + 6 : x2 - 10, y: (atStart ? y1 : y2) - 5, "text-anchor": atStart ? "start" : "end" }, short(rate));
}

function neighbours(plan, side, edge) { return plan.edges.filter(other => other[side] === edge[side]).length; }

function drawNode(id, place, plan, change) {
  const name = id.trim();
  const [sort, label] = [name.slice(0, name.indexOf(".")), name.slice(name.indexOf(".") + 1)];
  const drops = change ? change.now.drops.filter(drop => drop.place === name).reduce((sum, drop) => sum + change.rate("drops", drop, "packets"), 0) : 0;
  const down = sort === "port" && change?.now.ports.some(port => port.name === label && (port.down || port.link_down));
  const words = wordsOf(id, sort, label, plan, change);
  const node = svg("g", { class: `node ${down ? "down" : ""} ${drops > 0 ? "drops" : ""}`, transform: `translate(${place.x} ${place.y})` });
  const shown = label.length > 21 ? `${label.slice(0, 20)}…` : label;
  node.append(svg("title", {}, `${name}: ${words}`), svg("rect", { width: BOX.width, height: BOX.height, rx: sort === "port" ? 16 : 4 }),
    svg("text", { x: 10, y: 15 }, shown), svg("text", { class: "faint", x: 10, y: 29 }, drops > 0 ? `${short(drops)} drops/s` : words));
  return node;
}

// What stands below a node's name.
function wordsOf(id, sort, name, plan, change) {
  const wires = plan.wires.filter(edge => edge[id.endsWith(" ") ? "from" : "to"] === `port.${name}`);
  const peers = [...new Set(wires.map(edge => (id.endsWith(" ") ? edge.to : edge.from).slice(5)))];
  if (sort === "port" && peers.length) return `${id.endsWith(" ") ? "to" : "from"} ${peers.join(", ").slice(0, 22)}`;
  const entry = change?.now[`${sort}s`]?.find(entry => entry.name === name);
  if (sort === "port") return id.endsWith(" ") ? "sends" : "receives";
  if (sort === "ring" && entry) return `ring, ${short(entry.pushed - entry.popped)} of ${entry.depth}`;
  if (sort === "stage" && entry) {
    const packets = change.counted("stages", entry, "packets_in") || change.counted("stages", entry, "packets_out");
    return packets > 0 ? `${timeText(change.counted("stages", entry, "busy_ns") / packets)} a packet` : entry.kind.slice(0, 22);
  }
  return sort;
}
