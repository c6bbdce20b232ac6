// Keeps the page up to date, and says how old it is.
import { age, duration, element, setText } from "./format.js";
import { fetchDecisions, showDecisions } from "./decisions.js";
import { showDevices, showTables } from "./tables.js";
import { addDecisions, addPicture, drawTimeline, seed } from "./timeline.js";
import { now, remember, takePicture, view } from "./view.js";

const DRAW = 250;
// Events come when something has changed. Where none came for so long the broker is asked whether it is there, and
// counts as lost where it does not answer as soon.
const QUIET = 3000;
const SILENCE = 6000;
const RETRY = 3000;

let source = null;
let live = false;
// Why there are no events, in words.
let trouble = "";
let seeded = false;
// Of decisions: one request at a time, at most one a second.
let asking = false;
let pinging = false;
let stale = true;
let askedAt = 0;

function heard() {
  view.heardAt = Date.now();
  live = true;
  trouble = "";
}

function showPicture(picture) {
  takePicture(picture);
  addPicture(picture);
  stale = true;
  showDevices();
}

function connect() {
  source?.close();
  source = new EventSource("api/events");
  view.heardAt = Date.now();
  source.addEventListener("picture", (event) => {
    heard();
    showPicture(JSON.parse(event.data));
  });
  source.addEventListener("open", heard);
  source.addEventListener("error", () => {
    live = false;
    // A refusal closes the source for good; a lost connection it takes up again by itself.
    if (source.readyState === EventSource.CLOSED) askInstead();
  });
}

async function ping() {
  if (pinging || source?.readyState !== EventSource.OPEN) return;
  pinging = true;
  try {
    await fetch("api/events", { method: "HEAD", signal: AbortSignal.timeout(QUIET) });
    view.heardAt = Date.now();
  } catch {
    live = false;
  }
  pinging = false;
}

// While events are refused the picture is asked for, now and then.
async function askInstead() {
  source = null;
  try {
    const answer = await fetch("api/picture");
    if (!answer.ok) throw new Error(await answer.text());
    showPicture(await answer.json());
    view.heardAt = Date.now();
    trouble = `Live updates are refused, as many others watch: the picture is asked for every ${RETRY / 1000} s.`;
  } catch {
    trouble = "";
  }
  setTimeout(connect, RETRY);
}

async function askDecisions() {
  if (asking || !stale || !view.picture || Date.now() - askedAt < 1000) return;
  asking = true;
  stale = false;
  askedAt = Date.now();
  try {
    const fresh = await fetchDecisions();
    if (seeded) addDecisions(fresh);
    else seed(fresh);
    seeded = true;
    showDecisions();
  } catch {
    stale = true;
  }
  asking = false;
}

function bannerTexts() {
  const banners = [];
  if (view.picture && !live && !trouble) {
    banners.push(["bad", `Connection lost. What is shown was so ${age(Date.now() - view.pictureAt)} ago; trying again.`]);
  }
  if (trouble) banners.push(["", trouble]);
  if (view.picture?.draining) {
    banners.push(["bad", "The broker drains: no use is admitted any more, and what is kept is released."]);
  }
  const left = duration(view.picture?.recovery_left) - (now() - Date.parse(view.picture?.time ?? 0)) / 1000;
  if (view.picture?.recovery_left && left > 0) {
    banners.push(["", `The broker has restarted: nothing grows until all workers on record have attached again, for ${
      Math.ceil(left)} s at most.`]);
  }
  for (const device of view.picture?.devices ?? []) {
    if (Number(device.overcommitted_bytes) > 0) {
      banners.push(["bad", `${device.uuid} is overcommitted: more is held than it has. Nothing grows meanwhile.`]);
    }
  }
  return banners;
}

function showBanners() {
  const area = document.getElementById("banners");
  const banners = bannerTexts();
  while (area.children.length > banners.length) area.lastElementChild.remove();
  banners.forEach(([kind, text], index) => {
    const banner = area.children[index] ?? area.appendChild(element("p"));
    banner.className = `banner ${kind}`.trim();
    setText(banner, text);
  });
}

function showLink() {
  if (live && Date.now() - view.heardAt > QUIET) ping();
  const state = live ? "live" : view.picture ? "lost" : "";
  document.getElementById("link-mark").className = state;
  const texts = { live: "live", lost: trouble ? "asked for" : "connection lost", "": "connecting" };
  setText(document.getElementById("link-text"), texts[state]);
  // One that neither answers nor ends is begun anew.
  if (!live && source && Date.now() - view.heardAt > SILENCE + RETRY) connect();
}

function tick() {
  showLink();
  showBanners();
  askDecisions();
  if (document.hidden || !view.picture) return;
  showTables();
  drawTimeline();
}

document.getElementById("device").addEventListener("change", (event) => {
  view.uuid = event.target.value;
  remember();
  showDecisions();
  tick();
});
setInterval(tick, DRAW);
connect();
