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
	tag    string // ETag: browsers keep the file, and ask whether it is still this one
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
		if err != nil {
			return err
		}
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = w.Write(whole) // to memory
		_ = w.Close()
		sum := sha256.Sum256(whole)
		out[strings.TrimPrefix(name, "assets/")] = asset{kind: typeOf(name), tag: `"` + hex.EncodeToString(sum[:8]), whole: whole, packed: packed.Bytes()}
		return nil
	})
	if err != nil {
		panic(err) // the folder is embedded
	}
	return out
})

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
	h, body, tag := w.Header(), a.whole, a.tag+`"`
	h.Add("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body, tag = a.packed, a.tag+`-gzip"`
	}
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}
