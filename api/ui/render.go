package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
)

// noVersion stands for the version of a page while it is made.
const noVersion = "0000000000000000000000000000000000000000000000000000000000000000"

// minPacked is the smallest page that is worth packing, bytes: a smaller one is one packet anyway.
const minPacked = 1 << 10

// render a page whole before anything is sent. A browser that names the version that it has (If-None-Match) gets no page, but 304, if
// the page is still that one.
func (u *UI) render(v *visit, status int, name string) {
	var out bytes.Buffer
	v.Version = noVersion
	if err := u.pages[name].ExecuteTemplate(&out, "page", v); err != nil {
		u.log.Error("make a page", "page", name, "error", err)
		http.Error(v.w, "the server's log has the details", http.StatusInternalServerError)
		return
	}
	sum := sha256.Sum256(out.Bytes())
	version := hex.EncodeToString(sum[:])
	h, page := v.w.Header(), out.Bytes()
	if at := bytes.Index(page, []byte(noVersion)); at >= 0 {
		copy(page[at:], version)
	}
	h.Set("ETag", `W/"`+version+`"`)
	if status == http.StatusOK && v.r.Method == http.MethodGet && v.r.Header.Get("If-None-Match") == h.Get("ETag") {
		v.w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Add("Vary", "Accept-Encoding, Sec-Fetch-Site")
	if len(page) >= minPacked && mayPack(v.r) {
		h.Set("Content-Encoding", "gzip")
		page = pack(page)
	}
	v.w.WriteHeader(status)
	_, _ = v.w.Write(page) // an error here means that the browser is gone: there is no one to report it to
}

// mayPack says whether an answer may be packed. One that another site makes a browser ask for may not: that site could learn what the page
// says from how its size changes with what the site adds to the address (the BREACH attack).
func mayPack(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") && (site == "same-origin" || site == "none")
}

// pack by gzip, fast: pages are made for one look.
func pack(b []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed) // a level that there is
	_, _ = w.Write(b)                                 // to memory
	_ = w.Close()
	return out.Bytes()
}
