// The questions behind a number: a table that is filtered and paged, from a block that is opened when it is asked for.

const PAGE = 25;
const view = { group: 0, variant: 0, rows: [], titles: {}, query: "", outcome: "all", sort: null, page: 0, open: null };
const OUTCOMES = {
  all: ["all", () => true],
  right: ["right", (row) => row.score >= 0.999],
  partly: ["partly right", (row) => row.score > 0 && row.score < 0.999],
  wrong: ["wrong", (row) => row.status === "ok" && row.score === 0],
  failed: ["failed", (row) => row.status === "failed"],
  kept: ["all gold documents kept", (row) => row.gold.length && row.gold.every((g) => row.kept.includes(g))],
  lost: ["a gold document dropped", (row) => row.status === "ok" && row.gold.some((g) => !row.kept.includes(g))],
};
const COLUMNS = [
  ["Question", "question", (row) => shown(row.question)],
  ["Answer given", "prediction", (row) => (row.status === "failed" ? el("em", {}, "failed: ", shown(row.reason)) : shown(row.prediction))],
  ["Answers wanted", null, (row) => el("span", { class: "wanted" }, row.answers.map((a) => shown(a)))],
  ["Score", "score", (row) => (known(row.score) ? digits(row.score) : "–")],
  ["Gold kept", "goldKept", (row) => (row.gold.length ? `${row.goldKept} of ${row.gold.length}` : "–")],
  ["Kept", "keptCount", (row) => `${row.kept.length} of ${row.documents}`],
  ["Waited", "online_s", (row) => (known(row.online_s) ? `${digits(row.online_s)} s` : "–")],
];

function buildBrowser(place) {
  if (!payload.groups.length) return place.append(el("p", { class: "muted" }, "There are no records."));
  place.append(
    el("form", { class: "controls", onsubmit: (event) => event.preventDefault() }, browserControls()),
    el("p", { id: "found", role: "status" }),
    el("div", { id: "questions" }, el("button", { type: "button", class: "wide", id: "open-records", onclick: () => show(view.group, view.variant) }, "Show the records")),
    el("div", { id: "pager", class: "pager" }),
  );
}

function browserControls() {
  const typed = (event) => refine({ query: event.target.value });
  return [
    picker("records-group", "Data set and model", payload.groups.map((g, i) => [i, `${g.dataset} · ${g.model}`]), 0, (value) => show(Number(value), 0)),
    picker("records-variant", "Variant", variantOptions(0), 0, (value) => show(view.group, Number(value))),
    el("label", { for: "records-query" }, "Text in question or answers", el("input", { id: "records-query", type: "search", oninput: typed })),
    picker("records-outcome", "Outcome", Object.entries(OUTCOMES).map(([key, [name]]) => [key, name]), "all", (value) => refine({ outcome: value })),
  ];
}

const variantOptions = (index) => payload.groups[index].variants.map((v, i) => [i, v.name]);

/** `#records/data set/model/variant` shows those records. */
function route() {
  const [start, dataset, model, name] = location.hash.split("/").map(decodeURIComponent);
  if (start !== "#records" || !name) return;
  const found = payload.groups.findIndex((g) => g.dataset === dataset && g.model === model);
  const variant = found < 0 ? -1 : payload.groups[found].variants.findIndex((v) => v.name === name);
  if (variant < 0) return;
  show(found, variant).then(() => {
    document.getElementById("records").scrollIntoView();
    document.getElementById("records-title").focus({ preventScroll: true });
  });
}

async function show(groupIndex, variantIndex) {
  Object.assign(view, { group: groupIndex, variant: variantIndex, page: 0, open: null });
  const { dataset, model, variants } = payload.groups[groupIndex];
  document.getElementById("records-group").value = groupIndex;
  document.getElementById("records-variant").replaceChildren(...variantOptions(groupIndex).map(([value, text]) => el("option", { value }, text)));
  document.getElementById("records-variant").value = variantIndex;
  document.getElementById("found").textContent = "Opening…";
  const asked = `records/${dataset}/${model}/${variants[variantIndex].name}`;
  const [columns, titles] = await Promise.all([unpack(asked), unpack(`documents/${dataset}`)]);
  if (view.group !== groupIndex || view.variant !== variantIndex) return; // another one was chosen meanwhile
  Object.assign(view, { rows: asRows(columns), titles: titles || {} });
  list();
}

