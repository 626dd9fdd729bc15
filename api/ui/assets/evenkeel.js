// Keeps a page up to date: one stream of events for all tabs of a browser, a new look at the page after an event, the rows of a long
// list that are in view, and checks of a form while it is written. Each page works without it.
"use strict";

const policy = window.trustedTypes
  ? trustedTypes.createPolicy("evenkeel", { createHTML: (text) => text })
  : { createHTML: (text) => text };
const main = document.getElementById("main");
const lost = document.getElementById("connection");

// load gets a page of this server as a document. A page of the log-in means that the session ended.
async function load(address, options) {
  const answer = await fetch(address, { ...options, headers: { ...options?.headers, Accept: "text/html" } });
  if (answer.status === 304) return null; // it is what is shown
  if (new URL(answer.url).pathname === "/ui/login") {
    location.assign(answer.url);
    throw new Error("the session ended");
  }
  return new DOMParser().parseFromString(policy.createHTML(await answer.text()), "text/html");
}

// busy: the user has marked text, which a change of the page could take away.
const busy = () => !getSelection().isCollapsed;

// written: the user writes, or has written, in a form: it stays as it is.
function written(form) {
  const at = document.activeElement;
  return (form.contains(at) && at.matches("input, select, textarea")) || [...form.querySelectorAll("input, textarea, select")].some((field) => {
    if (field.matches("[type=radio], [type=checkbox]")) return field.checked !== field.defaultChecked;
    if (field.matches("select")) return field.selectedIndex !== Math.max(0, [...field.options].findIndex((one) => one.defaultSelected));
    return field.value !== field.defaultValue;
  });
}

// nameOf a node among its siblings; "": it is known by its place. Rows and entries are known by what they are about.
function nameOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return "";
  if (node.id) return "#" + node.id;
  if (node.localName === "section") return node.getAttribute("aria-labelledby") ?? "";
  if (node.localName === "tr") return node.querySelector("th[scope=row]")?.textContent ?? "";
  return node.localName === "li" ? node.querySelector("a")?.getAttribute("href") ?? "" : "";
}

// morph makes a node like another one, and changes nothing that is equal: the focus and what is scrolled stay where they are.
function morph(now, next) {
  if (now.isEqualNode(next)) return; // the browser compares faster than what follows
  if (now.nodeType !== Node.ELEMENT_NODE) {
    if (now.data !== next.data) now.data = next.data;
    return;
  }
  if ((now.localName === "form" && written(now)) || "skip" in next.dataset) return;
  for (const { name } of [...now.attributes]) if (!next.hasAttribute(name) && !kept.has(name)) now.removeAttribute(name);
  for (const { name, value } of next.attributes) if (now.getAttribute(name) !== value) now.setAttribute(name, value);
  morphChildren(now, next);
}
const kept = new Set(["style", "data-part", "open"]); // set by scripts and by the user

function morphChildren(now, next) {
  const named = new Map();
  const wanted = [...next.childNodes];
  const there = [...now.childNodes].filter((node) => !(node.dataset && "part" in node.dataset && node.dataset.part !== "0"));
  for (const node of there) {
    const name = nameOf(node);
    if (name) named.set(name, [...(named.get(name) ?? []), node]);
  }
  const stay = new Set();
  let at = 0;
  for (const like of wanted) {
    const name = nameOf(like);
    let node = name ? named.get(name)?.shift() : undefined;
    if (!name) {
      let k = at;
      while (k < there.length && (nameOf(there[k]) || there[k].nodeName !== like.nodeName)) k++;
      if (k < there.length) {
        node = there[k];
        at = k + 1;
      }
    }
    if (node && node.nodeName === like.nodeName) morph(node, like);
    else node = document.adoptNode(like);
    stay.add(node);
  }
  for (const node of there) if (!stay.has(node)) node.remove();
  let place = now.firstChild;
  for (const node of stay) {
    if (node === place) place = place.nextSibling;
    else if (node.parentNode === now && now.moveBefore) now.moveBefore(node, place);
    else now.insertBefore(node, place);
  }
}

// A list longer than its first rows is a table of parts: bodies of as many rows as the first has. Of those far from the window there is
// one empty row of their height. So a list scrolls like one, to any place, and the browser has few rows, however many there are.
const near = new IntersectionObserver((seen) => {
  for (const { isIntersecting, target } of seen) {
    target.near = isIntersecting;
    if (isIntersecting) fill(target);
    else if (target.full && !target.contains(document.activeElement)) empty(target, target.offsetHeight);
  }
}, { rootMargin: "800px" });

