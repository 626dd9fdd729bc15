package agenda

import "testing"

// Of many ends few are tried, the last one among them.
func TestNextEnd(t *testing.T) {
	for n := 1; n <= 300; n++ {
		tried, last := 0, -1
		for k := 0; k < n; k = nextEnd(k, n) {
			if k <= last {
				t.Fatalf("of %d ends, %d is tried after %d", n, k, last)
			}
			tried, last = tried+1, k
		}
		if last != n-1 || tried > maxHeadTimes+1 {
			t.Errorf("of %d ends %d are tried, the last is %d", n, tried, last)
		}
	}
}
