/* The report of a replay: under load, or of one request after the other. */
"use strict";

const C = ["var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)", "var(--c6)"];
const LRU = 0, LEARNED = 3; /* the colours of policies, on every page */
const result = data.result, watch = data.watch;
const settings = data.kind === "policies" ? result.policies[0].report : result;
const underLoad = data.kind === "load" || settings.mode === "load";

function series(name, colour, values) {
  return { name, colour: C[colour], values };
}

function seconds(values) {
  return values.map((v) => (v > 0 ? v / 1e9 : null));
}

function tile(parent, value, label) {
  const made = add(parent, "div", null, "tile");
  add(made, "b", value);
  add(made, "span", label);
}

function loadTiles(parent) {
  const first = result.time_to_first_token_ns, per = result.time_per_output_token_ns;
  tile(parent, percent(result.hit_ratio), "of the input tokens hit");
  tile(parent, `${count(result.finished)}`,
       `requests finished, ${count(result.rejected)} rejected`);
  tile(parent, duration(first.p50 / 1e9), `median to the first token, p99 ${duration(first.p99 / 1e9)}`);
  tile(parent, duration(per.p50 / 1e9), `median per output token, p99 ${duration(per.p99 / 1e9)}`);
  tile(parent, short(result.output_tokens_per_second), "output tokens a second");
  tile(parent, percent(result.occupancy), "of the blocks held on average");
  tile(parent, count(result.preemptions_recompute + result.preemptions_swap),
       `preemptions, ${count(result.preemptions_swap)} by swap`);
  tile(parent, duration(result.simulated_seconds), "of simulated time");
}

function sequentialTiles(parent) {
  tile(parent, percent(result.hit_ratio), "of the input tokens hit");
  tile(parent, count(result.requests), `requests, ${count(result.rejected)} rejected`);
  tile(parent, short(result.input_tokens), "input tokens");
  tile(parent, short(result.output_tokens), "output tokens appended");
  tile(parent, short(result.evictions), "blocks evicted");
  tile(parent, percent(ratio(result.peak_held_blocks, result.blocks) || 0),
       "of the blocks held at most");
}

function describeMachine() {
  const blockBytes = underLoad ? settings.block_bytes
    : settings.memory_bytes ? settings.memory_bytes / settings.blocks : null;
  const memory = blockBytes ? ` = ${bytes(settings.blocks * blockBytes)}` : "";
  let text = `${count(settings.blocks)} blocks of ${count(settings.block_tokens)} tokens${memory}`;
  if (settings.host_blocks > 0)
    text += `; host ${count(settings.host_blocks)} blocks` +
      (blockBytes ? ` = ${bytes(settings.host_blocks * blockBytes)}` : "");
  return text;
}

function headline() {
  const made = add(main, "header"), step = settings.step_model;
  add(made, "h1", `kvpager: ${data.title}`);
  const model = underLoad && step.kind === "roofline"
    ? `${step.model || "a model"} on ${step.tensor_parallel} x ${step.device}, modelled; ` : "";
  add(made, "p", `${underLoad ? "Replay under load" : "Replay of one request after the other"}, ` +
      `${settings.format}. ${model}${describeMachine()}`, "soft");
  return made;
}

function head() {
  const made = headline();
  if (!result.prefix_cache) add(made, "p", "The prefix cache is off: nothing is shared.", "warn");
  if (result.unfinished > 0)
    add(made, "p", `${count(result.unfinished)} requests did not finish.`, "warn");
  if (watch.missed_events > 0)
    add(made, "p", `${count(watch.missed_events)} stores and evictions happened too fast to be ` +
        "watched: the histograms of evictions lack them.", "warn");
  const tiles = add(main, "div", null, "tiles");
  (underLoad ? loadTiles : sequentialTiles)(tiles);
  if (!underLoad) tiles.style.setProperty("--tiles", 6);
}

/* ----------------------------------------------------------------------------------- the course */

