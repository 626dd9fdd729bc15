// The serial console of a VM: a terminal (xterm.js), and the WebSocket of the API.
"use strict";
(() => {
const box = document.getElementById("console");
const state = document.getElementById("console-state");
const again = document.getElementById("console-again");

// sheeted is the document as the terminal sees it. The policy of the page allows no style elements and no style attributes; style sheets
// and properties that a script sets are the same without them.
const sheeted = new Proxy(document, {
  get(page, key) {
    if (key === "createElement") return create;
    const value = page[key];
    return typeof value === "function" ? value.bind(page) : value;
  },
});
function create(name) {
  if (name !== "style") {
    const element = document.createElement(name);
    element.setAttribute = (key, value) => {
      if (key === "style") element.style.cssText = value;
      else Element.prototype.setAttribute.call(element, key, value);
    };
    return element;
  }
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  const element = document.createElement("template");
  Object.defineProperty(element, "textContent", { set: (text) => sheet.replaceSync(text) });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== sheet);
    Element.prototype.remove.call(element);
  };
  return element;
}

// A guest may write links and titles: neither does anything here.
const terminal = new Terminal({ cols: 80, rows: 24, scrollback: 5000, documentOverride: sheeted, linkHandler: { activate() {} }, fontFamily: "ui-monospace, monospace", fontSize: 14 });
terminal.attachCustomKeyEventHandler((e) => !(e.key === "Tab" && e.shiftKey));
terminal.open(box);

let socket;
const encoder = new TextEncoder();
function send(bytes) {
  if (socket && socket.readyState === WebSocket.OPEN) socket.send(bytes);
}
terminal.onData((text) => send(encoder.encode(text)));
terminal.onBinary((text) => send(Uint8Array.from(text, (c) => c.charCodeAt(0))));

function connect() {
  again.hidden = true;
  state.textContent = "Connecting…";
  let open = false;
  socket = new WebSocket("wss://" + location.host + box.dataset.stream);
  socket.binaryType = "arraybuffer";
  socket.onopen = () => {
    open = true;
    state.textContent = "Connected.";
    terminal.focus();
  };
  socket.onmessage = (m) => terminal.write(new Uint8Array(m.data));
  socket.onclose = async (e) => {
    state.textContent = open ? "Ended" + (e.reason ? ": " + e.reason : "") + "." : "Not connected" + (await why()) + ".";
    again.hidden = false;
  };
}

// why a console does not open: to a WebSocket that fails, the browser gives no reason. A plain request is refused for the same.
async function why() {
  try {
    const answer = await fetch(box.dataset.stream);
    const text = await answer.text();
    if (answer.status === 426) return ": the VM has no console now";
    const problem = JSON.parse(text);
    return ": " + (problem.detail || problem.title);
  } catch {
    return "";
  }
}
again.addEventListener("click", connect);
connect();
})();
