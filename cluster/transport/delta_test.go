package transport

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files again")

// genDesired draws states of few VMs and few values, so that much stays as it was.
func genDesired() *rapid.Generator[agent.Desired] {
	small := rapid.Uint64Range(1, 2)
	return rapid.Custom(func(t *rapid.T) agent.Desired {
		d := agent.Desired{Cluster: "c", Index: small.Draw(t, "index"), CPU: rapid.Float64().Draw(t, "cpu"), Memory: rapid.Int64().Draw(t, "memory"), VMs: []agent.VM{}}
		if rapid.Bool().Draw(t, "same limits") {
			d.CPU, d.Memory = 1, 1
		}
		for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "é\n\"\u2028<"}), 0, 5, rapid.ID[string]).Draw(t, "ids") {
			v := vm(id, small.Draw(t, "generation"))
			v.MayStart = rapid.Bool().Draw(t, "may start")
			if rapid.Bool().Draw(t, "moves") {
				v.Move = &agent.Move{To: "h2", Incoming: rapid.Bool().Draw(t, "incoming")}
			}
			v.Spec.CPU.Cap = rapid.SampledFrom([]float64{0, 0.1, 1.0 / 3}).Draw(t, "cap")
			v.Spec.CloudInit.UserData = rapid.SampledFrom([]string{"", "#cloud-config\n"}).Draw(t, "user data")
			d.VMs = append(d.VMs, v)
		}
		return d
	})
}

// Any sequence of states comes out as it went in, VMs ordered by id.
func TestDesiredDelta(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e desiredEncoder
		var d desiredDecoder
		var wire bytes.Buffer
		lines := bufio.NewReaderSize(&wire, 16)
		var last agent.Desired
		for i, want := range rapid.SliceOfN(genDesired(), 1, 8).Draw(t, "states") {
			before := d.now
			kept := slices.Clone(before.VMs)
			f, differs := e.frame(want)
			if sorted := ordered(want); i > 0 && differs == (cmp.Diff(sorted, last) == "") {
				t.Fatalf("differs is %v: %s", differs, cmp.Diff(last, sorted))
			}
			last = ordered(want)
			if !differs {
				f = Frame{N: e.n}
			}
			if err := json.NewEncoder(&wire).Encode(f); err != nil {
				t.Fatal(err)
			}
			text, err := readLine(lines, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			var got Frame
			if err := decodeOne(text, &got); err != nil {
				t.Fatal(err)
			}
			changed, err := d.take(got)
			if err != nil || changed != differs {
				t.Fatal(changed, differs, err)
			}
			if diff := cmp.Diff(last, d.now); diff != "" {
				t.Fatal(diff)
			}
			if diff := cmp.Diff(kept, before.VMs); diff != "" {
				t.Fatalf("a state that was handed out changed: %s", diff)
			}
			for _, v := range f.Changed {
				if i > 0 && slices.ContainsFunc(before.VMs, func(o agent.VM) bool { return cmp.Equal(o, v) }) {
					t.Fatalf("VM %s did not change, but was sent", idOf(v))
				}
			}
		}
	})
}

func ordered(d agent.Desired) agent.Desired {
	d.VMs = slices.SortedFunc(slices.Values(d.VMs), byID)
	if d.VMs == nil {
		d.VMs = []agent.VM{}
	}
	return d
}