function tierAreas(parent, title, held, cached, total) {
  const free = held.map((h, i) => Math.max(0, total - h - cached[i]));
  areas(parent, { title, most: total, series: [series("held", 0, held),
    series("cached", 2, cached), series("free", 5, free)] });
}

/* Of what may not have happened at all. */
function linesOrNone(parent, options) {
  if (options.series.some((s) => s.values.some((v) => v > 0))) { lines(parent, options); return; }
  none(parent, options.title);
}

/* What the learned policy did: nothing is known of an interval in which no request ended. */
function drawPolicy(grid) {
  lines(grid, { title: "Hits of the policy", format: short,
    note: "Blocks in whole groups at the beginning of prompts, on the device, per interval",
    series: [series("learned", LEARNED, course.learned_hits),
      series("LRU would have", LRU, course.lru_hits)] });
  drawFallback(grid);
}

function drawCourse() {
  const grid = section("Over time");
  lines(grid, { title: "Hit ratio", most: 1, format: percent, wide: true,
    note: underLoad ? "Of the input tokens of requests first admitted in the interval"
      : "Of the input tokens of the requests",
    series: [series("hit", 0, course.input_tokens.map((n, i) => ratio(course.hit_tokens[i], n)))] });
  tierAreas(grid, "Blocks on the device", course.held, course.cached, result.blocks);
  if (result.host_blocks > 0)
    tierAreas(grid, "Blocks on the host", course.host_held, course.host_cached, result.host_blocks);
  linesOrNone(grid, { title: "Evictions", note: "Cached blocks dropped on the device, per interval",
    series: [series("blocks", 1, course.evictions)] });
  if (result.policy === "learned") drawPolicy(grid);
  if (!underLoad) return;
  lines(grid, { title: "Requests", note: "Mean number in the interval", series: [
    series("running", 0, course.running), series("waiting", 1, course.waiting)].concat(
    result.host_blocks > 0 ? [series("swapped out", 3, course.swapped)] : []) });
  linesOrNone(grid, { title: "Preemptions", note: "Per interval",
    series: [series("requests", 4, course.preemptions)] });
  for (const [name, title] of [["first_token", "Time to first token"], ["queue", "Queue"],
    ["per_token", "Time per output token"], ["end_to_end", "End to end"]])
    lines(grid, { title, note: "Of finished requests, by their arrival", mayLog: true,
      format: duration, series: [series("p50", 0, seconds(course[name + "_p50"])),
        series("p90", 1, seconds(course[name + "_p90"]))] });
  lines(grid, { title: "Tokens", note: "Computed in prompts, and generated, a second", series: [
    series("prompt", 3, course.prompt_tokens.map((v) => v / course.width)),
    series("output", 2, course.output_tokens.map((v) => v / course.width))] });
}

/* ------------------------------------------------------------------------------------ the hits */

const PARTS = [
  ["hit", "found in the cache", 0],
  ["resident", "there in some tier, and not brought back", 4],
  ["evicted", "was there before, evicted since: a larger cache may have it", 1],
  ["in_flight", "another request was computing it", 3],
  ["grid", "behind the last full unit of a known prompt", 5],
  ["new", "new: no request had it before", 2],
  ["last", "the last token, which is always computed", 5],
];

/* Of several files, the name of one without its folders. */
const lineOf = (file, line, request) => (file ? `${file.replace(/.*\//, "")}:` : "") + count(line) +
  (request ? `:${count(request)}` : "");

function worstRow(one) {
  const ago = one.evicted_ago === null ? "-"
    : result.why.unit === "ms" ? duration(one.evicted_ago / 1e3) : count(one.evicted_ago);
  return [lineOf(one.file, one.line, one.request), count(one.input_tokens), count(one.resident_tokens),
    count(one.evicted_tokens), count(one.in_flight_tokens), ago, one.evicted_from || "-",
    one.resident_why || "-", one.enough_blocks === null ? "-" : count(one.enough_blocks),
    one.known_from_line === null ? "-"
      : lineOf(one.known_from_file, one.known_from_line, one.known_from_request),
    one.again_seconds === undefined ? "-" : duration(one.again_seconds)];
}

