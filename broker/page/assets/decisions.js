// The last decisions, and why each fell as it did.
import { age, bytes, clock, element, fillRows, layers, seconds, setText, word } from "./format.js";
import { isElsewhere, now, remember, view } from "./view.js";

const PAGE = 50;
const MOST = 4096;
const GIB = 2 ** 30;
// Of a table of an explanation.
const MOST_ROWS = 12;
const list = document.getElementById("decisions");
const note = document.getElementById("decisions-note");
const more = document.getElementById("decisions-more");
const range = document.getElementById("decisions-range");

// All that are known, oldest first.
let known = [];
let wanted = PAGE;
let epoch = "";

const timeOf = (decision) => Date.parse(decision.time);
const kindOf = (decision) => word(decision.kind, "DECISION_KIND_");

const isShown = (decision) => !isElsewhere(decision.component_id) &&
  (view.from === null || timeOf(decision) >= view.from) && (view.to === null || timeOf(decision) <= view.to);

// Those that are new; the broker's numbers begin again with it.
export async function fetchDecisions() {
  if (view.picture && epoch !== view.picture.broker_epoch) {
    epoch = view.picture.broker_epoch;
    known = [];
    list.replaceChildren();
  }
  const last = known.at(-1)?.id ?? "0";
  const answer = await fetch(`api/decisions?after=${last}&limit=${MOST}`);
  if (!answer.ok) throw new Error(await answer.text());
  const fresh = (await answer.json()).decisions;
  known = known.concat(fresh).slice(-MOST);
  return fresh;
}

export function showDecisions() {
  const shown = known.filter(isShown);
  const newest = shown.slice(-wanted).reverse();
  const there = new Map([...list.children].map((item) => [item.dataset.id, item]));
  const items = newest.map((decision) => there.get(decision.id) ?? itemOf(decision));
  // Placed one by one: what stays is not moved, and keeps the focus.
  items.forEach((item, index) => {
    if (list.children[index] !== item) list.insertBefore(item, list.children[index] ?? null);
  });
  while (list.children.length > items.length) list.lastElementChild.remove();
  more.hidden = shown.length <= items.length;
  setText(note, shown.length === 0 ? "None." : more.hidden ? "" : `${items.length} of ${shown.length} are shown.`);
  showRange();
}

function showRange() {
  range.hidden = view.from === null && view.to === null;
  if (range.hidden) return;
  const end = (time, otherwise) => (time === null ? otherwise : new Date(time).toLocaleString());
  setText(range.firstElementChild, `From ${end(view.from, "the first")} to ${end(view.to, "now")}.`);
}

more.addEventListener("click", () => {
  wanted = Math.min(MOST, wanted * 4);
  showDecisions();
});

range.querySelector("button").addEventListener("click", () => {
  view.from = view.to = null;
  remember();
  showDecisions();
  (list.querySelector("button") ?? document.getElementById("main")).focus();
});

function itemOf(decision) {
  const item = element("li");
  item.dataset.id = decision.id;
  const button = element("button", "decision");
  button.type = "button";
  button.append(element("span", "when", clock(timeOf(decision), true)), element("span", "kind", kindOf(decision)),
    element("span", "component", decision.component_id),
    element("span", "text", `${decision.held_layers} → ${decision.layers} of ${decision.component_layers}: ${decision.text}`));
  const why = element("div", "why");
  why.id = `why-${decision.id}`;
  why.hidden = true;
  button.setAttribute("aria-expanded", "false");
  button.setAttribute("aria-controls", why.id);
  button.addEventListener("click", () => toggle(decision, button, why));
  item.append(button, why);
  return item;
}

async function toggle(decision, button, why) {
  why.hidden = !why.hidden;
  button.setAttribute("aria-expanded", String(!why.hidden));
  if (why.hidden || why.dataset.whole) return;
  why.replaceChildren(element("p", "", "Asking the broker …"));
  try {
    const answer = await fetch(`api/explain?id=${decision.id}`);
    if (!answer.ok) throw new Error(await answer.text());
    why.replaceChildren(...explain(await answer.json()));
    why.dataset.whole = "yes";
  } catch (error) {
    why.replaceChildren(element("p", "bad", `No explanation: ${error.message}`));
  }
}

const WITHOUT_PLAN = {
  grant: "all that it may have was free, so that there was nothing to weigh",
  refusal: "it does not fit on this card whatever else goes",
  revocation: "no use of it was known to come, or the card held more than it should",
};

function when(use) {
  if (use.running) return "running";
  return use.start_seconds < 5e-7 ? "now" : `in ${seconds(use.start_seconds)}`;
}

