package browser

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/systeminfo"
	"github.com/chromedp/chromedp"
)

// Traffic is what a tab asked servers for.
type Traffic struct {
	mu       sync.Mutex
	requests []string // addresses, those of streams and WebSockets included
	bytes    float64
}

// Watch the traffic of a tab from now on.
func (tab *Tab) Watch() *Traffic {
	tab.t.Helper()
	out := &Traffic{}
	if _, err := chromedp.Call(tab.ctx, network.Enable, network.EnableParams{}); err != nil {
		tab.t.Fatalf("watch the network: %v", err)
	}
	err := chromedp.Listen(tab.ctx, func(ev any) {
		out.mu.Lock()
		defer out.mu.Unlock()
		switch ev := ev.(type) {
		case *network.EventRequestWillBeSent:
			out.requests = append(out.requests, ev.Request.URL)
		case *network.EventWebSocketCreated:
			out.requests = append(out.requests, ev.URL)
		case *network.EventLoadingFinished:
			out.bytes += ev.EncodedDataLength
		}
	})
	if err != nil {
		tab.t.Fatalf("watch the network: %v", err)
	}
	return out
}

// Take what there was since the last call: addresses, and bytes as they were sent, heads included.
func (t *Traffic) Take() (requests []string, bytes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	requests, bytes = t.requests, int(t.bytes)
	t.requests, t.bytes = nil, 0
	return requests, bytes
}

// Forget what the browser has cached.
func (tab *Tab) Forget() {
	tab.t.Helper()
	if _, err := chromedp.Call(tab.ctx, network.ClearBrowserCache, cdp.Empty{}); err != nil {
		tab.t.Fatalf("clear the cache: %v", err)
	}
}

// Usable is how long the page took from the request to where all of it was read and shown, and its script had run.
func (tab *Tab) Usable() time.Duration {
	tab.t.Helper()
	tab.Until("the page is drawn", func() bool {
		return Eval[bool](tab, `document.readyState === "complete" && performance.getEntriesByName("first-contentful-paint").length > 0 && performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd > 0`)
	})
	ms := Eval[float64](tab, `Math.max(performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd, performance.getEntriesByName("first-contentful-paint")[0].startTime)`)
	return time.Duration(ms * float64(time.Millisecond))
}

// Main is what a tab's main thread has done and keeps.
type Main struct {
	Busy  time.Duration // CPU time of its tasks since the page was loaded
	Heap  int           // bytes of objects of scripts
	Nodes int
}

// Main thread of the tab now. With collect garbage is collected first.
func (tab *Tab) Main(collect bool) (m Main) {
	tab.t.Helper()
	if _, err := chromedp.Call(tab.ctx, performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks}); err != nil {
		tab.t.Fatalf("measure the page: %v", err)
	}
	if collect {
		if _, err := chromedp.Call(tab.ctx, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
			tab.t.Fatalf("collect garbage: %v", err)
		}
	}
	all, err := chromedp.Call(tab.ctx, performance.GetMetrics, cdp.Empty{})
	if err != nil {
		tab.t.Fatalf("measure the page: %v", err)
	}
	for _, metric := range all.Metrics {
		switch metric.Name {
		case "TaskDuration":
			m.Busy = time.Duration(metric.Value * float64(time.Second))
		case "JSHeapUsedSize":
			m.Heap = int(metric.Value)
		case "Nodes":
			m.Nodes = int(metric.Value)
		}
	}
	return m
}

// Memory is what the largest renderer of the browser keeps for itself, bytes.
func (b *Browser) Memory() (largest int, err error) {
	all, err := chromedp.CallBrowser(b.ctx, systeminfo.GetProcessInfo, cdp.Empty{})
	if err != nil {
		return 0, fmt.Errorf("list the browser's processes: %w", err)
	}
	for _, p := range all.ProcessInfo {
		if p.Type != "renderer" {
			continue
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", int(p.ID)))
		if err != nil {
			continue // it has ended
		}
		sum := 0
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(name, "Private_") {
				kib, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB")) // what is no number is 0
				sum += kib << 10
			}
		}
		largest = max(largest, sum)
	}
	return largest, nil
}
