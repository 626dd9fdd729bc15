package allocator_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/allocator"
)

// oneByOne decides on a queue with nothing but AdmitUnder: the oracle of AdmitQueue.
func oneByOne(p allocator.Problem, r *allocator.Rules, requests []allocator.Request) (answers []allocator.Admission, hosts [][][]int, after allocator.Problem) {
	order := make([]int, len(requests))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return requests[y].Priority - requests[x].Priority })
	answers, hosts = make([]allocator.Admission, len(requests)), make([][][]int, len(requests))
	for _, i := range order {
		q := p
		q.Groups = slices.Concat(p.Groups, requests[i].Groups)
		for g := len(p.Groups); g < len(q.Groups); g++ {
			q.Groups[g].Requested = true
		}
		var rules *allocator.Rules
		if r != nil || requests[i].Rules != nil {
			rules = &allocator.Rules{ByCluster: true, Labels: make([]map[string]string, len(q.Groups)), Affinity: make([]*allocator.Affinity, len(q.Groups))}
			for at, from := range map[int]*allocator.Rules{0: r, len(p.Groups): requests[i].Rules} {
				if from != nil {
					copy(rules.Labels[at:], from.Labels)
					copy(rules.Affinity[at:], from.Affinity)
				}
			}
		}
		answers[i] = allocator.AdmitUnder(q, rules)
		if !answers[i].Admitted {
			continue
		}
		placed := answers[i].Solution.Hosts
		for g := range q.Groups {
			q.Groups[g].Hosts, q.Groups[g].Requested = placed[g], false
		}
		hosts[i] = placed[len(p.Groups):]
		answers[i].Solution = allocator.Solution{}
		p, r = q, rules
	}
	return answers, hosts, p
}

// The queue is decided as one request after the other would be.
func TestAdmitQueueIsOneByOne(t *testing.T) {
	admitted, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := grow(t, func(allocator.Problem, allocator.Admission) {})
		p.Policy = allocator.AsFound // a queue asks what fits
		ruled := rapid.Bool().Draw(t, "ruled")
		var rules *allocator.Rules
		if ruled {
			rules = drawRules(t, p, &allocator.Rules{}, 0)
		}
		var requests []allocator.Request
		for i := range rapid.IntRange(0, 8).Draw(t, "requests") {
			r := allocator.Request{Priority: rapid.IntRange(-1, 1).Draw(t, "priority")}
			floor := hundredths(t, "floor", 0, 100)
			count := rapid.IntRange(1, 4).Draw(t, "count")
			for g := range rapid.IntRange(1, 2).Draw(t, "groups") {
				r.Groups = append(r.Groups, allocator.Group{Cluster: fmt.Sprintf("q%d", i), Name: fmt.Sprintf("g%d", g), Count: count,
					CPU: float64(rapid.IntRange(0, 6).Draw(t, "quarters")) / 4, Memory: float64(rapid.IntRange(0, 4).Draw(t, "quarters")) / 4, MinYield: floor})
			}
			if rapid.IntRange(0, 5).Draw(t, "bound") == 0 {
				r.Groups[0].Hosts = make([]int, count)
				r.Groups[0].Hosts[0] = rapid.IntRange(-1, len(p.Hosts)-1).Draw(t, "host")
				for vm := 1; vm < count; vm++ {
					r.Groups[0].Hosts[vm] = -1
				}
			}
			if ruled && rapid.Bool().Draw(t, "with rules") {
				alone := allocator.Problem{Hosts: p.Hosts, Groups: r.Groups}
				r.Rules = drawRules(t, alone, &allocator.Rules{}, 0)
			}
			requests = append(requests, r)
		}
		before := fmt.Sprintf("%+v %+v", p, requests)
		want, hosts, after := oneByOne(p, rules, requests)
		q := allocator.AdmitQueue(p, rules, requests, true)
		brief := allocator.AdmitQueue(p, rules, requests, false)
		if !reflect.DeepEqual(q, allocator.AdmitQueue(p, rules, requests, true)) {
			t.Fatal("two answers to one queue")
		}
		if fmt.Sprintf("%+v %+v", p, requests) != before {
			t.Fatal("the problem or a request is not as it was")
		}
		n := 0
		for i := range requests {
			if !reflect.DeepEqual(q.Answers[i], want[i]) || !reflect.DeepEqual(q.Hosts[i], hosts[i]) {
				t.Fatalf("request %d: got %+v on %v\nwant %+v on %v\n%s", i, q.Answers[i], q.Hosts[i], want[i], hosts[i], before)
			}
			b := brief.Answers[i]
			if b.Admitted != want[i].Admitted || b.NeverFits != want[i].NeverFits || b.Asked != want[i].Asked || b.TriedMinYield != want[i].TriedMinYield || b.Admitted == (b.Summary != "") || !reflect.DeepEqual(brief.Hosts[i], hosts[i]) {
				t.Fatalf("request %d in brief: got %+v\nwant %+v", i, b, want[i])
			}
			if want[i].Admitted {
				admitted++
				n++
			} else {
				refused++
			}
		}
		if q.Admitted != n || brief.Admitted != n {
			t.Fatalf("%d and %d admitted, want %d", q.Admitted, brief.Admitted, n)
		}
		if err := checkSolution(after, q.Solution); err != nil || !reflect.DeepEqual(q.Solution, brief.Solution) {
			t.Fatalf("%v: %+v, %+v", err, q.Solution, brief.Solution)
		}
	})
	t.Logf("%d admitted, %d refused", admitted, refused)
}

// By priority, then age; what fits passes what does not.
func TestAdmitQueueOrder(t *testing.T) {
	p := allocator.Problem{Hosts: []allocator.Host{{Name: "h1", CPU: 4, Memory: 8}}}
	request := func(name string, priority int, cpu float64) allocator.Request {
		return allocator.Request{Priority: priority, Groups: []allocator.Group{{Cluster: name, Name: "g", Count: 1, CPU: cpu, Memory: 1, MinYield: 1}}}
	}
	q := allocator.AdmitQueue(p, nil, []allocator.Request{request("old", 0, 2), request("young", 0, 2), request("huge", 9, 8), request("urgent", 5, 2), request("small", -1, 0.5)}, false)
	if !slices.Equal(q.Order, []int{2, 3, 0, 1, 4}) || q.Admitted != 2 {
		t.Errorf("order %v, %d admitted", q.Order, q.Admitted)
	}
	for i, want := range []bool{true, false, false, true, false} {
		if q.Answers[i].Admitted != want || q.Answers[i].NeverFits != (i == 2) {
			t.Errorf("request %d: %+v", i, q.Answers[i])
		}
	}
	if got := q.Answers[2].Summary; got != "at most 0 of 1 VM of huge/g fit: one needs 8 cores of CPU at least and 1 bytes of memory" {
		t.Errorf("huge: %q", got)
	}
	malformed := request("bad", 0, -1)
	q = allocator.AdmitQueue(p, nil, []allocator.Request{malformed, request("good", 0, 1)}, false)
	if q.Answers[0].Admitted || !q.Answers[1].Admitted {
		t.Errorf("a malformed one before a good one: %+v", q.Answers)
	}
	if q := allocator.AdmitQueue(allocator.Problem{}, nil, []allocator.Request{malformed}, false); q.Answers[0].Admitted || q.Answers[0].Summary == "" {
		t.Errorf("no host: %+v", q)
	}
}