// What the plan gave it; and why something else was done, where it was.
function choice(why) {
  const { decision, planned_layers: plan } = why;
  if (why.components.some((one) => one.id === decision.component_id && one.layers === 0)) {
    return "It is a permanent set: its layers are on the card whatever is planned.";
  }
  const differs = Math.sign(decision.layers - plan);
  const next = why.uses.some((use) => use.component_id === decision.component_id && !use.running);
  const keeps = `The plan keeps ${layers(plan)} of it ${next ? "until its next use."
    : plan === 0 ? "as no use of it is known to come." : "as long as nobody needs the room."}`;
  const because = (fewer, greater) => (differs === 0 ? "" : ` ${differs < 0 ? fewer : greater}`);
  switch (kindOf(decision)) {
    case "grant":
      return `The plan gives this use ${layers(plan)}.${because("It was granted what could be had by then.",
        "It was granted what could be had by then.")}`;
    case "retention":
      return keeps + because("The broker keeps less while it drains.",
        "That use waits already, so that nothing is taken yet.");
    case "revocation":
      return keeps + because("A use that waits could not begin otherwise: that goes first.",
        "Only what was missing was asked back.");
    case "load ahead":
      return `The plan has ${layers(plan)} of it on the card by the end of this slot.${because(
        "The rest has no room yet.", "What is there already stays until somebody needs the room.")}`;
    default:
      return `The plan gives it ${layers(plan)}.`;
  }
}

function nameOf(alternative, loadAhead) {
  switch (alternative.kind) {
    case "ALTERNATIVE_KIND_GRANT_FEWEST": return `Granting no more than ${layers(alternative.layers)}`;
    case "ALTERNATIVE_KIND_GRANT_MOST": return `Granting all ${layers(alternative.layers)} that it may have`;
    case "ALTERNATIVE_KIND_KEEP_NOTHING": return "Keeping nothing of it";
    case "ALTERNATIVE_KIND_KEEP_ALL":
      return alternative.layers === 0 ? "Loading nothing of it ahead"
        : `Keeping all ${layers(alternative.layers)}${loadAhead ? " and loading none ahead" : ""}`;
    default: return "Something else";
  }
}

function costOf(why, alternative) {
  if (alternative.chosen) return "this is what the plan chose";
  const cost = alternative.cost_seconds;
  const missing = Number(alternative.missing_bytes);
  let text = missing > 0 ? `does not fit, ${bytes(missing)} would be missing; if it did: ` : "";
  if (Math.abs(cost) < 5e-7) text += "no time lost or won";
  else if (cost < 0) text += `${seconds(-cost)} less lost to loading: the plan's search missed this`;
  else text += `${seconds(cost)} more lost to loading`;
  const loser = why.uses[alternative.loser];
  if (loser && alternative.loser_seconds >= 5e-7) {
    text += `; most of all by ${loser.component_id} (${when(loser)}), ${seconds(alternative.loser_seconds)}`;
  }
  return text;
}

function tableOf(heads, rows) {
  const table = element("table");
  const columns = heads.map((head) => (head.startsWith(">") ? "number" : ""));
  const row = table.createTHead().insertRow();
  heads.forEach((head, index) => {
    const cell = element("th", columns[index], head.replace(">", ""));
    cell.scope = "col";
    row.append(cell);
  });
  fillRows(table.createTBody(), rows.slice(0, MOST_ROWS), columns);
  // Wider than a narrow window: it scrolls by itself, by keys too.
  const area = element("div", "scroll");
  area.tabIndex = 0;
  area.setAttribute("role", "region");
  area.setAttribute("aria-label", `${heads[0]}, table`);
  area.append(table);
  if (rows.length > MOST_ROWS) {
    area.append(element("p", "note", `and ${rows.length - MOST_ROWS} more; vramctl explain lists all`));
  }
  return area;
}

const componentRows = (why) => why.components.map((one) => [one.id, one.layers || "permanent",
  one.layers ? seconds(one.exposed_seconds_per_byte * GIB) : "-", one.held_layers,
  one.ahead_layers > one.keep_layers ? `${one.keep_layers}, then ${one.ahead_layers}` : one.keep_layers]);

const useRows = (why) => why.uses.map((use) => [use.component_id + (use.deciding ? " (this one)" : ""), when(use),
  use.passes, `${Math.round(100 * use.probability)} %`, use.resident_layers, seconds(use.saved_seconds)]);

function explain(why) {
  const kind = kindOf(why.decision);
  const parts = [element("p", "", why.decision.text),
    element("p", "note", `Decision ${why.decision.id}, ${age(now() - timeOf(why.decision))} ago.`)];
  if (!why.planned) {
    return [...parts, element("p", "", `It needed no plan: ${WITHOUT_PLAN[kind] ?? "there was nothing to weigh"}.`)];
  }
  parts.push(element("p", "", choice(why)));
  if (why.alternatives.length > 0) {
    const others = element("ul");
    others.append(...why.alternatives.map((one) =>
      element("li", "", `${nameOf(one, why.load_ahead)}: ${costOf(why, one)}.`)));
    parts.push(element("h3", "", "What else could have been done"), others);
  }
  parts.push(element("h3", "", "What was known"), element("p", "", `${bytes(why.capacity_bytes)} for layers, windows ` +
    `and needs. In all the plan saves ${seconds(why.saved_seconds)} against streaming everything.`),
  tableOf(["Component", ">Layers", ">Lost per GiB streamed", ">Held", ">Keeps"], componentRows(why)));
  if (why.uses.length > 0) {
    parts.push(tableOf(["Use of", "When", ">Passes", ">Chance", ">On card", ">Saves"], useRows(why)));
  }
  if (!why.reproduced) {
    parts.push(element("p", "bad", "Made again, the plan is another one than was decided by: a defect, please report it."));
  }
  return parts;
}
