package chart

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

func sample() *Chart {
	return &Chart{
		Title: "yield <and> slack", X: Axis{Label: "slack"}, Y: Axis{Label: "yield", Min: 0, Max: 1},
		Series: []Series{
			{"first", 0, []Point{{0.1, 0.5}, {0.2, math.NaN()}, {0.3, 0.7}, {0.4, 1}}},
			{"second & last", 3, []Point{{0.1, 0}, {0.4, 0.25}}},
		},
	}
}

func TestSVGIsWellFormedAndTheSameEachTime(t *testing.T) {
	svg := sample().SVG()
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		_, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
	if !bytes.Equal(svg, sample().SVG()) {
		t.Error("two drawings of one chart differ")
	}
	for _, want := range []string{"second &amp; last", "yield &lt;and&gt; slack", ">0.2<", ">1<"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no %q in the drawing", want)
		}
	}
	if strings.Contains(string(svg), "NaN") {
		t.Error("what is no number was drawn")
	}
}

func TestTicksAreRound(t *testing.T) {
	for name, c := range map[string]struct {
		axis   Axis
		values []float64
		want   []float64
	}{
		"fixed":     {Axis{Min: 0, Max: 1}, nil, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
		"of values": {Axis{}, []float64{0.13, 0.88}, []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}},
		"tasks":     {Axis{}, []float64{100, 250, 500}, []float64{100, 200, 300, 400, 500}},
		"decades":   {Axis{Log: true}, []float64{0.03, 2}, []float64{0.01, 0.1, 1, 10}},
		"one value": {Axis{}, []float64{3}, []float64{2.4, 2.6, 2.8, 3, 3.2, 3.4, 3.6}},
		"nothing":   {Axis{Log: true}, nil, []float64{1, 10}},
	} {
		s := c.axis.scale(c.values, 0, 100)
		near := slices.EqualFunc(s.ticks, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
		if !near {
			t.Errorf("%s: ticks %v, want %v", name, s.ticks, c.want)
		}
	}
}

func TestPlaces(t *testing.T) {
	lin := (&Axis{Min: 0, Max: 2}).scale(nil, 300, 100)
	log := (&Axis{Min: 1, Max: 100, Log: true}).scale(nil, 0, 200)
	if lin.at(0) != 300 || lin.at(2) != 100 || lin.at(1) != 200 || log.at(10) != 100 {
		t.Errorf("places %v %v %v %v", lin.at(0), lin.at(2), lin.at(1), log.at(10))
	}
}
