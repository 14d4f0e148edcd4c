// Who is on the frontier of quality and cost, how surely, and the chart of it.

/** For each point {cost, variant}: how often no other dominates it over the resamples, no surer than the doubts about
 * those as cheap allow (as in results/stats.py), and how often it ties there. */
function standings(points) {
  return points.map((point) => {
    let on = 0;
    let tied = 0;
    const others = points.filter((other) => other !== point);
    for (let draw = 0; draw < payload.resamples; draw++) {
      if (others.some((other) => dominates(other, point, draw))) continue;
      on++;
      if (others.some((other) => equal(other, point, draw))) tied++;
    }
    const doubts = others.filter((other) => other.cost <= point.cost).map((other) => point.variant.pairs[other.variant.name].doubt);
    const probability = Math.max(on / payload.resamples, Math.min(0.5, ...doubts));
    return { probability: Math.min(probability, 1 - Math.max(0, ...doubts)), tied: tied / payload.resamples };
  });
}

function dominates(a, b, draw) {
  const better = a.variant.resampled[draw] - b.variant.resampled[draw];
  return a.cost <= b.cost && better >= 0 && (a.cost < b.cost || better > 0);
}

const equal = (a, b, draw) => a.cost === b.cost && a.variant.resampled[draw] === b.variant.resampled[draw];

/** The mean difference a − b on the questions both have, with its paired 95% interval; null if unpaired. */
function difference(a, b) {
  const pair = a.pairs?.[b.name];
  return pair ? { ...pair, mean: a.shared_mean - b.shared_mean } : null;
}

/** The best quality at or below each cost, from the cheapest: the points that no other dominates. */
function staircase(points) {
  const best = [];
  for (const point of [...points].sort((a, b) => a.cost - b.cost || b.quality - a.quality)) {
    if (!best.length || point.quality > best[best.length - 1].quality) best.push(point);
  }
  return best;
}

const SHAPES = { s: "Square", "^": "Triangle", v: "Triangle", D: "Diamond", d: "Diamond", P: "Cross", X: "Cross", "*": "Star" };
const TURNED = { v: 180, X: 45 };

function mark(variant) {
  const shape = d3[`symbol${SHAPES[variant.marker] || "Circle"}`];
  return d3.symbol().type(shape).size(variant.marker === "*" ? 95 : 68)();
}

const colour = (variant) => (/^#1a1a1a$/i.test(variant.colour) ? "var(--ink)" : variant.colour);

/** Draws the chart into `place`; `points` have {variant, cost, low, high, quality, qualifies, standing, words}. */
function drawFrontier(place, points, { kind, metric, target, recommended, choose }) {
  const width = Math.max(300, place.clientWidth);
  const height = Math.max(280, Math.min(440, width * 0.66));
  const inner = { left: 52, right: width - 14, top: 14, bottom: height - 44 };
  const svg = d3.select(place).html("").append("svg").attr("viewBox", `0 0 ${width} ${height}`);
  svg.attr("role", "group").attr("aria-label", `Quality against cost of ${points.length} variants; the table holds the numbers`);
  const drawable = points.filter((p) => p.cost > 0 && known(p.quality));
  if (!drawable.length) return empty(svg, width, height);
  const size = unitOf(kind).size;
  const x = d3.scaleLog().domain(costDomain(drawable, target)).range([inner.left, inner.right]);
  const top = d3.max(drawable, (p) => (known(p.top) ? p.top : p.quality));
  const y = d3.scaleLinear().domain([0, Math.max(0.05, top * 1.06)]).range([inner.bottom, inner.top]);
  drawAxes(svg, x, y, inner, size, [`${payload.kinds[kind].name} (${unitOf(kind).name}), logarithmic`, metric]);
  if (known(target) && target > 0) drawTarget(svg, x(target), inner);
  const best = staircase(drawable.filter((p) => !p.variant.reference));
  const line = d3.line().x((p) => x(p.cost)).y((p) => y(p.quality)).curve(d3.curveStepAfter);
  svg.append("path").attr("class", "stairs").attr("d", line([...best, { ...best[best.length - 1], cost: x.domain()[1] }]));
  if (!best.length) svg.select(".stairs").remove();
  drawPoints(svg, place, drawable, x, y, recommended, choose);
  const landmark = ({ variant }) => variant === recommended || variant.reference || variant.method === "naive";
  drawNames(svg, new Set([...best, ...drawable.filter(landmark)]), x, y, inner);
}

function empty(svg, width, height) {
  const text = svg.append("text").attr("x", width / 2).attr("y", height / 2).attr("text-anchor", "middle");
  text.attr("class", "axis-title").text("No variant has both a quality and this cost.");
}

/** Limits with air on both sides, also of a single point. */
function costDomain(points, target) {
  const costs = points.flatMap((p) => [p.cost, p.low, p.high]).filter((c) => known(c) && c > 0);
  if (known(target) && target > 0) costs.push(target);
  return [d3.min(costs) / 1.25, d3.max(costs) * 1.25];
}

function drawAxes(svg, x, y, inner, size, [across, up]) {
  const places = [...d3.range(-12, 24)].flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power * size));
  const inside = places.filter((v) => v >= x.domain()[0] && v <= x.domain()[1]);
  const few = inside.length > 9 ? inside.filter((v) => /^1/.test((v / size).toExponential())) : inside;
  const ticks = few.length ? few : [Math.sqrt(x.domain()[0] * x.domain()[1])];
  const format = (v) => digits(v / size);
  svg.append("g").attr("class", "grid").attr("transform", `translate(${inner.left},0)`)
    .call(d3.axisLeft(y).ticks(6).tickSize(inner.left - inner.right));
  svg.append("g").attr("class", "axis").attr("transform", `translate(0,${inner.bottom})`)
    .call(d3.axisBottom(x).tickValues(ticks).tickFormat(format).tickSizeOuter(0));
  svg.append("text").attr("class", "axis-title").attr("x", (inner.left + inner.right) / 2).attr("y", inner.bottom + 36)
    .attr("text-anchor", "middle").text(across);
  svg.append("text").attr("class", "axis-title").attr("transform", `translate(13,${(inner.top + inner.bottom) / 2})rotate(-90)`)
    .attr("text-anchor", "middle").text(up);
  svg.selectAll(".axis, .grid").attr("aria-hidden", "true");
}

