// Keeps a page up to date: one stream of events for all tabs of a browser, a new look at the page after an event, more rows of a long
// list as they come into view, and checks of a form while it is written. Each page works without it.
"use strict";

const policy = window.trustedTypes
  ? trustedTypes.createPolicy("evenkeel", { createHTML: (text) => text })
  : { createHTML: (text) => text };
const main = document.getElementById("main");
const lost = document.getElementById("connection");

// load gets a page of this server as a document. A page of the log-in means that the session ended.
async function load(address, options) {
  const answer = await fetch(address, { ...options, headers: { Accept: "text/html" } });
  if (new URL(answer.url).pathname === "/ui/login") {
    location.assign(answer.url);
    throw new Error("the session ended");
  }
  return new DOMParser().parseFromString(policy.createHTML(await answer.text()), "text/html");
}

// busy: the user writes or has written in a form, or has rows loaded that a new look would drop.
function busy() {
  const at = document.activeElement;
  const written = [...main.querySelectorAll("form:not([data-search]) :is(input, textarea, select)")].some((field) => {
    if (field.matches("[type=radio], [type=checkbox]")) return field.checked !== field.defaultChecked;
    if (field.matches("select")) return field.selectedIndex !== Math.max(0, [...field.options].findIndex((one) => one.defaultSelected));
    return field.value !== field.defaultValue;
  });
  return written || (at && at.matches("input, select, textarea") && main.contains(at)) || main.dataset.extended === "1" || !getSelection().isCollapsed;
}

// place remembers what has the focus and which details are open, and returns what brings both back in another look of the page: for
// those without a mouse the page must not begin at its top again.
function place() {
  const stops = () => [...main.querySelectorAll("a[href], button, summary, [tabindex]")];
  const at = document.activeElement;
  const text = at && main.contains(at) ? at.outerHTML : "";
  const before = text ? stops().filter((one) => one.outerHTML === text).indexOf(at) : -1;
  const open = [...main.querySelectorAll("details")].map((one) => one.open);
  return () => {
    main.querySelectorAll("details").forEach((one, i) => { one.open = open[i]; });
    if (before >= 0) stops().filter((one) => one.outerHTML === text)[before]?.focus({ preventScroll: true });
  };
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
      await new Promise((done) => setTimeout(done, pause));
      if (document.hidden || busy()) continue;
      const begun = performance.now();
      const page = await load(location.href);
      pause = Math.min(Math.max(500, 5 * (performance.now() - begun)), 15000);
      const next = page.getElementById("main");
      if (next && !busy() && next.innerText !== main.innerText) {
        const back = place();
        main.replaceChildren(...next.childNodes);
        for (const key of ["live", "retry"]) main.toggleAttribute("data-" + key, key in next.dataset);
        document.title = page.title;
        if (!document.querySelector("header") && page.querySelector("header")) location.reload(); // it has a menu now
        back();
        arm();
      }
    } while (again);
  } catch {
    lost.hidden = false; // the stream says when the server is back
  } finally {
    looking = false;
  }
}

// One tab has the stream; it tells the others. When it goes, the lock passes to another.
const channel = new BroadcastChannel("evenkeel");
function heard(what) {
  lost.hidden = what !== "lost";
  if (what !== "lost" && "live" in main.dataset) look();
}
channel.onmessage = (m) => heard(m.data);
function say(what) {
  channel.postMessage(what);
  heard(what);
}
function follow() {
  const stream = new EventSource("/ui/stream");
  stream.onopen = () => say("back");
  stream.onerror = () => {
    say("lost");
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => load(location.href).then(() => { say("back"); follow(); }, () => follow()), 1000);
  };
  for (const kind of ["message", "gap"]) stream.addEventListener(kind, () => say("event"));
}
// A page that could not be made asks again until it is.
if ("retry" in main.dataset) {
  const asking = setInterval(() => { if ("retry" in main.dataset) look(); else clearInterval(asking); }, 2000);
}
if (document.querySelector("header")) {
  if ("live" in main.dataset) look(); // what happened since the page was made, and before this tab heard of events
  navigator.locks.request("evenkeel stream", () => { follow(); return new Promise(() => {}); });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && "live" in main.dataset) look(); });
}

// More rows of a list, as its last row comes into view.
const watcher = new IntersectionObserver(async (seen) => {
  for (const { isIntersecting, target } of seen) {
    if (!isIntersecting) continue;
    watcher.unobserve(target);
    const page = await load(target.dataset.more);
    const rows = page.querySelector("[data-rows]");
    main.dataset.extended = "1";
    target.replaceWith(...rows.children);
    arm();
  }
}, { rootMargin: "600px" });

function arm() {
  for (const field of main.querySelectorAll("[data-load]")) field.parentElement.hidden = false;
  for (const row of main.querySelectorAll("[data-more]")) watcher.observe(row);
}
arm();

// A search shows what it finds while it is written.
let typing;
let checks = 0;
document.addEventListener("input", (e) => {
  const form = e.target.closest("form");
  if (!form) return;
  clearTimeout(typing);
  typing = setTimeout(() => ("search" in form.dataset ? search(form) : "check" in form.dataset && check(form)), 400);
});

async function search(form) {
  const address = new URL(location.pathname, location.origin);
  address.search = new URLSearchParams(new FormData(form));
  const page = await load(address);
  history.replaceState(null, "", address);
  delete main.dataset.extended;
  main.querySelector("[data-rows]").replaceChildren(...page.querySelector("[data-rows]").children);
  form.querySelector("[role=status]").textContent = page.querySelector("[data-search] [role=status]").textContent;
  arm();
}

// check shows what a form would do. Where no server leads it is asked again, until the form is another.
async function check(form) {
  const body = new URLSearchParams(new FormData(form));
  body.set("dry", "1");
  const mine = ++checks;
  const page = await load(form.action, { method: "POST", body });
  if (mine !== checks || !form.isConnected) return;
  const found = page.querySelector("#problem, #dry");
  found?.removeAttribute("id"); // the page may have one
  form.querySelector("[data-answer]").replaceChildren(...(found ? [found] : []));
  if (found?.matches("[data-retry]")) setTimeout(() => { if (mine === checks) check(form); }, 2000);
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
