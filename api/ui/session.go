package ui

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// cookie holds the token of a session. No script can read it, no other site makes a browser send it, and the browser forgets it when it
// ends. The API takes no cookies, so that a page of another site can do nothing with one.
const cookie = "__Host-evenkeel"

// maxToken is the longest token of a session, bytes; partOf it is in one cookie. Browsers take 4,096 bytes of name and value at most.
const (
	maxToken = 15 << 10
	partOf   = 3840
)

// maxLogin is the most that a stranger may send, bytes: a token and the page to return to, as a form.
const maxLogin = 16 << 10

// cookieOf a part of the token.
func cookieOf(part int) string {
	if part == 0 {
		return cookie
	}
	return cookie + "-" + strconv.Itoa(part)
}

// session is the token of a request; "": there is none.
func session(r *http.Request) string {
	var token strings.Builder
	for part := 0; part*partOf < maxToken; part++ {
		c, err := r.Cookie(cookieOf(part))
		if err != nil || c.Value == "" {
			break
		}
		if token.WriteString(c.Value); len(c.Value) < partOf {
			break
		}
	}
	if token.Len() > maxToken {
		return ""
	}
	return token.String()
}

// setSession to a token; "" ends it. Parts of the token before go.
func setSession(w http.ResponseWriter, token string) {
	for part := 0; part*partOf < maxToken; part++ {
		c := http.Cookie{Name: cookieOf(part), Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode}
		if c.Value = token[:min(partOf, len(token))]; c.Value == "" {
			c.MaxAge = -1
		}
		token = token[len(c.Value):]
		http.SetCookie(w, &c)
	}
}

// formToken is in each form of a session: who can make it has the token.
func formToken(token string) string {
	h := hmac.New(sha256.New, []byte(token))
	h.Write([]byte("forms of the dashboard"))
	return hex.EncodeToString(h.Sum(nil))
}

// checkForm reads the form of a request, which must come from a page of this session.
func (v *visit) checkForm() error {
	if err := readForm(v.w, v.r); err != nil {
		return refuse(http.StatusRequestEntityTooLarge, "The form was not read", err.Error())
	}
	if !hmac.Equal([]byte(v.r.PostForm.Get("form")), []byte(v.form)) {
		return refuse(http.StatusForbidden, "The form is of another session", "load the page again, and send it again")
	}
	return nil
}

// readForm reads the form of a request, which must come within formTimeout.
func readForm(w http.ResponseWriter, r *http.Request) error {
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(formTimeout)) // a writer without deadlines is a test's
	if err := r.ParseForm(); err != nil {
		w.Header().Set("Connection", "close") // the rest is not waited for
		return err
	}
	_ = conn.SetReadDeadline(time.Time{})
	return nil
}

func refuse(status int, title, detail string) error {
	return &client.Error{Problem: v1.Problem{Status: status, Title: title, Detail: detail}}
}

type loginData struct {
	Next     string
	Ended    bool
	ByIssuer bool // the browser can log in at an issuer
}

func (u *UI) showLogin(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	v := &visit{w: w, r: r, Title: "Log in", Data: loginData{Next: q.Get("next"), Ended: q.Has("ended"), ByIssuer: u.byIssuer(r)}}
	u.render(v, http.StatusOK, "login")
}

// login takes a token as the session's, if the API does.
func (u *UI) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
	_ = readForm(w, r) // what was not read has no token
	token := strings.TrimSpace(r.PostForm.Get("token"))
	next := r.PostForm.Get("next")
	if problem := u.begin(w, r, token); problem != nil {
		u.render(&visit{w: w, r: r, Title: "Log in", Problem: problem, Data: loginData{Next: next, ByIssuer: u.byIssuer(r)}}, problem.Status, "login")
		return
	}
	if !within(next) {
		next = Root
	}
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// begin a session with a token, if the API takes it; else it says why not.
func (u *UI) begin(w http.ResponseWriter, r *http.Request, token string) *v1.Problem {
	if token == "" || len(token) > maxToken || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`",;\`, c) }) {
		return &v1.Problem{Status: http.StatusUnprocessableEntity, Title: "That is no token", Detail: "paste all of it, as vcctl token create printed it"}
	}
	if _, err := u.client(w, r, token).Self(r.Context()); err != nil {
		return problemOf(err)
	}
	setSession(w, token)
	return nil
}

func (u *UI) logout(w http.ResponseWriter, r *http.Request) {
	setSession(w, "")
	http.Redirect(w, r, "/ui/login", http.StatusSeeOther)
}
