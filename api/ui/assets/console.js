// The serial console of a VM: a terminal (xterm.js), and the WebSocket of the API.
"use strict";
(() => {
const box = document.getElementById("console");
const state = document.getElementById("console-state");
const again = document.getElementById("console-again");

// The policy of the page allows no style elements and no style attributes; style sheets and properties that a script sets are the same
// without them. sheeted is the document as the terminal sees it, where style elements are such sheets. Its rows use the page's own.
const sheeted = new Proxy(document, {
  get(page, key) {
    const value = page[key];
    if (key === "createElement") return (name) => (name === "style" ? sheet() : page.createElement(name));
    return typeof value === "function" ? value.bind(page) : value;
  },
});
function sheet() {
  const own = new CSSStyleSheet();
  document.adoptedStyleSheets.push(own);
  const element = document.createElement("template");
  Object.defineProperty(element, "textContent", { set: (text) => own.replaceSync(text) });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== own);
    Element.prototype.remove.call(element);
  };
  return element;
}
HTMLSpanElement.prototype.setAttribute = function (key, value) {
  if (key === "style") this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, key, value);
};

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
