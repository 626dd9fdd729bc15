package chart

import (
	"html"
	"math"
)

// Bar is one value with a name.
type Bar struct {
	Name  string
	Value float64 // >= 0
}

// Measures of a drawing of bars, pixels.
const (
	barHeight = 18
	barGap    = 8
	barLeft   = 220
	barRight  = 90
)

// Bars draws a bar for each value, one below the other, its value beside it. Values that are not finite have none.
func Bars(title, label string, bars []Bar) []byte {
	highest := 0.0
	for _, b := range bars {
		if finite(b.Value) {
			highest = math.Max(highest, b.Value)
		}
	}
	d := drawing{}
	high := top + len(bars)*(barHeight+barGap) + 30
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" font-family="Helvetica,Arial,sans-serif" font-size="12">`+"\n", width, high, width, high)
	d.printf("<title>%s</title>\n", html.EscapeString(title))
	d.printf(`<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, high)
	d.printf(`<text x="%d" y="22" text-anchor="middle" font-size="14">%s</text>`+"\n", width/2, html.EscapeString(title))
	for i, b := range bars {
		y := float64(top + i*(barHeight+barGap))
		d.printf(`<text x="%d" y="%s" text-anchor="end">%s</text>`+"\n", barLeft-8, px(y+13), html.EscapeString(b.Name))
		if !finite(b.Value) {
			continue
		}
		long := 0.0
		if highest > 0 {
			long = math.Max(0, b.Value) / highest * (width - barLeft - barRight)
		}
		d.printf(`<rect x="%d" y="%s" width="%s" height="%d" fill="%s"/>`+"\n", barLeft, px(y), px(math.Max(long, 0.5)), barHeight, colours[i%len(colours)])
		d.printf(`<text x="%s" y="%s">%s</text>`+"\n", px(barLeft+long+6), px(y+13), short(b.Value))
	}
	d.printf(`<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", (barLeft+width-barRight)/2, high-10, html.EscapeString(label))
	d.printf("</svg>\n")
	return d.Bytes()
}

// short is a value with four digits that count.
func short(v float64) string {
	if v == 0 {
		return "0"
	}
	by := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return number(math.Round(v*by) / by)
}
