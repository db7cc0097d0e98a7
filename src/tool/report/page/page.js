/* Draws the report from the data that stands beside it. Everything that comes from a trace reaches
 * the page as text nodes only. */
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.querySelector("main");
const redraws = [];

/* ------------------------------------------------------------------------------------ elements */

function add(parent, tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  if (className) made.className = className;
  parent.appendChild(made);
  return made;
}

function svg(parent, tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  if (text !== undefined) made.textContent = text;
  parent.appendChild(made);
  return made;
}

function section(title, note) {
  add(main, "h2", title);
  if (note) add(main, "p", note, "soft");
  return add(main, "div", null, "grid");
}

/* What is wider than the window scrolls, and says so as soon as it does. */
function scroller(parent) {
  const box = add(parent, "div", null, "scroll");
  const hint = add(parent, "p", "Scroll the table sideways for its other columns \u2192", "soft hint");
  box.tabIndex = 0;
  redraws.push(() => { hint.hidden = box.scrollWidth <= box.clientWidth + 1; });
  return box;
}

/* A column in which no row has anything is left out. */
function table(parent, allHeads, allRows, className) {
  const isUsed = (_, i) => allRows.some((row) => row[i] !== "-" && row[i] !== "");
  const heads = allHeads.filter(isUsed), rows = allRows.map((row) => row.filter(isUsed));
  const made = add(scroller(parent), "table", null, className);
  const numeric = heads.map((head) => head.startsWith("#"));
  const top = heads.some((head) => head !== "") ? add(add(made, "thead"), "tr") : null;
  if (top) heads.forEach((head, i) => add(top, "th", head.replace("#", ""), numeric[i] ? "n" : ""));
  const body = add(made, "tbody");
  for (const row of rows) {
    const line = add(body, "tr");
    row.forEach((cell, i) => add(line, "td", cell, numeric[i] ? "n" : ""));
  }
  return made;
}

/* Of what did not happen there is no card: the section, which is the page's last, names it. */
function none(grid, title) {
  const line = grid.nextElementSibling || add(main, "p", "Nothing to show of: ", "soft");
  line.textContent += (line.textContent.endsWith(": ") ? "" : ", ") + title;
}

/* ------------------------------------------------------------------------------------- figures */

function count(value) {
  return Math.round(value).toLocaleString("en-US");
}

function short(value) {
  const size = Math.abs(value);
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (size >= unit) return trim(value / unit) + name;
  return trim(value);
}

function trim(value) {
  return String(Number(value.toPrecision(3)));
}

function percent(value) {
  if (value === 0 || value === 1) return 100 * value + " %";
  return (100 * value).toFixed(Math.abs(value) < 0.0995 ? 2 : 1) + " %";
}

function bytes(value) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  while (value >= 1024 && i + 1 < names.length) { value /= 1024; i++; }
  return trim(value) + " " + names[i];
}

function duration(seconds) {
  if (seconds === 0) return "0 s";
  if (seconds < 1e-3) return trim(seconds * 1e6) + " \u00b5s";
  if (seconds < 1) return trim(seconds * 1e3) + " ms";
  if (seconds < 120) return trim(seconds) + " s";
  if (seconds < 3600) return trim(seconds / 60) + " min";
  if (seconds < 172800) return trim(seconds / 3600) + " h";
  return trim(seconds / 86400) + " d";
}

function ratio(part, whole) {
  return whole > 0 ? part / whole : null;
}

/* ---------------------------------------------------------------------------------------- axes */

/* Round steps that cut [0, most] into about n parts. */
function ticks(most, n) {
  if (!(most > 0)) return [0, 1];
  const rough = most / n, power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const found = [];
  for (let v = 0; v < most + step * 0.999; v += step) found.push(Number(v.toPrecision(12)));
  return found;
}

/* The same for seconds, in steps of a clock. */
function timeTicks(most, n) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400];
  const step = steps.find((s) => s * n >= most * 0.999);
  if (most < 4 || step === undefined) return ticks(most, n);
  const found = [];
  for (let v = 0; v < most + step * 0.999; v += step) found.push(v);
  return found;
}

function timePowers(least, most) {
  const marks = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 36000, 360000];
  const first = marks.findLastIndex((m) => m <= least), last = marks.findIndex((m) => m >= most);
  return marks.slice(Math.max(0, first), last < 0 ? marks.length : last + 1);
}

function powers(least, most) {
  const found = [];
  for (let e = Math.floor(Math.log10(least)); e <= Math.ceil(Math.log10(most)); e++)
    found.push(Math.pow(10, e));
  return found;
}

/* The y axis of some series: linear from 0, or logarithmic for what spans more than two decades. */
function verticalScale(values, options) {
  const positive = values.filter((v) => v > 0);
  const most = options.most || Math.max(0, ...values);
  const least = positive.length ? Math.min(...positive) : 1;
  if (options.mayLog && most / least > 100) {
    const marks = (options.format === duration ? timePowers : powers)(least, most), low = Math.log10(marks[0]);
    const high = Math.log10(marks[marks.length - 1]);
    const at = (v) => (Math.log10(Math.max(v, marks[0])) - low) / (high - low || 1);
    return { marks, at, log: true };
  }
  const marks = (options.format === duration ? timeTicks : ticks)(most, 4), top = marks[marks.length - 1];
  return { marks, at: (v) => v / top, log: false };
}