// A frame that is lost, doubled or out of order is found out.
func TestDesiredDeltaOrder(t *testing.T) {
	var e desiredEncoder
	var frames []Frame
	for i := range uint64(3) {
		f, _ := e.frame(agent.Desired{Index: i + 1, VMs: []agent.VM{vm("a", i)}})
		frames = append(frames, f)
	}
	for what, order := range map[string][]Frame{
		"lost":           {frames[0], frames[2]},
		"doubled":        {frames[0], frames[0]},
		"not whole":      {frames[1]},
		"of another":     {frames[0], {N: 2}},
		"beat first":     {{N: 1}},
		"reported twice": {{N: 1, Head: &agent.Desired{}, Changed: []agent.VM{vm("a", 1), vm("a", 2)}}},
		"gone and in":    {{N: 1, Head: &agent.Desired{}, Changed: []agent.VM{vm("a", 1)}, Removed: []string{"a"}}},
	} {
		var d desiredDecoder
		var err error
		for _, f := range order {
			if _, err = d.take(f); err != nil {
				break
			}
		}
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// Any sequence of reports comes out as it went in, whichever of them are lost on the way there or back.
func TestReportDelta(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e reportEncoder
		var d reportDecoder
		var last agent.Report // that was taken
		var lastSamples []agent.Sample
		for n := uint64(1); n <= 8; n++ {
			r := agent.Report{Host: "h1", Reach: true, Foreign: agent.Limits{CPU: rapid.SampledFrom([]float64{0, 0.3}).Draw(t, "foreign")},
				Error:     rapid.SampledFrom([]string{"", "no"}).Draw(t, "error"),
				Index:     rapid.SampledFrom([]uint64{0, 0, 5, 6}).Draw(t, "index"),
				Unmanaged: rapid.SampledFrom([][]string{nil, {}, {"x"}}).Draw(t, "unknown"),
				Running:   rapid.SampledFrom([][]agent.Instance{nil, {}, {{VM: "a", Generation: 1}}, {{VM: "b"}, {VM: "a", Generation: 1}}, {{VM: "a", Generation: 2}, {VM: "b"}, {VM: "b"}}}).Draw(t, "running"),
				Statuses:  rapid.SampledFrom([][]agent.Status{nil, {}, {{VM: "a", Phase: agent.PhaseRunning}}}).Draw(t, "statuses"),
				Samples:   rapid.SampledFrom([][]agent.Sample{nil, {}, {{VM: "a", State: "running", At: time.Unix(5, 7).UTC(), Used: 0.1}}, {{VM: "a", State: "paused"}}}).Draw(t, "samples"),
			}
			for whole := false; ; whole = true {
				known := e.n > 0
				due := rapid.Bool().Draw(t, "due")
				c, news, err := e.change(r, due)
				if err != nil {
					t.Fatal(err)
				}
				was, is := last, r
				was.Statuses, was.Samples, was.Estimates, is.Statuses, is.Samples, is.Estimates, is.Running = nil, nil, nil, nil, nil, nil, byInstance(r.Running)
				if is.Index == 0 {
					was.Index = 0
				}
				before, _ := json.Marshal(was)
				now, _ := json.Marshal(is)
				if wanted := !known || len(r.Statuses) > 0 || len(r.Estimates) > 0 || !bytes.Equal(before, now); news != wanted {
					t.Fatalf("news %v after %+v: %+v", news, last, r)
				}
				if (c.Head == nil) != (c.Since != 0) || (c.Index != nil || c.Ran != nil || c.Left != nil) && c.Head != nil {
					t.Fatalf("%+v", c)
				}
				if reported := c.Samples != nil; reported != (r.Samples != nil && (due || !e.last.sampled || len(r.Estimates) > 0 || stateOf(r) != stateOf(last) || news && c.Head != nil)) {
					t.Fatalf("samples reported: %v, due %v, known %v, %+v after %+v", reported, due, known, r, last)
				}
				outcome := rapid.SampledFrom([]string{"fine", "fine", "fine", "lost", "answer lost"}).Draw(t, "fate")
				if outcome == "lost" {
					e = reportEncoder{}
					break
				}
				text, err := json.Marshal(c)
				if err != nil {
					t.Fatal(err)
				}
				var got Change
				if err := decodeOne(text, &got); err != nil {
					t.Fatal(err)
				}
				back, err := d.take(got)
				if errors.Is(err, errWhole) && !whole {
					e = reportEncoder{}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				want := r
				want.Running, want.Samples = byInstance(r.Running), c.Samples
				if diff := cmp.Diff(want, back); diff != "" {
					t.Fatal(diff)
				}
				d.keep(n, back)
				if last = want; r.Samples == nil || c.Samples == nil {
					last.Samples = lastSamples
				}
				lastSamples = last.Samples
				if e.taken(n); outcome == "answer lost" {
					e = reportEncoder{}
				}
				if rapid.IntRange(0, 5).Draw(t, "leader changes") == 0 {
					d = reportDecoder{}
				}
				break
			}
		}
	})
}

// stateOf returns the state of the VM a by the samples that were reported: "" if it runs.
func stateOf(r agent.Report) string {
	for _, s := range r.Samples {
		if s.State != "running" {
			return s.State
		}
	}
	return ""
}

// What did not change is not sent again.
func TestReportDeltaIsSmall(t *testing.T) {
	var e reportEncoder
	r := agent.Report{Host: "h1", Running: make([]agent.Instance, 10)}
	change := func(head, news bool) (c Change) {
		t.Helper()
		c, is, err := e.change(r, true)
		if err != nil || (c.Head != nil) != head || is != news {
			t.Fatalf("%+v, news %v, %v", c, is, err)
		}
		return c
	}
	change(true, true)
	e.taken(7)
	if c := change(false, false); c.Since != 7 {
		t.Fatalf("%+v", c)
	}
	r.Running[3].VM = "a" // the agent goes on using its slices
	if c := change(false, true); len(c.Ran) != 1 || len(c.Left) != 1 {
		t.Fatalf("%+v", c)
	}
	r.Running[3].VM = ""
	r.Index = 9
	change(false, true)
	e.taken(8)
	change(false, false)
	r.Index = 0
	change(false, false) // the leader keeps 9
	r.Statuses = []agent.Status{{VM: "a"}}
	if c := change(false, true); c.Since != 8 || c.Index == nil || *c.Index != 0 {
		t.Fatalf("%+v", c)
	}
	r.Running = append(slices.Clone(r.Running), agent.Instance{VM: "a"})
	if c := change(false, true); c.Since != 8 || !slices.Equal(c.Ran, r.Running[10:]) || c.Left != nil {
		t.Fatalf("%+v", c)
	}
}

func TestReadLine(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, c := range []struct {
		in   string
		want []string
		err  error
	}{
		{"a\nb\n", []string{"a\n", "b\n"}, io.EOF},
		{"", nil, io.EOF},
		{"a\nb", []string{"a\n"}, io.ErrUnexpectedEOF},
		{long[:99] + "\n", []string{long[:99] + "\n"}, io.EOF},
		{long + "\n", nil, ErrTooLarge},
		{long, nil, ErrTooLarge},
	} {
		r := bufio.NewReaderSize(strings.NewReader(c.in), 16)
		var got []string
		var err error
		for {
			var line []byte
			limit := 100
			if c.err == ErrTooLarge && len(c.in) == 100 {
				limit = 99
			}
			if line, err = readLine(r, limit); err != nil {
				break
			}
			got = append(got, string(line))
		}
		if !slices.Equal(got, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%.10q: %q, %v", c.in, got, err)
		}
	}
}

// Whatever a stream has, the decoder neither panics nor gives a state with a VM twice.
func FuzzFrames(f *testing.F) {
	var e desiredEncoder
	var seed bytes.Buffer
	for i := range uint64(3) {
		frame, _ := e.frame(agent.Desired{Cluster: "c", Index: i, VMs: []agent.VM{vm("a", i), vm("b", 1)}[:1+i%2]})
		if err := json.NewEncoder(&seed).Encode(frame); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(seed.Bytes())
	f.Add([]byte("{\"n\":0}\n"))
	f.Add([]byte("{\"n\":1,\"head\":{},\"changed\":[{},{}]}\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(in), 16)
		var d desiredDecoder
		for {
			text, err := readLine(r, 1<<16)
			if err != nil {
				return
			}
			var frame Frame
			if decodeOne(text, &frame) != nil {
				return
			}
			if _, err := d.take(frame); err != nil {
				return
			}
			for i := 1; i < len(d.now.VMs); i++ {
				if idOf(d.now.VMs[i-1]) >= idOf(d.now.VMs[i]) {
					t.Fatalf("VMs out of order: %q, %q", idOf(d.now.VMs[i-1]), idOf(d.now.VMs[i]))
				}
			}
		}
	})
}

// FuzzChange: whatever an agent reports, the leader's side does not panic.
func FuzzChange(f *testing.F) {
	f.Add([]byte(`{"head":{"Host":"h1"},"statuses":[],"samples":null}`), []byte(`{"since":1}`))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		var d reportDecoder
		for i, text := range [][]byte{one, two} {
			var c Change
			if decodeOne(text, &c) != nil {
				return
			}
			if r, err := d.take(c); err == nil {
				d.keep(uint64(i+1), r)
			}
		}
	})
}

