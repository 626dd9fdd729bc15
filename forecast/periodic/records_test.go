package periodic

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestMissesOnRecords takes each day of a recorded VM for a run of a daily job, learns from the first two thirds of the days, and
// counts the others that need more. EVENKEEL_BITBRAINS is a directory of CSV files of the Bitbrains trace, EVENKEEL_GOOGLE2011 one
// of files vm_JOB_DAY.
func TestMissesOnRecords(t *testing.T) {
	ran := false
	for variable, load := range map[string]func(t *testing.T, dir string) [][][]float64{"EVENKEEL_BITBRAINS": bitbrainsDays, "EVENKEEL_GOOGLE2011": googleDays} {
		dir := os.Getenv(variable)
		if dir == "" {
			continue
		}
		ran = true
		jobs := load(t, dir)
		for _, debts := range []bool{true, false} {
			for _, chance := range []float64{0.2, 0.1} {
				missed, promised, runs, learned, withdrawn := 0.0, 0.0, 0.0, 0, 0
				reserved, p95, maxima, missedP95, used := 0.0, 0.0, 0.0, 0.0, 0.0
				for _, days := range jobs {
					train := days[:len(days)*2/3]
					if len(days) < 12 {
						train = days[:8]
					}
					m, err := Learn(train, Options{Miss: chance, Debts: debts})
					if err != nil { // no run needs anything
						continue
					}
					learned++
					var w Watch
					drift := Alike
					other := perStep(train, 0.95)
					for _, d := range days[len(train):] {
						if drift != Alike {
							break
						}
						runs++
						promised += m.Miss
						if m.Score(d) > 1+1e-9 {
							missed++
						}
						if factor(d, other, debts) > 1+1e-9 {
							missedP95++
						}
						reserved, p95, maxima, used = reserved+total(m.Skyline), p95+total(other), maxima+total(perStep(train, 1)), used+total(d)
						drift = w.Observe(m, d)
					}
					if drift != Alike {
						withdrawn++
					}
				}
				t.Logf("%s, debts %v, chance %.2f: %d of %d jobs learned, %d withdrawn; of %.0f runs missed %.3f, promised %.3f; reserved %.3f of used, p95 of each step %.3f (missed %.3f), maximum %.3f",
					variable, debts, chance, learned, len(jobs), withdrawn, runs, missed/runs, promised/runs, reserved/used, p95/used, missedP95/runs, maxima/used)
			}
		}
	}
	if !ran {
		t.Skip("EVENKEEL_BITBRAINS and EVENKEEL_GOOGLE2011 name no directories")
	}
}

func total(v []float64) (sum float64) {
	for _, x := range v {
		sum += x
	}
	return sum
}

// perStep is a percentile of each step.
func perStep(runs [][]float64, share float64) (out []float64) {
	for k := range runs[0] {
		v := make([]float64, len(runs))
		for i, r := range runs {
			v[i] = r[k]
		}
		out = append(out, percentile(v, share))
	}
	return out
}

const halfHours = 48

func bitbrainsDays(t *testing.T, dir string) (jobs [][][]float64) {
	files, err := filepath.Glob(filepath.Join(dir, "*.csv"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", dir, err)
	}
	for _, name := range files {
		sums, counts := map[int64][]float64{}, map[int64][]float64{}
		lines(t, name, func(line string) {
			f := strings.Split(line, ";")
			if len(f) < 4 {
				return
			}
			at, err := strconv.ParseInt(strings.TrimSpace(f[0]), 10, 64)
			use, err2 := strconv.ParseFloat(strings.TrimSpace(f[3]), 64)
			if err != nil || err2 != nil {
				return
			}
			day, step := at/86400, at%86400/1800
			if sums[day] == nil {
				sums[day], counts[day] = make([]float64, halfHours), make([]float64, halfHours)
			}
			sums[day][step] += use
			counts[day][step]++
		})
		var days [][]float64
		for day := int64(15887); day < 15887+40; day++ {
			if sums[day] == nil {
				continue
			}
			whole := true
			for k := range sums[day] {
				if counts[day][k] < 3 || counts[day][k] > 9 {
					whole = false
					break
				}
				sums[day][k] /= counts[day][k]
			}
			if whole {
				days = append(days, sums[day])
			}
		}
		if len(days) >= 20 {
			jobs = append(jobs, days)
		}
	}
	return jobs
}

func googleDays(t *testing.T, dir string) (jobs [][][]float64) {
	first, err := filepath.Glob(filepath.Join(dir, "vm_*_1"))
	if err != nil || len(first) == 0 {
		t.Fatalf("%s: %v", dir, err)
	}
	for _, name := range first {
		var days [][]float64
		for day := 1; day <= 10; day++ {
			run, n := make([]float64, halfHours), 0
			file := strings.TrimSuffix(name, "1") + strconv.Itoa(day)
			if _, err := os.Stat(file); err != nil {
				break
			}
			lines(t, file, func(line string) {
				if v, err := strconv.ParseFloat(strings.Fields(line)[0], 64); err == nil {
					run[min(halfHours-1, n/6)] += v / 6
					n++
				}
			})
			days = append(days, run)
		}
		if len(days) == 10 {
			jobs = append(jobs, days)
		}
	}
	return jobs
}

func lines(t *testing.T, name string, each func(line string)) {
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if s.Text() != "" {
			each(s.Text())
		}
	}
}
