package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"

	"evenkeel/forecast"
	"evenkeel/sim/trace"
)

// predictionFile takes what models predicted of each value, and what came, as CSV.
type predictionFile struct {
	mu  sync.Mutex
	w   io.Writer
	err error // the first
}

// newPredictionFile begins a file with the names of its columns.
func newPredictionFile(w io.Writer) *predictionFile {
	f := &predictionFile{w: w}
	head := "set,vm,resource,model,origin,step,came,mean,deviation"
	for _, level := range forecast.Levels {
		head += ",q" + strconv.FormatFloat(level, 'f', -1, 64)
	}
	_, f.err = io.WriteString(w, head+"\n")
	return f
}

// predictionRows are those of one series. They are written together, so that series that are scored side by side do not mix.
type predictionRows struct {
	file   *predictionFile
	series trace.Series
	models []forecaster
	text   bytes.Buffer
}

func (r *predictionRows) add(model, origin, of int, p *forecast.Prediction, came float64) {
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 9, 64) }
	row := []string{r.series.Set, r.series.VM, string(r.series.Resource), r.models[model].name, fmt.Sprint(origin), fmt.Sprint(of), number(came), number(p.Mean), number(math.Sqrt(max(0, p.Variance)))}
	for _, q := range p.Quantiles {
		row = append(row, number(q))
	}
	w := csv.NewWriter(&r.text)
	_ = w.Write(row) // to memory
	w.Flush()
}

// write puts them into the file; nothing where there is none.
func (r *predictionRows) write() {
	if r == nil {
		return
	}
	r.file.mu.Lock()
	defer r.file.mu.Unlock()
	if r.file.err == nil {
		_, r.file.err = r.file.w.Write(r.text.Bytes())
	}
}
