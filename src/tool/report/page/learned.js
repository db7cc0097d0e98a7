/* What the learned policy learned (docs/POLICY.md), and why it was LRU, over time and at the end. */
"use strict";

const USES = [[1, "used once"], [2, "used twice"], [3, "used 3 or 4 times"],
  [5, "used 5 times or more"]];
const OUTPUT = [[0, "< 32"], [32, "< 256"], [256, "< 512"], [512, "more"]];
const FRESH = [[0, "at most 512"], [513, "513 to 4,096"], [4097, "4,097 to 32,768"],
  [32769, "more than 32,768"]];
const ROW = 6, TITLE = 20, GUTTER = 46;
const GROUP = TITLE + 16 * ROW + 4;

/* Where no request ended, it is as before. */
function shareBefore(part, whole) {
  let last = 0;
  return whole.map((n, i) => { last = n > 0 ? part[i] / n : last; return last; });
}

function drawFallback(grid) {
  const share = (name) => shareBefore(course[name], course.references);
  areas(grid, { title: "Policy as LRU", most: 1, format: percent,
    note: "Share of block references, by reason",
    series: [series("not warm", 5, share("cold_references")),
      series("guard: it had lost too much", 4, share("guard_references")),
      series("gate: little to gain", 1, share("gate_references"))] });
}

/* The rows of the map, from top to bottom: a class, or nothing where content was never seen. */
function classRows(learned) {
  const found = new Map(learned.classes.map((c) =>
    [[c.least_uses, c.least_output_tokens, c.least_new_tokens].join(), c]));
  return USES.flatMap(([u, uses]) => OUTPUT.flatMap(([o, output]) => FRESH.map(([f, fresh]) =>
    ({ name: `${uses}, output ${output}, new ${fresh}`, of: found.get([u, o, f].join()) }))));
}

function rowTop(i) {
  return Math.floor(i / 16) * GROUP + TITLE + (i % 16) * ROW;
}

/* The row whose middle is nearest. */
function rowAt(y) {
  const group = Math.min(3, Math.max(0, Math.floor(y / GROUP)));
  const row = Math.floor((y - group * GROUP - TITLE) / ROW);
  return group * 16 + Math.min(15, Math.max(0, row));
}

/* An age: 1 or 3 times a power of 2. */
function inC(age) {
  if (age === 0 || age >= 1) return age === 0 ? "0" : age === 1 ? "C" : `${trim(age)} C`;
  return Math.round(age * 32) % 3 === 0 ? `3 C/${Math.round(3 / age)}` : `C/${Math.round(1 / age)}`;
}

function mapFrame(root, right, ages) {
  USES.forEach(([, title], g) => {
    svg(root, "text", { x: 0, y: g * GROUP + 14 }, title);
    svg(root, "rect", { x: GUTTER, y: g * GROUP + TITLE, width: right - GUTTER, height: 16 * ROW,
                        fill: "none", stroke: "var(--line)" });
    OUTPUT.forEach(([, label], o) => svg(root, "text", { x: GUTTER - 6,
      y: g * GROUP + TITLE + (o * 4 + 2) * ROW + 4, "text-anchor": "end" }, label));
  });
  const cell = (right - GUTTER) / ages.length;
  for (const [age, label] of [[1 / 16, "C/16"], [1 / 4, "C/4"], [1, "C"], [4, "4 C"], [16, "16 C"]]) {
    const at = ages.indexOf(age), x = GUTTER + cell * (at < 0 ? ages.length : at);
    svg(root, "text", { x, y: 4 * GROUP + 14, "text-anchor": at < 0 ? "end" : "middle" }, label);
  }
  svg(root, "text", { x: right, y: 4 * GROUP + 30, "text-anchor": "end" },
      "time since the last use, in cache sizes");
}