function drawFrame(root, box, scale, options) {
  for (const mark of scale.marks) {
    const y = box.bottom - scale.at(mark) * box.height;
    svg(root, "line", { x1: box.left, x2: box.right, y1: y, y2: y, stroke: "var(--grid)" });
    svg(root, "text", { x: box.left - 6, y: y + 4, "text-anchor": "end" }, options.format(mark));
  }
  let free = -1e9;
  for (const [place, label] of options.marks(box.width)) {
    const x = box.left + place * box.width, width = label.length * 6.6;
    const anchor = x + width / 2 > box.right + 8 ? "end" : x - width / 2 < 0 ? "start" : "middle";
    const from = x - width * { start: 0, middle: 0.5, end: 1 }[anchor];
    if (from < free || x > box.right + 1) continue;
    free = from + width + 8;
    svg(root, "text", { x, y: box.bottom + 16, "text-anchor": anchor }, label);
  }
  svg(root, "line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom,
                      stroke: "var(--soft)" });
  svg(root, "text", { x: box.right, y: box.bottom + 31, "text-anchor": "end" }, options.xLabel);
}

/* A card with a title, a legend that reads out what is under the pointer, and a drawing. */
function chart(parent, options, draw) {
  const card = add(parent, "div", null, "card" + (options.wide ? " wide" : ""));
  add(card, "h3", options.title);
  if (options.note) add(card, "p", options.note, "soft");
  const legend = add(card, "div", null, "legend");
  const readouts = options.series.map((series) => {
    const item = add(legend, "span");
    add(item, "i").style.background = series.colour;
    item.appendChild(document.createTextNode(series.name));
    return add(item, "b", "");
  });
  const where = add(legend, "span", "", "soft");
  const root = svg(card, "svg", { role: "img", "aria-label": options.title });
  const show = (i) => {
    readouts.forEach((out, k) => {
      const value = i === null ? null : options.series[k].values[i];
      out.textContent = value === null || value === undefined ? ""
        : (options.series[k].format || options.format)(value);
    });
    where.textContent = i === null ? "" : options.describe(i);
  };
  redraws.push(() => {
    const width = card.clientWidth - 28, height = options.wide && width > 700 ? 260 : 210;
    root.replaceChildren();
    root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    root.setAttribute("height", height);
    const box = { left: 52, right: width - 8, bottom: height - 36, top: 12 };
    box.width = box.right - box.left;
    box.height = box.bottom - box.top;
    const placeOf = draw(root, box);
    const guide = svg(root, "line", { y1: box.top, y2: box.bottom, stroke: "var(--soft)",
                                      visibility: "hidden" });
    root.onpointermove = (event) => {
      const x = (event.clientX - root.getBoundingClientRect().left - box.left) / box.width;
      const found = placeOf(Math.min(1, Math.max(0, x)));
      if (found === null) return;
      guide.setAttribute("x1", box.left + found.x * box.width);
      guide.setAttribute("x2", box.left + found.x * box.width);
      guide.setAttribute("visibility", "visible");
      show(found.i);
    };
    root.onpointerleave = () => { guide.setAttribute("visibility", "hidden"); show(null); };
  });
  return card;
}

function path(points) {
  return points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}

/* A line with gaps where there is no value. `at` gives the place of index i, 0 to 1. */
function drawLine(root, box, scale, series, at) {
  let run = [];
  const flush = () => {
    if (run.length === 1)
      svg(root, "circle", { cx: run[0][0], cy: run[0][1], r: 2.2, fill: series.colour });
    else if (run.length > 1)
      svg(root, "path", { d: path(run), fill: "none", stroke: series.colour, "stroke-width": 1.8,
                          "stroke-linejoin": "round",
                          "stroke-dasharray": series.dash ? "5 4" : "none" });
    run = [];
  };
  series.values.forEach((value, i) => {
    if (value === null) { flush(); return; }
    const x = box.left + at(i) * box.width, y = box.bottom - scale.at(value) * box.height;
    run.push([x, y]);
    if (series.dots) svg(root, "circle", { cx: x, cy: y, r: 2.6, fill: series.colour });
  });
  flush();
}

/* ------------------------------------------------------------------------- charts over the course */

const course = data.course || policiesCourse();

function placeInCourse(i) {
  return (i + 0.5) / course.n;
}

function courseLabel(value) {
  return course.unit === "s" ? duration(value) : short(value);
}

function courseMarks(width) {
  const end = course.n * course.width;
  return (course.unit === "s" ? timeTicks : ticks)(end, width < 420 ? 4 : 8).filter((t) => t <= end)
    .map((t) => [t / end, courseLabel(t)]);
}

function courseOptions(options) {
  const from = (i) => courseLabel(i * course.width);
  return Object.assign({
    marks: courseMarks, describe: (i) => "from " + from(i) + (course.unit === "s" ? "" : " on"),
    xLabel: course.unit === "s" ? "simulated time" : "requests served", format: short,
  }, options);
}

