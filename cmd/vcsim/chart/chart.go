// Package chart draws line charts as SVG: axes with round numbers, markers that
// can be distinguished without colour, a legend. It writes text of equal bytes for
// equal charts. It knows nothing of what is drawn.
package chart

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strconv"
)

// Chart is lines over a common x axis.
type Chart struct {
	Title  string
	X, Y   Axis
	Series []Series
}

// Axis is what is on an axis. With Min = Max it is as long as the values
// need.
type Axis struct {
	Label    string
	Min, Max float64
	Log      bool // decades; values must be greater than 0
}

// Series is one line. Points that are not finite are left out, and part the line.
type Series struct {
	Name   string
	Style  int // >= 0: colour, dashes and marker; equal in all charts where it is the same thing
	Points []Point
}

// Point is one value.
type Point struct{ X, Y float64 }

// Measures of the drawing, pixels.
const (
	width, height           = 760, 440
	left, right, top, below = 70, 150, 40, 54
	plotWidth               = width - left - right
	plotHeight              = height - top - below
	markerSize              = 3.6
)

// colours are those of Okabe and Ito, which the colour-blind can distinguish, and grey.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9", "#8c6d1f", "#777777", "#a020a0"}

var dashes = []string{"", "7 3", "2 3", "9 3 2 3"}

