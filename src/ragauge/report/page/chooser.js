// An engineer's question: which variants keep a latency target, a memory limit, at what price, given what was read before the question?

const setting = { group: 0, kind: null, target: null, memory: null, state: null };

function start() {
  buildChooser(document.getElementById("chooser"));
  buildBrowser(document.getElementById("browser"));
  document.addEventListener("DOMContentLoaded", route); // the records stand after this script
  window.addEventListener("hashchange", route);
  window.addEventListener("beforeprint", redraw);
}

const group = () => payload.groups[setting.group];

function buildChooser(place) {
  if (!payload.groups.length) return place.append(el("p", { class: "muted" }, "PROVISIONAL: no variant has records yet, so nothing is recommended."));
  place.append(
    el("form", { class: "controls", id: "controls", onsubmit: (event) => event.preventDefault() }),
    el("p", { id: "cost-note", class: "small" }),
    el("div", { class: "screen" }, el("div", { id: "chart", class: "chart" }), el("div", { id: "advice", "aria-live": "polite" })),
    el("div", { id: "ranking" }),
  );
  chooseGroup(0);
  new ResizeObserver(redraw).observe(document.getElementById("chart"));
}

function chooseGroup(index) {
  setting.group = index;
  setting.state = group().state;
  chooseKind(group().cost);
}

/** Another cost has another unit, so its target starts anew. */
function chooseKind(kind) {
  setting.kind = kind;
  const target = kind ? group().targets[kind] : null;
  setting.target = known(target) ? target / unitOf(kind).size : null;
  buildControls();
  update();
}

function buildControls() {
  const groups = payload.groups.map((g, i) => [i, `${g.dataset} · ${g.model}${g.stack ? ` (served by ${g.stack})` : ""}`]);
  const kinds = group().costs.map((kind) => [kind, payload.kinds[kind].name]);
  const unit = setting.kind ? unitOf(setting.kind).name : "";
  document.getElementById("controls").replaceChildren(
    picker("group", "Data set and model", groups, setting.group, (value) => chooseGroup(Number(value))),
    picker("kind", "Cost to limit", kinds, setting.kind, chooseKind),
    number("target", `At most (${unit})`, setting.target, (value) => (setting.target = value)),
    number("memory", "Memory at most (GB)", setting.memory, (value) => (setting.memory = value)),
    picker("state", "Before the question, the service has read", Object.entries(READ), setting.state, chooseState),
  );
}

/** What the service can have read, in words. */
const READ = { nothing: "nothing", documents: "each document", set: "exactly this list" };

function chooseState(state) {
  setting.state = state;
  update();
}

function picker(id, label, options, chosen, change) {
  const made = options.map(([value, text]) => el("option", { value, selected: value === chosen }, text));
  return el("label", { for: id }, label, el("select", { id, onchange: (event) => change(event.target.value) }, made));
}

function number(id, label, value, change) {
  const changed = (event) => {
    change(event.target.value === "" ? null : Number(event.target.value));
    update();
  };
  return el("label", { for: id }, label, el("input", { id, type: "number", min: 0, step: "any", value, placeholder: "no limit", oninput: changed }));
}

/** A variant's cost in the chosen state; undefined where it was not measured. */
const priced = (variant) => variant.costs[setting.kind]?.[setting.state];

/** Every variant of the group with what the settings make of it. */
function candidates() {
  return group().variants.map((variant) => {
    const { online: cost = null, low = null, high = null } = priced(variant) || {};
    const memory = known(variant.kv_bytes) ? variant.kv_bytes + (variant.weight_bytes || 0) : null;
    return { variant, cost, low, high, memory, quality: variant.quality.mean, bottom: variant.quality.low, top: variant.quality.high };
  });
}

/** Candidates with verdict, standing and words, the best first. */
function judged() {
  const points = candidates();
  for (const p of points) {
    p.against = objections(p);
    p.qualifies = !p.against.length;
  }
  const able = points.filter((p) => !p.variant.reference && p.variant.resampled && known(p.cost));
  const found = standings(able);
  able.forEach((p, i) => (p.standing = found[i]));
  points.forEach((p) => (p.words = describe(p)));
  return points.sort((a, b) => b.qualifies - a.qualifies || b.quality - a.quality || a.cost - b.cost);
}

