package pki

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestJoinToken(t *testing.T) {
	ca := newCA(t, "c", 1)
	token, err := NewJoinToken(ca.Certificate(), seed(2))
	if err != nil {
		t.Fatal(err)
	}
	text := token.Text()
	got, err := ParseJoinToken(text)
	if err != nil || got != token || got.Pin != PinOf(ca.Certificate()) {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, s := range []string{fmt.Sprint(token), fmt.Sprintf("%v %+v %#v %s", token, token, token, token)} {
		if strings.Contains(s, token.Secret) {
			t.Errorf("%q shows the secret", s)
		}
	}
	if hash := HashSecret(token.Secret); len(hash) != 64 || hash == HashSecret(token.Secret+"x") {
		t.Error("hash of the secret")
	}
	parts := strings.Split(text, ".")
	for _, bad := range []string{
		"", "ekj1", text + ".", text + "\n", " " + text, "ekj2" + text[4:], strings.ToUpper(text),
		strings.Join([]string{parts[0], parts[1][1:], parts[2], parts[3]}, "."),
		strings.Join([]string{parts[0], strings.ToUpper(parts[1]) + "", parts[2] + "A", parts[3]}, "."),
		strings.Join([]string{parts[0], parts[1], parts[2] + "\n", parts[3]}, "."),
		strings.Join([]string{parts[0], parts[1], parts[2], parts[3] + "="}, "."),
		strings.Join([]string{parts[0], parts[1], parts[2], ""}, "."),
	} {
		_, err := ParseJoinToken(bad)
		if !errors.Is(err, ErrToken) {
			t.Errorf("%q: %v", bad, err)
		} else if strings.Contains(err.Error(), parts[2]) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

// There is one text for a token: what is taken is written the same.
func FuzzJoinToken(f *testing.F) {
	token, err := NewJoinToken(newCA(f, "c", 1).Certificate(), seed(2))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(token.Text())
	f.Add("ekj1.0000000000000000." + strings.Repeat("A", 43) + "." + strings.Repeat("A", 43))
	f.Add("ekj1.a.b.c")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ParseJoinToken(text)
		if err == nil && token.Text() != text {
			t.Fatalf("%q became %q", text, token.Text())
		}
	})
}