/* Where hits were, why what is there was not brought back, what evicted content left last, and how
 * large a cache would have kept it. */
function hitDetails(why) {
  const tiers = (what, part) => {
    const [first, ...others] = ["device", "host", "store"].map((tier) => [tier, part[`${tier}_tokens`]]);
    return others.every(([, n]) => n === 0) ? []
      : [`${what} ` + [first, ...others].map(([tier, n]) => `${tier} ${count(n)}`).join(", ")];
  };
  const back = why.resident.by_why.map((one) => `Not brought back: ${count(one.tokens)} tokens (${one.why})`);
  const enough = why.evicted.enough_blocks === null ? []
    : [`${count(why.evicted.enough_blocks)} blocks would have kept what was evicted, ` +
       `${count(why.evicted.half_enough_blocks)} half of it`];
  return [...tiers("Hit tokens:", why.hit), ...back, ...tiers("Evicted tokens, by what they left last:",
    why.evicted), ...enough].map((text) => text + ".").join(" ");
}

function drawHits() {
  const why = result.why;
  const grid = section("Why prompts were computed",
    "Every input token of the admitted requests, in order behind the hit. " +
    "The last column counts requests: by what came first behind the hit. " + hitDetails(why));
  shares(grid, "Input tokens", ["", "Tokens", "Share", "Requests"], PARTS.map(([key, name, colour]) => ({ name, colour: C[colour],
    value: why[key].tokens, extra: key === "hit" ? "" : count(why[key].requests) })));
  if (why.worst.length === 0) return;
  const card = add(grid, "div", null, "card wide");
  add(card, "h3", "Most tokens computed again");
  table(card, ["#Line", "#Input", "#Resident", "#Evicted", "#In flight",
    why.unit === "ms" ? "#Evicted ago" : "#Requests since", "From", "Not brought back",
    "#Blocks to keep it", "#Known since line", "#Prefill"], why.worst.map(worstRow));
}

function timeScale() {
  return watch.unit === "ms" ? { scale: 1e-3, label: duration, xLabel: "simulated time" }
    : { scale: 1, label: short, xLabel: "requests in between" };
}

function drawBlocks() {
  const grid = section("Life of blocks", watch.evicted === 0 ? "No content lost its device block."
    : `${count(watch.evicted)} contents lost their device block; ` +
      `${percent(watch.evicted_unused / watch.evicted)} had not been hit since they were stored.`);
  histogram(grid, Object.assign({ title: "Age at eviction",
    note: "From the last use to the eviction", series: [series("blocks", 1, watch.idle)] },
    timeScale()));
  histogram(grid, Object.assign({ title: "Lifetime", note: "From the store to the eviction",
    series: [series("blocks", 1, watch.lifetime)] }, timeScale()));
  histogram(grid, Object.assign({ title: "Reuse gap", wide: true,
    note: "From a block's last use to its next look-up: how long it pays to keep blocks",
    series: [series("hit", 0, watch.gap_hit), series("evicted before", 1, watch.gap_lost)] },
    timeScale()));
}

function drawSpread() {
  const grid = section("How latencies are spread", "Of finished requests.");
  for (const [key, title] of [["first_token", "Time to first token"],
    ["per_token", "Time per output token"], ["queue", "Queue"], ["end_to_end", "End to end"]])
    histogram(grid, { title, series: [series("requests", 0, data.spread[key])], scale: 1e-4,
      label: duration, xLabel: "simulated time" });
}

function drawPrefixes() {
  const grid = section("Top shared prefixes", watch.prefixes.length === 0 ? "Nothing was shared."
    : "Runs of blocks that the same requests shared. Each hit token is counted in one run only.");
  if (watch.prefixes.length === 0) return;
  const card = add(grid, "div", null, "card wide");
  table(card, ["#Prompt tokens", "#In the run", "#Found by", "#Saved tokens", "#Of all hits",
    "#First in line"], watch.prefixes.map((p) => [
    `${count(p.end_tokens - p.run_tokens)} \u2013 ${count(p.end_tokens)}`, count(p.run_tokens),
    `${count(p.hits)} requests`, count(p.saved_tokens),
    percent(p.saved_tokens / (result.why.hit.tokens || 1)),
    p.first_line > 0 ? lineOf(p.first_file, p.first_line, p.first_request) : "generated"]));
}

