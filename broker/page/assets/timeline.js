// The card over time, kept in the browser: bytes by component, and below them uses and waits.
import { bytes, clock, duration, element, setText, word } from "./format.js";
import { device, now, view } from "./view.js";

const KEEP = 15 * 60_000;
const MOST_SAMPLES = 4000;
// Further components are added up: more could not be told apart.
const MOST_SHOWN = 12;
const CHART = 230;
const LANE = 20;
const GAP = 22;

const LIGHT = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"];
const DARK = ["#4aa3dc", "#f0b63c", "#2fc596", "#e29cc3", "#8fd0f7", "#f0824a"];
const dark = matchMedia("(prefers-color-scheme: dark)");
const canvas = document.getElementById("timeline");
const readout = document.getElementById("readout");
const legend = document.getElementById("timeline-legend");

let span = 2 * 60_000;
// By the broker's clock; null: now.
let cursor = null;
// Of each device: samples {time, capacity, reserve, external, rest, charges, seeded}, oldest first.
const samples = new Map();
// By component: uses and waits {from, to}, to being null while they go on; oldest first.
const uses = new Map();
const waits = new Map();
// Components in the order of their first appearance: their colour and pattern.
const order = new Map();

const listOf = (map, id) => map.get(id) ?? map.set(id, []).get(id);
const numberOf = (id) => order.get(id) ?? order.set(id, order.size).get(id);

function sampleOf(shown, time) {
  const charges = new Map(shown.components.map((one) => [one.id, Number(one.charge_bytes)]));
  let sum = 0;
  for (const amount of charges.values()) sum += amount;
  const charged = ["in_use", "retained", "permanent", "pooled", "draining"]
    .reduce((total, name) => total + Number(shown[`${name}_bytes`]), 0);
  return { time, charges, capacity: Number(shown.capacity_bytes), reserve: Number(shown.reserve_bytes),
    external: shown.external_known ? Number(shown.external_bytes) : 0, rest: Math.max(0, charged - sum) };
}

// Beyond what is kept, one sample more than needed: it says what was so at the left edge.
function forgetOld(list, timeOf) {
  const limit = now() - KEEP;
  let old = 0;
  while (old + 1 < list.length && timeOf(list[old + 1]) < limit) ++old;
  list.splice(0, Math.max(old, list.length - MOST_SAMPLES));
}

export function addPicture(picture) {
  const time = Date.parse(picture.time);
  const running = new Set();
  for (const shown of picture.devices) {
    const list = listOf(samples, shown.uuid);
    list.push(sampleOf(shown, time));
    forgetOld(list, (one) => one.time);
    for (const one of shown.components) {
      numberOf(one.id);
      if (one.use_id !== "0") running.add(one.id);
    }
  }
  follow(uses, running, time, () => time);
  const waiting = new Map(picture.waiting.map((one) => [one.component_id, time - duration(one.waited) * 1000]));
  follow(waits, new Set(waiting.keys()), time, (id) => waiting.get(id));
}

// Begins what goes on and was not there, ends what no longer does.
function follow(map, open, time, beginOf) {
  for (const id of open) {
    const list = listOf(map, id);
    if (list.length === 0 || list.at(-1).to !== null) list.push({ from: beginOf(id), to: null, guessed: true });
  }
  for (const [id, list] of map) {
    const last = list.at(-1);
    if (last && last.to === null && !open.has(id) && last.from < time) last.to = time;
    forgetOld(list, (one) => one.to ?? Infinity);
  }
}

// Decisions say when uses began and ended, to the millisecond; pictures only what was so four times a second.
export function addDecisions(decisions) {
  for (const decision of decisions) {
    const time = Date.parse(decision.time);
    const kind = word(decision.kind, "DECISION_KIND_");
    const list = listOf(uses, decision.component_id);
    if (kind === "grant") {
      const last = list.at(-1);
      if (last && last.guessed && last.from >= time && last.from - time < 2000) {
        Object.assign(last, { from: time, guessed: false });
      } else if (!last || last.from < time) {
        if (last && last.to === null) last.to = time;
        list.push({ from: time, to: null, guessed: false });
      }
    } else if (kind === "retention") {
      const last = list.findLast((one) => one.from <= time);
      if (last && (last.to === null || last.to > time)) last.to = time;
    }
  }
}

