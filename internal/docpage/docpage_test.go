package docpage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte("top\n<!-- begin x -->\nold\n<!-- end x -->\nbottom\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Part(path, "x", "new", false); err == nil || !strings.Contains(err.Error(), ":3 differs") {
		t.Errorf("a part that differs: %v", err)
	}
	if err := Part(path, "y", "new", true); err == nil {
		t.Error("a part that is not there is no error")
	}
	if err := Part(path, "x", "new", true); err != nil {
		t.Fatal(err)
	}
	if err := Part(path, "x", "new", false); err != nil {
		t.Errorf("after writing: %v", err)
	}
	got, err := os.ReadFile(path)
	if want := "top\n<!-- begin x -->\n\nnew\n\n<!-- end x -->\nbottom\n"; err != nil || string(got) != want {
		t.Errorf("the page is %q (%v), want %q", got, err, want)
	}
	if err := Whole(path, string(got), false); err != nil {
		t.Error(err)
	}
	if err := Whole(path, string(got)+"more", false); err == nil {
		t.Error("a page that differs is no error")
	}
}

func TestRow(t *testing.T) {
	if got := Row("a|b", "c\n d"); got != "| a\\|b | c d |\n" {
		t.Errorf("row %q", got)
	}
}
