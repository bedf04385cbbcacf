// How many packets a second pass along each arrow of the graph. The report counts what nodes take and give; an arrow that is
// a node's only one has its count, and what is left of a node's count is that of its last arrow.

// What a node of the graph takes in and gives out; undefined where nothing counts it.
function nodeRates(change, id) {
  const [list, name] = [`${id.slice(0, id.indexOf("."))}s`, id.slice(id.indexOf(".") + 1)];
  const entry = (change.now[list] ?? []).find(entry => entry.name === name);
  const rate = counter => change.rate(list, entry, counter);
  if (!entry) return {};
  switch (list) {
    case "ports": return { in: rate("tx_packets"), out: rate("rx_packets") };
    case "stages": return { in: rate("packets_in"), out: rate("packets_out") };
    case "rings": return { in: rate("pushed"), out: rate("popped") };
    case "injectors": return { out: rate("popped") };
    default: return {};
  }
}

// The rate of each of `edges`, in order; undefined where the counts don't tell.
function edgeRates(change, edges) {
  const rates = edges.map(() => undefined);
  const ends = new Map();
  const end = (side, id) => {
    const key = `${side} ${id}`;
    // What enters a node is the end of arrows that lead to it.
    if (!ends.has(key)) ends.set(key, { total: nodeRates(change, id)[side], arrows: [] });
    return ends.get(key);
  };
  edges.forEach((edge, at) => {
    end("out", edge.from).arrows.push(at);
    end("in", edge.to).arrows.push(at);
  });
  let found = true;
  while (found) {
    found = false;
    for (const { total, arrows } of ends.values()) {
      const open = arrows.filter(at => rates[at] === undefined);
      if (total === undefined || open.length !== 1) continue;
      const others = arrows.reduce((sum, at) => sum + (rates[at] ?? 0), 0);
      rates[open[0]] = Math.max(0, total - others);
      found = true;
    }
  }
  return rates;
}