/* A mark is as high as much was seen, on a scale of powers, and as strong as its value. */
function mapCells(root, right, rows, map) {
  const cell = (right - GUTTER) / map.ages.length;
  rows.forEach((row, i) => map.ages.forEach((_, a) => {
    if (!row.of || row.of.seen[a] === 0) return;
    const height = 1 + (ROW - 1.5) * Math.log1p(row.of.seen[a]) / Math.log1p(map.mostSeen);
    const place = { x: GUTTER + a * cell + 0.5, y: rowTop(i) + (ROW - height) / 2,
                    width: Math.max(1, cell - 1), height };
    const value = map.value(row.of, a);
    svg(root, "rect", Object.assign({ fill: "var(--c6)", "fill-opacity": 0.4 }, place));
    if (value > 0)
      svg(root, "rect", Object.assign({ fill: map.colour,
        "fill-opacity": Math.sqrt(value / map.most).toFixed(3) }, place));
  }));
}

function readCell(row, a, map) {
  const to = a + 1 < map.ages.length ? map.ages[a + 1] : 16;
  const where = `${row.name}; ${inC(map.ages[a])} to ${inC(to)}: `;
  if (!row.of || row.of.seen[a] === 0) return where + "never seen";
  return where + `${map.format(map.value(row.of, a))} ${map.unit}, of ` +
    `${short(row.of.seen[a])} entries`;
}

function classMap(parent, learned, given) {
  const rows = classRows(learned), all = learned.classes;
  const every = (of) => all.flatMap((c) => c.seen.map((n, a) => (n > 0 ? of(c, a) : 0)));
  const map = Object.assign({ ages: learned.ages, most: Math.max(1e-9, ...every(given.value)),
    mostSeen: Math.max(1, ...every((c, a) => c.seen[a])) }, given);
  const card = add(parent, "div", null, "card");
  add(card, "h3", map.title);
  add(card, "p", map.note, "soft");
  const legend = add(card, "div", null, "legend");
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const item = add(legend, "span"), mark = add(item, "i");
    mark.style.background = share > 0 ? map.colour : "var(--c6)";
    mark.style.opacity = share > 0 ? share : 0.4;
    item.appendChild(document.createTextNode(map.format(share * share * map.most)));
  }
  const root = svg(card, "svg", { role: "img", "aria-label": map.title });
  const where = add(add(card, "div", null, "legend readout"), "span", "", "soft");
  redraws.push(() => {
    const right = card.clientWidth - 28;
    root.replaceChildren();
    root.setAttribute("viewBox", `0 0 ${right} ${4 * GROUP + 34}`);
    root.setAttribute("height", 4 * GROUP + 34);
    mapFrame(root, right, map.ages);
    mapCells(root, right, rows, map);
    root.onpointermove = (event) => {
      const rect = root.getBoundingClientRect();
      const a = Math.floor((event.clientX - rect.left - GUTTER) / (right - GUTTER) *
        map.ages.length);
      where.textContent = readCell(rows[rowAt(event.clientY - rect.top)],
        Math.min(map.ages.length - 1, Math.max(0, a)), map);
    };
    root.onpointerleave = () => { where.textContent = ""; };
  });
}

const STATES = { none: "it chooses by what it learned", cold: "it is LRU: not warm yet",
  guard: "it is LRU: it had lost too much", gate: "it is LRU: there is little to gain" };

function learnedNote(learned) {
  const late = ratio(learned.returned_late, learned.returned);
  return `At the end: ${STATES[learned.fallback]}. It has ${short(learned.credit_blocks)} blocks of ` +
    `credit against LRU; at ${short(learned.credit_floor_blocks)} it would be LRU. ` +
    (late === null ? "" : `LRU would have lost ${percent(late)} of what came back.`);
}

function drawLearned() {
  const learned = result.learned;
  const grid = section("What the policy learned", learnedNote(learned));
  if (learned.classes.length === 0) {
    add(add(grid, "div", null, "card wide"), "p", "No content grew old enough to be seen.", "soft");
    return;
  }
  const note = "Rows: uses, and output tokens of the request; of each four: up to 512, 4,096, " +
    "32,768 and more new tokens in its prompt. High marks: much was seen. None: nothing was.";
  classMap(grid, learned, { title: "Share that comes back", note, colour: C[0], format: percent,
    unit: "came back", value: (c, a) => c.used[a] / c.seen[a] });
  classMap(grid, learned, { title: "Hit density", colour: C[2], format: trim,
    note: "Uses to expect for a block's place during C references, if it is kept for as long as " +
      "pays best. The same rows.",
    unit: "uses", value: (c, a) => c.density[a] });
}
