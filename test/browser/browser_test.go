package browser

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/scratch"
	"evenkeel/test/site"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type cluster struct {
	*site.Site
	t   *testing.T
	api *client.Client
}

func start(t *testing.T, servers int) *cluster {
	t.Helper()
	s, err := site.New(site.Options{Dir: scratch.Dir(t), Hosts: servers, CPU: 4, Memory: 8 << 30})
	must(t, err)
	return run(t, s, servers)
}

// startHosts makes a cluster of one server and so many hosts: on a busy machine a single server does not lose its lead.
func startHosts(t *testing.T, hosts int) *cluster {
	t.Helper()
	s, err := site.New(site.Options{Dir: scratch.Dir(t), Hosts: hosts, CPU: 4, Memory: 8 << 30})
	must(t, err)
	c := run(t, s, 1)
	for i := 2; i <= hosts; i++ {
		must(t, s.Join(t.Context(), fmt.Sprintf("h%d", i), false, true))
	}
	must(t, s.Await(t.Context(), fmt.Sprintf("%d hosts are ready", hosts), func() bool {
		v, err := s.Member("h1").View(t.Context(), false)
		return err == nil && site.Ready(v) == hosts
	}))
	return c
}

// run so many servers of a site.
func run(t *testing.T, s *site.Site, servers int) *cluster {
	t.Helper()
	t.Cleanup(func() { must(t, s.Close()) })
	must(t, s.Servers(t.Context(), servers))
	var addresses []string
	for _, name := range s.Up() {
		addresses = append(addresses, s.Address(name))
	}
	api, err := client.New(client.Config{Address: strings.Join(addresses, ","), Token: site.Token, CAFile: s.CAFile(), Patience: 20 * time.Second})
	must(t, err)
	t.Cleanup(api.Close)
	return &cluster{Site: s, t: t, api: api}
}

func (c *cluster) page(server, path string) string { return "https://" + c.Address(server) + path }

// login on a server, and go to a page.
func (c *cluster) login(b *Browser, server, path, token string) *Tab {
	c.t.Helper()
	tab := b.Open(c.t, c.page(server, path))
	tab.Fill(`input[name=token]`, token)
	tab.Press("Log in")
	tab.Until("the page "+path, func() bool { return tab.At() == path })
	return tab
}

var required = os.Getenv("CI") != ""

