package morpheus

import "testing"

// TestPromises: about as many runs need more than is reserved as was promised, at most twice as many, which is what theory allows; and a smaller chance reserves more.
func TestPromises(t *testing.T) {
	reserved, missed := map[float64]float64{}, map[float64]float64{}
	for _, chance := range []float64{0.05, 0.25} {
		promised, more, n := 0.0, 0.0, 3.0
		for seed := range uint64(n) {
			s, err := NewStudy(Options{Seed: 101 + seed, Jobs: 30, Days: 30})
			if err != nil {
				t.Fatal(err)
			}
			promises, skylines := s.promised(chance)
			p, m := s.kept(promises)
			promised, more = promised+p/n, more+m/n
			plan, err := place(s.learned, skylines, lowCost)
			if err != nil {
				t.Fatal(err)
			}
			o := plan.onlyReserved(s.learned)
			reserved[chance] += o.Reserved
			missed[chance] += o.missShare() / n
			for i, p := range promises {
				if p.learned && p.Miss < 1/float64(p.Runs+1)-1e-9 {
					t.Fatalf("%s: %v is promised of %d runs", s.learned[i].job.Name, p.Miss, p.Runs)
				}
			}
		}
		t.Logf("asked %v: promised %.3f, needed more %.3f, missed %.3f", chance, promised, more, missed[chance])
		if promised < chance/1.5 || promised > 2*chance || more > 2*promised || more < promised/3 {
			t.Errorf("asked %v: promised %v, and %v of the runs needed more", chance, promised, more)
		}
	}
	if reserved[0.05] <= reserved[0.25] || missed[0.05] >= missed[0.25] {
		t.Errorf("reserved %v, missed %v", reserved, missed)
	}
}
