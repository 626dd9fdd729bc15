package browser

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/scratch"
	"evenkeel/test/site"
)

var pictures = flag.String("pictures", "", "draw the pictures of the dashboard for the documentation into this `DIRECTORY`")

// maxPicture is the largest picture, bytes.
const maxPicture = 150 << 10

// TestPictures draws the pictures of the dashboard that the documentation has, of a cluster of simulated hosts:
//
//	go test -tags libvirt_dlopen,hashicorpmetrics -count 1 -run TestPictures ./test/browser -args -pictures $PWD/docs/pictures
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("it writes files of the documentation: -args -pictures DIRECTORY")
	}
	b := Start(t, true)
	s, err := site.New(site.Options{Dir: scratch.Dir(t), Hosts: 6, CPU: 32, Memory: 128 << 30})
	must(t, err)
	c := run(t, s, 1)
	for i := 2; i <= 6; i++ {
		must(t, s.Join(t.Context(), fmt.Sprintf("h%d", i), false, true))
	}
	must(t, s.Await(t.Context(), "6 hosts are ready", func() bool {
		v, err := s.Member("h1").View(t.Context(), false)
		return err == nil && site.Ready(v) == 6
	}))
	of := func(tenant string) client.Option { return client.OfTenant(tenant) }
	for _, name := range []string{"film", "shop", "research"} {
		_, err := c.api.CreateTenant(t.Context(), v1.TenantRequest{Name: name})
		must(t, err)
	}
	vc := func(tenant, name string, minYield float64, groups ...v1.GroupSpec) {
		for i := range groups {
			groups[i].Image = "tiny"
		}
		r, err := c.api.Create(t.Context(), v1.VirtualClusterSpec{Name: name, MinYield: &minYield, Groups: groups}, of(tenant))
		must(t, err)
		if r.Operation == nil || r.VirtualCluster.State == "queued" {
			return
		}
		_, err = c.api.Wait(t.Context(), *r.Operation, nil)
		must(t, err)
	}
	for i := range 3 {
		c.ran(fmt.Sprintf("nightly-%d", i), "nightly", of("film"))
	}
	_, err = c.api.DecidePeriodic(t.Context(), "accept", "nightly", v1.PeriodicRequest{Rule: "FREQ=HOURLY", Length: "20m", Deadline: "40m", Zone: "Europe/Berlin", Cores: 8}, of("film"))
	must(t, err)
	vc("shop", "web", 0.8, v1.GroupSpec{Name: "frontend", Count: 6, CPU: 2, Memory: 4 << 30}, v1.GroupSpec{Name: "database", Count: 2, CPU: 4, Memory: 16 << 30})
	vc("film", "render", 0.5, v1.GroupSpec{Name: "worker", Count: 36, CPU: 4, Memory: 8 << 30})
	vc("research", "align", 0.4, v1.GroupSpec{Name: "node", Count: 12, CPU: 6, Memory: 8 << 30})
	vc("research", "sweep", 0.9, v1.GroupSpec{Name: "node", Count: 40, CPU: 4, Memory: 4 << 30})
	r, err := c.api.Drain(t.Context(), "h6", v1.DrainRequest{Reason: "new firmware"})
	must(t, err)
	if r.Operation != nil {
		_, err = c.api.Wait(t.Context(), *r.Operation, nil)
		must(t, err)
	}
	_, err = c.api.Undrain(t.Context(), "h6")
	must(t, err)

	tab := c.login(b, "h1", "/ui/", site.Token)
	tab.Width(1200)
	for _, p := range []struct{ name, path, theme, until string }{
		{"dashboard-overview", "/ui/", "light", "Minimum yield"},
		{"dashboard-overview-dark", "/ui/", "dark", "Minimum yield"},
		{"dashboard-virtual-cluster", "/ui/virtual-clusters/film/render", "light", "keeps its yield down"},
		{"dashboard-plans", "/ui/plans", "light", "What bytes buy"},
		{"dashboard-periodic", "/ui/periodic/film/nightly", "dark", "confirmed"},
	} {
		tab.Theme(p.theme)
		tab.Go(c.page("h1", p.path))
		tab.Until(p.until, func() bool { return strings.Contains(tab.Text(), p.until) })
		tab.Rests()
		if p.name == "dashboard-periodic" {
			Eval[bool](tab, `{ document.querySelector(".calendar").closest("section").scrollIntoView(); } true`)
		}
		out := packed(t, tab.Picture())
		if len(out) > maxPicture {
			t.Errorf("%s has %d bytes", p.name, len(out))
		}
		must(t, os.WriteFile(filepath.Join(*pictures, p.name+".png"), out, 0o644))
		fmt.Printf("%s.png: %d bytes\n", p.name, len(out))
	}
}

// Picture of the window, a PNG.
func (tab *Tab) Picture() []byte {
	tab.t.Helper()
	out, err := chromedp.Call(tab.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng})
	if err != nil {
		tab.t.Fatalf("draw the page: %v", err)
	}
	return out.Data
}

// packed is a picture with the 256 colours that it has most of; others become the one that is nearest.
func packed(t *testing.T, in []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(in))
	must(t, err)
	count := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(from.At(x, y)).(color.RGBA) }
	area := from.Bounds()
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	var colours []color.RGBA
	for c := range count {
		colours = append(colours, c)
	}
	slices.SortFunc(colours, func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), slices.Compare([]byte{a.R, a.G, a.B}, []byte{b.R, b.G, b.B}))
	})
	var palette color.Palette
	for _, c := range colours[:min(256, len(colours))] {
		palette = append(palette, c)
	}
	to := image.NewPaletted(area, palette)
	index := map[color.RGBA]uint8{}
	for _, c := range colours {
		index[c] = uint8(palette.Index(c)) //nolint:gosec // a palette has at most 256
	}
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			to.SetColorIndex(x, y, index[at(x, y)])
		}
	}
	var out bytes.Buffer
	must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to))
	return out.Bytes()
}
