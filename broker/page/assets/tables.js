// The ledger and the tables of the picture.
import { age, bytes, columnsOf, duration, element, fillRows, layers, setText, word } from "./format.js";
import { device, view } from "./view.js";

const MOST_ROWS = 200;
const CLASSES = ["in_use", "retained", "permanent", "pooled", "draining", "external", "reserve", "free",
  "overcommitted"];
const byId = (id) => document.getElementById(id);

function fill(id, rows, empty) {
  const table = byId(id);
  fillRows(table.tBodies[0], rows.slice(0, MOST_ROWS), columnsOf(table));
  table.hidden = rows.length === 0;
  const more = rows.length > MOST_ROWS ? `and ${rows.length - MOST_ROWS} more; vramctl status lists all` : "";
  setText(byId(`${id}-note`), rows.length === 0 ? empty : more);
}

function showLedger(shown) {
  const bar = byId("ledger");
  const legend = byId("ledger-legend");
  if (!bar.hasChildNodes()) {
    for (const name of CLASSES) {
      if (name !== "overcommitted") bar.append(element("span", name));
      const item = element("li");
      item.append(element("span", `swatch ${name}`), element("span"));
      legend.append(item);
    }
  }
  const said = [];
  CLASSES.forEach((name, index) => {
    const amount = Number(shown?.[`${name}_bytes`] ?? 0);
    const unknown = name === "external" && shown && !shown.external_known;
    if (name !== "overcommitted") bar.children[index].style.flexGrow = String(amount);
    const share = shown && Number(shown.capacity_bytes) > 0 ? 100 * amount / Number(shown.capacity_bytes) : 0;
    const text = `${name.replace("_", " ")} ${unknown ? "not known" : `${bytes(amount)} (${share.toFixed(1)} %)`}`;
    setText(legend.children[index].lastChild, text);
    legend.children[index].hidden = name === "overcommitted" && amount === 0;
    legend.children[index].lastChild.className = name === "overcommitted" ? "bad" : "";
    if (amount > 0) said.push(text);
  });
  const label = shown ? `${bytes(shown.capacity_bytes)}: ${said.join(", ")}` : "no device";
  if (bar.getAttribute("aria-label") !== label) bar.setAttribute("aria-label", label);
}

function stateOf(component) {
  const notes = [];
  if (component.use_id !== "0") notes.push(`in use, ${component.granted_layers} granted`);
  if (component.lifetime === "LIFETIME_PERMANENT") notes.push("permanent");
  if (component.refused) notes.push("refused");
  if (component.use_id === "0" && component.held_layers > component.target_layers) notes.push("releasing");
  if (component.held_layers < component.target_layers) notes.push("loading");
  return { text: notes.join(", ") || (component.held_layers > 0 ? "kept" : "idle"),
    className: component.refused ? "bad" : "" };
}

// Where two sessions have one worker's name, which of them it is.
function nameOf(component, shown) {
  const twice = shown.components.filter((one) => one.id === component.id).length > 1;
  return twice ? `${component.id} of session ${component.session_id}` : component.id;
}

const byCharge = (a, b) => Number(b.charge_bytes) - Number(a.charge_bytes) || (a.id < b.id ? -1 : 1);

function showComponents(shown) {
  const rows = [...(shown?.components ?? [])].sort(byCharge).map((one) => [nameOf(one, shown),
    `${one.held_layers} / ${one.target_layers} / ${one.layers}`, bytes(one.held_bytes), bytes(one.layer_bytes),
    bytes(one.charge_bytes), stateOf(one)]);
  fill("components", rows, "No component is attached.");
}

// A wait goes on after the picture that told of it.
function showWaiting(waiting, sincePicture) {
  fill("waiting", waiting.map((one) => [one.component_id,
    { text: age(duration(one.waited) * 1000 + sincePicture) + (one.is_long ? ", too long" : ""),
      className: one.is_long ? "bad" : "" }, bytes(one.needed_bytes), one.blocked_by]), "Nobody waits.");
}

function showReleases(shown, sincePicture) {
  const rows = (shown?.components ?? []).filter((one) => one.release_asked).map((one) => {
    const excess = one.held_layers - one.target_layers;
    return [nameOf(one, shown), bytes(Number(one.held_bytes) * excess / one.held_layers), layers(excess),
      { text: age(duration(one.release_asked) * 1000 + sincePicture) +
        (one.release_overdue ? ", past its deadline" : ""), className: one.release_overdue ? "bad" : "" }];
  });
  fill("releases", rows, "Nothing is asked back.");
}

function remarksOn(session) {
  const notes = [];
  if (session.overdue_targets > 0) notes.push(`${session.overdue_targets} past their deadline`);
  if (session.under_released) notes.push("the driver still shows what it says it released");
  if (Number(session.unexplained_bytes) > 0) notes.push(`${bytes(session.unexplained_bytes)} unexplained`);
  if (Number(session.recorded_bytes) > 0) notes.push(`${bytes(session.recorded_bytes)} on record, not attached since`);
  return { text: notes.join("; "), className: session.overdue_targets > 0 || session.under_released ? "bad" : "" };
}

function showSessions(sessions) {
  const named = new Map();
  for (const one of sessions) named.set(one.worker, (named.get(one.worker) ?? 0) + 1);
  fill("sessions", sessions.map((one) => {
    const state = word(one.state, "SESSION_STATE_");
    const name = named.get(one.worker) > 1 ? `${one.worker}, session ${one.session_id}` : one.worker;
    return [name, { text: state, className: state === "attached" ? "" : "bad" }, one.pid || "",
      bytes(one.pool_bytes), remarksOn(one)];
  }), "No worker is attached.");
}

export function showTables() {
  const shown = device();
  const sincePicture = Date.now() - view.pictureAt;
  showLedger(shown);
  showComponents(shown);
  showWaiting(view.picture?.waiting ?? [], sincePicture);
  showReleases(shown, sincePicture);
  showSessions(view.picture?.sessions ?? []);
}

export function showDevices() {
  const select = byId("device");
  const names = (view.picture?.devices ?? []).map((one) => one.uuid);
  const there = [...select.options].map((one) => one.value);
  if (names.join("\n") !== there.join("\n")) {
    select.replaceChildren(...names.map((name) => new Option(name, name)));
  }
  const shown = device()?.uuid ?? "";
  if (select.value !== shown) select.value = shown;
}
