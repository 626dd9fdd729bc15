package browser

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"evenkeel/test/patience"
)

// limit on one step of a walk.
const limit = 20 * time.Second

// prepare has each page of a tab keep what its policy refused and what scripts threw, and say yes to questions.
const prepare = `window.evenkeelFaults = [];
addEventListener("securitypolicyviolation", (e) => evenkeelFaults.push("refused: " + e.violatedDirective + " " + e.blockedURI + " " + e.sourceFile + ":" + e.lineNumber));
addEventListener("error", (e) => evenkeelFaults.push("thrown: " + e.message));
addEventListener("unhandledrejection", (e) => evenkeelFaults.push("thrown: " + e.reason));
window.confirm = () => true;`

// Browser is a Chromium with one profile: all its tabs share the session.
type Browser struct {
	ctx context.Context //nolint:containedctx // of chromedp: it is the browser
}

// Tab is one page of a browser.
type Tab struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // of chromedp: it is the tab
}

// OverHTTP1 keeps a browser from HTTP/2: it then has at most six connections to a server, for all of its tabs.
func OverHTTP1(a *chromedp.ExecAllocator) { chromedp.Flag("disable-http2", true)(a) }

// Start a browser; the test is skipped where there is none, unless required.
func Start(t *testing.T, required bool, more ...chromedp.ExecAllocatorOption) *Browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if required {
			t.Fatal("no chromium: scripts/setup.sh browser installs it")
		}
		t.Skip("no chromium: scripts/setup.sh browser installs it")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.IgnoreCertErrors, chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(patience.Within(time.Minute)))
	options = append(options, more...)
	all, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, end := chromedp.NewContext(all)
	t.Cleanup(end)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return &Browser{ctx: ctx}
}

// Open a tab.
func (b *Browser) Open(t *testing.T, address string) *Tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	t.Cleanup(cancel)
	tab := &Tab{t: t, ctx: ctx}
	tab.Prepare(prepare)
	tab.Go(address)
	return tab
}

// Prepare has each page of the tab run a script before its own.
func (tab *Tab) Prepare(script string) {
	tab.t.Helper()
	if _, err := chromedp.Call(tab.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script}); err != nil {
		tab.t.Fatalf("prepare the tab: %v", err)
	}
}

func (tab *Tab) run(what string, steps ...chromedp.Action[chromedp.Void]) {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, patience.Within(limit))
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		tab.t.Fatalf("%s: %v; the page:\n%s", what, err, tab.Text())
	}
}

// Go to an address.
func (tab *Tab) Go(address string) {
	tab.t.Helper()
	tab.run("go to "+address, chromedp.Navigate(address), chromedp.WaitReady(chromedp.CSS("main")))
}

// Leave the page, for none.
func (tab *Tab) Leave() {
	tab.t.Helper()
	tab.run("leave the page", chromedp.Navigate("about:blank"))
}

// Fill a field, found by a CSS selector, with a text. The page may replace the field at any time until it has one: found and
// filled are one step.
func (tab *Tab) Fill(selector, text string) {
	tab.t.Helper()
	script := fmt.Sprintf(`{ const field = document.querySelector(%q); if (field) { field.value = %q; for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, { bubbles: true })); }
field !== null; }`, selector, text)
	tab.Until("fill "+selector, func() bool { return tab.Is(script) })
}

// Type keys, into what has the focus.
func (tab *Tab) Type(text string) {
	tab.t.Helper()
	tab.run("type", chromedp.KeyEvent(text))
}

// Paste a text into what has the focus.
func (tab *Tab) Paste(text string) {
	tab.t.Helper()
	tab.run("paste", chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ const data = new DataTransfer(); data.setData("text/plain", %q);
document.activeElement.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true })); }`, text)))
}

// Press a button of the page, found by its label. As with Fill, found and pressed are one step.
func (tab *Tab) Press(label string) {
	tab.t.Helper()
	script := fmt.Sprintf(`{ const button = [...document.querySelectorAll("main button")].find((b) => b.innerText.trim() === %q); if (button) button.click(); button !== undefined; }`, label)
	tab.Until("press "+label, func() bool { return tab.Is(script) })
}

// eval runs a script in the page.
func eval[T any](tab *Tab, script string) (T, error) {
	ctx, cancel := context.WithTimeout(tab.ctx, patience.Within(limit))
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// Eval runs a script in the page, which must work.
func Eval[T any](tab *Tab, script string) T {
	tab.t.Helper()
	out, err := eval[T](tab, script)
	if err != nil {
		tab.t.Fatalf("run %s: %v", script, err)
	}
	return out
}

// Is says whether a script answers true; between pages none does.
func (tab *Tab) Is(script string) bool {
	is, _ := eval[bool](tab, script)
	return is
}

// Inject runs a script beside those of the page, which the page's policy does not concern.
func (tab *Tab) Inject(script string) {
	tab.t.Helper()
	tab.run("inject a script", chromedp.Evaluate[chromedp.Void](script))
}

// Theme sets the colours that the user prefers: light or dark.
func (tab *Tab) Theme(name string) {
	tab.t.Helper()
	q := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}
	if _, err := chromedp.Call(tab.ctx, emulation.SetEmulatedMedia, q); err != nil {
		tab.t.Fatalf("set the theme %s: %v", name, err)
	}
}

// Width of the window, CSS pixels.
func (tab *Tab) Width(pixels int64) {
	tab.t.Helper()
	tab.run("set the width", chromedp.EmulateViewport(pixels, 900))
}

// Text of the page, as it is seen; "" between pages.
func (tab *Tab) Text() string {
	text, _ := eval[string](tab, `document.body ? document.body.innerText : ""`)
	return text
}

// At is the path of the page, once all of it is there; "" before.
func (tab *Tab) At() string {
	path, _ := eval[string](tab, `document.readyState === "loading" ? "" : location.pathname`)
	return path
}

// Until a condition on the page holds.
func (tab *Tab) Until(what string, done func() bool) {
	tab.t.Helper()
	if err := patience.Until(tab.t.Context(), limit, what, func() any { return tab.Text() }, done); err != nil {
		tab.t.Fatalf("%v; the page %s:\n%s", err, tab.At(), tab.Text())
	}
}

// Rests waits until a page asks for nothing more. The page itself looks, a few times a second: questions from here would take more of the
// main thread than what it does.
func (tab *Tab) Rests() {
	tab.t.Helper()
	Eval[bool](tab, `new Promise((done) => {
  let asked = -1, still = 0;
  const timer = setInterval(() => {
    const now = performance.getEntriesByType("resource").length;
    still = now === asked ? still + 1 : 0;
    asked = now;
    if (still === 4) { clearInterval(timer); done(true); }
  }, 100);
})`)
}

// Clean checks that the policy of the page refused nothing since it was loaded, and that no script threw.
func (tab *Tab) Clean() {
	tab.t.Helper()
	if faults := Eval[[]string](tab, `window.evenkeelFaults`); len(faults) > 0 {
		tab.t.Errorf("%s: %q", tab.At(), faults)
	}
}
