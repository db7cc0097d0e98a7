/* Replays of one trace with several policies, beside each other. */
"use strict";

const HUES = { lru: LRU, learned: LEARNED };

/* The intervals of the longest; where others have wider ones, the chart over time is left out. */
function policiesCourse() {
  if (data.kind !== "policies") return null;
  const all = data.result.policies.map((p) => p.report.timeline);
  const widths = all.map((parts) => (parts.length > 1 ? parts[1].start_seconds : 1));
  const isSame = widths.every((width) => width === widths[0]);
  return { unit: "s", n: isSame ? Math.max(...all.map((parts) => parts.length)) : 0,
    width: widths[0] };
}

function policySeries(one) {
  const parts = one.report.timeline;
  return series(one.policy, HUES[one.policy], Array.from({ length: course.n }, (_, i) =>
    (i < parts.length ? ratio(parts[i].hit_tokens, parts[i].input_tokens) : null)));
}

function signed(value, text) {
  return value === null ? "-" : `${value < 0 ? "\u2212" : "+"}${text(Math.abs(value))}`;
}

function policyRow(one) {
  const of = one.report, lru = one.gained_tokens === null ? 0 : one.hit_tokens - one.gained_tokens;
  const median = (latency) => (latency ? duration(latency.p50 / 1e9) : "-");
  return [one.policy, count(one.hit_tokens), percent(one.hit_ratio),
    one.policy === "lru" || lru <= 0 ? "-" : signed(one.gained_tokens / lru, percent),
    count(of.evictions), of.references ? percent(of.fallback_references / of.references) : "-",
    median(of.time_to_first_token_ns), median(of.time_per_output_token_ns)];
}

function drawPolicies() {
  headline();
  const tiles = add(main, "div", null, "tiles");
  for (const one of result.policies)
    tile(tiles, percent(one.hit_ratio), `of the input tokens hit with ${one.policy}`);
  tile(tiles, count(settings.requests), `requests, ${count(settings.rejected)} rejected`);
  tile(tiles, short(settings.input_tokens), "input tokens");
  tiles.style.setProperty("--tiles", tiles.children.length);
  const grid = section("Policies", "As LRU: the share of block references while the policy did not " +
    "trust what it had learned, or was not warm yet.");
  if (course.n > 0)
    lines(grid, { title: "Hit ratio", most: 1, format: percent, wide: true,
      note: "Of the input tokens of requests, by interval", xLabel: underLoad ? "simulated time"
        : "time of the trace", series: result.policies.map(policySeries) });
  table(add(grid, "div", null, "card wide"), ["Policy", "#Hit tokens", "#Of the input", "#Beside LRU",
    "#Evictions", "#As LRU", "#Median to the first token", "#Median per output token"],
    result.policies.map(policyRow));
}
