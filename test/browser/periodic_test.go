package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/site"
)

// ran has a virtual cluster of a periodic job run and end.
func (c *cluster) ran(name, job string, of ...client.Option) {
	c.t.Helper()
	spec := v1.VirtualClusterSpec{Name: name, Periodic: &v1.PeriodicSpec{Name: job}, Groups: []v1.GroupSpec{{Name: "vm", Count: 2, CPU: 0.5, Memory: 256 << 20, Image: "tiny"}}}
	r, err := c.api.Create(c.t.Context(), spec, of...)
	must(c.t, err)
	_, err = c.api.Wait(c.t.Context(), *r.Operation, nil)
	must(c.t, err)
	r, err = c.api.Delete(c.t.Context(), name, of...)
	must(c.t, err)
	_, err = c.api.Wait(c.t.Context(), *r.Operation, nil)
	must(c.t, err)
}

// TestPeriodicWork: an owner of a tenant signs a job off, sees what is reserved in a calendar without hosts, leaves a day out and takes it
// back, changes the deadline and rejects the job; an operator sees the hosts that keep room.
func TestPeriodicWork(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	c := startHosts(t, 2)
	_, err := c.api.CreateTenant(t.Context(), v1.TenantRequest{Name: "film"})
	must(t, err)
	c.ran("render-1", "nightly", client.OfTenant("film"))
	token, err := c.api.MakeToken(t.Context(), v1.TokenRequest{Name: "of film", Role: "owner", Tenant: "film"})
	must(t, err)

	tab := c.login(b, "h1", "/ui/periodic", token.Token)
	tab.Until("the job", func() bool { return strings.Contains(tab.Text(), "nightly") && strings.Contains(tab.Text(), "found") })
	tab.Go(c.page("h1", "/ui/periodic/nightly"))
	tab.Until("why there is no proposal", func() bool { return strings.Contains(tab.Text(), "no period was found") })
	accessible(tab, "a job that was found")

	const signOff = `form:has(input[value=accept]) `
	tab.Fill(signOff+`input[name=rule]`, "FREQ=SECONDLY")
	tab.Fill(signOff+`input[name=length]`, "10m")
	tab.Until("what is wrong, while it is written", func() bool {
		return tab.Is(`document.querySelector("` + signOff + `[data-answer] .problem") !== null`)
	})
	tab.Fill(signOff+`input[name=rule]`, "FREQ=HOURLY")
	tab.Fill(signOff+`input[name=deadline]`, "30m")
	tab.Fill(signOff+`input[name=zone]`, "Europe/Berlin")
	tab.Until("what it would do, while it is written", func() bool {
		text := tab.Text()
		return strings.Contains(text, "The job would be accepted") && strings.Contains(text, "vcctl periodic accept nightly --zone Europe/Berlin --deadline 30m --rule FREQ=HOURLY --length 10m")
	})
	if j, err := c.api.PeriodicJob(t.Context(), "nightly", "", client.OfTenant("film")); err != nil || j.State != "found" {
		t.Fatalf("a check decided: %+v %v", j, err)
	}
	tab.Clean()
	tab.Press("Sign off")
	tab.Until("what is reserved, without a reload", func() bool {
		return strings.Contains(tab.Text(), "accepted by") && strings.Contains(tab.Text(), "confirmed") && strings.Contains(tab.Text(), "clock of Europe/Berlin")
	})
	j, err := c.api.PeriodicJob(t.Context(), "nightly", "", client.OfTenant("film"))
	must(t, err)
	if j.State != "accepted" || j.Contract.Deadline != "30m" || j.Contract.Zone != "Europe/Berlin" || len(j.Occurrences) < 20 {
		t.Fatalf("%+v %+v", j, j.Contract)
	}
	if shown := Eval[int](tab, `document.querySelectorAll(".calendar ul li").length`); shown < 20 || shown > len(j.Occurrences)+1 {
		t.Errorf("the calendar has %d of %d occurrences", shown, len(j.Occurrences))
	}
	if text := tab.Text(); hostName.MatchString(text) {
		t.Errorf("a tenant sees a host: %s", text)
	}
	accessible(tab, "a job that was signed off")

	zone, err := time.LoadLocation("Europe/Berlin")
	must(t, err)
	date := j.Occurrences[len(j.Occurrences)-1].Period.In(zone).Format(time.DateOnly)
	skipped := func() bool {
		return tab.Is(fmt.Sprintf(`[...document.querySelectorAll(".calendar > li")].some((d) => d.innerText.includes("Keep %s") && d.innerText.includes("skipped"))`, date))
	}
	tab.Press("Skip " + date)
	tab.Until("the day has no run", skipped)
	tab.Press("Keep " + date)
	tab.Until("the day has runs again", func() bool {
		return strings.Contains(tab.Text(), "Skip "+date) && !strings.Contains(tab.Text(), "Keep "+date)
	})
	tab.Fill(`form:has(input[value=override]) input[name=deadline]`, "45m")
	tab.Press("Change")
	tab.Until("the deadline is another", func() bool { return strings.Contains(tab.Text(), "45m after the start") })
	tab.Clean()

	operator := c.login(Start(t, required), "h1", "/ui/periodic", site.Token)
	operator.Until("the agenda with hosts", func() bool {
		return strings.Contains(operator.Text(), "film/nightly") && strings.Contains(operator.Text(), "confirmed") && hostName.MatchString(operator.Text())
	})
	accessible(operator, "periodic work")
	operator.Go(c.page("h1", "/ui/periodic/film/nightly"))
	operator.Until("the hosts that keep room", func() bool { return hostName.MatchString(operator.Text()) })
	operator.Clean()

	tab.Press("Reject")
	tab.Until("nothing is reserved", func() bool {
		return strings.Contains(tab.Text(), "rejected by") && strings.Contains(tab.Text(), "nothing is reserved")
	})
	tab.Clean()
}