function empty(part, height) {
  const row = document.createElement("tr");
  const cell = row.insertCell();
  cell.colSpan = 100;
  cell.style.height = height + "px";
  part.replaceChildren(row);
  part.full = false;
}

// addressOf a part of the page's list.
function addressOf(part) {
  const address = new URL(location.href);
  if (part && part.dataset.part !== "0") address.searchParams.set("from", part.dataset.part);
  return address;
}

async function fill(part) {
  if (part.full || part.filling) return;
  part.filling = true;
  try {
    const rows = (await load(addressOf(part)))?.querySelector("[data-rows]");
    if (!rows || !part.isConnected) return;
    rows.querySelector("[data-more]")?.remove();
    part.replaceChildren(...rows.children);
    part.full = true;
  } finally {
    part.filling = false;
  }
}

// arm makes parts of a list that has more rows than are there. The address may name a first row: then the list begins there.
function arm() {
  for (const field of main.querySelectorAll("[data-load]")) field.parentElement.hidden = false;
  const more = main.querySelector("[data-more]");
  if (!more) return;
  const first = more.parentElement;
  const total = Number(more.dataset.total);
  const begin = Number(new URL(location.href).searchParams.get("from")) || 0;
  more.remove();
  const step = first.rows.length;
  const height = first.offsetHeight / step;
  first.dataset.part = "0";
  first.full = true;
  near.observe(first);
  const parts = new Map([...first.parentElement.querySelectorAll("[data-part]")].map((part) => [Number(part.dataset.part), part]));
  for (let from = begin + step; from < total; from += step) {
    if (!parts.delete(from)) {
      const part = first.parentElement.createTBody();
      part.dataset.part = from;
      empty(part, height * Math.min(step, total - from));
      near.observe(part);
    }
  }
  parts.delete(0);
  for (const part of parts.values()) drop(part);
}
function drop(part) {
  near.unobserve(part);
  part.remove();
}

// show a page of this address in the place of what is shown; its rows are those of a part of the list.
function show(page, part) {
  const next = page.getElementById("main");
  if (!next) return;
  const rows = next.querySelector("[data-rows]");
  const more = rows?.querySelector("[data-more]");
  if (rows && part) {
    if (!more && part.dataset.part === "0") for (const other of main.querySelectorAll("[data-part]:not([data-rows])")) drop(other);
    if (part.dataset.part !== "0") more?.remove();
    if (part.full) morphChildren(part, rows);
    rows.dataset.skip = "";
  }
  morph(main, next);
  document.title = page.title;
  if (!document.querySelector("header") && page.querySelector("header")) location.reload(); // it has a menu now
  arm();
}

// refresh the page, or those parts of its list that are near.
async function refresh() {
  const parts = [...main.querySelectorAll("[data-part]")].filter((part) => part.near && part.full);
  for (const part of parts.length ? parts : [null]) {
    const version = (part ?? main).dataset.version ?? (part?.dataset.part === "0" ? main.dataset.version : "");
    const page = await load(addressOf(part), { headers: version ? { "If-None-Match": `W/"${version}"` } : {} });
    if (!page || busy() || (part && !part.isConnected)) continue;
    if (part) part.dataset.version = page.getElementById("main")?.dataset.version ?? "";
    show(page, part);
  }
}

let looking = false;
let again = false;
let pause = 500; // ms between two looks: a page that takes the server long is loaded less often
async function look() {
  if (looking) {
    again = true;
    return;
  }
  looking = true;
  try {
    do {
      again = false;
      await new Promise((done) => setTimeout(done, pause * (0.75 + Math.random() / 2))); // tabs and browsers fall apart
      if (document.hidden || busy()) continue;
      const begun = performance.now();
      await refresh();
      pause = Math.min(Math.max(500, 5 * (performance.now() - begun)), 15000);
    } while (again);
  } catch {
    lost.hidden = false; // the stream says when the server is back
  } finally {
    looking = false;
  }
}

// One tab has the stream, the one that was shown last, whose timers the browser does not slow down; it tells the others. When it goes,
// the lock passes to another.
const channel = new BroadcastChannel("evenkeel");
function heard(what) {
  const missed = what === "event" || (what === "open" && !lost.hidden);
  lost.hidden = what !== "lost";
  if (missed && "live" in main.dataset) look();
}
channel.onmessage = (m) => {
  if (m.data === "open" && !stream.held) stream.source?.close(); // of another tab now, which misses nothing
  heard(m.data);
};
function say(what) {
  channel.postMessage(what);
  heard(what);
}

