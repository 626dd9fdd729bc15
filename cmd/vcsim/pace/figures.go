package pace

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// colours that the colour-blind can distinguish (Okabe and Ito).
var colours = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff}, color.RGBA{0xcc, 0x79, 0xa7, 0xff},
}

func svg(p *plot.Plot, width, height vg.Length) ([]byte, error) {
	w, err := p.WriterTo(width, height, "svg")
	if err != nil {
		return nil, fmt.Errorf("draw %s: %w", p.Title.Text, err)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("draw %s: %w", p.Title.Text, err)
	}
	return b.Bytes(), nil
}

// logarithmic makes an axis so; one on which all values are the same is given some length around them.
func logarithmic(a *plot.Axis) {
	a.Scale, a.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	if a.Max <= a.Min {
		a.Min, a.Max = a.Min/2, a.Max*2
	}
}

// boxes draws one box per name, of at most so many values of each: quantiles stand for all.
func boxes(title, label string, names []string, values [][]float64, log bool) ([]byte, error) {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = title, label
	for i, v := range values {
		v = slices.Clone(v)
		slices.Sort(v)
		const top = 201
		var few plotter.Values
		for k := range top {
			x := v[int(math.Round(float64(k)/(top-1)*float64(len(v)-1)))]
			if log {
				x = max(x, 1)
			}
			few = append(few, x)
		}
		b, err := plotter.NewBoxPlot(vg.Points(36), float64(i), few)
		if err != nil {
			return nil, fmt.Errorf("draw %s: %w", title, err)
		}
		b.Outside = nil
		b.FillColor = color.RGBA{0xdd, 0xe8, 0xf2, 0xff}
		p.Add(b)
	}
	p.NominalX(names...)
	if log {
		logarithmic(&p.Y)
	}
	return svg(p, vg.Points(130+float64(90*len(names))), vg.Points(300))
}

// grid is a heat map: rows of K1, columns of K2.
type grid struct {
	k1, k2 []float64
	z      [][]float64 // [k1][k2]
}

// Dims implements plotter.GridXYZ.
func (g grid) Dims() (c, r int) { return len(g.k2), len(g.k1) }

// X implements plotter.GridXYZ.
func (g grid) X(c int) float64 { return float64(c) }

// Y implements plotter.GridXYZ.
func (g grid) Y(r int) float64 { return float64(r) }

// Z implements plotter.GridXYZ.
func (g grid) Z(c, r int) float64 { return g.z[r][c] }

// heat draws a heat map with its values written into it. Bright cells are better.
func heat(title string, g grid, format string, lowIsGood bool) ([]byte, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, "K2", "K1"
	shades := palette.Heat(48, 1)
	colors := slices.Clone(shades.Colors())[16:] // not the darkest: text stands on them
	if lowIsGood {
		slices.Reverse(colors)
	}
	h := plotter.NewHeatMap(g, shaded(colors))
	if h.Min == h.Max {
		h.Max++
	}
	p.Add(h)
	var at plotter.XYs
	var texts []string
	for r := range g.k1 {
		for c := range g.k2 {
			at = append(at, plotter.XY{X: float64(c), Y: float64(r)})
			texts = append(texts, fmt.Sprintf(format, g.z[r][c]))
		}
	}
	labels, err := plotter.NewLabels(plotter.XYLabels{XYs: at, Labels: texts})
	if err != nil {
		return nil, fmt.Errorf("draw %s: %w", title, err)
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i].XAlign, labels.TextStyle[i].YAlign = -0.5, -0.5
	}
	p.Add(labels)
	var xs, ys []string
	for _, k := range g.k2 {
		xs = append(xs, fmt.Sprint(k))
	}
	for _, k := range g.k1 {
		ys = append(ys, fmt.Sprintf("%.0f%%", 100*k))
	}
	p.NominalX(xs...)
	p.NominalY(ys...)
	return svg(p, vg.Points(330), vg.Points(280))
}

// shaded is a palette of given colours.
type shaded []color.Color

// Colors implements palette.Palette.
func (s shaded) Colors() []color.Color { return s }

// line is one curve.
type line struct {
	name string
	xy   plotter.XYs
}

func lines(title, x, y string, log bool, all []line) ([]byte, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	for i, l := range all {
		c, s, err := plotter.NewLinePoints(l.xy)
		if err != nil {
			return nil, fmt.Errorf("draw %s: %w", title, err)
		}
		c.Color, s.Color = colours[i%len(colours)], colours[i%len(colours)]
		c.Dashes = [][]vg.Length{nil, {vg.Points(6), vg.Points(3)}, {vg.Points(2), vg.Points(2)}, {vg.Points(8), vg.Points(2), vg.Points(2), vg.Points(2)}}[i%4]
		p.Add(c, s)
		p.Legend.Add(l.name, c, s)
	}
	p.Legend.Top, p.Legend.Left = true, true
	if log {
		logarithmic(&p.Y)
	}
	return svg(p, vg.Points(480), vg.Points(300))
}