function objections(p) {
  const { kind, target, memory } = setting;
  const limit = known(target) ? target * unitOf(kind).size : Infinity;
  return [
    p.variant.reference && "reference: no server knows the gold documents",
    p.variant.method === "closed_book" && "reference: answers without documents",
    !known(p.quality) && "no quality",
    p.cost === null && limit < Infinity && "this cost was not measured in this state",
    p.cost > limit && `${price(p.cost, kind)} is over the target`,
    known(memory) && p.memory === null && "memory was not measured",
    known(memory) && p.memory > memory * 1e9 && `${bytes(p.memory)} is over the limit`,
  ].filter(Boolean);
}

function describe(p) {
  const { quality } = p.variant;
  const interval = known(quality.low) ? ` [${share(quality.low)}, ${share(quality.high)}]` : "";
  const standing = p.standing ? `; on the frontier with probability ${p.standing.probability.toFixed(2)}` : "";
  return `${p.variant.name}: ${group().metric} ${share(p.quality)}${interval}, ${price(p.cost, setting.kind)}${standing}`;
}

const byCost = (a, b) => (a.cost ?? Infinity) - (b.cost ?? Infinity) || 0; // two unknown ones are equal
const byQuality = (a, b) =>
  b.variant.shared_mean - a.variant.shared_mean || (a.variant.tokens_read ?? Infinity) - (b.variant.tokens_read ?? Infinity) || (a.variant.name < b.variant.name ? -1 : 1);

/** Those that qualify and whose lag behind the best quality chance could have made, the best first; as numbers.py has them. */
function leaders(points) {
  if (group().withheld) return [];
  const able = points.filter((p) => p.qualifies && known(p.variant.shared_mean)).sort(byQuality);
  return able.filter((p) => p === able[0] || difference(able[0].variant, p.variant).low <= 0);
}

/** By the page's rule, as numbers.py has it. */
function recommend(points) {
  const able = leaders(points);
  const [fastest] = [...able].sort(byCost);
  const slower = known(fastest?.cost) ? priced(fastest.variant).shorter_than : [];
  return able.find((p) => !slower.includes(p.variant.name)) || null;
}

/** The best quality, whatever the limits are. */
function bestOf(points) {
  return points.filter((p) => !p.variant.reference && p.variant.method !== "closed_book" && known(p.variant.shared_mean)).sort(byQuality)[0] || null;
}

function update() {
  const points = judged();
  const first = recommend(points);
  const best = bestOf(points);
  document.getElementById("cost-note").replaceChildren(...costNote());
  document.getElementById("advice").replaceChildren(...advice(points, first, best));
  document.getElementById("ranking").replaceChildren(ranking(points, first, best));
  redraw();
}

let drawnAt = 0;
function redraw(event) {
  const place = document.getElementById("chart");
  if (Array.isArray(event) && Math.abs(place.clientWidth - drawnAt) < 2) return;
  drawnAt = place.clientWidth;
  const points = judged();
  const { kind, target } = setting;
  if (!kind) return place.replaceChildren(el("p", { class: "muted" }, "No cost was measured: there is no frontier to draw."));
  const limit = known(target) ? target * unitOf(kind).size : null;
  const choose = (p) => (location.hash = address(p.variant));
  drawFrontier(place, points, { kind, metric: group().metric, target: limit, recommended: recommend(points)?.variant, choose });
  place.append(legend(points));
}

function legend(points) {
  const seen = new Map(points.map((p) => [p.variant.label, p.variant]));
  const items = [...seen.values()].map((variant) => {
    const svg = d3.create("svg").attr("viewBox", "-7 -7 14 14").attr("width", 13).attr("height", 13).style("color", colour(variant));
    svg.append("path").attr("class", "mark").attr("d", mark(variant)).attr("transform", `rotate(${TURNED[variant.marker] || 0})`);
    return el("li", {}, svg.node(), variant.label);
  });
  return el("ul", { class: "legend", "aria-hidden": "true" }, items);
}

const address = (variant) => `#records/${group().dataset}/${group().model}/${variant.name}`;

/** Which clock the numbers come from, and what stands in where there is none. */
function costNote() {
  const { kind } = setting;
  const chosen = group();
  if (!kind) return [];
  const note = [];
  if (chosen.stack) {
    const cached = chosen.cached ? `, which had ${chosen.cached} of the prompts from what was asked before` : "";
    const why = `a server's (${chosen.stack}), as its client saw them, its own cache included${cached}. Compare them with other models' as those of another system. `;
    note.push(el("strong", {}, "Times of another stack: "), why);
  }
  if (chosen.untimed && !chosen.stack) note.push(el("strong", {}, "No times of the latency protocol: "), `${chosen.untimed}. `);
  if (kind.startsWith("answering")) note.push("Seconds of the run that answered, medians over the questions; other work on the machine may have disturbed them. ");
  else if (kind === "compute_cycles") note.push("Multiply-accumulates on the critical path, generated tokens included, counted from the traces. ");
  else note.push(`${chosen.protocol.replace(/; before the question: .*/, "")}. `);
  note.push(`Before the question the service has read ${READ[setting.state]}. `);
  note.push(kind === "compute_cycles" ? "Bars: 95% intervals." : "Bars: 95% interval of quality, quartiles of time.");
  return note;
}

