// Keeps a page up to date with the console. Without this script every page works, but does not refresh.
"use strict";

const live = document.getElementById("live");
const lost = document.getElementById("lost");
const EVERY = 300; // milliseconds between two requests for the page
const PATIENCE = 5000; // milliseconds after which such a request is given up
const OLD = 10; // seconds, as in the console itself; an older page does not describe the present
let shownAt, ageThen; // when an answer arrived, and how old its page was
let nowThen; // the broker's time when the answer arrived
let shownTag = null;

// If the machine slept, one of its two clocks may have stopped for that time.
function now() {
  return [performance.now(), Date.now()];
}

function secondsSince(then) {
  return Math.max(...now().map((at, one) => at - then[one])) / 1000;
}

// A duration in its two largest units, as on the pages.
function words(seconds) {
  let left = Math.round(seconds);
  const parts = [];
  for (const [unit, size] of [["w", 604800], ["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]) {
    if (left >= size) parts.push(`${Math.floor(left / size)}${unit}`);
    left %= size;
  }
  return parts.slice(0, 2).join("") || "0s";
}

function ago(seconds) {
  return seconds < 2 ? "just now" : `${words(seconds)} ago`;
}

// Updates the texts that change without new data: the age of the page, and the time until each date.
function showTimes() {
  const age = ageThen + secondsSince(shownAt);
  for (const one of document.querySelectorAll("#fresh .age")) one.textContent = ago(age);
  lost.querySelector(".age").textContent = words(age);
  document.body.classList.toggle("old", age >= OLD);
  if (nowThen === 0) return; // the broker's time is unknown
  for (const one of document.querySelectorAll("[data-at]")) {
    const left = Number(one.dataset.at) - nowThen - secondsSince(shownAt);
    if (Math.abs(left) < 1) one.textContent = "now";
    else one.textContent = left > 0 ? `in ${words(left)}` : `${words(-left)} ago`;
  }
}

// Applies the times of an answer, because either clock of this machine may have been set since.
function setTimes(age, brokersTime) {
  [ageThen, nowThen, shownAt] = [Number(age), Number(brokersTime), now()];
}

function readTimes() {
  const { age, now: brokersTime } = document.getElementById("fresh").dataset;
  setTimes(age, brokersTime);
}

// Makes one element like another, but keeps the focus, the input and the scroll position.
function follow(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.hasAttribute("data-keep")) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const known = new Map();
  for (const child of old.children) if (child.id) known.set(child.id, child);
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const same = (wanted.id && known.get(wanted.id)) || (isLike(at, wanted) ? at : null);
    if (same === null) {
      old.insertBefore(document.importNode(wanted, true), at);
      continue;
    }
    if (same !== at) old.insertBefore(same, at);
    else at = at.nextSibling;
    follow(same, wanted);
  }
  while (at !== null) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function isLike(one, other) {
  return one !== null && one.nodeName === other.nodeName && (one.id || "") === (other.id || "");
}

async function look() {
  try {
    const answer = await fetch(location.href, {
      cache: "no-store",
      headers: { Accept: "text/html", ...(shownTag && { "If-None-Match": shownTag }) },
      signal: AbortSignal.timeout(PATIENCE),
    });
    if (answer.status === 304) {
      setTimes(answer.headers.get("X-Known-Age"), answer.headers.get("X-Known-Now"));
      return lose(null);
    }
    const text = await answer.text();
    if (!answer.ok) return lose(`The console answers: ${heading(text)}.`);
    show(text);
    shownTag = answer.headers.get("ETag");
    lose(null);
  } catch {
    lose("The console does not answer.");
  }
}

// Shows why the page does not refresh; null means that the page refreshes.
function lose(why) {
  if (why !== null) lost.querySelector(".said").textContent = why;
  lost.hidden = why === null;
  showTimes();
}

function heading(text) {
  const page = new DOMParser().parseFromString(text, "text/html");
  return page.querySelector("h1")?.textContent ?? "an unreadable page";
}

function show(text) {
  const page = new DOMParser().parseFromString(text, "text/html");
  follow(live, page.getElementById("live"));
  document.title = page.title;
  readTimes();
}

// Sends one short request after another, and none while the page is hidden: a browser has
// six connections for all its tabs, so no tab may keep a connection open.
async function keepLooking() {
  for (;;) {
    await new Promise((go) => setTimeout(go, EVERY));
    if (document.hidden) {
      await new Promise((go) => addEventListener("visibilitychange", go, { once: true }));
      showTimes();
    }
    await look();
  }
}

readTimes();
setInterval(showTimes, 1000);
if (live.hasAttribute("data-live")) keepLooking();
