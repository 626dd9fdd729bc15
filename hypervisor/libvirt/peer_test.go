package libvirt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"libvirt.org/go/libvirt"

	"evenkeel/hypervisor"
)

func TestKeysFor(t *testing.T) {
	system := keys{"/etc/pki/CA/cacert.pem", "/etc/pki/libvirt/clientcert.pem", "/etc/pki/libvirt/private/clientkey.pem"}
	for to, want := range map[string]keys{
		"qemu+tls://192.0.2.12:16514/system":                 system,
		"qemu://h2/system":                                   system, // libvirt's default is TLS
		"qemu+tls://h2/system?pkipath=/etc/keys&no_verify=1": {"/etc/keys/cacert.pem", "/etc/keys/clientcert.pem", "/etc/keys/clientkey.pem"},
		"qemu+tcp://h2/system":                               {},
		"qemu+ssh://root@h2/system":                          {},
		"qemu:///system":                                     {},
		"h2":                                                 {},
		"::":                                                 {},
	} {
		if got := keysFor(to); got != want {
			t.Errorf("%s: %+v, want %+v", to, got, want)
		}
	}
}

// The cause of a failed attempt is named right: a file of this host is never the other side's fault.
func TestObstacleOf(t *testing.T) {
	const tls, tcp = "qemu+tls://h2/system", "qemu+tcp://h2/system"
	const ca, cert, key = "/etc/pki/CA/cacert.pem", "/etc/pki/libvirt/clientcert.pem", "/etc/pki/libvirt/private/clientkey.pem"
	says := func(text string) error {
		return libvirt.Error{Code: libvirt.ERR_SYSTEM_ERROR, Domain: libvirt.FROM_RPC, Message: text}
	}
	refused := says("unable to connect to server at 'h2:16514': Connection refused")
	ended := says("End of file while reading data: Input/output error")
	for _, tc := range []struct {
		name, to string
		missing  []string
		err      error
		want     hypervisor.Obstacle
	}{
		{"all is well", tls, nil, nil, hypervisor.Obstacle{}},
		{"a server that asks for no certificate", tls, []string{cert, key}, nil, hypervisor.Obstacle{}},
		{"no CA", tls, []string{ca}, says("Cannot read CA certificate '" + ca + "': No such file or directory"), hypervisor.Obstacle{Why: ca + " is missing", Here: true}},
		{"no CA, and the other side is down", tls, []string{ca}, refused, hypervisor.Obstacle{Why: ca + " is missing", Here: true}},
		{"no certificate", tls, []string{cert, key}, ended, hypervisor.Obstacle{Why: cert + ", " + key + " are missing", Here: true}},
		{"no certificate, and the other side is down", tls, []string{cert}, refused, hypervisor.Obstacle{Why: refused.(libvirt.Error).Message}},
		{"no certificate, and no answer", tls, []string{cert}, fmt.Errorf("%w for 10s", errSilent), hypervisor.Obstacle{Why: "no answer for 10s"}},
		{"a certificate that has expired", tls, nil, says("The client certificate " + cert + " has expired"), hypervisor.Obstacle{Why: "The client certificate " + cert + " has expired", Here: true}},
		{"theirs is of another host", tls, nil, says("Certificate check failed Certificate owner does not match the hostname h2"),
			hypervisor.Obstacle{Why: "Certificate check failed Certificate owner does not match the hostname h2"}},
		{"plain TCP", tcp, nil, refused, hypervisor.Obstacle{Why: refused.(libvirt.Error).Message}},
		{"no error of libvirt's", tcp, nil, errors.New("odd"), hypervisor.Obstacle{Why: "odd"}},
	} {
		if got := obstacleOf(tc.to, tc.missing, tc.err); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func TestMissingOf(t *testing.T) {
	k := keys{"ca", "cert", "key"}
	if got := missingOf(k, func(name string) bool { return name != "cert" }); !slices.Equal(got, []string{"ca", "key"}) {
		t.Errorf("%v", got)
	}
	if got := missingOf(keys{}, func(string) bool { return true }); got != nil {
		t.Errorf("no keys are needed: %v", got)
	}
}

// A migration that fails for a file of this host says so, and not that the target's libvirt was lost.
func TestExplainPeer(t *testing.T) {
	const to = "qemu+tls://h2/system?pkipath=/nowhere/keys"
	bare := libvirt.Error{Code: libvirt.ERR_SYSTEM_ERROR, Domain: libvirt.FROM_RPC, Message: "Cannot read CA certificate '/nowhere/keys/cacert.pem': No such file or directory"}
	err := translate(nil, bare)
	if !errors.Is(err, hypervisor.ErrUnavailable) {
		t.Fatalf("as libvirt's errors are taken: %v", err)
	}
	got := explainPeer(to, []string{"/nowhere/keys/cacert.pem"}, err).Error()
	if strings.Contains(got, "target") || strings.Contains(got, hypervisor.ErrUnavailable.Error()) || !strings.Contains(got, "/nowhere/keys/cacert.pem is missing") {
		t.Errorf("%s", got)
	}
	lost := translate(nil, libvirt.Error{Code: libvirt.ERR_SYSTEM_ERROR, Domain: libvirt.FROM_RPC, Message: "End of file while reading data: Input/output error"})
	if got := explainPeer(to, nil, lost).Error(); !strings.Contains(got, "the target's libvirt was lost, or cannot be reached") {
		t.Errorf("%s", got)
	}
}
