/* The curve of `kvpager mrc`; configuration and definitions of every report; then all is drawn. */
"use strict";

function curveTiles(parent, best) {
  const device = result.sizes.find((s) => s.blocks === result.device_blocks);
  if (device)
    tile(parent, percent(device.hit_ratio), `with the ${count(device.blocks)} blocks there are`);
  tile(parent, percent(best), "with unlimited memory");
  for (const share of result.shares.filter((s) => [0.5, 0.9].includes(s.of_unlimited)))
    tile(parent, atMost(share) +
         (share.memory_bytes ? bytes(share.memory_bytes) : short(share.blocks) + " blocks"),
         `for ${Math.round(100 * share.of_unlimited)} % of that`);
  tile(parent, count(result.requests), "requests");
  tile(parent, short(result.input_tokens), "input tokens");
}

/* Smaller ones than the smallest size may do, but are not known. */
function atMost(share) {
  return share.blocks === result.min_blocks && share.of_unlimited < 1 ? "\u2264 " : "";
}

function sizeLabel(blocks) {
  return result.token_bytes ? bytes(blocks * result.block_tokens * result.token_bytes)
    : short(blocks);
}

function drawCurve() {
  const made = add(main, "header"), grid = add(main, "div", null, "grid");
  const curve = result.curve, best = curve[curve.length - 1][1];
  add(made, "h1", `kvpager: ${data.title}`);
  add(made, "p", `Hit ratio at every cache size, one request after the other, ${result.format}, ` +
    `blocks of ${count(result.block_tokens)} tokens` + (result.sample_rate < 1
      ? `, from ${percent(result.sample_rate)} of the blocks` : ""), "soft");
  const tiles = add(made, "div", null, "tiles");
  curveTiles(tiles, best);
  tiles.style.setProperty("--tiles", tiles.children.length);
  const low = Math.log(curve[0][0]), high = Math.log(curve[curve.length - 1][0]);
  const at = (blocks) => (high > low ? (Math.log(blocks) - low) / (high - low) : 0.5);
  const sizes = result.sizes.filter((s) => at(s.blocks) >= 0 && at(s.blocks) <= 1);
  const points = (key) => ({ values: sizes.map((s) => s[key]), dots: true });
  const shown = [series("LRU (kvpager)", LRU, sizes.map((s) => s.hit_ratio))];
  const others = [["FIFO", "fifo_hit_ratio", 1], ["optimum (Belady)", "optimum_hit_ratio", 2],
    ["ARC", "arc_hit_ratio", 4], ["S3-FIFO", "s3fifo_hit_ratio", 5],
    ["learned", "learned_hit_ratio", LEARNED]];
  others.forEach(([title, key, hue]) => {
    if (sizes.some((s) => s[key] !== null))
      shown.push(Object.assign(series(title, hue), points(key)));
  });
  const most = Math.max(best, ...sizes.map((s) =>
    Math.max(...others.map(([, key]) => s[key] || 0))));
  chart(grid, { title: "Hit tokens per input token", series: shown, format: percent, wide: true,
    xLabel: result.token_bytes ? "KV memory" : "blocks",
    describe: (i) => `${count(sizes[i].blocks)} blocks` +
      (sizes[i].memory_bytes ? ` = ${bytes(sizes[i].memory_bytes)}` : ""),
    marks: () => sizes.map((s) => [at(s.blocks), sizeLabel(s.blocks)]) }, (root, box) => {
    const scale = verticalScale([most], {});
    const options = { format: percent, xLabel: result.token_bytes ? "KV memory" : "blocks",
      marks: () => sizes.map((s) => [at(s.blocks), sizeLabel(s.blocks)]) };
    drawFrame(root, box, scale, options);
    if (result.device_blocks && at(result.device_blocks) >= 0 && at(result.device_blocks) <= 1) {
      const x = box.left + at(result.device_blocks) * box.width;
      svg(root, "line", { x1: x, x2: x, y1: box.top, y2: box.bottom, stroke: C[4],
                          "stroke-dasharray": "3 3" });
      svg(root, "text", { x: x + 4, y: box.top + 8 }, result.device);
    }
    drawLine(root, box, scale, { colour: C[0], values: curve.map((p) => p[1]) },
             (i) => at(curve[i][0]));
    for (const other of shown.slice(1))
      drawLine(root, box, scale, Object.assign({ dash: true }, other), (i) => at(sizes[i].blocks));
    return (x) => {
      let i = 0;
      sizes.forEach((s, k) => {
        if (Math.abs(at(s.blocks) - x) < Math.abs(at(sizes[i].blocks) - x)) i = k;
      });
      return { i, x: at(sizes[i].blocks) };
    };
  });
  drawSizes();
}

