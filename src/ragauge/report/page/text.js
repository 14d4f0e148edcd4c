// Elements, numbers and what the page holds. Texts of data sets become text nodes, never markup.

const payload = JSON.parse(document.getElementById("payload").textContent);

/** An element with attributes, listeners (`onclick`) and children; texts become text nodes. */
function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** A data set's text as an element of its own: its direction stays inside, its control characters are pictures. */
function shown(text) {
  const pictured = String(text ?? "").replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, (c) =>
    String.fromCharCode(0x2400 + c.charCodeAt(0)),
  );
  return el("bdi", {}, pictured.replace(/[\u007f-\u009f]/g, "\ufffd"));
}

const known = (value) => typeof value === "number" && Number.isFinite(value);

/** Three significant digits without a power of ten where a person reads none. */
function digits(value) {
  if (!known(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return size < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

const share = (value) => (known(value) ? value.toFixed(3).replace("-", "−") : "–");

/** The unit in which a cost is read and typed: GMAC for multiply-accumulates, seconds as they are. */
function unitOf(kind) {
  return payload.kinds[kind].unit === "MAC" ? { name: "GMAC", size: 1e9 } : { name: "s", size: 1 };
}

const price = (value, kind) => (known(value) ? `${digits(value / unitOf(kind).size)} ${unitOf(kind).name}` : "–");
const bytes = (value) => (known(value) ? (value < 1e9 ? `${digits(value / 1e6)} MB` : `${digits(value / 1e9)} GB`) : "–");

/** What a compressed block of the page holds; blocks that were opened are kept. */
const opened = new Map();
function unpack(id) {
  if (!opened.has(id)) opened.set(id, inflate(document.getElementById(id)));
  return opened.get(id);
}

async function inflate(block) {
  if (!block) return null;
  const text = atob(block.textContent.trim());
  const data = Uint8Array.from(text, (character) => character.charCodeAt(0));
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}