// The messages between members of different versions: what testdata has, as an earlier version wrote it, is understood for
// ever. -rewrite writes it as this version does, for a new file beside the old.
func TestWireFormat(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	moving := vm("b", 2)
	moving.Move = &agent.Move{To: "h2", URI: "qemu+tcp://h2/system"}
	moving.Spec.Disk = hypervisor.Disk{Base: "/images/debian.qcow2", Size: 10 << 30, Pool: "default"}
	var e desiredEncoder
	first, _ := e.frame(agent.Desired{Cluster: "c", Epoch: 1, Index: 7, CPU: 3.75, Memory: 8 << 30, Overhead: 100 << 20, VMs: []agent.VM{vm("a", 1), moving}})
	first.Servers = []string{"10.0.0.1:7480", "10.0.0.2:7480"}
	second, _ := e.frame(agent.Desired{Cluster: "c", Epoch: 1, Index: 8, CPU: 3.75, Memory: 8 << 30, Overhead: 100 << 20, VMs: []agent.VM{vm("b", 2)}})
	var reports reportEncoder
	report := agent.Report{Host: "h1", Capacity: hypervisor.Capacity{Name: "h1", CPU: 4, Memory: 8 << 30, KVM: true, Software: "libvirt", Cgroup: 2}, Reach: true, Index: 8,
		Statuses: []agent.Status{{VM: "a", Generation: 1, Phase: agent.PhaseStopped, SourceLost: true, Reason: "shutdown"}},
		Samples:  []agent.Sample{{VM: "b", Generation: 2, At: at, State: "running", Cap: 1, Used: 0.5, VCPUTime: 3 * time.Second, Balloon: 1 << 30}},
		Running:  []agent.Instance{{VM: "b", Name: "ek-b", Generation: 2}}}
	change, _, err := reports.change(report, true)
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	for _, v := range []any{first, Frame{N: 1}, second, change,
		agent.Renewal{Host: "h1", Enforcing: true, Watchdog: 10 * time.Second, Boot: "b1"},
		agent.Grant{Epoch: 1, Term: 2, Index: 3, Lease: 20 * time.Second, Enforce: true, Servers: []string{"10.0.0.1:7480"}},
		agent.PermitRequest{Host: "h1", Starts: []agent.Instance{{VM: "a", Generation: 2}}},
		agent.Permit{Epoch: 1, Term: 2, Index: 3, Granted: []agent.Instance{{VM: "a", Generation: 2}}},
		JoinRequest{ID: "i", Secret: "s", Name: "h1", Address: "10.0.0.3:7480", Request: "PEM"},
		JoinAnswer{Cluster: "c", Certificate: Certificate{Cert: "PEM", CA: "PEM"}, CAKey: "PEM", GossipKey: []byte{1}, Servers: []string{"10.0.0.1:7480"}},
		certificateRequest{Request: "PEM"}, sessionAnswer{Session: 5},
	} {
		if err := json.NewEncoder(&lines).Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join("testdata", "wire-1.ndjson")
	if *rewrite {
		if err := os.WriteFile(name, lines.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var d desiredDecoder
	for i, line := range bytes.Split(bytes.TrimSpace(kept), []byte("\n"))[:4] {
		if i < 3 {
			var f Frame
			if err := decodeOne(line, &f); err != nil {
				t.Fatal(err)
			}
			if _, err := d.take(f); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var c Change
		if err := decodeOne(line, &c); err != nil {
			t.Fatal(err)
		}
		got, err := (&reportDecoder{}).take(c)
		if diff := cmp.Diff(report, got); err != nil || diff != "" {
			t.Error(err, diff)
		}
	}
	var grant agent.Grant
	if err := decodeOne(bytes.Split(kept, []byte("\n"))[5], &grant); err != nil || grant.Lease != 20*time.Second || !grant.Enforce {
		t.Errorf("%+v, %v", grant, err)
	}
	if d.now.Index != 8 || len(d.now.VMs) != 1 || d.now.VMs[0].Spec.Generation != 2 {
		t.Errorf("%+v", d.now)
	}
}

// Pressure changes all the time: it comes with the samples, and does not make a report whole.
func TestPressureIsNoNews(t *testing.T) {
	var e reportEncoder
	var d reportDecoder
	for i, p := range []*hypervisor.Pressure{{CPU: 0.25, Memory: hypervisor.Unknown}, {CPU: 0.5}, nil, {IO: 1}} {
		c, news, err := e.change(agent.Report{Host: "h1", Reach: true, Pressure: p, Samples: []agent.Sample{{VM: "a"}}}, true)
		if err != nil || news != (i == 0) || (c.Head != nil) != (i == 0) {
			t.Fatalf("report %d: news %v, head %s, %v", i, news, c.Head, err)
		}
		got, err := d.take(c)
		if err != nil || (got.Pressure == nil) != (p == nil) || p != nil && *got.Pressure != *p {
			t.Errorf("report %d: %+v, want %+v, %v", i, got.Pressure, p, err)
		}
		d.keep(uint64(i+1), got)
		e.taken(uint64(i + 1))
	}
}

// The same holds for a host's availability: it comes with the samples, and a report that was made does not change with a later
// one.
func TestAvailableIsNoNews(t *testing.T) {
	var e reportEncoder
	var d reportDecoder
	for i, a := range []*agent.Available{{Available: agent.Limits{CPU: 1}, VMs: map[string]uint64{"a": 1}}, {Available: agent.Limits{CPU: 2}}, nil, {Used: agent.Limits{Memory: 1}}} {
		c, news, err := e.change(agent.Report{Host: "h1", Reach: true, Available: a, Samples: []agent.Sample{{VM: "a"}}}, true)
		if err != nil || news != (i == 0) || (c.Head != nil) != (i == 0) {
			t.Fatalf("report %d: news %v, head %s, %v", i, news, c.Head, err)
		}
		got, err := d.take(c)
		if err != nil || !reflect.DeepEqual(got.Available, a) {
			t.Errorf("report %d: %+v, want %+v, %v", i, got.Available, a, err)
		}
		d.keep(uint64(i+1), got)
		e.taken(uint64(i + 1))
	}
}

// A guest that is short of memory, and one that is not any more, are news; so are estimates. They are in one change only.
func TestPressureAndEstimatesAreNews(t *testing.T) {
	var e reportEncoder
	var d reportDecoder
	guest := func(pressure string) []agent.Sample {
		return []agent.Sample{{VM: "a"}, {VM: "b", Guest: &agent.Guest{Pressure: pressure}}}
	}
	for i, c := range []struct {
		report agent.Report
		news   bool
	}{
		{agent.Report{Samples: guest("")}, true},
		{agent.Report{Samples: guest("")}, false},
		{agent.Report{Samples: guest("10 MiB are left")}, true},
		{agent.Report{Samples: guest("9 MiB are left")}, false},
		{agent.Report{}, false},
		{agent.Report{Samples: guest("9 MiB are left"), Estimates: []agent.Estimate{{VM: "b", CPU: agent.Ahead{Mean: []float64{1}, Deviation: []float64{0.5}, Trusted: true}}}}, true},
		{agent.Report{Samples: guest("")}, true},
		{agent.Report{Samples: guest("")}, false},
	} {
		ch, news, err := e.change(c.report, true)
		if err != nil || news != c.news || (ch.Head != nil) != (i == 0) {
			t.Fatalf("report %d: news %v, head %s, %v", i, news, ch.Head, err)
		}
		b, err := json.Marshal(ch)
		if err != nil {
			t.Fatal(err)
		}
		var sent Change
		if err := decodeOne(b, &sent); err != nil {
			t.Fatal(err)
		}
		got, err := d.take(sent)
		if diff := cmp.Diff(c.report, got); err != nil || diff != "" {
			t.Errorf("report %d: %v (-want +got)\n%s", i, err, diff)
		}
		d.keep(uint64(i+1), got)
		e.taken(uint64(i + 1))
	}
}