// TestOperator walks as an operator does: logs in on a server that does not lead, creates a virtual cluster, scales it until it is
// refused, buys yield with bytes, and empties a host.
func TestOperator(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	c := start(t, 3)
	follower := c.Follower()

	tab := b.Open(t, c.page(follower, "/ui/hosts"))
	tab.Fill(`input[name=token]`, "ekt_0000000000000000.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	tab.Press("Log in")
	tab.Until("a wrong token is refused", func() bool { return tab.At() == "/ui/login" && strings.Contains(tab.Text(), "No valid token") })
	tab.Fill(`input[name=token]`, site.Token)
	tab.Press("Log in")
	tab.Until("the page that was asked for", func() bool { return tab.At() == "/ui/hosts" && strings.Contains(tab.Text(), "h3") })
	tab.Clean()

	tab.Go(c.page(follower, "/ui/new"))
	file := "name: web\nminYield: 0.5\nonFull: reject\ngroups:\n  - {name: vm, count: 2, cpu: 1, memory: 512MiB, image: tiny}\n"
	tab.Fill(`textarea`, strings.Replace(file, "minYield: 0.5", "minYield: 2", 1))
	tab.Press("Check")
	tab.Until("a fault of the file by its field", func() bool { return strings.Contains(tab.Text(), "minYield") && strings.Contains(tab.Text(), "line 2") })
	tab.Fill(`textarea`, file)
	tab.Press("Check")
	tab.Until("what it would do", func() bool { return strings.Contains(tab.Text(), "Nothing was changed") })
	if _, err := c.api.VirtualCluster(t.Context(), "web"); !client.IsProblem(err, v1.ProblemNotFound) {
		t.Fatalf("a check made it: %v", err)
	}
	tab.Press("Create")
	tab.Until("the page of web", func() bool { return tab.At() == "/ui/virtual-clusters/web" })
	tab.Until("web runs, without a reload", func() bool { return strings.Contains(tab.Text(), "2 of 2 VMs running") })
	tab.Clean()

	tab.Fill(`input[name=count]`, "100")
	tab.Press("Scale")
	tab.Until("why it is refused, for each host", func() bool {
		text := tab.Text()
		return strings.Contains(text, "What each host lacks") && strings.Contains(text, "h1") && strings.Contains(text, "h3") && strings.Contains(text, "What would help")
	})
	tab.Fill(`input[name=count]`, "4")
	tab.Press("Scale")
	tab.Until("web is larger", func() bool { return strings.Contains(tab.Text(), "4 of 4 VMs running") })
	tab.Clean()

	tab.Go(c.page(follower, "/ui/plans"))
	tab.Until("the curve", func() bool { return strings.Contains(tab.Text(), "What bytes buy") })
	tab.Clean()

	vms, err := c.api.VMs(t.Context(), "web", "")
	must(t, err)
	full := vms[0].Host
	tab.Go(c.page(follower, "/ui/hosts/"+full))
	tab.Press("Check the drain")
	tab.Until("what the drain would do", func() bool { return strings.Contains(tab.Text(), "The host can be emptied") })
	tab.Press("Drain")
	tab.Until("the host is empty", func() bool { return strings.Contains(tab.Text(), "drained") })
	tab.Clean()
	tab.Go(c.page(follower, "/ui/"))
	tab.Until("the overview", func() bool {
		return strings.Contains(tab.Text(), "Minimum yield") && strings.Contains(tab.Text(), full)
	})
	tab.Go(c.page(follower, "/ui/events"))
	tab.Until("the events", func() bool { return strings.Contains(tab.Text(), "web") })
	tab.Clean()
}

// TestSessionEnds: a token that is revoked ends the session under the open page, on a server that does not lead.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	c := start(t, 3)
	made, err := c.api.MakeToken(t.Context(), v1.TokenRequest{Name: "guest", Role: "operator"})
	must(t, err)
	tab := c.login(b, c.Follower(), "/ui/virtual-clusters", made.Token)
	_, err = c.api.RevokeToken(t.Context(), made.ID)
	must(t, err)
	tab.Until("the log-in, without a reload", func() bool { return tab.At() == "/ui/login" && strings.Contains(tab.Text(), "The session ended") })
}

// TestLeaderStops: the page says that its server is gone, and is back with it.
func TestLeaderStops(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	c := start(t, 3)
	leader := c.Leader()
	tab := c.login(b, leader, "/ui/", site.Token)
	must(t, c.Stop(leader))
	tab.Until("the page says that the connection is lost", func() bool { return strings.Contains(tab.Text(), "connection to the server is lost") })
	must(t, c.Start(leader))
	tab.Until("the page is back", func() bool { return !strings.Contains(tab.Text(), "connection to the server is lost") })
}

// TestTabs: eight tabs of one browser over HTTP/1.1, which allows it six connections, stay up to date, also when vcd starts again.
func TestTabs(t *testing.T) {
	t.Parallel()
	b := Start(t, required, OverHTTP1)
	c := start(t, 1)
	tabs := []*Tab{c.login(b, "h1", "/ui/virtual-clusters", site.Token)}
	for len(tabs) < 8 {
		tabs = append(tabs, b.Open(t, c.page("h1", "/ui/virtual-clusters")))
	}
	shown := func(name string) {
		t.Helper()
		_, err := c.api.Create(t.Context(), v1.VirtualClusterSpec{Name: name, Groups: []v1.GroupSpec{{Name: "vm", CPU: 0.5, Memory: 256 << 20, Image: "tiny"}}})
		must(t, err)
		for i, tab := range tabs {
			tab.Until(fmt.Sprintf("tab %d shows what is new", i), func() bool { return strings.Contains(tab.Text(), name) })
		}
	}
	shown("late")
	must(t, c.Stop("h1"))
	for i, tab := range tabs {
		tab.Inject(`window.same = true;`)
		tab.Until(fmt.Sprintf("tab %d says that the server is gone", i), func() bool { return tab.Is(`!lost.hidden`) })
	}
	must(t, c.Start("h1"))
	shown("later")
	for i, tab := range tabs {
		tab.Until(fmt.Sprintf("tab %d is back, without a reload", i), func() bool { return tab.Is(`lost.hidden && window.same === true`) })
		if protocol := Eval[string](tab, `performance.getEntriesByType("navigation")[0].nextHopProtocol`); protocol != "http/1.1" {
			t.Errorf("tab %d is over %s", i, protocol)
		}
		tab.Clean()
	}
}

