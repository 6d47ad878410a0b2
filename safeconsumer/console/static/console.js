// Keeps a page as fresh as the console is. Without it every page works, and stands still.
"use strict";

const live = document.getElementById("live");
const lost = document.getElementById("lost");
const AT_MOST_EVERY = 400; // milliseconds between two looks at the page
let shownAt = performance.now();
let ageThen = Number(document.getElementById("fresh").dataset.age);
let isLooking = false;
let isWanted = false;

function words(seconds) {
  const s = Math.floor(seconds);
  if (s < 2) return "just now";
  if (s < 120) return `${s} s ago`;
  if (s < 7200) return `${Math.floor(s / 60)} min ago`;
  return `${Math.floor(s / 3600)} h ago`;
}

function tellAge() {
  const age = ageThen + (performance.now() - shownAt) / 1000;
  for (const one of document.querySelectorAll("#fresh .age")) one.textContent = words(age);
  lost.querySelector(".age").textContent = words(age).replace(" ago", "");
}

// Makes one element like another, and keeps what a person is using: focus, input, scroll.
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
  isWanted = true;
  if (isLooking) return;
  isLooking = true;
  while (isWanted) {
    isWanted = false;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.ok) show(await answer.text());
    } catch {
      lost.hidden = false;
    }
    await new Promise((go) => setTimeout(go, AT_MOST_EVERY));
  }
  isLooking = false;
}

function show(text) {
  const page = new DOMParser().parseFromString(text, "text/html");
  follow(live, page.getElementById("live"));
  document.title = page.title;
  ageThen = Number(document.getElementById("fresh").dataset.age);
  shownAt = performance.now();
  tellAge();
}

function listen() {
  const events = new EventSource("/api/v1/events");
  events.addEventListener("change", () => look());
  events.addEventListener("open", () => { lost.hidden = true; });
  events.addEventListener("error", () => { lost.hidden = false; });
  addEventListener("pagehide", () => events.close());
}

setInterval(tellAge, 1000);
if (live.hasAttribute("data-live")) listen();
