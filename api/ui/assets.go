package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

// asset is a file of the program that browsers load, also packed by gzip.
type asset struct {
	kind   string // media type
	tag    string // of the content
	whole  []byte
	packed []byte
}

// assets by their paths below /ui/assets/. They are the same in all servers of a program.
var assets = sync.OnceValue(func() map[string]asset {
	out := map[string]asset{}
	err := fs.WalkDir(files, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		whole, err := files.ReadFile(name)
		if err == nil {
			out[strings.TrimPrefix(name, "assets/")] = assetOf(name, whole)
		}
		return err
	})
	if err != nil {
		panic(err) // the folder is embedded
	}
	for name, parts := range joined {
		var whole []byte
		for _, part := range parts {
			whole = append(append(whole, out[part].whole...), '\n')
		}
		out[name] = assetOf(name, whole)
	}
	return out
})

// joined are files that are sent as one, so that a page needs few requests. They are parts one after the other, unchanged.
var joined = map[string][]string{
	"evenkeel.css":    {"evenkeel.css", "xterm/xterm.css"},
	"with-console.js": {"evenkeel.js", "xterm/xterm.js", "console.js"},
}

func assetOf(name string, whole []byte) asset {
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // a level that there is
	_, _ = w.Write(whole)                                      // to memory
	_ = w.Close()
	sum := sha256.Sum256(whole)
	return asset{kind: typeOf(name), tag: hex.EncodeToString(sum[:8]), whole: whole, packed: packed.Bytes()}
}

// assetAddress is where pages load a file from. It names the content, so that browsers need not ask again for what they have.
func assetAddress(name string) string { return "/ui/assets/" + name + "?v=" + assets()[name].tag }

// typeOf a file by its name, whatever this machine's table says.
func typeOf(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case "":
		return "text/plain; charset=utf-8"
	}
	return mime.TypeByExtension(path.Ext(name))
}

func serveAsset(w http.ResponseWriter, r *http.Request) {
	a, found := assets()[strings.TrimPrefix(r.URL.Path, "/ui/assets/")]
	if !found {
		http.NotFound(w, r)
		return
	}
	h, body, tag := w.Header(), a.whole, `"`+a.tag+`"`
	h.Add("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body, tag = a.packed, `"`+a.tag+`-gzip"`
	}
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", "no-cache")
	if r.URL.Query().Get("v") == a.tag {
		h.Set("Cache-Control", "private, max-age=31536000, immutable")
	}
	h.Set("ETag", tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}