// --- the advice ---

function advice(points, first, best) {
  const why = group().provisional ? [el("p", { class: "small", id: "provisional" }, sentence(`PROVISIONAL: ${group().provisional}`))] : [];
  if (group().withheld) return [el("p", { class: "verdict" }, "No recommendation."), el("p", { id: "withheld" }, sentence(group().withheld)), ...why];
  if (!first) return [el("p", { class: "verdict" }, "No variant qualifies."), el("ul", {}, nearest(points))];
  const { variant } = first;
  return [
    el("p", { class: "kicker" }, group().provisional ? "PROVISIONAL recommendation" : "Recommended"),
    el("p", { class: "verdict", id: "recommended" }, el("a", { href: address(variant) }, variant.name)),
    el("dl", { class: "sums" }, ...limitLines(), ...qualityLines(first), ...costLines(first), ...loadLines(first), ...memoryLines(first), ...priceLines(first, best)),
    ...why,
    ...rivals(leaders(points), first),
    el("p", { class: "small" }, `${points.filter((p) => p.qualifies).length} of ${points.length} variants qualify.`),
  ];
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

const line = (term, ...content) => [el("dt", {}, term), el("dd", {}, ...content)];

/** The limits, for those who read the page on paper. */
function limitLines() {
  const { kind, target, memory } = setting;
  const limits = [kind && known(target) && `at most ${digits(target)} ${unitOf(kind).name}`, known(memory) && `at most ${digits(memory)} GB`].filter(Boolean);
  return line("limits", [...(limits.length ? limits : ["none"]), readBefore()].join(", "));
}

const readBefore = () => `${READ[setting.state]} read before the question`;

function qualityLines({ variant }) {
  const { mean, low, high, n } = variant.quality;
  return line(group().metric, el("b", {}, share(mean)), known(low) ? ` [${share(low)}, ${share(high)}] on ${n} questions` : "");
}

/** The wait, and what it took to be able to answer so. */
function costLines({ variant, cost, high }) {
  const { kind, target } = setting;
  const late = known(target) && high > target * unitOf(kind).size;
  const quarter = late && kind !== "compute_cycles" ? "; a quarter of the answers took longer than the target" : "";
  const clock = kind ? ` (${payload.kinds[kind].name})` : "";
  const waits = line(waitName(), el("b", {}, price(cost, kind)), `${clock}${quarter}`);
  return [...waits, ...line("before the question", readWords(variant))];
}

/** How many users are served in time, where the load protocol searched it. */
function loadLines({ variant }) {
  const { clients, rate } = variant.capacities;
  if (!clients) return [];
  const rates = rate?.load ? ` at a time, or ${digits(rate.load)} questions a second` : " at a time";
  return line("users at your target", el("b", {}, digits(clients.load)), `${rates} (${clients.limits})`);
}

/** Seconds and bytes of what a variant has read in the chosen state. */
function readWords(variant) {
  const { preparation_s: s, preparation_bytes: size } = variant.preparation[setting.state] || {};
  if (!known(s)) return "nothing is read: it gains nothing from it";
  return `${digits(s)} s${known(size) ? ` and ${bytes(size)} of keys and values` : ""} for a question's documents`;
}

/** A user waits for seconds; operations are no wait. */
const waitName = () => (setting.kind === "compute_cycles" ? "operations" : "wait");

function memoryLines({ variant, memory }) {
  const weights = known(variant.weight_bytes) ? `${bytes(variant.weight_bytes)} decoder weights + ` : "";
  return line("memory", el("b", {}, bytes(memory)), memory === null ? "" : ` = ${weights}${bytes(variant.kv_bytes)} keys and values at most`);
}

function priceLines(first, best) {
  if (!best || best.variant === first.variant) return line("quality lost", "none: no variant here is better");
  const gap = difference(best.variant, first.variant);
  const interval = gap ? ` [${share(gap.low)}, ${share(gap.high)}]` : "";
  return line("quality lost", el("b", {}, share(gap ? gap.mean : best.quality - first.quality)), `${interval} against ${best.variant.name}, the best without limits`);
}

/** The rule behind the recommendation in a sentence, and the variants that chance could have put in its place. */
function rivals(near, first) {
  const others = near.filter((p) => p !== first);
  const rule = sentence(`rule: ${payload.rule}`);
  if (!others.length) return [el("p", { class: "small", id: "rule" }, `${rule} No other variant is statistically tied.`)];
  const items = others.slice(0, 5).map((p) => el("li", {}, el("a", { href: address(p.variant) }, p.variant.name), ` ${share(p.variant.shared_mean)}, ${price(p.cost, setting.kind)}`));
  const more = others.length > 5 ? el("li", {}, `and ${others.length - 5} more`) : null;
  const said = `${rule} Statistically tied (${group().paired} questions; the paired 95% interval of the difference from the best includes zero):`;
  return [el("p", { class: "small", id: "rule" }, said), el("ul", { class: "small rivals" }, items, more)];
}

function nearest(points) {
  const close = points.filter((p) => !p.variant.reference).sort((a, b) => (a.cost ?? Infinity) - (b.cost ?? Infinity)).slice(0, 3);
  return close.map((p) => el("li", {}, `${p.variant.name}: ${p.against.join("; ")}`));
}

// --- the tables ---

function ranking(points, first, best) {
  const names = ["Variant", group().metric, waitName() === "wait" ? "Wait" : "Operations", "Read before", "Memory", "On the frontier", best ? `Below ${best.variant.name}` : "Below the best", "Verdict"];
  const head = el("tr", {}, names.map((name) => el("th", { scope: "col" }, name)));
  const rows = points.map((p) => rankingRow(p, first, best));
  const caption = el("caption", { class: "unseen" }, "Every variant: quality, cost, what it has read before the question, memory, probability of being on the frontier, verdict");
  const table = el("table", { id: "variants" }, caption, el("thead", {}, head), el("tbody", {}, rows));
  const about = `Probability of being on the frontier and differences: over ${payload.resamples} paired resamples of the ${group().paired} questions that the variants share, costs held at their measured values: of the ${waitName()} above (${readBefore()}).`;
  return el("div", {}, el("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": "All variants" }, table), el("p", { class: "small" }, about), ...words(points));
}