// TestHostileTexts: what a tenant writes is shown as text.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	c := start(t, 1)
	_, err := c.api.CreateTenant(t.Context(), v1.TenantRequest{Name: "film", DisplayName: `<img src=x onerror=alert(1)>"><script>document.title="taken"</script>`})
	must(t, err)
	_, err = c.api.Cordon(t.Context(), "h1", `</td><script>document.title="taken"</script><a href="javascript:alert(1)">x</a>`)
	must(t, err)
	tab := c.login(b, "h1", "/ui/tenants", site.Token)
	for _, path := range []string{"/ui/tenants", "/ui/hosts", "/ui/hosts/h1", "/ui/events", "/ui/", `/ui/virtual-clusters?q="><script>document.title="taken"</script>`,
		`/ui/events?name="><script>document.title="taken"</script>`, "/ui/virtual-clusters/%3Cscript%3E"} {
		tab.Go(c.page("h1", path))
		title := Eval[string](tab, `document.title`)
		inside := Eval[int](tab, `document.querySelectorAll("main script, main img, main a[href^='javascript:']").length`)
		if !strings.HasSuffix(title, "· Evenkeel") || inside != 0 {
			t.Errorf("%s: title %q, %d elements of others", path, title, inside)
		}
		tab.Clean()
	}
}

//go:embed testdata/axe/axe.min.js
var axe string

// axeSum is the checksum of axe-core 4.14.1 as npm has it.
const axeSum = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"

// accessible checks that a page breaks no rule of axe-core for WCAG 2.2 AA.
func accessible(tab *Tab, what string) {
	tab.t.Helper()
	tab.Inject(axe)
	faults := Eval[[]string](tab, `axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then((r) => r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.html + " " + n.failureSummary)))`)
	for _, fault := range faults {
		tab.t.Errorf("%s: %s", what, fault)
	}
}

// TestAccessible: no page, in neither theme, breaks a rule of axe-core for WCAG 2.2 AA.
func TestAccessible(t *testing.T) {
	t.Parallel()
	if sum := sha256.Sum256([]byte(axe)); hex.EncodeToString(sum[:]) != axeSum {
		t.Fatalf("axe.min.js is another: %x", sum)
	}
	b := Start(t, required)
	c := start(t, 2)
	spec := v1.VirtualClusterSpec{Name: "web", Groups: []v1.GroupSpec{{Name: "vm", Count: 3, CPU: 1, Memory: 256 << 20, Image: "tiny"}}}
	r, err := c.api.Create(t.Context(), spec)
	must(t, err)
	_, err = c.api.Wait(t.Context(), *r.Operation, nil)
	must(t, err)
	_, err = c.api.CreateTenant(t.Context(), v1.TenantRequest{Name: "film"})
	must(t, err)
	budget := v1.Unlimited
	made, err := c.api.Rebalance(t.Context(), v1.RebalanceRequest{MaxBytes: &budget})
	must(t, err)

	tab := c.login(b, "h1", "/ui/", site.Token)
	check := func(tab *Tab, path, theme string) {
		t.Helper()
		accessible(tab, path+", "+theme)
	}
	paths := []string{"/ui/login", "/ui/", "/ui/hosts", "/ui/hosts/h1", "/ui/virtual-clusters", "/ui/virtual-clusters/web", "/ui/vms", "/ui/vms/web-vm-0", "/ui/console/web-vm-0", "/ui/new", "/ui/plans", "/ui/plans/" + made.Plan.ID,
		"/ui/events", "/ui/tenants", "/ui/tenants/film", "/ui/settings", "/ui/images", "/ui/operations", "/ui/migrations", "/ui/rightsizing", "/ui/tokens", "/ui/roles", "/ui/audit", "/ui/simulate", "/ui/forecast/web-vm-0", "/ui/periodic", "/ui/file/web", "/ui/nothing"}
	for _, theme := range []string{"light", "dark"} {
		tab.Theme(theme)
		for _, path := range paths {
			tab.Go(c.page("h1", path))
			check(tab, path, theme)
		}
		tab.Go(c.page("h1", "/ui/virtual-clusters/web"))
		tab.Fill(`input[name=count]`, "100")
		tab.Press("Scale")
		tab.Until("a refusal", func() bool { return strings.Contains(tab.Text(), "What each host lacks") })
		check(tab, "a refusal", theme)
	}
	for _, width := range []int64{375, 1920} {
		tab.Width(width)
		for _, path := range paths {
			tab.Go(c.page("h1", path))
			if wide := Eval[int](tab, `document.documentElement.scrollWidth`); int64(wide) > width {
				t.Errorf("%s at a width of %d takes %d", path, width, wide)
			}
		}
	}
}