function asRows(columns) {
  const names = Object.keys(columns);
  return columns.key.map((_, i) => {
    const row = Object.fromEntries(names.map((name) => [name, columns[name][i]]));
    row.goldKept = row.gold.filter((g) => row.kept.includes(g)).length;
    row.keptCount = row.kept.length;
    row.searched = [row.key, row.question, row.prediction, row.text, ...row.answers].join("\n").toLowerCase();
    return row;
  });
}

function refine(change) {
  Object.assign(view, change, { page: 0, open: null });
  if (view.rows.length) list();
  else show(view.group, view.variant);
}

function filtered() {
  const query = view.query.trim().toLowerCase();
  const rows = view.rows.filter((row) => OUTCOMES[view.outcome][1](row) && row.searched.includes(query));
  if (!view.sort) return rows;
  const { field, down } = view.sort;
  return [...rows].sort((a, b) => (down ? d3.descending : d3.ascending)(a[field] ?? -Infinity, b[field] ?? -Infinity));
}

function list() {
  const rows = filtered();
  const pages = Math.max(1, Math.ceil(rows.length / PAGE));
  const scores = rows.map((row) => row.score).filter(known);
  const mean = scores.length ? `; mean score ${share(d3.mean(scores))} over ${scores.length}` : "";
  const { variants } = payload.groups[view.group];
  document.getElementById("found").textContent = `${variants[view.variant].name}: ${rows.length} of ${view.rows.length} questions${mean}`;
  const body = rows.slice(view.page * PAGE, (view.page + 1) * PAGE).flatMap(recordRows);
  const table = el("table", { id: "records-table" }, el("caption", { class: "unseen" }, "Questions and what became of them"), recordsHead(), el("tbody", {}, body));
  document.getElementById("questions").replaceChildren(el("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": "Records" }, table));
  document.getElementById("pager").replaceChildren(...(pages > 1 ? pager(pages) : []));
}

function pager(pages) {
  const to = (page) => () => {
    Object.assign(view, { page, open: null });
    list();
  };
  return [
    el("button", { type: "button", disabled: view.page === 0, onclick: to(view.page - 1) }, "Previous"),
    el("span", {}, ` Page ${view.page + 1} of ${pages} `),
    el("button", { type: "button", disabled: view.page === pages - 1, onclick: to(view.page + 1) }, "Next"),
  ];
}

function recordsHead() {
  const cells = COLUMNS.map(([name, field]) => {
    const sorted = view.sort?.field === field && field ? (view.sort.down ? "descending" : "ascending") : null;
    const turn = () => {
      view.sort = { field, down: sorted === "ascending" };
      view.page = 0;
      list();
    };
    const arrow = sorted ? (sorted === "ascending" ? " ▲" : " ▼") : "";
    return el("th", { scope: "col", "aria-sort": sorted }, field ? el("button", { type: "button", class: "sort", onclick: turn }, name + arrow) : name);
  });
  return el("thead", {}, el("tr", {}, cells, el("th", { scope: "col" }, el("span", { class: "unseen" }, "Details"))));
}

function recordRows(row) {
  const open = view.open === row.key;
  const turn = () => {
    view.open = open ? null : row.key;
    list();
    document.getElementById(`open-${row.key}`)?.focus();
  };
  const button = el("button", { type: "button", id: `open-${row.key}`, "aria-expanded": String(open), "aria-label": `Details of ${row.key}`, onclick: turn }, open ? "close" : "open");
  const cells = COLUMNS.map(([name, , cell], i) => el(i ? "td" : "th", { scope: i ? null : "row", class: i > 2 ? "n" : null, "data-column": name }, cell(row)));
  const line = el("tr", { class: outcomeOf(row), "data-key": row.key }, cells, el("td", {}, button));
  return open ? [line, el("tr", { class: "details" }, el("td", { colspan: COLUMNS.length + 1 }, recordDetails(row)))] : [line];
}

const outcomeOf = (row) => (row.status === "failed" ? "failed" : row.score >= 0.999 ? "right" : "wrong");

