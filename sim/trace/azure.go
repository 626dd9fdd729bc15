package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// AzureFiles are those of the VM arrivals of Azure's trace of 2017 as Bergsma et al. (SOSP 2021) prepared them. The last two may be left
// out together.
type AzureFiles struct {
	Arrivals  Source  // "seconds flavour,flavour,|,...,": a bar ends what one tenant asked for together
	Flavours  Source  // "cores,GB flavour"
	Lifetimes *Source // as Arrivals, with U<bin>, or C<bin> for a VM that still ran, in the place of flavours
	Bins      *Source // "seconds bin"
}

// flavour is a size of VMs.
type flavour struct{ cpu, memory float64 }

// LoadAzure reads VM arrivals, in order. A lifetime is the mean of the seconds of its bin. A GB counts as a GiB.
func LoadAzure(o Options, f AzureFiles) ([]Request, error) {
	o = o.withDefaults()
	if (f.Lifetimes == nil) != (f.Bins == nil) {
		return nil, errors.New("lifetimes and their bins are of no use without each other")
	}
	flavours := map[string]flavour{}
	if err := f.Flavours.read(o, func(r io.Reader) error { return readFlavours(r, flavours) }); err != nil {
		return nil, err
	}
	var all []Request
	err := f.Arrivals.read(o, func(r io.Reader) error {
		return azureLines(r, o.MaxLength, func(at float64, batch int, field string) error {
			size, ok := flavours[field]
			if !ok {
				return fmt.Errorf("there is no flavour %q", field)
			}
			all = append(all, Request{Batch: batch, Submit: at, Start: math.NaN(), Run: math.NaN(), CPU: size.cpu, Memory: size.memory})
			return nil
		})
	})
	if err != nil || f.Lifetimes == nil {
		return all, err
	}
	bins := map[string]*[2]float64{} // sum and number of the seconds
	if err := f.Bins.read(o, func(r io.Reader) error { return readBins(r, bins) }); err != nil {
		return nil, err
	}
	n := 0
	err = f.Lifetimes.read(o, func(r io.Reader) error {
		return azureLines(r, o.MaxLength, func(at float64, batch int, field string) error {
			if n == len(all) || all[n].Submit != at || all[n].Batch != batch {
				return fmt.Errorf("VM %d at %g s of batch %d is not among the arrivals", n+1, at, batch)
			}
			if field == "" || field[0] != 'U' && field[0] != 'C' {
				return fmt.Errorf("%q is no lifetime", field)
			}
			bin := bins[field[1:]]
			if bin == nil {
				return fmt.Errorf("there is no bin %q", field[1:])
			}
			all[n].Run, all[n].Censored = bin[0]/bin[1], field[0] == 'C'
			n++
			return nil
		})
	})
	if err == nil && n != len(all) {
		err = fmt.Errorf("%s: lifetimes of %d VMs, %d arrived", f.Lifetimes.Name, n, len(all))
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

// azureLines calls each for every VM of a file of arrivals or lifetimes, in order.
func azureLines(r io.Reader, limit int, each func(at float64, batch int, field string) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<24)
	last, batch, vms := -1.0, 0, 0
	for n := 1; s.Scan(); n++ {
		when, list, some := strings.Cut(strings.TrimSpace(s.Text()), " ")
		if when == "" {
			continue
		}
		at, err := amount("time", when)
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if at <= last {
			return fmt.Errorf("line %d: %g s after %g s", n, at, last)
		}
		last = at
		open := false // the batch has VMs
		for some {
			var field string
			field, list, some = strings.Cut(list, ",")
			switch field = strings.TrimSpace(field); field {
			case "|":
				batch++
				open = false
			case "":
				if some {
					return fmt.Errorf("line %d: nothing between two commas", n)
				}
			default:
				if vms++; vms > limit {
					return fmt.Errorf("line %d: more than %d VMs", n, limit)
				}
				if err := each(at, batch, field); err != nil {
					return fmt.Errorf("line %d: %w", n, err)
				}
				open = true
			}
		}
		if open { // no batch goes on in another line
			batch++
		}
	}
	return s.Err()
}

func readFlavours(r io.Reader, into map[string]flavour) error {
	return lines(r, func(text string) error {
		size, name, ok := strings.Cut(text, " ")
		cores, gb, ok2 := strings.Cut(size, ",")
		if name = strings.TrimSpace(name); !ok || !ok2 || name == "" {
			return fmt.Errorf("%q is not like cores,GB name", text)
		}
		cpu, err := amount("cores", cores)
		if err != nil {
			return err
		}
		memory, err := amount("GB", gb)
		if err != nil {
			return err
		}
		if _, twice := into[name]; twice {
			return fmt.Errorf("flavour %q is there twice", name)
		}
		into[name] = flavour{cpu, memory * (1 << 30)}
		return nil
	})
}

func readBins(r io.Reader, into map[string]*[2]float64) error {
	return lines(r, func(text string) error {
		seconds, bin, _ := strings.Cut(text, " ")
		v, err := amount("seconds", seconds)
		if err != nil {
			return err
		}
		if _, err := strconv.ParseUint(bin, 10, 16); err != nil {
			return fmt.Errorf("%q is no bin", bin)
		}
		b := into[bin]
		if b == nil {
			b = &[2]float64{}
			into[bin] = b
		}
		b[0], b[1] = b[0]+v, b[1]+1
		return nil
	})
}
