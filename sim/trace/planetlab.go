package trace

import (
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"
)

func knownPlanetLab(head []byte) bool {
	return everyLine(head, func(line string) bool {
		n, err := strconv.Atoi(line)
		return err == nil && n >= -1 && n <= 1000 // whole percents; those of several cores may go beyond 100
	})
}

// readPlanetLab reads one VM's day. Days are not joined: a slice is seldom on the same node on the days that were published.
func readPlanetLab(c *collector, name string, r io.Reader) error {
	var values []float64
	err := lines(r, func(text string) error {
		v, err := number(text)
		if err != nil {
			return err
		}
		if len(values) >= c.o.MaxLength {
			return fmt.Errorf("more than %d rows", c.o.MaxLength)
		}
		values = append(values, v)
		return nil
	})
	if err != nil {
		return err
	}
	if len(values) == 0 {
		return c.leaveOut(name, "no rows")
	}
	start, err := time.Parse("20060102", path.Base(path.Dir(name)))
	if err != nil {
		start = time.Time{} // the folder is not named after a day
	}
	return c.add(Series{Set: string(PlanetLab), VM: strings.TrimPrefix(name, "./"), Resource: CPU, Step: fiveMinute, Start: start, Values: values, Limit: 100})
}