function nearestInCourse(x) {
  const i = Math.min(course.n - 1, Math.floor(x * course.n));
  return { i, x: placeInCourse(i) };
}

function lines(parent, given) {
  const options = courseOptions(given);
  return chart(parent, options, (root, box) => {
    const values = options.series.flatMap((s) => s.values).filter((v) => v !== null);
    const scale = verticalScale(values, options);
    drawFrame(root, box, scale, options);
    for (const series of options.series) drawLine(root, box, scale, series, placeInCourse);
    return nearestInCourse;
  });
}

/* Areas that stand on each other. */
function areas(parent, given) {
  const options = courseOptions(given);
  return chart(parent, options, (root, box) => {
    const sums = new Array(course.n).fill(0), layers = [];
    for (const series of options.series) {
      const low = sums.slice();
      series.values.forEach((v, i) => { sums[i] += v || 0; });
      layers.push([series, low, sums.slice()]);
    }
    const scale = verticalScale(sums, options);
    drawFrame(root, box, scale, options);
    const y = (v) => box.bottom - Math.min(1, scale.at(v)) * box.height;
    for (const [series, low, high] of layers) {
      const step = box.width / course.n, over = [], under = [];
      for (let i = 0; i < course.n; i++) {
        const x = box.left + i * step;
        over.push([x, y(high[i])], [x + step, y(high[i])]);
        under.unshift([x + step, y(low[i])], [x, y(low[i])]);
      }
      svg(root, "path", { d: path(over.concat(under)) + "Z", fill: series.colour,
                          "fill-opacity": 0.85 });
    }
    return nearestInCourse;
  });
}

/* --------------------------------------------------------------------------------- histograms */

/* Classes begin at data.bins; `scale` turns their units into what `label` prints. */
function histogram(parent, options) {
  const filled = options.series.map((s) => s.values.map((v, i) => (v > 0 ? i : -1)));
  const used = filled.flat().filter((i) => i >= 0);
  if (used.length === 0) return none(parent, options.title);
  const first = Math.min(...used), last = Math.max(...used), n = last - first + 1;
  const edge = (i) => options.label(data.bins[i] * options.scale);
  const sum = options.series.map((s) => s.values.reduce((a, b) => a + b, 0));
  const all = Object.assign({
    format: short, xLabel: options.xLabel,
    describe: (i) => `${edge(i)} to ${i + 1 < data.bins.length ? edge(i + 1) : "more"}`,
    marks: () => Array.from({ length: n + 1 }, (_, k) =>
      [k / n, first + k < data.bins.length ? edge(first + k) : ""]),
  }, options);
  all.series.forEach((s, k) => {
    s.format = (v) => `${short(v)} (${percent(v / (sum[k] || 1))})`;
  });
  return chart(parent, all, (root, box) => {
    const scale = verticalScale(all.series.flatMap((s) => s.values), {});
    drawFrame(root, box, scale, all);
    const cell = box.width / n, gap = Math.min(4, cell * 0.15);
    const bar = (cell - gap) / all.series.length;
    all.series.forEach((series, k) => {
      for (let i = first; i <= last; i++) {
        const height = scale.at(series.values[i]) * box.height;
        if (height > 0)
          svg(root, "rect", { x: box.left + (i - first) * cell + gap / 2 + k * bar,
                              y: box.bottom - Math.max(1, height), width: Math.max(1, bar),
                              height: Math.max(1, height), fill: series.colour });
      }
    });
    return (x) => {
      const i = Math.min(n - 1, Math.floor(x * n));
      return { i: first + i, x: (i + 0.5) / n };
    };
  });
}

/* One bar, cut into shares of a sum, and a table of them with a last column of `extra`. */
function shares(parent, title, heads, parts) {
  const card = add(parent, "div", null, "card wide");
  const sum = parts.reduce((a, part) => a + part.value, 0);
  add(card, "h3", title);
  const root = svg(card, "svg", { role: "img", "aria-label": title });
  redraws.push(() => {
    const width = card.clientWidth - 28;
    root.replaceChildren();
    root.setAttribute("viewBox", `0 0 ${width} 40`);
    root.setAttribute("height", 40);
    let x = 0;
    for (const part of parts) {
      const w = sum > 0 ? (part.value / sum) * width : 0;
      if (w > 0) svg(root, "rect", { x, y: 6, width: w, height: 26, fill: part.colour });
      x += w;
    }
  });
  const made = add(scroller(card), "table"), top = add(made, "tr");
  heads.forEach((text, i) => add(top, "th", text, i > 0 ? "n" : ""));
  for (const part of parts) {
    const line = add(made, "tr"), cell = add(line, "td"), mark = add(cell, "span", null, "legend");
    add(add(mark, "span"), "i").style.background = part.colour;
    mark.firstChild.appendChild(document.createTextNode(part.name));
    add(line, "td", count(part.value), "n");
    add(line, "td", sum > 0 ? percent(part.value / sum) : "-", "n");
    add(line, "td", part.extra, "n");
  }
  return card;
}
