// The slowest packets that the run keeps, if its plan has [trace]: how long ago each came, how long it took, where it was for the
// longest part of that, and what its lcore did meanwhile.

function showKept(kept) {
  if (!kept) { place("kept")?.remove(); return; }
  const longest = packet => packet.steps.reduce((most, step) => step.took_ns > most.took_ns ? step : most);
  const where = step => step.step === "before" ? `until lcore ${step.lcore} looked` : `${step.step} (${step.lcore})`;
  const did = one => `${one.did === "stolen" ? "kept from its CPU" : one.did} ${timeText(one.ns)}`;
  const columns = [["ago", p => timeText(kept.now_ns - p.at_ns)], ["took", p => timeText(p.took_ns + p.waited_ns)],
    ["of that", p => timeText(longest(p).took_ns)], ["where", p => where(longest(p))],
    ["meanwhile", p => longest(p).meanwhile.slice(0, 2).map(did).join(", ") || "–"], ["way", p => p.path.join(" → ")]];
  const box = place("kept") ?? place("tables").appendChild(tag("details", { id: "kept", open: "" }, tag("summary", {}, "Slowest packets"), tag("div")));
  box.lastChild.replaceChildren(kept.slowest.length ? table(columns, kept.slowest) : tag("p", { class: "nothing" }, "none so far"));
}