// SVG is the drawing.
func (c *Chart) SVG() []byte {
	d := drawing{}
	d.x = c.X.scale(c.values(func(p Point) float64 { return p.X }), left, left+plotWidth)
	d.y = c.Y.scale(c.values(func(p Point) float64 { return p.Y }), top+plotHeight, top)
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" font-family="Helvetica,Arial,sans-serif" font-size="12">`+"\n", width, height, width, height)
	d.printf("<title>%s</title>\n", html.EscapeString(c.Title))
	d.printf(`<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	d.printf(`<text x="%d" y="22" text-anchor="middle" font-size="14">%s</text>`+"\n", left+plotWidth/2, html.EscapeString(c.Title))
	d.axes(c)
	for i := range c.Series {
		d.series(&c.Series[i])
	}
	d.legend(c)
	d.printf("</svg>\n")
	return d.Bytes()
}

func (c *Chart) values(of func(Point) float64) (v []float64) {
	for _, s := range c.Series {
		for _, p := range s.Points {
			if finite(p.X) && finite(p.Y) {
				v = append(v, of(p))
			}
		}
	}
	return v
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// scale places values on an axis.
type scale struct {
	min, max float64 // of the logarithms if log
	log      bool
	from, to float64 // pixels
	ticks    []float64
}

func (a *Axis) scale(values []float64, from, to float64) scale {
	s := scale{min: a.Min, max: a.Max, log: a.Log, from: from, to: to}
	if a.Min == a.Max {
		s.min, s.max = math.Inf(1), math.Inf(-1)
		for _, v := range values {
			s.min, s.max = min(s.min, v), max(s.max, v)
		}
		if len(values) == 0 {
			s.min, s.max = 1, 10
		}
	}
	if a.Log {
		s.decades()
	} else {
		s.rounds(a.Min == a.Max)
	}
	return s
}

// decades makes the axis whole powers of ten.
func (s *scale) decades() {
	s.min, s.max = math.Floor(math.Log10(s.min)), math.Ceil(math.Log10(s.max))
	if s.max <= s.min {
		s.max = s.min + 1
	}
	for e := s.min; e <= s.max; e++ {
		s.ticks = append(s.ticks, math.Pow(10, e))
	}
}

// rounds finds round numbers for the ticks, and with widen lets the axis begin
// and end at such.
func (s *scale) rounds(widen bool) {
	if s.max <= s.min {
		s.min, s.max = s.min-0.5, s.max+0.5
	}
	step := math.Pow(10, math.Floor(math.Log10((s.max-s.min)/4)))
	for _, f := range []float64{5, 2} {
		if (s.max-s.min)/(f*step) >= 4 {
			step *= f
			break
		}
	}
	const near = 1e-9
	first, last := math.Ceil(s.min/step-near), math.Floor(s.max/step+near)
	if widen {
		first, last = math.Floor(s.min/step+near), math.Ceil(s.max/step-near)
		s.min, s.max = first*step, last*step
	}
	for k := first; k <= last; k++ {
		s.ticks = append(s.ticks, k*step)
	}
}

func (s *scale) at(v float64) float64 {
	if s.log {
		v = math.Log10(v)
	}
	return s.from + (v-s.min)/(s.max-s.min)*(s.to-s.from)
}

type drawing struct {
	bytes.Buffer
	x, y scale
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(&d.Buffer, format, args...) }

// px is a place with a tenth of a pixel, as short as can be.
func px(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

// number writes a tick; adding zero makes -0 a plain 0.
func number(v float64) string { return strconv.FormatFloat(math.Round(v*1e9)/1e9+0, 'g', 6, 64) }

func (d *drawing) axes(c *Chart) {
	bottom := float64(top + plotHeight)
	d.printf(`<g stroke="#ddd">` + "\n")
	for _, t := range d.y.ticks {
		d.printf(`<path d="M%d %sH%d"/>`+"\n", left, px(d.y.at(t)), left+plotWidth)
	}
	d.printf("</g>\n" + `<g text-anchor="end">` + "\n")
	for _, t := range d.y.ticks {
		d.printf(`<text x="%d" y="%s">%s</text>`+"\n", left-8, px(d.y.at(t)+4), number(t))
	}
	d.printf("</g>\n" + `<g text-anchor="middle">` + "\n")
	for _, t := range d.x.ticks {
		x := px(d.x.at(t))
		d.printf(`<path d="M%s %sv5" stroke="#000"/><text x="%s" y="%s">%s</text>`+"\n", x, px(bottom), x, px(bottom+19), number(t))
	}
	d.printf(`<text x="%d" y="%d">%s</text>`+"\n", left+plotWidth/2, height-12, html.EscapeString(c.X.Label))
	d.printf(`<text transform="translate(18 %d) rotate(-90)">%s</text>`+"\n", top+plotHeight/2, html.EscapeString(c.Y.Label))
	d.printf("</g>\n"+`<path d="M%d %dV%sH%d" fill="none" stroke="#000"/>`+"\n", left, top, px(bottom), left+plotWidth)
}

func (d *drawing) series(s *Series) {
	i := s.Style
	d.printf(`<g fill="none" %s>`+"\n", stroke(i))
	var path []byte
	pen := "M"
	for _, p := range s.Points {
		if !finite(p.X) || !finite(p.Y) {
			pen = "M"
			continue
		}
		path = fmt.Appendf(path, "%s%s %s", pen, px(d.x.at(p.X)), px(d.y.at(p.Y)))
		pen = "L"
	}
	if len(path) > 0 {
		d.printf(`<path d="%s"/>`+"\n", path)
	}
	d.printf("</g>\n" + `<path d="`)
	for _, p := range s.Points {
		if finite(p.X) && finite(p.Y) {
			d.printf("%s", marker(i, d.x.at(p.X), d.y.at(p.Y)))
		}
	}
	d.printf(`" %s/>`+"\n", face(i))
}

func stroke(i int) string {
	s := fmt.Sprintf(`stroke="%s" stroke-width="1.6"`, colours[i%len(colours)])
	if dash := dashes[i/3%len(dashes)]; dash != "" {
		s += fmt.Sprintf(` stroke-dasharray="%s"`, dash)
	}
	return s
}

// face is how the marker of style i is painted: every other one hollow.
func face(i int) string {
	c := colours[i%len(colours)]
	if i%2 == 1 {
		return fmt.Sprintf(`fill="#fff" stroke="%s" stroke-width="1.4"`, c)
	}
	return fmt.Sprintf(`fill="%s" stroke="%s"`, c, c)
}

// marker is the path of style i's marker around a point.
func marker(i int, x, y float64) string {
	const m = markerSize
	switch i % 4 {
	case 0: // circle
		return fmt.Sprintf("M%s %sa%g %g 0 1 0 %g 0a%g %g 0 1 0 -%g 0z", px(x-m), px(y), m, m, 2*m, m, m, 2*m)
	case 1: // square
		return fmt.Sprintf("M%s %sh%gv%gh-%gz", px(x-m), px(y-m), 2*m, 2*m, 2*m)
	case 2: // triangle
		return fmt.Sprintf("M%s %sl%g %gh-%gz", px(x), px(y-m), m+0.4, 2*m, 2*(m+0.4))
	default: // diamond
		return fmt.Sprintf("M%s %sl%g %gl-%g %gl-%g -%gz", px(x), px(y-m-1), m+1, m+1, m+1, m+1, m+1, m+1)
	}
}

func (d *drawing) legend(c *Chart) {
	const x = left + plotWidth + 18
	for i, s := range c.Series {
		y := top + 12 + 20*i
		d.printf(`<path d="M%d %dh30" fill="none" %s/>`+"\n", x, y, stroke(s.Style))
		d.printf(`<path d="%s" %s/>`+"\n", marker(s.Style, x+15, float64(y)), face(s.Style))
		d.printf(`<text x="%d" y="%d">%s</text>`+"\n", x+38, y+4, html.EscapeString(s.Name))
	}
}