/** What each method does, in a sentence. */
function words(points) {
  const told = new Map(points.filter((p) => p.variant.about).map((p) => [p.variant.method, p.variant.about]));
  const names = (method) => points.filter((p) => p.variant.method === method).map((p) => p.variant.name).sort().join(", ");
  const items = [...told].map(([method, about]) => el("li", {}, el("b", {}, names(method)), `: ${about}`));
  return items.length ? [el("ul", { class: "small", id: "methods" }, items)] : [];
}

function rankingRow(p, first, best) {
  const { variant } = p;
  const { mean, low, high } = variant.quality;
  const verdict = p === first ? "recommended" : p.qualifies ? "qualifies" : p.against.join("; ");
  return el(
    "tr",
    { class: p === first ? "first" : p.qualifies ? "" : "out", "data-variant": variant.name },
    el("th", { scope: "row" }, el("a", { href: address(variant) }, variant.name)),
    el("td", { class: "n", "data-value": mean }, share(mean), known(low) ? el("small", {}, ` [${share(low)}, ${share(high)}]`) : ""),
    el("td", { class: "n", "data-value": p.cost }, price(p.cost, setting.kind)),
    el("td", { class: "n", "data-value": p.variant.preparation[setting.state]?.preparation_s }, readShort(p.variant)),
    el("td", { class: "n", "data-value": p.memory }, bytes(p.memory)),
    el("td", { class: "n" }, standingText(p)),
    el("td", { class: "n" }, gapText(best, p)),
    el("td", {}, verdict),
  );
}

function readShort(variant) {
  const { preparation_s: s, preparation_bytes: size } = variant.preparation[setting.state] || {};
  return known(s) ? [`${digits(s)} s`, known(size) ? el("small", {}, ` ${bytes(size)}`) : ""] : "–";
}

function standingText(p) {
  if (p.variant.reference) return "reference";
  if (!p.standing) return p.variant.resampled ? "–" : "too few questions";
  const { probability, tied } = p.standing;
  return tied >= 0.005 ? `${probability.toFixed(2)} (tied ${tied.toFixed(2)})` : probability.toFixed(2);
}

function gapText(best, p) {
  const gap = best && p.variant !== best.variant && difference(best.variant, p.variant);
  return gap ? [share(gap.mean), el("small", {}, ` [${share(gap.low)}, ${share(gap.high)}]`)] : "";
}
