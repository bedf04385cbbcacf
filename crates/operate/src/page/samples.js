// Reports that are kept, and what was counted between two of them. Names with `_` are the report's keys.
"use strict";

const KEPT = 301;

class Samples {
  constructor() { this.all = []; this.shown = null; }

  add(report) {
    const last = this.all.at(-1);
    // A shorter time is that of another run under the same name.
    if (last && report.elapsed_ns < last.report.elapsed_ns) { this.all = []; this.shown = null; }
    const before = this.all.at(-1);
    this.all.push({ report, at: Date.now(), change: before ? new Change(before.report, report) : null });
    if (this.all.length > KEPT) {
      this.all.shift();
      if (this.shown !== null) this.shown = Math.max(1, this.shown - 1);
    }
  }

  // From one report to the next, on average.
  everySeconds() {
    const steps = this.all.length - 1;
    return steps > 0 ? (this.all[steps].at - this.all[0].at) / 1000 / steps : 1;
  }

  // The place of the report that is shown: the latest, unless the page is held still.
  place() { return this.shown ?? this.all.length - 1; }
  isHeld() { return this.shown !== null; }
  hold() { this.shown = this.place(); }
  follow() { this.shown = null; }
  show(place) { this.shown = Math.min(Math.max(place, 1), this.all.length - 1); }

  // What was counted up to a report since the one before it; null without one before.
  change(place) { return this.all[place]?.change ?? null; }
}

class Change {
  constructor(before, now) {
    this.before = before;
    this.now = now;
    this.seconds = (now.elapsed_ns - before.elapsed_ns) / 1e9 || 1;
  }

  // How much a second a counter of an entry of `list` grew.
  rate(list, entry, counter) { return this.counted(list, entry, counter) / this.seconds; }

  counted(list, entry, counter) {
    const before = this.before[list].find(other => keyOf(other) === keyOf(entry));
    return Math.max(0, entry[counter] - (before ? before[counter] : 0));
  }

  packets() {
    const of = counter => this.now.ports.reduce((sum, port) => sum + this.rate("ports", port, counter), 0);
    return of("rx_packets") + of("tx_packets");
  }

  drops() { return this.now.drops.reduce((sum, drop) => sum + this.rate("drops", drop, "packets"), 0); }
}

function keyOf(entry) { return entry.name ?? `${entry.place} ${entry.reason}`; }

// Three digits, whatever the number: what rounds to a thousand of a unit is one of the next.
function short(number) {
  if (!(number > 0)) return "0";
  for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    const value = number / size;
    if (value >= 0.9995) return `${value < 999.5 ? value.toPrecision(3) : Math.round(value)}${unit}`;
  }
  return number >= 99.5 || Number.isInteger(number) ? String(Math.round(number)) : number.toPrecision(2);
}

function timeText(ns) {
  const [value, unit] = ns >= 1e9 ? [ns / 1e9, "s"] : ns >= 1e6 ? [ns / 1e6, "ms"] : ns >= 1e3 ? [ns / 1e3, "µs"] : [ns, "ns"];
  return `${value >= 100 ? Math.round(value) : Number(value.toPrecision(2))} ${unit}`;
}

function percent(share) { return `${(100 * share).toFixed(1)} %`; }

function lasted(seconds) {
  const two = number => String(Math.floor(number)).padStart(2, "0");
  const days = Math.floor(seconds / 86400);
  return `${days ? `${days} d ` : ""}${two(seconds / 3600 % 24)}:${two(seconds / 60 % 60)}:${two(seconds % 60)}`;
}