function drawTarget(svg, at, inner) {
  svg.append("rect").attr("class", "beyond").attr("x", at).attr("y", inner.top)
    .attr("width", Math.max(0, inner.right - at)).attr("height", inner.bottom - inner.top);
  svg.append("line").attr("class", "target").attr("x1", at).attr("x2", at).attr("y1", inner.top).attr("y2", inner.bottom);
  const right = at > (inner.left + inner.right) / 2;
  svg.append("text").attr("class", "target-name").attr("x", at + (right ? -6 : 6)).attr("y", inner.top + 10)
    .attr("text-anchor", right ? "end" : "start").text("target");
}

function drawPoints(svg, place, points, x, y, recommended, choose) {
  const note = d3.select(place).append("div").attr("class", "tip").attr("hidden", "");
  const order = [...points].sort((a, b) => a.qualifies - b.qualifies || a.cost - b.cost);
  const marks = svg.append("g").selectAll("g").data(order).enter().append("g");
  const has = (p) => ({ out: !p.qualifies, recommended: p.variant === recommended, reference: p.variant.reference });
  marks.attr("class", (p) => ["point", ...Object.keys(has(p)).filter((name) => has(p)[name])].join(" "))
    .attr("role", "link").attr("tabindex", (p, i) => (i === order.length - 1 ? 0 : -1)).attr("aria-label", (p) => p.words)
    .attr("data-variant", (p) => p.variant.name).style("color", (p) => colour(p.variant));
  marks.filter((p) => known(p.bottom) && known(p.top)).append("line").attr("class", "whisker")
    .attr("x1", (p) => x(p.cost)).attr("x2", (p) => x(p.cost)).attr("y1", (p) => y(p.bottom)).attr("y2", (p) => y(p.top));
  marks.filter((p) => p.low > 0 && known(p.high)).append("line").attr("class", "whisker")
    .attr("x1", (p) => x(p.low)).attr("x2", (p) => x(p.high)).attr("y1", (p) => y(p.quality)).attr("y2", (p) => y(p.quality));
  marks.append("circle").attr("class", "halo").attr("r", 12).attr("cx", (p) => x(p.cost)).attr("cy", (p) => y(p.quality));
  marks.append("path").attr("class", "mark").attr("d", (p) => mark(p.variant))
    .attr("transform", (p) => `translate(${x(p.cost)},${y(p.quality)})rotate(${TURNED[p.variant.marker] || 0})`);
  const tell = (p) => {
    const left = Math.min(x(p.cost) + 14, Math.max(0, place.clientWidth - 250));
    note.attr("hidden", null).style("left", `${left}px`).style("top", `${y(p.quality) + 14}px`).text(p.words);
  };
  marks.on("mouseenter", tell).on("focus", tell).on("click", choose)
    .on("mouseleave", () => note.attr("hidden", "")).on("blur", () => note.attr("hidden", ""))
    .on("keydown", (p, i, all) => steer(d3.event, p, i, [...all], choose));
}

/** Arrow keys go from point to point, Enter opens the records. */
function steer(event, point, index, all, choose) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (step) {
    const next = all[(index + step + all.length) % all.length];
    all.forEach((node) => node.setAttribute("tabindex", node === next ? 0 : -1));
    next.focus();
    event.preventDefault();
  } else if (event.key === "Enter" || event.key === " ") {
    choose(point);
    event.preventDefault();
  }
}

/** Names beside points, each moved up until it is clear of the others. */
function drawNames(svg, points, x, y, inner) {
  const taken = [];
  for (const p of [...points].sort((a, b) => a.quality - b.quality)) {
    const right = x(p.cost) > inner.left + (inner.right - inner.left) * 0.7;
    const length = 6.3 * p.variant.name.length;
    const from = x(p.cost) + (right ? -12 - length : 12);
    let at = y(p.quality) - 7;
    while (taken.some((t) => Math.abs(t.at - at) < 13 && t.from < from + length && from < t.from + t.length)) at -= 4;
    taken.push({ at, from, length });
    svg.append("text").attr("class", "name").attr("x", from).attr("y", at).attr("aria-hidden", "true").text(p.variant.name);
  }
}
