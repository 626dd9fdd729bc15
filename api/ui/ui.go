// Package ui is the dashboard: pages at /ui/ that show what the API answers, in the browser of a tenant or of an operator.
//
// It has no way to the cluster of its own. Each page asks the API inside the same process, with the token that the browser's session
// holds, so that a page shows and does what that token may, and nothing else. Pages are made by the server; a script keeps them up to
// date (assets/evenkeel.js), and they work without it.
package ui

import (
	"embed"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"

	"evenkeel/api/client"
	"evenkeel/api/oidc/issuer"
	"evenkeel/api/v1"
)

// Root is where the pages begin.
const Root = "/ui/"

//go:embed assets templates
var files embed.FS

// maxForm is the most that a page takes from a browser, bytes: a VC file within a form.
const maxForm = 256 << 10

// policy of what a page may load and run: what comes from this server, in files of its own.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types evenkeel"

// UI serves the pages.
type UI struct {
	Defaults v1.ClusterSettings // that the page of settings shows; set before the first request

	api     http.Handler
	issuer  Issuer // nil: there is none
	log     *slog.Logger
	handler http.Handler
	pages   map[string]*template.Template
	slots   *slots
}

// routes are the pages of those that are logged in.
var routes = map[string]func(*visit) error{
	"GET /ui/{$}":                         overview,
	"GET /ui/hosts":                       hosts,
	"GET /ui/hosts/{name}":                shown("host", readHost),
	"POST /ui/hosts/{name}":               changeHost,
	"GET /ui/virtual-clusters":            virtualClusters,
	"GET /ui/virtual-clusters/{name...}":  shown("virtualcluster", readVC),
	"POST /ui/virtual-clusters/{name...}": changeVirtualCluster,
	"GET /ui/new":                         newVirtualCluster,
	"POST /ui/new":                        createVirtualCluster,
	"GET /ui/vms":                         vms,
	"GET /ui/vms/{name...}":               shown("vm", readVM),
	"POST /ui/vms/{name...}":              changeVM,
	"GET /ui/console/{name...}":           console,
	"GET /ui/plans":                       shown("plans", readPlans),
	"POST /ui/plans":                      propose,
	"GET /ui/plans/{id}":                  plan,
	"POST /ui/plans/{id}":                 changePlan,
	"GET /ui/migrations":                  migrations,
	"GET /ui/migrations/{id}":             shown("migration", readMigration),
	"POST /ui/migrations/{id}":            changeMigration,
	"GET /ui/operations":                  operations,
	"GET /ui/rightsizing":                 shown("rightsizing", readRightsizing),
	"GET /ui/events":                      events,
	"GET /ui/tenants":                     shown("tenants", readTenants),
	"POST /ui/tenants":                    createTenant,
	"GET /ui/tenants/{tenant}":            shown("tenant", readTenant),
	"POST /ui/tenants/{tenant}":           changeTenant,
	"GET /ui/settings":                    shown("settings", readSettings),
	"POST /ui/settings":                   changeSetting,
	"GET /ui/images":                      shown("images", readImages),
	"POST /ui/images":                     changeImages,
	"GET /ui/tokens":                      shown("tokens", readTokens),
	"POST /ui/tokens":                     changeTokens,
	"GET /ui/roles":                       shown("roles", readRoles),
	"POST /ui/roles":                      changeRoles,
	"GET /ui/audit":                       auditLog,
	"GET /ui/simulate":                    simulate,
	"POST /ui/simulate":                   askSimulation,
	"GET /ui/forecast/{name...}":          vmForecast,
	"GET /ui/file/{name...}":              shown("file", readFile),
	"POST /ui/file/{name...}":             changeVCFile,
	"GET /ui/periodic":                    periodicJobs,
	"GET /ui/periodic/{name...}":          shown("periodicjob", readJob),
	"POST /ui/periodic/{name...}":         decidePeriodic,
}