// What was so before this page was opened, as far as decisions say: layers, without windows and activations.
export function seed(decisions) {
  for (const shown of view.picture?.devices ?? []) {
    const list = listOf(samples, shown.uuid);
    const first = list[0];
    if (!first) continue;
    const sizes = new Map(shown.components.map((one) => [one.id, Number(one.layer_bytes)]));
    const charges = new Map();
    const older = [];
    for (const decision of decisions) {
      const time = Date.parse(decision.time);
      if (time >= first.time) break;
      const size = sizes.get(decision.component_id);
      if (size === undefined || word(decision.kind, "DECISION_KIND_") === "refusal") continue;
      charges.set(decision.component_id, size * decision.layers / Math.max(1, decision.component_layers));
      older.push({ ...first, time, charges: new Map(charges), rest: 0, external: 0, seeded: true });
    }
    list.unshift(...older.slice(-(MOST_SAMPLES - list.length)));
  }
  const seen = new Map(uses);
  uses.clear();
  addDecisions(decisions);
  // What pictures have shown meanwhile comes after it; one that goes on is the same as the last decided.
  for (const [id, list] of seen) {
    const decided = listOf(uses, id);
    for (const one of list) if (!decided.length || (decided.at(-1).to ?? Infinity) < one.from) decided.push(one);
  }
}

// The components that are drawn one by one: those of the device with most layers.
function shownComponents(shown) {
  const ids = [...shown.components].sort((a, b) => Number(b.layer_bytes) - Number(a.layer_bytes))
    .slice(0, MOST_SHOWN).map((one) => one.id);
  return ids.sort((a, b) => numberOf(a) - numberOf(b));
}

const patterns = new Map();

// A colour and a pattern for each, so that neither alone has to tell them apart.
function paintOf(context, number) {
  const key = `${dark.matches}/${number}`;
  if (!patterns.has(key)) patterns.set(key, context.createPattern(tile(number), "repeat"));
  return patterns.get(key);
}

function tile(number) {
  const made = document.createElement("canvas");
  made.width = made.height = 10;
  const context = made.getContext("2d");
  const colours = dark.matches ? DARK : LIGHT;
  context.fillStyle = number < 0 ? (dark.matches ? "#8a929c" : "#8d949d") : colours[number % colours.length];
  context.fillRect(0, 0, 10, 10);
  context.strokeStyle = context.fillStyle = dark.matches ? "rgba(0,0,0,.55)" : "rgba(255,255,255,.7)";
  context.lineWidth = 1.6;
  context.beginPath();
  const kind = number < 0 ? -number + 3 : Math.floor((number % 24) / 6 + number) % 4;
  if (kind === 1 || kind === 5) for (const x of [-5, 0, 5, 10]) context.moveTo(x, 10), context.lineTo(x + 10, 0);
  if (kind === 2) context.arc(5, 5, 1.8, 0, 7);
  if (kind === 3) context.moveTo(0, 5), context.lineTo(10, 5);
  if (kind === 4 || kind === 5) context.moveTo(5, 0), context.lineTo(5, 10);
  context.stroke();
  return made;
}

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Layers of the stack, bottom first: {name, number, amount(sample)}.
function stackOf(shown) {
  const ids = shownComponents(shown);
  const drawn = new Set(ids);
  const stack = ids.map((id) => ({ name: id, number: numberOf(id), amount: (one) => one.charges.get(id) ?? 0 }));
  const others = (one) => {
    let sum = one.rest;
    for (const [id, amount] of one.charges) if (!drawn.has(id)) sum += amount;
    return sum;
  };
  stack.push({ name: shown.components.length > ids.length ? "others and pools" : "pools and records", number: -1,
    amount: others });
  stack.push({ name: "external", number: -2, amount: (one) => one.external });
  return stack;
}

// At most one sample for each column of pixels: the last in it.
function columnsIn(list, begin, scale) {
  const columns = [];
  let before = null;
  for (const one of list) {
    if (one.time < begin) {
      before = one;
      continue;
    }
    const x = Math.floor((one.time - begin) * scale);
    if (columns.at(-1)?.x === x) columns.at(-1).one = one;
    else columns.push({ x, one });
  }
  return before ? [{ x: 0, one: before }, ...columns] : columns;
}

