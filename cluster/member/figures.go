package member

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"evenkeel/cluster/pki"
)

// Metrics are the metrics of this server itself, for monitoring.
type Metrics struct {
	Leads   bool
	Contact time.Duration // since it received something from the leader; 0 on the leader itself, negative: never
	// SlowLog is the time spent in slow appends to its log: see node.Appends.
	SlowLog time.Duration
	// DiskFree and DiskSize are of the file system with its log, bytes.
	DiskFree, DiskSize uint64
	// SnapshotEvery is 0 where none are saved at intervals; SnapshotAt is zero before the first.
	SnapshotEvery time.Duration
	SnapshotAt    time.Time
	Certificates  []CertificateMetrics
}

// CertificateMetrics say for how long a certificate is valid.
type CertificateMetrics struct {
	Member      string // its name; "cluster" for that of the CA
	CA          bool
	Until, From time.Time
}

// Metrics returns the metrics of this server.
func (m *Member) Metrics() (Metrics, error) {
	here, _ := m.Leader()
	stats := m.node.Stats()
	out := Metrics{Leads: here, Contact: stats.Contact, SlowLog: stats.Appends.Slow}
	if m.backups != nil {
		out.SnapshotEvery = m.o.Backups.Every
		out.SnapshotAt, _ = m.backups.Last()
	}
	leaf := m.certificates.Leaf()
	out.Certificates = append(out.Certificates, CertificateMetrics{Member: m.identity.Name, From: leaf.NotBefore, Until: leaf.NotAfter})
	for i, ca := range m.certificates.CAs() {
		if i == 0 || ca.NotAfter.After(out.Certificates[1].Until) {
			out.Certificates = append(out.Certificates[:1], CertificateMetrics{Member: "cluster", CA: true, From: ca.NotBefore, Until: ca.NotAfter})
		}
	}
	for _, row := range m.State.Snapshot().Members() {
		var until time.Time
		for _, s := range row.Serials {
			if s.Until.After(until) {
				until = s.Until
			}
		}
		if row.Name != m.identity.Name && !until.IsZero() { // of a PKI of the operator's own it is not known how long it was to last
			out.Certificates = append(out.Certificates, CertificateMetrics{Member: row.Name, From: until.Add(-pki.DefaultLife), Until: until})
		}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(m.o.Dir, &fs); err != nil {
		return out, fmt.Errorf("room in %s: %w", m.o.Dir, err)
	}
	out.DiskFree, out.DiskSize = fs.Bavail*uint64(fs.Bsize), fs.Blocks*uint64(fs.Bsize) //nolint:gosec // sizes are not negative
	return out, nil
}
