package ui

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"evenkeel/api/oidc/issuer"
	"evenkeel/api/v1"
)

// Issuer is the OpenID Connect provider of the API, as browsers log in there. *oidc.Verifier is one.
type Issuer interface {
	// RedirectAt is the redirect URI for browsers that name this server so (host, or host:port); "": there is none.
	RedirectAt(host string) string
	// BeginLogin is the address at the issuer to which the browser goes.
	BeginLogin(b issuer.BrowserLogin) (string, error)
	// CheckLogin returns the code in what the issuer sent back with the browser of a log-in.
	CheckLogin(b issuer.BrowserLogin, answer url.Values) (code string, err error)
	// FinishLogin asks the issuer for the token for the API, with the code that a browser at a client address (host:port) brought. The error is
	// issuer.ErrBusy if too many log-ins are under way.
	FinishLogin(ctx context.Context, b issuer.BrowserLogin, code, from string) (string, error)
}

// pending is the cookie of a log-in that is under way. It is for this browser, serves once, and must come along when the issuer sends
// the browser back (SameSite=Lax). The cookie alone is no session: that also takes the issuer's code.
const pending = "__Host-evenkeel-login"

// pendingFor is how long a person may take at the issuer.
const pendingFor = 10 * time.Minute

// The issuer is asked while the browser waits: for its turn, and for the answer of the issuer. Strangers have less time to take an answer.
const (
	finishTime  = 14 * time.Second
	finishWrite = finishTime + time.Second
)

// maxNext is the longest address to which a log-in returns, bytes.
const maxNext = 2 << 10

// leaving is what a page shows that passes the browser on.
type leaving struct {
	To   string
	Text string
}

// byIssuer says whether a browser that asked so can log in at the issuer.
func (u *UI) byIssuer(r *http.Request) bool {
	return u.issuer != nil && u.issuer.RedirectAt(r.Host) != ""
}

func endPending(w http.ResponseWriter) {
	http.SetCookie(w, &http.Cookie{Name: pending, Path: "/", MaxAge: -1, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode})
}

// goToIssuer begins a log-in at the issuer. It is a POST, which other sites cannot have a browser send (CrossOriginProtection). The page
// passes the browser on: a redirect of a form would need the policy to name all sites that the issuer passes it on to in turn.
func (u *UI) goToIssuer(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
	_ = readForm(w, r) // what was not read names no page to return to
	if !u.byIssuer(r) {
		u.loginFailed(w, r, http.StatusNotFound, errors.New("oidc.redirectURIs in vcd.yaml has none for https://"+r.Host))
		return
	}
	next := r.PostForm.Get("next")
	if !within(next) || len(next) > maxNext {
		next = Root
	}
	secret := rand.Text()
	to, err := u.issuer.BeginLogin(issuer.BrowserLogin{Secret: secret, Redirect: u.issuer.RedirectAt(r.Host)})
	if err != nil {
		u.loginFailed(w, r, http.StatusServiceUnavailable, err)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: pending, Value: secret + "." + base64.RawURLEncoding.EncodeToString([]byte(next)), Path: "/",
		MaxAge: int(pendingFor / time.Second), Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode})
	u.leave(w, r, "Log in", leaving{to, "You are taken to the provider that your site logs in with."})
}

// fromIssuer finishes a log-in: the issuer sent the browser back. The cookie of the session is for requests from this site alone
// (SameSite=Strict), which this one is not: the page asks for the next itself.
func (u *UI) fromIssuer(w http.ResponseWriter, r *http.Request) {
	endPending(w)
	c, err := r.Cookie(pending)
	if err != nil || !u.byIssuer(r) {
		u.loginFailed(w, r, http.StatusForbidden, issuer.ErrNotAsked)
		return
	}
	secret, after, _ := strings.Cut(c.Value, ".")
	to, err := base64.RawURLEncoding.DecodeString(after)
	next := string(to)
	if err != nil || !within(next) {
		next = Root
	}
	if len(secret) < len(rand.Text()) { // another server of this host name has set it
		secret = ""
	}
	b := issuer.BrowserLogin{Secret: secret, Redirect: u.issuer.RedirectAt(r.Host)}
	code, err := u.issuer.CheckLogin(b, r.URL.Query())
	if err != nil {
		u.loginFailed(w, r, http.StatusForbidden, err)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(finishWrite)) // a writer without deadlines is a test's
	ctx, cancel := context.WithTimeout(r.Context(), finishTime)
	defer cancel()
	token, err := u.issuer.FinishLogin(ctx, b, code, r.RemoteAddr)
	if errors.Is(err, issuer.ErrBusy) {
		u.loginFailed(w, r, http.StatusServiceUnavailable, err)
		return
	}
	if err != nil {
		u.loginFailed(w, r, http.StatusForbidden, err)
		return
	}
	if problem := u.begin(w, r, token); problem != nil {
		u.render(&visit{w: w, r: r, Title: "Log in", Problem: problem, Data: loginData{Next: next, ByIssuer: true}}, problem.Status, "login")
		return
	}
	u.leave(w, r, "Logged in", leaving{next, "You are logged in."})
}

func (u *UI) leave(w http.ResponseWriter, r *http.Request, title string, to leaving) {
	u.render(&visit{w: w, r: r, Title: title, Refresh: to.To, Data: to}, http.StatusOK, "leave")
}

func (u *UI) loginFailed(w http.ResponseWriter, r *http.Request, status int, err error) {
	level := slog.LevelInfo
	if errors.Is(err, issuer.ErrBusy) || errors.Is(err, issuer.ErrNotAsked) { // strangers bring these about at will
		level = slog.LevelDebug
	}
	u.log.Log(r.Context(), level, "a log-in of a browser at the issuer failed", "remote", r.RemoteAddr, "error", err)
	problem := &v1.Problem{Status: status, Title: "The log-in failed", Detail: err.Error()}
	u.render(&visit{w: w, r: r, Title: "Log in", Problem: problem, Data: loginData{ByIssuer: u.byIssuer(r)}}, status, "login")
}
