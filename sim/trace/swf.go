package trace

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ParallelJob is one job of the log of a parallel machine.
type ParallelJob struct {
	Number     int64
	Submit     float64 // seconds from the beginning of the log
	Wait       float64 // seconds in the machine's own queue; negative: unknown
	Run        float64 // seconds, at least 0
	Processors int     // allocated, or asked for where that is unknown; at least 1
	Requested  float64 // run time that the user asked for, seconds; 0: unknown
	Memory     float64 // bytes per processor, used, or asked for where that is unknown; 0: unknown
	Status     int     // 1: completed, 0: failed, 5: cancelled; negative: unknown
}

// Log is what one file in the standard workload format holds.
type Log struct {
	Computer   string        // as the header names it; "": it does not
	Start      time.Time     // from which Submit counts; zero: unknown
	Nodes      int           // 0: not in the header
	Processors int           // of the machine; 0: not in the header
	Jobs       []ParallelJob // by Submit, of equal ones as in the file
	Notes      []string      // what was left out, for people
}

// swfFields is how many fields a line has.
const swfFields = 18

// LoadSWF reads a log in the standard workload format (SWF 2.2) of the Parallel Workloads Archive, packed or not. Jobs
// that never ran, or whose run time, submission or size is unknown, are left out, and a note counts them. Lines may lack
// fields at their end. Options.MaxLength bounds the jobs.
func LoadSWF(o Options, s Source) (Log, error) {
	o = o.withDefaults()
	f, err := s.FS.Open(s.Name)
	if err != nil {
		return Log{}, err
	}
	defer f.Close()
	limit := min(o.MaxFileBytes, o.MaxTotalBytes)
	b := bufio.NewReader(f)
	r := io.Reader(b)
	if head, _ := b.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		if r, err = gzip.NewReader(b); err != nil {
			return Log{}, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	l, err := readSWF(&bounded{r: r, left: limit}, o.MaxLength)
	if err != nil {
		return Log{}, fmt.Errorf("%s: %w", s.Name, err)
	}
	return l, nil
}

func readSWF(r io.Reader, limit int) (l Log, err error) {
	unknown := map[string]int{}
	whys := []string{"with no run time", "with no number of processors", "with no time of submission"}
	err = lines(r, func(text string) error {
		if header, ok := strings.CutPrefix(text, ";"); ok {
			l.header(header)
			return nil
		}
		j, why, err := parseSWF(text)
		if err != nil {
			return err
		}
		if why >= 0 {
			unknown[whys[why]]++
			return nil
		}
		if len(l.Jobs) == limit {
			return fmt.Errorf("more than %d jobs", limit)
		}
		l.Jobs = append(l.Jobs, j)
		return nil
	})
	if err != nil {
		return Log{}, err
	}
	for _, why := range whys {
		if n := unknown[why]; n > 0 {
			l.Notes = append(l.Notes, fmt.Sprintf("%d jobs %s left out", n, why))
		}
	}
	if len(l.Jobs) == 0 {
		return Log{}, errors.New("no jobs")
	}
	slices.SortStableFunc(l.Jobs, func(a, b ParallelJob) int { return cmp.Compare(a.Submit, b.Submit) })
	return l, nil
}

// header takes what is wanted of a line of the header, without its semicolon. Malformed ones are remarks.
func (l *Log) header(text string) {
	key, value, ok := strings.Cut(text, ":")
	if !ok {
		return
	}
	value = strings.TrimSpace(value)
	count := func(into *int) {
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			*into = n
		}
	}
	switch strings.TrimSpace(key) {
	case "Computer":
		l.Computer = value
	case "MaxNodes":
		count(&l.Nodes)
	case "MaxProcs":
		count(&l.Processors)
	case "UnixStartTime":
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && n > 0 && n < 1<<40 {
			l.Start = time.Unix(n, 0).UTC()
		}
	}
}

// parseSWF reads a job; why is what keeps it out, -1: nothing.
func parseSWF(text string) (j ParallelJob, why int, err error) {
	var field [swfFields]float64
	for i := range field {
		field[i] = -1
	}
	fields := strings.Fields(text)
	if len(fields) < 5 || len(fields) > swfFields {
		return j, 0, fmt.Errorf("%d fields, not %d", len(fields), swfFields)
	}
	for i, w := range fields {
		v, err := strconv.ParseFloat(w, 64)
		// Not a number, or nothing that a machine did.
		if err != nil || !(v >= -1e15 && v <= 1e15) {
			return j, 0, fmt.Errorf("field %d: %q is not a number that could be", i+1, w)
		}
		field[i] = v
	}
	known := func(at ...int) float64 {
		for _, i := range at {
			if field[i-1] > 0 {
				return field[i-1]
			}
		}
		return 0
	}
	processors := known(5, 8)
	j = ParallelJob{
		Number: int64(field[0]), Submit: field[1], Wait: field[2], Run: field[3],
		Requested: known(9), Memory: 1024 * known(7, 10), Status: int(field[10]),
	}
	switch {
	case j.Run < 0:
		return j, 0, nil
	case processors < 1 || processors > 1<<24:
		return j, 1, nil
	case j.Submit < 0:
		return j, 2, nil
	}
	j.Processors = int(processors)
	return j, -1, nil
}