function drawSizes() {
  const optional = (value) => (value === null ? "-" : percent(value));
  const card = add(section("Sizes"), "div", null, "card wide");
  const error = (s) => (result.sample_rate < 1 ? ` \u00b1 ${(100 * s.hit_ratio_error).toFixed(2)}`
    : "");
  table(card, ["#Blocks", result.token_bytes ? "#Memory" : "#Tokens", "#LRU", "#FIFO", "#Optimum",
    "#ARC", "#S3-FIFO", "#Learned", "Holds hits back", "#By", "Best"],
    result.sizes.map((s) => [count(s.blocks) + (s.blocks === result.device_blocks ? " *" : ""),
      s.memory_bytes ? bytes(s.memory_bytes) : count(s.blocks * result.block_tokens),
      percent(s.hit_ratio) + error(s), optional(s.fifo_hit_ratio),
      optional(s.optimum_hit_ratio), optional(s.arc_hit_ratio), optional(s.s3fifo_hit_ratio),
      optional(s.learned_hit_ratio), s.verdict, percent(s.verdict_ratio), s.verdict_policy || "-"]));
  if (result.device_blocks)
    add(card, "p", `* what the model leaves of ${result.device}`, "soft");
  if (result.price_per_gpu_hour) {
    const saved = add(section("What hits save", "Prefill that LRU's hits spare, by the model of a step, at " +
      `${result.price_per_gpu_hour} an hour of an accelerator.`), "div", null, "card wide");
    table(saved, ["#Blocks", "#Hours", "#Money"], result.sizes.map((s) => [count(s.blocks),
      (s.saved_gpu_seconds / 3600).toPrecision(4), s.saved_money.toPrecision(4)]));
  }
  const kept = add(section("How long content is kept", "Hits of content that is kept for so long after " +
    "its last use, by the times of the trace, and the blocks that it takes in the mean."), "div", null, "card wide");
  table(kept, ["#Kept for", "#Hits", "#Blocks", "#Of those for good"], result.retention.map((k) => [
    k.seconds === null ? "for good" : `${count(k.seconds)} s`, percent(k.hit_ratio),
    count(Math.round(k.mean_blocks)), percent(k.share_of_blocks)]));
  const shares_ = add(section("What memory buys",
    "The sizes that give so much of what an unlimited cache hits."), "div", null, "card wide");
  table(shares_, ["#Of all hits", "#Blocks", "#Memory"], result.shares.map((s) =>
    [percent(s.of_unlimited), atMost(s) + count(s.blocks), s.memory_bytes ? bytes(s.memory_bytes) : "-"]));
}

/* ----------------------------------------------------------------- configuration and definitions */

const SETTINGS = ["trace", "format", "mode", "speedup", "block_tokens", "unit_tokens", "blocks",
  "host_blocks", "keep_evicted", "keep_evicted_once", "block_bytes", "memory_bytes",
  "prefix_cache", "output_appended", "seed", "mended", "token_bytes", "model", "device",
  "tensor_parallel", "device_blocks", "sample_rate", "distinct_blocks", "min_blocks", "enough_blocks", "step_model",
  "scheduler"];

/* The unit of a number is the end of its name. */
const UNITS = [[/flops_per_second$/, (v) => prefixed(v, "FLOP/s")], [/flops$/, (v) => prefixed(v, "FLOP")],
  [/bytes_per_second$/, (v) => prefixed(v, "B/s")], [/bytes$/, bytes],
  [/_ns$/, (v) => duration(v / 1e9)], [/_seconds$/, duration], [/tokens$/, (v) => count(v) + " tokens"],
  [/blocks$/, (v) => count(v) + " blocks"], [/max_running$/, (v) => count(v) + " requests"],
  [/^mended$/, (v) => count(v) + " requests"], [/max_tries$/, (v) => count(v) + " requests"],
  [/max_passed_over$/, (v) => count(v) + " times"], [/free_target$/, (v) => count(v) + " blocks"],
  [/tensor_parallel$/, (v) => count(v) + (v === 1 ? " accelerator" : " accelerators")], [/^sample_rate$/, percent],
  [/^speedup$/, (v) => trim(v) + " times"]];