// A stream that breaks is opened again after a wait that doubles up to 4 s, by chance from its half to all of it: the browsers of a server
// that starts again do not all come at once. A stream that lasted 10 s begins anew.
const stream = { held: null, waits: false, source: null, timer: 0, failures: 0, opened: 0 };
function follow() {
  const source = stream.source = new EventSource("/ui/stream");
  source.onopen = () => {
    stream.opened = performance.now();
    say("open");
    if ("live" in main.dataset) look(); // what happened before
  };
  source.onerror = () => {
    const refused = source.readyState === EventSource.CLOSED; // with a status: the session may have ended
    source.close();
    if (!stream.held) return;
    if (stream.opened && performance.now() - stream.opened > 10000) stream.failures = 0;
    stream.opened = 0;
    say("lost");
    const wait = Math.min(500 * 2 ** stream.failures++, 4000) * (0.5 + Math.random() / 2);
    stream.timer = setTimeout(() => (refused ? load(location.href).then(follow, follow) : follow()), wait);
  };
  for (const kind of ["message", "gap"]) source.addEventListener(kind, () => say("event"));
}
function hold(steal) {
  if (stream.held || (!steal && stream.waits)) return;
  stream.failures = 0;
  stream.waits ||= !steal;
  const mine = {};
  navigator.locks.request("evenkeel stream", { steal }, () => {
    if (!steal) stream.waits = false;
    stream.held = mine;
    follow();
    return new Promise(() => {});
  }).catch(() => { // another tab is shown, or this one asked twice
    if (stream.held !== mine) return;
    stream.held = null; // its stream goes on until the other's is open
    clearTimeout(stream.timer);
    hold(false);
  });
}
// A page that could not be made asks again until it is, also one that comes in the place of another.
setInterval(() => { if ("retry" in main.dataset) look(); }, 2000);
if (document.querySelector("header")) {
  hold(!document.hidden);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    hold(true);
    if ("live" in main.dataset) look();
  });
}
arm();

// A search shows what it finds while it is written.
let typing;
let checks = 0;
document.addEventListener("input", (e) => {
  const form = e.target.closest("form");
  if (!form) return;
  clearTimeout(typing);
  typing = setTimeout(() => ("search" in form.dataset ? search(form) : "check" in form.dataset && check(form)), "check" in form.dataset ? 1000 : 400);
});

async function search(form) {
  const address = new URL(location.pathname, location.origin);
  address.search = new URLSearchParams(new FormData(form));
  const page = await load(address);
  history.replaceState(null, "", address);
  for (const part of main.querySelectorAll("[data-part]:not([data-rows])")) drop(part);
  form.querySelector("[role=status]").textContent = page.querySelector("[data-search] [role=status]").textContent;
  const first = main.querySelector("[data-rows]");
  delete first.dataset.part;
  near.unobserve(first);
  first.full = true;
  show(page);
  scrollTo(0, Math.min(scrollY, first.offsetTop));
}

// check shows what a form would do. Where no server leads, or the tenant makes too many dry runs, it is asked again until the form is
// another: after 2 s, which is longer than any Retry-After, and then after twice as long, at most maxTries times.
const maxTries = 5;
async function check(form, tries = 0) {
  const body = new URLSearchParams(new FormData(form));
  body.set("dry", "1");
  const mine = ++checks;
  const page = await load(form.action, { method: "POST", body });
  if (mine !== checks || !form.isConnected) return;
  const found = page.querySelector("#problem, #dry");
  found?.removeAttribute("id"); // the page may have one
  form.querySelector("[data-answer]").replaceChildren(...(found ? [found] : []));
  if (!found?.matches("[data-retry]")) return;
  const wait = 2 ** (tries + 1); // s
  const said = document.createElement("p");
  said.textContent = tries < maxTries ? `It is checked again in ${wait} s.` : "It is not checked again until the form changes.";
  found.append(said);
  if (tries < maxTries) setTimeout(() => { if (mine === checks) check(form, tries + 1); }, wait * 1000);
}

// A file of the user's becomes the text of a form.
document.addEventListener("change", async (e) => {
  const name = e.target.dataset.load;
  if (!name || !e.target.files[0]) return;
  const text = e.target.form.elements[name];
  text.value = await e.target.files[0].text();
  text.dispatchEvent(new Event("input", { bubbles: true }));
});

document.addEventListener("click", (e) => {
  const button = e.target.closest("button");
  if (!button) return;
  if (button.dataset.copy) navigator.clipboard.writeText(button.dataset.copy).then(() => { button.textContent = "Copied"; });
  if (button.dataset.confirm && !confirm(button.dataset.confirm)) e.preventDefault();
});