// New makes the pages of an API. at is where browsers can log in beside by token; nil: nowhere.
func New(api http.Handler, at Issuer, log *slog.Logger) *UI {
	u := &UI{api: api, issuer: at, log: log, pages: pages(), slots: newSlots()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ui/assets/", serveAsset)
	mux.HandleFunc("GET /ui/login", u.showLogin)
	mux.HandleFunc("POST /ui/login", u.login)
	mux.HandleFunc("POST /ui/login/issuer", u.goToIssuer)
	mux.HandleFunc("GET "+issuer.CallbackPath, u.fromIssuer)
	mux.HandleFunc("POST /ui/logout", u.logout)
	mux.HandleFunc("GET /ui/stream", u.stream)
	mux.HandleFunc("GET /ui/console-stream/{name...}", u.consoleStream)
	for pattern, page := range routes {
		mux.HandleFunc(pattern, u.page(page))
	}
	mux.HandleFunc("GET /ui/", u.page(func(*visit) error { return notHere }))
	u.handler = http.NewCrossOriginProtection().Handler(mux)
	return u
}

// ServeHTTP implements http.Handler.
func (u *UI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	u.handler.ServeHTTP(w, r)
}

// notHere is a page that does not exist.
var notHere = &client.Error{Problem: v1.Problem{Status: http.StatusNotFound, Title: "There is no such page", Detail: "the address is wrong, or what it named is gone"}}

// visit is one request of a browser that is logged in.
type visit struct {
	ui   *UI
	w    http.ResponseWriter
	r    *http.Request
	api  *client.Client
	form string // its token against forged forms

	// What every page shows.
	Self    v1.Self
	Title   string
	Here    string // path and query of this page
	Problem *v1.Problem
	Done    *v1.Operation // what a form asked for, as far as it is
	Live    bool          // the page follows events
	Retry   bool          // the page asks again by itself: it could not be made now
	Refresh string        // where the page goes on to by itself; "": nowhere
	Version string        // of the page: pages of one address and version are equal
	Data    any
}

// Form is the field that each form carries.
func (v *visit) Form() string { return v.form }

// OfCluster says whether the role is one of the cluster, not of a tenant.
func (v *visit) OfCluster() bool { return v.Self.Tenant == "" }

// May says whether the role may change what the page is about. The API decides; pages leave out forms that it would refuse.
func (v *visit) May() bool {
	return v.Self.Role == "admin" || v.Self.Role == "operator" || v.Self.Role == "owner" || v.Self.Role == "editor"
}

// everyTenant asks for the lists of all tenants, where the role is one of the cluster.
func (v *visit) everyTenant() []client.Option {
	if v.OfCluster() {
		return []client.Option{client.OfTenant(client.AllTenants)}
	}
	return nil
}

// page is the handler of a page: it finds the session, runs the page, and shows what went wrong.
func (u *UI) page(show func(*visit) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token := session(r)
		if token == "" {
			u.toLogin(w, r, "")
			return
		}
		v := &visit{ui: u, w: w, r: r, form: formToken(token), Here: r.URL.RequestURI(), api: u.client(w, r, token)}
		self, err := v.api.Self(r.Context())
		if err == nil {
			var release func()
			if release, err = u.slots.take(r.Context(), self.ID); err == nil {
				defer release()
			}
		}
		if err == nil && r.Method == http.MethodPost {
			err = v.checkForm()
		}
		if err == nil {
			v.Self = self
			err = show(v)
		}
		if err != nil {
			u.fail(v, err)
		}
	}
}

// fail shows a problem. A session whose token is no longer good ends.
func (u *UI) fail(v *visit, err error) {
	var refused *client.Error
	switch {
	case v.r.Context().Err() != nil:
		return // the browser has left
	case errors.As(err, &refused) && refused.Problem.Status == http.StatusUnauthorized:
		u.toLogin(v.w, v.r, "The session ended: its token was revoked, or it expired.")
		return
	}
	v.Title, v.Problem = "Problem", problemOf(err)
	v.Retry = v.r.Method == http.MethodGet && v.Problem.Status >= http.StatusInternalServerError
	u.log.Debug("a page shows a problem", "path", v.r.URL.Path, "error", err)
	u.render(v, v.Problem.Status, "problem")
}

// problemOf an error: the API's own document, or that the server could not be asked.
func problemOf(err error) *v1.Problem {
	var refused *client.Error
	if errors.As(err, &refused) {
		p := refused.Problem
		if p.Status < 400 {
			p.Status = http.StatusBadGateway
		}
		return &p
	}
	return &v1.Problem{Status: http.StatusServiceUnavailable, Title: "The cluster does not answer", Detail: err.Error()}
}

// show a page.
func (v *visit) show(name string) error { return v.showAs(http.StatusOK, name) }

// showAs shows a page with a status: that of a problem that it also shows.
func (v *visit) showAs(status int, name string) error {
	v.ui.render(v, status, name)
	return nil
}

// toLogin sends a browser to the log-in, and from there back to the page that it asked for.
func (u *UI) toLogin(w http.ResponseWriter, r *http.Request, why string) {
	setSession(w, "")
	q := url.Values{}
	if r.Method == http.MethodGet && r.URL.Path != "/ui/stream" {
		q.Set("next", r.URL.RequestURI())
	}
	if why != "" {
		q.Set("ended", "1")
	}
	http.Redirect(w, r, "/ui/login?"+q.Encode(), http.StatusSeeOther)
}

// within says whether an address is one of the pages, to which a log-in may return.
func within(next string) bool {
	at, err := url.Parse(next)
	return err == nil && at.Host == "" && at.Scheme == "" && strings.HasPrefix(next, Root) && strings.HasPrefix(path.Clean(at.Path)+"/", Root)
}