// TestTenantsPages: the pages of a tenant have no name of a host, and nothing of another tenant.
func TestTenantsPages(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	c := start(t, 2)
	for _, tenant := range []string{"film", "bank"} {
		_, err := c.api.CreateTenant(t.Context(), v1.TenantRequest{Name: tenant})
		must(t, err)
		spec := v1.VirtualClusterSpec{Name: "of-" + tenant, Groups: []v1.GroupSpec{{Name: "vm", Count: 2, CPU: 1, Memory: 256 << 20, Image: "tiny"}}}
		r, err := c.api.Create(t.Context(), spec, client.OfTenant(tenant))
		must(t, err)
		_, err = c.api.Wait(t.Context(), *r.Operation, nil)
		must(t, err)
	}
	token, err := c.api.MakeToken(t.Context(), v1.TokenRequest{Name: "of film", Role: "owner", Tenant: "film"})
	must(t, err)
	tab := c.login(b, "h1", "/ui/virtual-clusters", token.Token)
	for _, path := range []string{"/ui/", "/ui/hosts", "/ui/hosts/h1", "/ui/virtual-clusters", "/ui/virtual-clusters/of-film", "/ui/virtual-clusters/of-bank", "/ui/virtual-clusters/bank/of-bank",
		"/ui/vms", "/ui/vms/of-film-vm-0", "/ui/vms/bank/of-bank-vm-0", "/ui/console/of-film-vm-0", "/ui/console/bank/of-bank-vm-0", "/ui/vms?q=bank", "/ui/new", "/ui/plans", "/ui/events", "/ui/tenants", "/ui/tenants/bank", "/ui/settings", "/ui/images", "/ui/operations", "/ui/migrations", "/ui/rightsizing", "/ui/tokens", "/ui/roles", "/ui/audit", "/ui/simulate", "/ui/forecast/of-film-vm-0", "/ui/forecast/bank/of-bank-vm-0",
		"/ui/periodic", "/ui/file/of-film", "/ui/file/of-bank", "/ui/file/bank/of-bank"} {
		tab.Go(c.page("h1", path))
		page := Eval[string](tab, `document.body.outerHTML.replace(/<\/?h[12]\b/g, "<heading")`)
		if path != "/ui/hosts/h1" && hostName.MatchString(page) {
			t.Errorf("%s names a host: %s", path, page)
		}
		text := strings.ReplaceAll(tab.Text(), "bank/of-bank", "")
		if strings.Contains(strings.ReplaceAll(text, "of-bank", "of another"), "bank") && !strings.Contains(path, "bank") {
			t.Errorf("%s names another tenant: %s", path, text)
		}
	}
	tab.Go(c.page("h1", "/ui/virtual-clusters/of-film"))
	tab.Fill(`input[name=count]`, "100")
	tab.Press("Scale")
	tab.Until("a refusal", func() bool {
		return strings.Contains(tab.Text(), "of 100 VMs fit") || strings.Contains(tab.Text(), "Refused")
	})
	if text := tab.Text(); hostName.MatchString(text) {
		t.Errorf("a refusal names a host: %s", text)
	}
}

var hostName = regexp.MustCompile(`\bh[12]\b`)
