package v1

import (
	"errors"
	"testing"
)

func TestRequestsRefuse(t *testing.T) {
	scale := func(s string) error { _, err := Decode[ScaleRequest]([]byte(s)); return err }
	image := func(s string) error { _, err := Decode[ImageSpec]([]byte(s)); return err }
	cordon := func(s string) error { _, err := Decode[CordonRequest]([]byte(s)); return err }
	for _, c := range []struct {
		parse      func(string) error
		doc, field string
	}{
		{scale, `{}`, "count"},
		{scale, `{"group":"w"}`, "count"},
		{scale, `{"count":0}`, "count"},
		{scale, `{"count":1.5}`, "count"},
		{scale, `{"cpu":-1}`, "cpu"},
		{scale, `{"cpu":1e999}`, "cpu"},
		{scale, `{"memory":"1GB"}`, "memory"},
		{scale, `{"size":3}`, "size"},
		{scale, `{"group":"a/b","count":1}`, "group"},
		{scale, `[`, ""},
		{image, `{"name":"a","kind":"disk"}`, "file"},
		{image, `{"name":"a","kind":"floppy","file":"/a"}`, "kind"},
		{image, `{"name":"a/b","kind":"disk","file":"/a"}`, "name"},
		{image, `{"name":"a","kind":"disk","file":"a"}`, "file"},
		{image, `{"name":"a","kind":"disk","file":"/a/../b"}`, "file"},
		{image, `{"name":"a","kind":"disk","file":"/a//b"}`, "file"},
		{image, `{"name":"a","kind":"disk","file":"/a\u0000b"}`, "file"},
		{image, `{"name":"a","kind":"disk","file":"/"}`, "file"},
		{image, `{"name":"a","kind":"disk","file":"/a","cmdline":"x"}`, "cmdline"},
		{cordon, `{"why":"x"}`, "why"},
		{cordon, `{"reason":1}`, "reason"},
	} {
		var inv *Invalid
		if err := c.parse(c.doc); !errors.As(err, &inv) || inv.Fields[0].Field != c.field {
			t.Errorf("%s: got %v, want a fault of %s", c.doc, err, c.field)
		}
	}
	if _, err := Decode[CordonRequest](nil); err != nil {
		t.Errorf("an empty cordon: %v", err)
	}
	if s, err := Decode[ScaleRequest]([]byte(`{"group":"w","count":3,"cpu":0.5,"memory":"1GiB"}`)); err != nil || *s.Count != 3 || *s.CPU != 0.5 || *s.Memory != 1<<30 {
		t.Errorf("scale: %+v, %v", s, err)
	}
	if i, err := Decode[ImageSpec]([]byte(`{"name":"k_1.2","kind":"kernel","file":"/boot/vmlinuz-6.1","initrd":"i","cmdline":"quiet"}`)); err != nil || i.File != "/boot/vmlinuz-6.1" {
		t.Errorf("image: %+v, %v", i, err)
	}
}