export function drawTimeline() {
  const shown = device();
  const width = canvas.clientWidth;
  if (!shown || width === 0) return;
  const stack = stackOf(shown);
  const ids = shownComponents(shown);
  const height = CHART + GAP + ids.length * LANE + 4;
  const ratio = Math.min(3, devicePixelRatio || 1);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, sans-serif";
  const frame = { width, end: now(), begin: now() - span, scale: width / span };
  const list = samples.get(shown.uuid) ?? [];
  const columns = drawStack(context, frame, stack, list, Number(shown.capacity_bytes));
  drawAxis(context, frame, Number(shown.capacity_bytes), Number(shown.reserve_bytes));
  drawSeeded(context, columns);
  ids.forEach((id, index) => drawLane(context, frame, id, CHART + GAP + index * LANE));
  drawCursor(context, frame, height);
  showLegend(context, stack, list.at(-1));
  showReadout(stack, list);
  canvas.dataset.samples = String(list.length);
  canvas.dataset.uses = String([...uses.values()].reduce((sum, one) => sum + one.length, 0));
}

function drawStack(context, frame, stack, list, capacity) {
  const columns = columnsIn(list, frame.begin, frame.scale);
  const top = (bytesUsed) => CHART - (CHART - 12) * Math.min(1, bytesUsed / capacity);
  const base = columns.map(() => 0);
  for (const part of stack) {
    context.fillStyle = paintOf(context, part.number);
    columns.forEach(({ x, one }, index) => {
      const amount = part.amount(one);
      if (amount <= 0) return;
      const right = columns[index + 1]?.x ?? frame.width;
      context.globalAlpha = one.seeded ? 0.45 : 1;
      const low = top(base[index]);
      base[index] += amount;
      context.fillRect(x, top(base[index]), right - x, low - top(base[index]));
    });
  }
  context.globalAlpha = 1;
  return columns;
}

// Where pictures begin.
function drawSeeded(context, columns) {
  const seeded = columns.findLastIndex(({ one }) => one.seeded);
  if (seeded >= 0 && columns[seeded + 1]) {
    context.fillStyle = style("--text");
    for (let y = 12; y < CHART; y += 8) context.fillRect(columns[seeded + 1].x, y, 1, 4);
    const text = "before: from decisions, layers only";
    const room = columns[seeded + 1].x - 6;
    if (room > context.measureText(text).width) {
      context.textAlign = "right";
      label(context, text, room, 40);
    }
  }
}

// Text that is read on any ground.
function label(context, text, x, y) {
  const width = context.measureText(text).width;
  context.globalAlpha = 0.8;
  context.fillStyle = style("--panel");
  context.fillRect((context.textAlign === "right" ? x - width : x) - 2, y - 11, width + 4, 14);
  context.globalAlpha = 1;
  context.fillStyle = style("--text");
  context.fillText(text, x, y);
}

function drawAxis(context, frame, capacity, reserve) {
  const y = (amount) => CHART - (CHART - 12) * amount / capacity;
  context.strokeStyle = style("--quiet");
  context.lineWidth = 1;
  for (const [amount, dash] of [[0, []], [capacity, []], [capacity - reserve, [5, 4]]]) {
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(0, Math.round(y(amount)) + 0.5);
    context.lineTo(frame.width, Math.round(y(amount)) + 0.5);
    context.stroke();
  }
  context.setLineDash([]);
  context.textAlign = "left";
  label(context, bytes(capacity), 3, 11 + 12);
  const step = [5, 10, 15, 30, 60, 120, 300].find((one) => span / 1000 / one <= frame.width / 75) * 1000;
  context.textAlign = "center";
  for (let time = Math.ceil(frame.begin / step) * step; time < frame.end; time += step) {
    const x = (time - frame.begin) * frame.scale;
    context.fillStyle = style("--quiet");
    context.fillRect(x, CHART, 1, 4);
    if (x > 26 && x < frame.width - 26) context.fillText(clock(time), x, CHART + 16);
  }
}

