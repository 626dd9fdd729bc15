package server

import (
	"strings"
	"testing"
	"time"

	"evenkeel/api/v1"
)

// A certificate that its member should have renewed is a condition, and one that expired a critical one.
func TestConditionOfACertificate(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	for left, want := range map[time.Duration]string{30 * 24 * time.Hour: "", 11 * 24 * time.Hour: "", 5 * 24 * time.Hour: "warning", -time.Hour: "critical"} {
		var l conditions
		l.certificate(v1.Member{Name: "h1", CertificateUntil: now.Add(left)}, now)
		switch {
		case want == "" && len(l) > 0:
			t.Errorf("%s left: %+v", left, l)
		case want != "" && (len(l) != 1 || l[0].Severity != want || !strings.Contains(l[0].Command, "join-token --for h1")):
			t.Errorf("%s left: %+v", left, l)
		}
	}
	var l conditions
	if l.certificate(v1.Member{Name: "h2"}, now); len(l) > 0 {
		t.Errorf("of a PKI of one's own nothing is known: %+v", l)
	}
}