/* ------------------------------------------------------------------------------ what was asked */

const WAITS = { blocks: "their blocks are not there", places: "as many run as may",
  step_tokens: "the step's tokens are spent", plan: "the plan of copies is full",
  preemption: "the step preempted somebody", order: "behind others that do not fit",
  prefix: "another request computes their prefix" };

function drawWaiting() {
  const rows = Object.keys(WAITS).filter((key) => result.waited[key].request_steps > 0)
    .map((key) => [WAITS[key], duration(result.waited[key].seconds),
      count(result.waited[key].request_steps)]);
  const grid = section("Why requests waited",
    rows.length === 0 ? "No step left a request waiting." : null);
  if (rows.length > 0)
    table(add(grid, "div", null, "card wide"), ["Because", "#Together", "#Requests x steps"], rows);
  if (result.rejections.length === 0) return;
  const other = add(section("Rejected requests",
    `The first of ${count(result.rejected)} that could never be served.`), "div", null,
    "card wide");
  table(other, ["#Line", "#Input", "#Output", "Reason", "#Longest prompt"],
    result.rejections.map((r) => [lineOf(r.file, r.line, r.request), count(r.input_tokens), count(r.output_tokens),
      r.reason.replaceAll("_", " "), count(r.max_prompt_tokens)]));
}

/* Those that are not 0, as words. */
function countsOf(object) {
  const shown = Object.keys(object).filter((key) => object[key] > 0);
  return shown.map((key) => `${key} ${count(object[key])}`).join(", ") || "none";
}

function latencyOf(latency) {
  return latency.n === 0 ? "-" : [latency.p50_ns, latency.p90_ns, latency.p99_ns]
    .map((v) => duration(v / 1e9)).join(", ");
}

function drawStore() {
  const store = result.store;
  const card = add(section(store.is_model ? "Store (a model)" : "Store",
    `${store.url}: ${store.engine}.`), "div", null, "card wide");
  table(card, ["", ""], [
    ["Tokens that neither device nor host had", count(store.hit_tokens)],
    ["Requests, by answer", countsOf(store.answers)],
    ["Records read: hits, absent, raced",
      [store.hits, store.absent, store.raced].map(count).join(", ")],
    ["Bad records, by reason", countsOf(store.bad)],
    ["Puts: stored, known, refused, unfinished",
      [store.stored, store.known, store.refused, store.unfinished].map(count).join(", ")],
    ["Records left out: no host block, gone, no place, over budget",
      [store.no_block, store.lost, store.no_place, store.over_budget].map(count).join(", ")],
    ["Records not written, not read", [store.put_failed, store.load_failed].map(count).join(", ")],
    ["Operations that failed, while it was left alone",
      [store.failed, store.away].map(count).join(", ")],
    ...store.stores.filter((part) => part.trouble).map((part) => [`Trouble: ${part.url}`, part.trouble]),
    ["Read, written", `${bytes(store.read_bytes)}, ${bytes(store.written_bytes)}`],
    ["In the store at the end", `${bytes(store.bytes)} of ${bytes(store.size_bytes)}`],
    ["Most operations at once", count(store.most_queued)],
    ["Gets take at most: p50, p90, p99", latencyOf(store.get_latency)],
    ["Puts take at most: p50, p90, p99", latencyOf(store.put_latency)],
    ["Blocks checked, wrong", [store.checked_blocks, store.wrong_blocks].map(count).join(", ")],
  ].filter(([, value]) => value !== "-"));
}

function drawReplay() {
  head();
  if (course.n > 0) drawCourse();
  drawHits();
  if (result.policy === "learned") drawLearned();
  if (result.store) drawStore();
  drawBlocks();
  if (underLoad) { drawSpread(); drawWaiting(); }
  drawPrefixes();
}