function drawLane(context, frame, id, y) {
  const bar = (one, from = Math.max(0, (one.from - frame.begin) * frame.scale)) =>
    [from, Math.max(1.5, ((one.to ?? frame.end) - frame.begin) * frame.scale - from)];
  context.fillStyle = style("--line");
  context.fillRect(0, y + LANE - 3, frame.width, 1);
  for (const one of uses.get(id) ?? []) {
    if ((one.to ?? frame.end) < frame.begin) continue;
    const [x, length] = bar(one);
    context.fillStyle = paintOf(context, numberOf(id));
    context.fillRect(x, y + 3, length, LANE - 7);
  }
  context.strokeStyle = style("--text");
  context.lineWidth = 1.5;
  for (const one of waits.get(id) ?? []) {
    if ((one.to ?? frame.end) < frame.begin) continue;
    const [x, length] = bar(one);
    context.strokeRect(x + 0.75, y + 3.75, Math.max(1, length - 1.5), LANE - 8.5);
  }
  context.textAlign = "left";
  label(context, id, 3, y + 14);
}

function drawCursor(context, frame, height) {
  if (cursor === null) return;
  const x = (cursor - frame.begin) * frame.scale;
  if (x < 0) cursor = frame.begin;
  context.fillStyle = style("--text");
  context.fillRect(Math.max(0, x), 0, 1, height);
}

function showLegend(context, stack, last) {
  const shown = stack.filter((part) => part.number >= 0 || (last && part.amount(last) > 0));
  const theme = String(dark.matches);
  while (legend.children.length > shown.length) legend.lastElementChild.remove();
  shown.forEach((part, index) => {
    let item = legend.children[index];
    if (!item) {
      item = element("li");
      const swatch = element("canvas", "swatch");
      swatch.width = 18;
      swatch.height = 14;
      item.append(swatch, element("span"));
      legend.append(item);
    }
    const key = `${theme}/${part.number}`;
    if (item.dataset.key !== key) {
      item.dataset.key = key;
      const small = item.firstElementChild.getContext("2d");
      small.fillStyle = small.createPattern(tile(part.number), "repeat");
      small.fillRect(0, 0, 18, 14);
    }
    setText(item.lastElementChild, `${part.name} ${last ? bytes(part.amount(last)) : ""}`);
  });
}

// What was so at the cursor, in words; and for those who do not see the picture, what is so now.
function showReadout(stack, list) {
  const time = cursor ?? now();
  const one = list.findLast((sample) => sample.time <= time);
  const parts = one ? stack.map((part) => [part.name, part.amount(one)]).filter(([, amount]) => amount > 0) : [];
  const said = parts.map(([name, amount]) => `${name} ${bytes(amount)}`).join(", ") || "nothing is held";
  if (cursor !== null) {
    const running = [...uses].filter(([, all]) => all.some((use) => use.from <= time && (use.to ?? now()) >= time))
      .map(([id]) => id);
    setText(readout, `${clock(time, true)}: ${said}${running.length ? `; in use: ${running.join(", ")}` : ""}`);
  } else {
    setText(readout, "");
  }
  const name = `Memory by component over the last ${span / 60_000} min; ${cursor === null ? "now" : clock(time)}: ${said}`;
  if (document.activeElement !== canvas || cursor !== null) canvas.setAttribute("aria-label", name);
}

canvas.addEventListener("keydown", (event) => {
  const step = span / (event.shiftKey ? 12 : 120);
  if (event.key === "Escape") cursor = null;
  else if (event.key === "ArrowLeft") cursor = Math.max(now() - span, (cursor ?? now()) - step);
  else if (event.key === "ArrowRight") cursor = cursor === null || cursor + step > now() ? null : cursor + step;
  else return;
  event.preventDefault();
  drawTimeline();
});
canvas.addEventListener("pointermove", (event) => {
  cursor = now() - span * (1 - event.offsetX / canvas.clientWidth);
});
canvas.addEventListener("pointerleave", () => { cursor = null; });

for (const button of document.querySelectorAll("[data-minutes]")) {
  button.addEventListener("click", () => {
    span = Number(button.dataset.minutes) * 60_000;
    for (const one of document.querySelectorAll("[data-minutes]")) {
      one.setAttribute("aria-pressed", String(one === button));
    }
    drawTimeline();
  });
}