function recordDetails(row) {
  const tokens = Object.entries(row.tokens).map(([name, count]) => `${name} ${count}`).join(", ");
  const times = [["offline", row.offline_s], ["first token", row.first_token_s], ["whole answer", row.online_s]].filter(([, s]) => known(s)).map(([name, s]) => `${name} ${digits(s)} s`);
  return [
    el("p", {}, "Key ", el("code", {}, shown(row.key)), ". Tokens: ", tokens || "not recorded", ". Seconds: ", times.join(", ") || "not recorded", servedText(row.served), known(row.cache_bytes) && !row.served ? `. Keys and values: ${digits(row.cache_bytes / 1e6)} MB` : "", row.truncated ? `. ${row.truncated} document tokens left out` : "", "."),
    el("p", {}, "Whole text:"),
    el("pre", {}, shown(row.text ?? row.prediction)),
    documentsTable(row),
    evidenceList(row),
    traceTable(row),
  ];
}

/** Whose seconds a served model's are, and what its server counted. */
function servedText(served) {
  if (!served) return "";
  const [cached, whole] = [served.cached_tokens, served.prompt_tokens].map((n) => n ?? "an unknown number");
  const tries = served.attempts > 1 ? `, asked ${served.attempts} times` : "";
  return `, of another stack (${served.stack || "a server"}), which had ${cached} of ${whole} prompt tokens in its cache${tries}`;
}

/** Each document: title, place in what was read, saliency as a bar from the least to the greatest. */
function documentsTable(row) {
  const scores = row.saliency.filter(known);
  const bar = d3.scaleLinear().domain(scores.length ? [d3.min(scores), d3.max(scores)] : [0, 1]).range([4, 100]);
  const titles = view.titles[row.key] || [];
  const lines = d3.range(row.documents).map((i) => {
    const saliency = row.saliency[i];
    const meter = known(saliency) ? el("span", { class: "meter", style: `width:${bar(saliency) || 100}px` }) : null;
    const place = row.kept.indexOf(i);
    return el("tr", { class: place >= 0 ? "kept" : "" }, el("td", { class: "n" }, String(i)), el("th", { scope: "row" }, shown(titles[i] ?? "")),
      el("td", {}, row.gold.includes(i) ? "gold" : ""), el("td", { class: "n" }, place >= 0 ? String(place + 1) : ""), el("td", {}, meter, known(saliency) ? ` ${digits(saliency).replace("-", "−")}` : ""));
  });
  const head = ["Document", "Title", "Gold", "Read as", "Saliency"].map((name) => el("th", { scope: "col" }, name));
  return el("table", { class: "inner" }, el("caption", {}, `Documents: ${row.kept.length} of ${row.documents} kept`), el("thead", {}, el("tr", {}, head)), el("tbody", {}, lines));
}

function evidenceList(row) {
  if (!row.evidence.length) return null;
  return [el("p", {}, "Evidence:"), el("ol", {}, row.evidence.map((e) => el("li", {}, evidencePlace(e), shown(e.text))))];
}

function evidencePlace({ document, start, stop, verbatim }) {
  if (!known(document)) return "in no document: ";
  const place = known(start) ? `, characters ${start} to ${stop}` : "";
  return `document ${document}${place}${verbatim === false ? ", not word for word" : ""}: `;
}

function traceTable(row) {
  if (!row.trace.length) return null;
  const lines = row.trace.map((call) => {
    const entry = Object.fromEntries(payload.call.map((name, i) => [name, call[i]]));
    const when = entry.offline ? (entry.loaded ? "offline, from a cache" : "offline") : "online";
    const cells = [when, `${entry.rows}${entry.parallel ? " in parallel" : ""}`, entry.new, entry.past, entry.steps, known(entry.seconds) ? digits(entry.seconds) : "–"];
    return el("tr", {}, el("th", { scope: "row" }, shown(entry.stage)), cells.map((cell) => el("td", { class: "n" }, String(cell))));
  });
  const head = ["Call", "When", "Rows", "New tokens", "Cached tokens", "Steps", "Seconds"].map((name) => el("th", { scope: "col" }, name));
  return el("table", { class: "inner" }, el("caption", {}, "Trace: every call of the model"), el("thead", {}, el("tr", {}, head)), el("tbody", {}, lines));
}