/* "2.68 TB/s" */
function prefixed(value, unit) {
  return short(value).replace(/[kMGT]?$/, (prefix) => " " + prefix + unit);
}

function settingText(name, value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  const unit = typeof value === "number" && UNITS.find(([end]) => end.test(name));
  return unit ? unit[1](value) : String(value);
}

function settingRows(object, names, prefix) {
  const rows = [];
  for (const name of names) {
    const value = object[name];
    if (value === undefined || value === null) continue;
    if (typeof value === "object")
      rows.push(...settingRows(value, Object.keys(value), name + "."));
    else rows.push([prefix + name, settingText(name, value)]);
  }
  return rows;
}

const SHARED = [
  ["input tokens, hit ratio", "The tokens of all prompts. Hit tokens need not be computed because " +
    "their KV is there when the request is admitted; at most all but the last of a prompt."],
  ["held, cached, free", "A held block belongs to a sequence that is open. A cached one belongs to " +
    "nobody and keeps its content until its block is needed. A free one has no content."],
  ["age at eviction, lifetime", "When a cached content loses its device block: the time since its " +
    "last use, and since it was stored. A block is used when it is stored, and when a request that " +
    "has it in its prompt is first admitted."],
  ["reuse gap", "When a request that is first admitted has a block in its prompt that was used " +
    "before: the time since. It is a hit, or the block was evicted in between."],
  ["shared prefix", "A run of blocks that follow each other and were hit equally often. Its saved " +
    "tokens are its length times the requests that found it. Line: where it first stood in the trace."],
];
const LOAD = [
  ["time", "Simulated: requests arrive at the trace's times, a model says how long each step takes. " +
    "What the scheduler and the cache decide is exact, what takes time is modelled."],
  ["queue", "From the arrival to the start of the step that first admits the request."],
  ["time to first token", "From the arrival to the end of the step that samples its first token."],
  ["time per output token", "From the first token to the last, divided by the tokens after the first."],
  ["end to end", "From the arrival to the last token."],
  ["percentiles", "By nearest rank, over finished requests; over time, over those that arrived in " +
    "the interval."],
  ["preemption", "A running request gives its blocks up: by recompute it is computed anew later, by " +
    "swap its blocks are copied to the host and back."],
];
const SEQUENTIAL = [
  ["one after the other", "Each request is opened, computed, decoded token by token and closed before " +
    "the next: no scheduler, no time. Where a time would stand, requests in between are counted."],
];
const CURVE = [
  ["hit ratio", "Hit tokens / input tokens of a replay of one request after the other with a cache of " +
    "that size. The LRU figures are exact, unless the blocks are sampled; \u00b1 is one standard error."],
  ["LRU", "What the cache does: the block that was released first is evicted first, of one request " +
    "the last of its blocks first."],
  ["FIFO", "What became cached first is evicted first; a hit does not change that."],
  ["optimum", "Whoever is looked up last in the future is evicted first (Belady): no choice of victims " +
    "hits more blocks."],
  ["ARC, S3-FIFO", "Each chooses between what came once and what came again (docs/COMMAND.md); never a " +
    "block before those that continue it."],
  ["learned", "What comes back least for its place is evicted first, as learned from the requests so " +
    "far; simulated (docs/POLICY.md)."],
  ["smallest size", "What the largest request needs. Smaller caches reject requests and are not shown."],
];

function drawEnd() {
  const card = add(section("Configuration"), "div", null, "card wide");
  table(card, ["Setting", "Value"], settingRows(settings, SETTINGS, ""), "wrap");
  const words = data.kind === "mrc" ? CURVE : (underLoad ? LOAD : SEQUENTIAL)
    .concat(data.kind === "policies" ? SHARED.slice(0, 1) : SHARED);
  const list = add(add(section("Definitions",
    "docs/COMMAND.md of kvpager has all figures, and the model."), "div", null, "card wide"), "dl");
  for (const [word, meaning] of words) { add(list, "dt", word); add(list, "dd", meaning); }
  add(main, "p", `kvpager ${data.version}`, "soft");
}

function redrawAll() {
  for (const redraw of redraws) redraw();
}

if (data.kind === "mrc") drawCurve();
else if (data.kind === "policies") drawPolicies();
else drawReplay();
drawEnd();
redrawAll();
let shownWidth = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth !== shownWidth) redrawAll();
  shownWidth = window.innerWidth;
});
