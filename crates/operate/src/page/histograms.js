// Histograms: how long calls of stages took, what stages measure themselves, and how late timers woke lcores. All have one axis
// of time, on which ten times as long is always as far. The counts are those between two reports.

const SPAN = { from: 1e1, to: 1e10, width: 420, height: 40, axis: 16 };

// Kinds of times: the list of the report, its key there, and what it is called.
const HISTOGRAMS = [["stages", "call_times", stage => `stage ${stage.name}`], ["lcores", "wake_late", lcore => `lcore ${lcore.name}, late`]];

function binsBetween(before, now) {
  const had = new Map((before?.bins ?? []).map(bin => [bin.below_ns, bin.count]));
  return (now?.bins ?? []).map(bin => ({ end: bin.below_ns, longest: now.max_ns, count: bin.count - (had.get(bin.below_ns) ?? 0) })).filter(bin => bin.count > 0);
}

// The bin that a share of all counts does not exceed.
function quantile(bins, share) {
  const wanted = share * bins.reduce((sum, bin) => sum + bin.count, 0);
  let sum = 0;
  return bins.find(bin => (sum += bin.count) >= wanted);
}

// Its end: the last bin has none, and no time is above the longest.
function quantileText(bins, share) {
  const bin = quantile(bins, share);
  return timeText(Math.min(bin.end, bin.longest ?? bin.end));
}

function timeX(ns) {
  const { from, to, width } = SPAN;
  return width * Math.log10(Math.min(Math.max(ns, from), to) / from) / Math.log10(to / from);
}

function drawHistogram(name, bins) {
  const { width, height, axis } = SPAN, low = height - axis;
  const most = Math.max(...bins.map(bin => bin.count));
  const p99 = quantile(bins, 0.99).end;
  const words = `${name}: half within ${quantileText(bins, 0.5)}, 99 in 100 within ${quantileText(bins, 0.99)}`;
  const drawing = svg("svg", { class: "histogram", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words }, svg("title", {}, words));
  for (let ns = SPAN.from * 10; ns < SPAN.to; ns *= 10) {
    drawing.append(svg("line", { class: "grid", x1: timeX(ns), x2: timeX(ns), y1: 0, y2: low }));
    drawing.append(svg("text", { class: "faint", x: timeX(ns), y: height - 4, "text-anchor": "middle" }, timeText(ns)));
  }
  drawing.append(svg("line", { class: "grid", x1: 0, x2: width, y1: low, y2: low }));
  for (const { end, count } of bins) {
    // A bin is a quarter of the octave that it ends; what is there is seen.
    const [x1, x2] = [timeX(end / 1.25), timeX(end)];
    const tall = Math.max(1.5, (low - 2) * count / most);
    drawing.append(svg("rect", { class: end > p99 ? "late" : "count", x: x1, y: low - tall, width: Math.max(2, x2 - x1 - .5), height: tall }));
  }
  return drawing;
}

function showHistograms(change) {
  const earlier = (list, entry) => change.before[list].find(other => keyOf(other) === keyOf(entry));
  const all = HISTOGRAMS.flatMap(([list, key, nameOf]) => change.now[list].map(entry => ({ name: nameOf(entry), bins: binsBetween(earlier(list, entry)?.[key], entry[key]) })));
  for (const stage of change.now.stages) {
    const before = earlier("stages", stage)?.histograms ?? [];
    all.unshift(...(stage.histograms ?? []).map(own => ({ name: `stage ${stage.name}, ${own.name}`, bins: binsBetween(before.find(other => other.name === own.name)?.times, own.times) })));
  }
  return all.filter(one => one.bins.length).slice(0, 200).map(({ name, bins }) => tag("figure", {},
    tag("figcaption", {}, tag("b", {}, name), tag("small", {}, ` p50 ${quantileText(bins, 0.5)}, p99 ${quantileText(bins, 0.99)}`)), drawHistogram(name, bins)));
}
